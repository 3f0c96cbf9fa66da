"""Nodes that stand for nodes of trt_ros in C++ containers, see test/ros/cpp/conftest.py."""

import json
import time

from rclpy.node import Node
from rclpy.qos import QoSProfile, ReliabilityPolicy
from sensor_msgs.msg import Image
from std_msgs.msg import String

from trt_ros.ros.dds.cdr import read_image
from trt_ros.ros.dds.rcl_subscription import MessageCallbacks
from trt_ros.ros.dds.transport import subscribe_serialized
from trt_ros.ros.lifecycle import ManagedNode

QOS = QoSProfile(depth=1, reliability=ReliabilityPolicy.BEST_EFFORT)


class Probe(Node):
    """Publish for each image whether its memory is the camera's, and its age in seconds."""

    def __init__(self, **kwargs):
        super().__init__('probe', **kwargs)
        self._publisher = self.create_publisher(String, '~/seen', 10)
        self._subscription = None
        self._timer = self.create_timer(0.0, self._subscribe)

    def _subscribe(self):
        self._timer.cancel()
        callbacks = MessageCallbacks(self._receive, on_replaced=lambda: None)
        self._subscription = subscribe_serialized(self, Image, 'image', QOS, callbacks)

    def _receive(self, message):
        now, image = time.time(), read_image(message)
        seconds, nanoseconds = image.stamp
        is_same = int.from_bytes(image.data[:8].tobytes(), 'little') == image.data.ctypes.data
        seen = {
            'is_same_memory': is_same,
            'age': now - seconds - nanoseconds * 1e-9,
            'frame_id': image.frame_id,
            'size': [image.width, image.height, image.data.size],
        }
        self._publisher.publish(String(data=json.dumps(seen)))

    def destroy_node(self):
        if self._subscription is not None:
            self._subscription.close()
        super().destroy_node()


class Slow(ManagedNode):
    """A node whose configure ends only when it is cancelled."""

    def __init__(self, **kwargs):
        super().__init__('slow', **kwargs)
        self.get_logger().debug('slow is constructed')

    def configure(self):
        self.get_logger().info('configure has begun')
        self.cancelled.wait()


class Failing(Node):
    """A node whose constructor fails when the node is already in the graph."""

    def __init__(self, **kwargs):
        super().__init__('failing', **kwargs)
        raise RuntimeError('no lens')
