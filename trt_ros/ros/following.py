"""Subscriptions whose reliability or type follows the publishers of their topic."""

from abc import ABC, abstractmethod
from collections.abc import Callable, Sequence
from copy import copy
from dataclasses import replace
import threading
import time
import traceback
from typing import Any, ClassVar

import numpy as np
from rclpy.qos import QoSProfile

from trt_ros.ros.dds.cdr import ImageView
from trt_ros.ros.dds.rcl import NO_HOOKS, MemoryHooks
from trt_ros.ros.dds.rcl_subscription import MessageCallbacks
from trt_ros.ros.dds.transport import SerializedSubscription, subscribe_serialized
from trt_ros.ros.lifecycle import ManagedNode
from trt_ros.ros.qos import fitting_durability, fitting_reliability, image_qos, incompatible_offer

#: Node age after which all earlier publishers are assumed to be discovered.
DISCOVERY_SECONDS = 1.0


def wait_for_publishers(node: ManagedNode, topics: Sequence[str]) -> None:
    """Wait until each topic has a publisher, or discovery is over, in the transition thread."""
    while not all(map(node.count_publishers, topics)):
        left = node.created_at + DISCOVERY_SECONDS - time.monotonic()
        if left <= 0 or node.cancelled.wait(min(left, 0.02)):
            break


class PublisherFollower(ABC):
    """A subscription, which it owns, that follows `noun` of the publishers of its topic."""

    noun: ClassVar[str]

    def __init__(self, node: ManagedNode, topic: str, subscription: Any) -> None:
        self._node, self._topic, self._subscription = node, topic, subscription
        # For multi-threaded executors: no change during close().
        self._lock = threading.Lock()
        self._is_closed = False
        node.followers.append(self._follow)

    def poll(self) -> None:
        """Deliver the waiting messages of the subscription, as that does."""
        self._subscription.poll()

    def close(self) -> None:
        """Close the subscription; may be called twice."""
        with self._lock:
            if self._is_closed:
                return
            self._is_closed = True
        self._node.followers.remove(self._follow)
        self._subscription.close()

    def _follow(self) -> None:
        with self._lock:
            if self._is_closed or not self._node.context.ok():
                return
            try:
                self._change()
            except Exception:  # It would propagate out of spin().
                self._node.get_logger().error(
                    f'Failed to change the {self.noun} of {self._topic}.\n'
                    f'{traceback.format_exc()}',
                    throttle_duration_sec=10.0,
                )

    @abstractmethod
    def _change(self) -> None:
        """Change the subscription if the publishers call for it."""


class FollowingSubscription(PublisherFollower):
    """A subscription whose reliability or durability follows the known publishers."""

    noun = 'QoS'

    def __init__(
        self,
        node: ManagedNode,
        topic: str,
        qos: QoSProfile,
        subscription: SerializedSubscription,
        *,
        is_reliability: bool = True,
        is_durability: bool = False,
    ) -> None:
        self._qos = qos
        self._is_reliability, self._is_durability = is_reliability, is_durability
        super().__init__(node, topic, subscription)

    def _change(self) -> None:
        if not self._subscription.is_settled():
            return
        node, topic, qos, changes = self._node, self._topic, copy(self._qos), []
        if self._is_reliability:
            qos.reliability, reason = fitting_reliability(node, topic, qos.reliability)
            if qos.reliability != self._qos.reliability:
                changes.append(f'reliability to {qos.reliability.name.lower()} ({reason})')
        if self._is_durability:
            qos.durability = fitting_durability(node, topic, qos.durability)
            if qos.durability != self._qos.durability:
                changes.append(f'durability to {qos.durability.name.lower()}')
        if not changes:
            return
        self._subscription.change_qos(qos)
        self._qos = qos
        node.get_logger().info(
            f'{node.resolve_topic_name(topic)}: changed {" and ".join(changes)}.'
        )


class RetypedSubscription(PublisherFollower):
    """A subscription, closed and made anew when `follow` returns another topic or type."""

    noun = 'type'

    def __init__(
        self,
        node: ManagedNode,
        follow: Callable[[], tuple[str, type]],
        subscribe: Callable[[], Any],
    ) -> None:
        self._follow_codec, self._subscribe = follow, subscribe
        self._present = follow()
        super().__init__(node, self._present[0], subscribe())

    def _change(self) -> None:
        wanted = self._follow_codec()
        if wanted == self._present:
            return
        self._subscription.close()
        self._subscription, self._present = self._subscribe(), wanted
        self._topic, message_type = wanted
        self._node.get_logger().info(
            f'{self._node.resolve_topic_name(self._topic)}: subscribed to '
            f'{message_type.__name__}, which is published.'
        )


def subscribe_following(node: ManagedNode, codec: Any, subscribe: Callable[[], Any]) -> Any:
    """Return what `subscribe` returns, again when a codec follows its publishers elsewhere."""
    if not codec.message_types:
        return subscribe()
    return RetypedSubscription(node, codec.follow, subscribe)


def subscribe_input(
    node: ManagedNode,
    message_type: type,
    topic: str,
    callbacks: MessageCallbacks,
    hooks: MemoryHooks = NO_HOOKS,
    *,
    depth: int | None = None,
    is_held: bool = False,
) -> SerializedSubscription | FollowingSubscription:
    """
    Subscribe to serialized messages with the QoS of the node's InputParameters.

    Incompatible publishers are logged. The other arguments are those of subscribe_serialized().

    :param depth: queue depth; None for the parameter qos_depth.
    :param is_held: whether to ask for the message from before, where all publishers keep it.
    """
    parameters = node.parameters
    name = node.resolve_topic_name(topic)
    qos, why = image_qos(
        node,
        topic,
        preset=parameters.qos_preset,
        reliability=parameters.qos_reliability,
        depth=depth or parameters.qos_depth,
    )
    if is_held:
        qos.durability = fitting_durability(node, topic)
    is_following = bool(why)
    if is_following:
        node.get_logger().info(f'{name}: requesting {qos.reliability.name.lower()} ({why}).')

    def report(policy: str) -> None:
        if policy != 'RELIABILITY' or not is_following:
            node.get_logger().warning(incompatible_offer(node, name, policy))

    sizes = node.largest_nbytes
    sizes.pop(name, None)

    def receive(message: np.ndarray | ImageView) -> None:
        if message.size > sizes.get(name, 0):
            sizes[name] = message.size
        callbacks.on_message(message)

    subscription = subscribe_serialized(
        node,
        message_type,
        topic,
        qos,
        replace(callbacks, on_message=receive, on_incompatible=report),
        hooks,
    )
    if not (is_following or is_held):
        return subscription
    return FollowingSubscription(
        node, topic, qos, subscription, is_reliability=is_following, is_durability=is_held
    )


def wait_for_input(node: ManagedNode, topics: Sequence[str]) -> None:
    """Wait briefly for publishers of topics, if their QoS decides the subscriptions'."""
    if node.parameters.qos_preset == node.parameters.qos_reliability == 'auto':
        wait_for_publishers(node, topics)
