"""Subscriptions whose QoS and type follow the publishers of their topic."""

from collections.abc import Callable, Sequence
from dataclasses import replace
import threading
import time
from typing import NamedTuple

import numpy as np
from rclpy.qos import DurabilityPolicy, QoSProfile, ReliabilityPolicy
from rclpy.topic_endpoint_info import TopicEndpointInfo

from trt_ros.ros.codecs.codec import Codec
from trt_ros.ros.dds.cdr import ImageView
from trt_ros.ros.dds.rcl import MemoryHooks
from trt_ros.ros.dds.rcl_subscription import MessageCallbacks
from trt_ros.ros.dds.transport import SerializedSubscription, subscribe_serialized
from trt_ros.ros.lifecycle import ManagedNode
from trt_ros.ros.qos import BEST_EFFORT, fitting_durability, image_qos, incompatible_offer

#: Node age after which all earlier publishers are assumed to be discovered.
DISCOVERY_SECONDS = 1.0


def wait_for_input(node: ManagedNode, topics: Sequence[str]) -> None:
    """
    Wait until each topic has a publisher, or discovery is over, in the transition thread.

    Do so only where the QoS of the publishers decides that of the subscriptions.
    """
    is_auto = node.parameters.qos_reliability == 'auto'
    while is_auto and not all(map(node.count_publishers, topics)):
        left = node.created_at + DISCOVERY_SECONDS - time.monotonic()
        if left <= 0 or node.cancelled.wait(min(left, 0.02)):
            break


class _Wanted(NamedTuple):
    topic: str
    message_type: type
    reliability: ReliabilityPolicy
    durability: DurabilityPolicy


class InputSubscription:
    """
    A subscription with the QoS of the node's InputParameters, from construction until close().

    It is closed and made anew where its publishers call for another topic, type, reliability or
    durability; messages published meanwhile are lost. Incompatible publishers are logged.

    :param codec: of the messages.
    :param callbacks: returns the callbacks for messages of the present type.
    :param hooks: as for subscribe_serialized().
    :param depth: queue depth.
    :param is_held: whether to ask for the message from before, where all publishers keep it.
    """

    def __init__(
        self,
        node: ManagedNode,
        codec: Codec,
        callbacks: Callable[[], MessageCallbacks],
        hooks: MemoryHooks,
        *,
        depth: int,
        is_held: bool,
    ) -> None:
        self._node, self._codec, self._callbacks, self._hooks = node, codec, callbacks, hooks
        self._depth, self._is_held = depth, is_held
        # For multi-threaded executors: no change during close().
        self._lock = threading.Lock()
        self._is_closed = False
        self._publishers: Sequence[TopicEndpointInfo] | None = None
        self._present, qos, why = self._find(BEST_EFFORT, DurabilityPolicy.VOLATILE)
        if why:
            name = node.resolve_topic_name(self._present.topic)
            node.get_logger().info(f'{name}: requesting {qos.reliability.name.lower()} ({why}).')
        self._subscription = self._subscribe(self._present, qos, bool(why))
        if why or is_held or codec.message_types:
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
        if self._follow in self._node.followers:
            self._node.followers.remove(self._follow)
        self._subscription.close()

    def _find(
        self, reliability: ReliabilityPolicy, durability: DurabilityPolicy
    ) -> tuple[_Wanted, QoSProfile, str]:
        """Return what to subscribe to, its QoS, and why its reliability was chosen."""
        parameters = self._node.parameters
        topic, message_type = self._codec.follow()
        qos, why = image_qos(
            self._node,
            topic,
            reliability=parameters.qos_reliability,
            depth=self._depth,
            current=reliability,
        )
        if self._is_held:
            qos.durability = fitting_durability(self._node, topic, durability)
        return _Wanted(topic, message_type, qos.reliability, qos.durability), qos, why

    def _subscribe(
        self, wanted: _Wanted, qos: QoSProfile, is_following: bool
    ) -> SerializedSubscription:
        node, (topic, message_type, *_) = self._node, wanted
        name, callbacks = node.resolve_topic_name(topic), self._callbacks()
        sizes = node.largest_nbytes
        sizes.pop(name, None)

        def report(policy: str) -> None:
            if policy != 'RELIABILITY' or not is_following:
                node.get_logger().warning(incompatible_offer(node, name, policy))

        def receive(message: np.ndarray | ImageView) -> None:
            if message.size > sizes.get(name, 0):
                sizes[name] = message.size
            callbacks.on_message(message)

        callbacks_here = replace(callbacks, on_message=receive, on_incompatible=report)
        return subscribe_serialized(node, message_type, topic, qos, callbacks_here, self._hooks)

    def _follow(self) -> None:
        with self._lock:
            if not self._is_closed:
                self._change()

    def _change(self) -> None:
        before = self._present
        publishers = self._node.get_publishers_info_by_topic(before.topic)
        if publishers == self._publishers and not self._codec.message_types:
            return
        self._publishers = None  # Tried again after a failure.
        wanted, qos, why = self._find(before.reliability, before.durability)
        if wanted == before:
            self._publishers = publishers
            return
        self._subscription.close()
        self._codec.close()
        self._subscription = self._subscribe(wanted, qos, bool(why))
        self._present = wanted
        changes = []
        if wanted.reliability != before.reliability:
            changes.append(f'changed reliability to {qos.reliability.name.lower()} ({why})')
        if wanted.durability != before.durability:
            changes.append(f'changed durability to {qos.durability.name.lower()}')
        if wanted[:2] != before[:2]:
            changes.append(f'subscribed to {wanted.message_type.__name__}, which is published')
        name = self._node.resolve_topic_name(wanted.topic)
        self._node.get_logger().info(f'{name}: {", ".join(changes)}.')
