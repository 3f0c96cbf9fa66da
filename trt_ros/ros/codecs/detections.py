"""Codec of detections."""

from collections.abc import Callable
from typing import Any

from rclpy.node import Node
from vision_msgs.msg import Detection2DArray

from trt_ros.ros.class_ids import ClassIds
from trt_ros.ros.codecs.codec import Codec, Content
from trt_ros.ros.messages import read_boxes, read_message


class DetectionCodec(Codec):
    """Detections of one topic, in images or in space; the values are messages."""

    message_type: type = Detection2DArray
    is_copied = True

    def __init__(self, node: Node, topic: str, message_type: type = Detection2DArray) -> None:
        super().__init__(node, topic)
        self.message_type = message_type

    def reader(self) -> Callable[[Any], Content]:
        def read(message: Any) -> Content:
            found: Any = read_message(message, self.message_type)
            stamp = found.header.stamp
            return Content(found, found.header.frame_id, (stamp.sec, stamp.nanosec))

        return read


class BoxCodec(DetectionCodec):
    """Detections in images; the values are boxes."""

    def __init__(self, node: Node, topic: str, class_ids: ClassIds) -> None:
        super().__init__(node, topic)
        self._class_ids = class_ids

    def reader(self) -> Callable[[Any], Content]:
        return lambda message: Content(read_boxes(message, self._class_ids), '', (0, 0))
