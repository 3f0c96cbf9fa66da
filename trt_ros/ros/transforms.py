"""Transforms between coordinate frames by tf2, which is imported only where it is needed."""

from dataclasses import dataclass
from typing import Any

import numpy as np
from rclpy.duration import Duration
from rclpy.time import Time
from std_msgs.msg import Header

from trt_ros.errors import BadFrameError, requires
from trt_ros.ros.lifecycle import ManagedNode
from trt_ros.ros.message_sets import JUMP_BACK

#: Time to wait for a transform, which often arrives later than the image.
WAIT_SECONDS = 0.2


@dataclass(frozen=True)
class Transform:
    """A rotation (unit quaternion x, y, z, w >= 0) and translation (meters): p becomes R p + t."""

    quaternion: np.ndarray
    translation: np.ndarray

    def rotation(self) -> np.ndarray:
        """
        Return the rotation matrix, (3, 3) float64.

        As in https://www.w3.org/TR/css-transforms-2 or any text on unit quaternions:
        R = I + 2 w [v] + 2 [v] [v] with the cross-product matrix [v] of (x, y, z).
        """
        x, y, z, w = self.quaternion
        cross = np.array([[0, -z, y], [z, 0, -x], [-y, x, 0]])
        return np.asarray(np.eye(3) + 2 * w * cross + 2 * cross @ cross)

    def apply(self, points: np.ndarray) -> np.ndarray:
        """Transform points, (N, 3)."""
        return np.asarray(points @ self.rotation().T + self.translation)


def import_tf2(user: str) -> Any:
    """Return tf2_ros; raises ParameterError, naming the parameter `user`, without it."""
    remedy = f'Install it (apt install ros-$ROS_DISTRO-tf2-ros-py), or leave {user} out.'
    with requires('tf2_ros', user, remedy):
        import tf2_ros
    return tf2_ros


class Transforms:
    """The transforms of tf2 until close(); import_tf2() has succeeded."""

    def __init__(self, node: ManagedNode) -> None:
        import tf2_ros

        self._node, self._failures = node, tf2_ros.TransformException
        self._buffer: Any = tf2_ros.Buffer()
        self._listener: Any = tf2_ros.TransformListener(self._buffer, node)
        # tf2 ignores transforms older than its buffer, and mixes newer ones with those before.
        self._clock_watch = node.get_clock().create_jump_callback(
            JUMP_BACK, post_callback=lambda _: self._buffer.clear()
        )

    def close(self) -> None:
        """Destroy the subscriptions."""
        self._clock_watch.unregister()
        self._node.run_on_executor(self._listener.unregister)

    def lookup(self, target_frame: str, header: Header) -> Transform:
        """Return the transform from `header`; raises BadFrameError 'no transform'."""
        try:
            found = self._buffer.lookup_transform(
                target_frame,
                header.frame_id,
                Time.from_msg(header.stamp),
                timeout=Duration(seconds=WAIT_SECONDS),
            ).transform
        except (self._failures, ValueError) as error:  # rclpy refuses negative stamps.
            raise BadFrameError(
                'no transform',
                f'No transform from {header.frame_id!r} to {target_frame!r} at the time of the '
                'message.',
                cause=str(error),
                remedy='Publish it (see `ros2 run tf2_ros tf2_monitor`), or correct the names of '
                'the frames.',
            ) from error
        turn, move = found.rotation, found.translation
        quaternion = np.array([turn.x, turn.y, turn.z, turn.w])
        return Transform(
            -quaternion if turn.w < 0 else quaternion,  # tf2 changes the sign at 120 degrees.
            np.array([move.x, move.y, move.z]),
        )
