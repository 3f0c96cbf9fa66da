"""Subscriptions of the demo, which match images with their detections."""

from __future__ import annotations

from array import array
from collections.abc import Iterator
import zlib

import numpy as np
import rclpy
from rclpy.context import Context
from rclpy.executors import SingleThreadedExecutor
from rclpy.node import Node
from rclpy.serialization import serialize_message
from rclpy.signals import SignalHandlerOptions
from sensor_msgs.msg import Image
from vision_msgs.msg import Detection2DArray, LabelInfo

from demo.scene import CLASSES
from demo.tally import Sighting
from trt_ros.results.boxes import Detections
from trt_ros.ros.class_ids import ClassIds
from trt_ros.ros.messages import read_boxes
from trt_ros.ros.qos import LATCHED, RESULTS


class Watch:
    """A node that subscribes to the images and to the results of the detector."""

    def __init__(self) -> None:
        self.is_detector_ready = False
        self._pictures: dict[int, int] = {}  # By stamp.
        self._found: list[
            tuple[int, Detections, float]
        ] = []  # Stamp, detections, latency in seconds.
        self._class_ids = ClassIds(CLASSES)
        self._context = Context()
        rclpy.init(context=self._context, signal_handler_options=SignalHandlerOptions.NO)
        self._node = Node('demo', context=self._context)
        self._executor = SingleThreadedExecutor(context=self._context)
        self._executor.add_node(self._node)
        self._node.create_subscription(Image, 'image', self._on_image, RESULTS)
        self._node.create_subscription(
            Detection2DArray, 'detector/detections', self._on_detections, RESULTS
        )
        self._node.create_subscription(
            LabelInfo, 'detector/label_info', self._on_label_info, LATCHED
        )

    def close(self) -> None:
        """Destroy the node and its ROS context."""
        self._executor.shutdown()
        self._node.destroy_node()
        self._context.try_shutdown()

    def listen(self, seconds: float) -> None:
        """Handle at most one message, waiting up to `seconds` for it."""
        self._executor.spin_once(timeout_sec=seconds)

    def sightings(self, *, behind: int = 0) -> Iterator[Sighting]:
        """Yield the detections but the newest `behind`, whose images may arrive later."""
        while len(self._found) > behind:
            stamp, found, seconds = self._found.pop(0)
            yield Sighting(self._pictures.pop(stamp, None), found, seconds)

    def _on_image(self, message: Image) -> None:
        self._pictures[_nanoseconds(message)] = checksum(message.data)

    def _on_detections(self, message: Detection2DArray) -> None:
        stamp = _nanoseconds(message)
        seconds = (self._node.get_clock().now().nanoseconds - stamp) * 1e-9
        serialized = np.frombuffer(serialize_message(message), np.uint8)
        found = read_boxes(serialized, self._class_ids).detections
        self._found.append((stamp, found, seconds))

    def _on_label_info(self, message: LabelInfo) -> None:
        self.is_detector_ready = True


def checksum(pixels: np.ndarray | array[int]) -> int:
    """Return the CRC-32 of a picture's bytes, which identifies it."""
    return zlib.crc32(np.asarray(pixels).data)


def _nanoseconds(message: Image | Detection2DArray) -> int:
    return int(message.header.stamp.sec * 10**9 + message.header.stamp.nanosec)
