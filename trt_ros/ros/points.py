"""Publishers of point clouds."""

import numpy as np
from rclpy.node import Node
from rclpy.publisher import Publisher
from std_msgs.msg import Header

from trt_ros.ros.dds.cdr_points import XYZ, Field, PointWriter
from trt_ros.ros.dds.transport import serialized_publish, should_publish


class PointSender:
    """A publisher of points written into the message; `extra` fields after z."""

    def __init__(self, node: Node, publisher: Publisher, *extra: Field) -> None:
        self.publisher = publisher
        self._writer, self._publish = (
            PointWriter((*XYZ, *extra)),
            serialized_publish(node, publisher),
        )

    def is_wanted(self) -> bool:
        """Return whether a message would reach a subscriber."""
        return should_publish(self.publisher)

    def begin(self, header: Header, cloud_wh: tuple[int, int]) -> np.ndarray:
        """Return the points of a new cloud, (height, width, values) float32, to be filled."""
        stamp = header.stamp
        return self._writer.begin((stamp.sec, stamp.nanosec), header.frame_id, cloud_wh)

    def send(self) -> None:
        """Publish the cloud of the last begin(); its points must not change any more."""
        self._publish(self._writer.message)
