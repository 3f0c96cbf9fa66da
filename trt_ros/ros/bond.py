"""Heartbeats of active nodes for nav2's lifecycle manager (bondcpp protocol)."""

from functools import partial
from typing import Any
import uuid

from rclpy.clock import Clock, ClockType
from rclpy.duration import Duration

from trt_ros.ros.message_types import message_class
from trt_ros.ros.qos import BOND as QOS

TOPIC = 'bond'
HEARTBEAT_TIMEOUT_SECONDS = 4.0  # Default of nav2's bond_timeout; informational.
ACKNOWLEDGE_TIMEOUT_SECONDS = 2.0


def bond_message() -> Any:
    """Return the message class bond/msg/Status; raise ParameterError if it is not installed."""
    remedy = 'Install it (sudo apt install ros-$ROS_DISTRO-bond), or set bond_period to 0.0.'
    return message_class('bond/msg/Status', remedy)


class Bond:
    """
    The node's side of a bond: publishes heartbeats until close(), and then its end.

    A broken bond does not stop the node. Heartbeats are published by the executor: they stop
    when the executor blocks.

    :param node: a ManagedNode; the bond has its name.
    """

    def __init__(self, node: Any, period_seconds: float) -> None:
        self._node = node
        self._status = partial(
            bond_message(),
            id=node.get_name(),
            instance_id=str(uuid.uuid4()),
            heartbeat_timeout=HEARTBEAT_TIMEOUT_SECONDS,
            heartbeat_period=period_seconds,
        )
        self._publisher = node.create_publisher(self._status.func, TOPIC, QOS)
        self._timer = node.create_timer(
            period_seconds, self._beat, clock=Clock(clock_type=ClockType.STEADY_TIME)
        )

    def close(self) -> None:
        """Stop the heartbeats and announce the end of the bond."""
        node = self._node
        node.run_on_executor(lambda: node.destroy_timer(self._timer))
        self._beat(is_alive=False)
        # Destroying the publisher would drop a message that is not acknowledged yet.
        self._publisher.wait_for_all_acked(Duration(seconds=ACKNOWLEDGE_TIMEOUT_SECONDS))
        node.run_on_executor(lambda: node.destroy_publisher(self._publisher))

    def _beat(self, *, is_alive: bool = True) -> None:
        status = self._status(active=is_alive)
        status.header.stamp = self._node.get_clock().now().to_msg()
        self._publisher.publish(status)
