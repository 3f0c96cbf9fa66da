"""Node that walks to an object: located objects in, velocities out."""

from collections import deque
import time
from typing import Any

from geometry_msgs.msg import Twist
from nav_msgs.msg import Odometry
import numpy as np
from rclpy.node import Node
from std_msgs.msg import Bool
from vision_msgs.msg import Detection3DArray

from demo.robot.seeker import Seeker
from demo.robot.simulation import yaw_of
from trt_ros.ros.qos import LATCHED, RESULTS

Pose = tuple[np.ndarray, np.ndarray]
HISTORY = 200  # Poses: 4 s.


class SeekNode(Node):
    """A node that remembers the objects on `detections_3d` and publishes `cmd_vel`."""

    def __init__(self, **kwargs: Any) -> None:
        super().__init__('seeker', **kwargs)
        self.seeker = Seeker(self.declare_parameter('target', 'ball').value)
        self.arrival_times: dict[int, float] = {}  # Of detections, monotonic, by stamp.
        self._poses: deque[tuple[int, Pose]] = deque(maxlen=HISTORY)
        self._velocity_out = self.create_publisher(Twist, 'cmd_vel', RESULTS)
        self._arrived_out = self.create_publisher(Bool, '~/arrived', LATCHED)
        self.create_subscription(
            Detection3DArray, 'detections_3d/detections_3d', self._on_detections, RESULTS
        )
        self.create_subscription(Odometry, 'odom', self._on_odometry, RESULTS)

    def _on_detections(self, message: Detection3DArray) -> None:
        stamp = _nanoseconds(message)
        self.arrival_times[stamp] = time.monotonic()
        # The pose when the image was taken: detections come later.
        pose = next((pose for at, pose in self._poses if at == stamp), None)
        if pose is None:
            return
        objects = []
        for found in message.detections:
            center = found.bbox.center.position
            name = found.results[0].hypothesis.class_id
            objects.append((name, np.array([center.x, center.y, center.z])))
        self.seeker.see(objects, *pose)

    def _on_odometry(self, message: Odometry) -> None:
        at, turned = message.pose.pose.position, message.pose.pose.orientation
        position = np.array([at.x, at.y, at.z])
        quaternion = np.array([turned.w, turned.x, turned.y, turned.z])
        self._poses.append((_nanoseconds(message), (position, quaternion)))
        had_arrived = self.seeker.has_arrived
        velocity = Twist()
        if self.arrival_times:  # Before, it stands.
            forward, left, turn = self.seeker.steer(position[:2], yaw_of(quaternion)).tolist()
            velocity.linear.x, velocity.linear.y, velocity.angular.z = forward, left, turn
        self._velocity_out.publish(velocity)
        if self.seeker.has_arrived and not had_arrived:
            self._arrived_out.publish(Bool(data=True))
            self.get_logger().info(f'arrived at the {self.seeker.target}')


def _nanoseconds(message: Odometry | Detection3DArray) -> int:
    return int(message.header.stamp.sec * 10**9 + message.header.stamp.nanosec)
