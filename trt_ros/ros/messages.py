"""Results and pictures as messages, as other nodes expect them."""

from __future__ import annotations

from collections.abc import Callable, Sequence

import numpy as np
from rclpy.impl.implementation_singleton import rclpy_implementation
from rclpy.node import Node
from rclpy.publisher import Publisher
from rclpy.qos import DurabilityPolicy, QoSProfile
from rclpy.serialization import deserialize_message
from std_msgs.msg import Header
from vision_msgs.msg import (
    BoundingBox2D,
    Detection2D,
    Detection2DArray,
    LabelInfo,
    ObjectHypothesis,
    ObjectHypothesisWithPose,
    Point2D,
    Pose2D,
    VisionClass,
)

from trt_ros.ros.cdr import ImageWriter
from trt_ros.ros.cdr_detections import DetectionWriter, bounding_boxes
from trt_ros.ros.transport import serialized_publish
from trt_ros.vision.detections import Detections
from trt_ros.vision.labels import name_of
from trt_ros.vision.results import OrientedBoxes

#: For what is said once: whoever subscribes later gets it too.
LATCHED = QoSProfile(depth=1, durability=DurabilityPolicy.TRANSIENT_LOCAL)


def to_detection_array(
        detections: Detections | OrientedBoxes, header: Header, class_names: Sequence[str], *,
        class_id_format: str) -> Detection2DArray:
    """
    Say detections as a message; boxes in source-image pixels, best score first, maybe none.

    :param header: the image's own, also given to each detection.
    :param class_id_format: 'name' (the number where there is no name) or 'index'.
    """
    # Plain floats: a message field takes no NumPy scalar.
    boxes, scores = bounding_boxes(detections).tolist(), detections.scores.tolist()
    array = Detection2DArray(header=header)
    for (x, y, theta, width, height), score, label in zip(
            boxes, scores, detections.labels.tolist()):
        class_id = name_of(class_names, label) if class_id_format == 'name' else str(label)
        array.detections.append(Detection2D(
            header=header,
            results=[ObjectHypothesisWithPose(
                hypothesis=ObjectHypothesis(class_id=class_id, score=score))],
            bbox=BoundingBox2D(
                center=Pose2D(position=Point2D(x=x, y=y), theta=theta), size_x=width,
                size_y=height)))
    return array


def detection_publish(
        node: Node, publisher: Publisher,
        class_names: Sequence[str],
        ) -> Callable[[Detections | OrientedBoxes, Header, str], None]:
    """
    Return what publishes detections under a header, with class ids as a `class_id_format` says.

    They are written as bytes, a tenth of the work of rclpy's messages; where that is not what
    rclpy reads (another vision_msgs), they are those messages. For one thread at a time.
    """
    writer = DetectionWriter(class_names)
    if not _is_read_by_rclpy(writer):
        node.get_logger().warning(
            "Detections are published as rclpy's messages, which is slow. Cause: this "
            'vision_msgs lays them out in another way.')
        return lambda found, header, class_id_format: publisher.publish(to_detection_array(
            found, header, class_names, class_id_format=class_id_format))
    publish = serialized_publish(node, publisher)

    def write_and_publish(
            found: Detections | OrientedBoxes, header: Header, class_id_format: str) -> None:
        stamp = header.stamp.sec, header.stamp.nanosec
        publish(writer.write(found, stamp, header.frame_id, class_id_format=class_id_format))
    return write_and_publish


def _is_read_by_rclpy(writer: DetectionWriter) -> bool:
    found = OrientedBoxes(
        np.arange(8, dtype=np.float32).reshape(2, 4), np.array([0.25, -0.5], np.float32),
        np.array([0.75, 0.5], np.float32), np.array([10, 2], np.int32))
    header = Header(frame_id='camera')
    header.stamp.sec, header.stamp.nanosec = 1, 2
    written = writer.write(found, (1, 2), header.frame_id, class_id_format='index')
    try:
        read = deserialize_message(written.tobytes(), Detection2DArray)
    except rclpy_implementation.RCLError:
        return False
    return read == to_detection_array(found, header, (), class_id_format='index')


def from_detection_array(
        message: Detection2DArray, class_ids: list[str]) -> Detections | OrientedBoxes:
    """
    Read a message back; of each detection, what it most likely is.

    :param class_ids: those seen so far, by label; new ones are appended.
    :returns: upright boxes where all are.
    """
    labels, scores, boxes = [], [], []
    for detection in message.detections:
        best = max((result.hypothesis for result in detection.results),
                   key=lambda hypothesis: hypothesis.score, default=ObjectHypothesis())
        if best.class_id not in class_ids:
            class_ids.append(best.class_id)
        labels.append(class_ids.index(best.class_id))
        scores.append(best.score)
        box = detection.bbox
        boxes.append((box.center.position.x, box.center.position.y, box.size_x, box.size_y,
                      box.center.theta))
    placed = np.array(boxes).reshape(-1, 5)
    scored = np.array(scores, np.float32), np.array(labels, np.int32)
    if placed[:, 4].any():
        placed = placed.astype(np.float32)
        return OrientedBoxes(placed[:, :4], placed[:, 4], *scored)
    half = placed[:, 2:4] / 2
    return Detections(
        np.hstack([placed[:, :2] - half, placed[:, :2] + half]).astype(np.float32), *scored)


class ImageSender:
    """
    Publishes pictures that are drawn where they are sent from; for one thread at a time.

    >>> pixels = sender.begin(header, (640, 480))
    >>> pixels[:] = 0
    >>> sender.send()
    """

    def __init__(self, node: Node, publisher: Publisher) -> None:
        self._writer, self._publish = ImageWriter(), serialized_publish(node, publisher)

    def begin(self, header: Header, image_wh: tuple[int, int]) -> np.ndarray:
        """Return the picture to be filled: (H, W, 3) uint8, BGR, C-contiguous."""
        stamp = header.stamp.sec, header.stamp.nanosec
        return self._writer.begin(stamp, header.frame_id, image_wh, 'bgr8')

    def send(self) -> None:
        """Publish the picture that was begun, as it is now."""
        self._publish(self._writer.message)


def to_label_info(header: Header, class_names: Sequence[str], threshold: float) -> LabelInfo:
    """Say which class has which name, and the score below which nothing is published."""
    return LabelInfo(
        header=header, threshold=threshold, class_map=[
            VisionClass(class_id=index, class_name=name)
            for index, name in enumerate(class_names)])
