"""The heartbeat by which nav2's lifecycle manager knows that an active node lives."""

from __future__ import annotations

from functools import partial
from importlib import import_module
from typing import Any
import uuid

from rclpy.clock import Clock, ClockType
from rclpy.duration import Duration
from rclpy.qos import QoSProfile

from trt_ros.errors import ParameterError

TOPIC = 'bond'
SECONDS_UNTIL_DEAD = 4.0  # What nav2's bond_timeout is by itself; only told, for debugging.
SECONDS_FOR_THE_END = 2.0


def bond_message() -> Any:
    """
    Return the class bond/msg/Status.

    :raises ParameterError: when it is not installed.
    """
    try:
        return import_module('bond.msg').Status
    except ImportError as error:
        raise ParameterError(
            'bond_period asks for heartbeats, but their message is not installed.',
            cause=str(error),
            remedy='Install it (sudo apt install ros-$ROS_DISTRO-bond), or set '
            'bond_period to 0.0.',
        ) from error


class Bond:
    """
    This node's half of a bond: it tells that it lives until close(), and then that it ends.

    Nobody's end ends the node. The heart beats in the executor: where that stands still, it does.

    :param node: a ManagedNode; the bond has its name.
    """

    def __init__(self, node: Any, period_seconds: float) -> None:
        self._node = node
        self._status = partial(
            bond_message(),
            id=node.get_name(),
            instance_id=str(uuid.uuid4()),
            heartbeat_timeout=SECONDS_UNTIL_DEAD,
            heartbeat_period=period_seconds,
        )
        self._publisher = node.create_publisher(self._status.func, TOPIC, QoSProfile(depth=5))
        self._timer = node.create_timer(
            period_seconds, self._beat, clock=Clock(clock_type=ClockType.STEADY_TIME)
        )

    def close(self) -> None:
        node = self._node
        node.between_callbacks(lambda: node.destroy_timer(self._timer))
        self._beat(is_alive=False)
        # It would go with its publisher, were it not taken yet.
        self._publisher.wait_for_all_acked(Duration(seconds=SECONDS_FOR_THE_END))
        node.between_callbacks(lambda: node.destroy_publisher(self._publisher))

    def _beat(self, *, is_alive: bool = True) -> None:
        status = self._status(active=is_alive)
        status.header.stamp = self._node.get_clock().now().to_msg()
        self._publisher.publish(status)
