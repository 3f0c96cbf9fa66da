"""Serialized messages in and out: past rclpy where that is proven to work, else through it."""

from __future__ import annotations

from collections.abc import Callable
import os
import threading
from typing import Protocol

import numpy as np
import rclpy
from rclpy.context import Context
from rclpy.node import Node
from rclpy.publisher import Publisher
from rclpy.qos import DurabilityPolicy, QoSProfile
from rclpy.serialization import deserialize_message, serialize_message
from rclpy.subscription import Subscription
from sensor_msgs.msg import Image

from trt_ros.ros.dds import intra_process as intra
from trt_ros.ros.dds.rcl import NO_HOOKS, MemoryHooks, Rcl, RclError
from trt_ros.ros.dds.rcl_subscription import (
    RclSubscription,
    destroy,
    event_callbacks,
    goes_by_reference,
)

#: Set to 'rclpy', everything goes through rclpy.
VARIABLE = 'TRT_ROS_TRANSPORT'
SECONDS_FOR_THE_TEST = 5.0


class SerializedSubscription(Protocol):
    """Takes the messages of a topic as bytes, from construction until close()."""

    def change_qos(self, qos: QoSProfile) -> None:
        """Subscribe with another reliability; on the executor's thread, once is_settled()."""
        ...

    def is_settled(self) -> bool:
        """Tell whether the last change of QoS is complete; on the executor's thread."""
        ...

    def close(self) -> None:
        """Stop taking, and wait for the message in hand; may be called twice."""
        ...


def subscribe_serialized(
    node: Node,
    message_type: type,
    topic: str,
    qos: QoSProfile,
    on_message: Callable[[np.ndarray], None],
    *,
    on_replaced: Callable[[], None] | None = None,
    on_lost: Callable[[], None] | None = None,
    on_missed: Callable[[int], None] | None = None,
    on_incompatible: Callable[[str], None] | None = None,
    hooks: MemoryHooks = NO_HOOKS,
) -> SerializedSubscription:
    """
    Take a topic's messages as bytes; by reference from a node of this process, where both of them
    have `use_intra_process_comms`.

    :param on_message: called with (N,) uint8, read-only, one at a time; must not raise.
    :param on_replaced: of messages that wait together, only the newest is handed over, and this
        is called for each of the others. None: all are handed over.
    :param on_lost: called for each message of a node of this process that had to go for a newer
        one because more of them waited than `qos` keeps. None: as on_replaced. What DDS gives up
        likewise, it does not tell.
    :param on_missed: called with the number of messages that a publisher sent and that never came,
        by the gaps in its sequence numbers; once with 0 where the middleware numbers messages.
        None: gaps are not reported.
    :param on_incompatible: called with the QoS policy, 'RELIABILITY', of a new publisher that
        offers less of it than `qos` asks for. None: rclpy logs it.
    :param hooks: told of the memory that messages lie in, where it is used again and again.
    """
    rcl = usable_rcl(node)
    if rcl is None:
        return RclpySubscription(
            node, message_type, topic, qos, on_message, on_incompatible=on_incompatible
        )
    return RclSubscription(
        rcl,
        node,
        message_type,
        topic,
        qos,
        on_message,
        on_replaced=on_replaced,
        on_lost=on_lost,
        on_missed=on_missed,
        on_incompatible=on_incompatible,
        hooks=hooks,
    )


def serialized_publish(node: Node, publisher: Publisher) -> Callable[[np.ndarray], None]:
    """
    Return what publishes a serialized message, (N,) uint8 and contiguous.

    The message must not be changed any more: subscribers in this process may look at it. As with
    publish() of a lifecycle publisher, nothing happens unless the node is active.
    """
    rcl = usable_rcl(node)
    if rcl is None:
        return lambda message: publisher.publish(message.tobytes())
    is_kept, handle, intra_publisher = _is_kept(publisher), publisher.handle, None
    if goes_by_reference(rcl, node, publisher.qos_profile):
        with handle:
            intra_publisher = intra.IntraProcessPublisher(node, publisher, rcl.gid_of(handle))

    def publish(message: np.ndarray) -> None:
        if not getattr(publisher, 'is_activated', True):
            return
        with handle:
            # Counted first: one that goes after that costs a message, but nobody misses one.
            listeners = handle.get_subscription_count()
            if intra_publisher is not None:
                listeners -= intra_publisher.hand_over(message)
            if listeners > 0 or is_kept:
                rcl.publish(handle, message)

    return publish


def should_publish(publisher: Publisher) -> bool:
    """Tell whether a message would reach somebody, now or when one comes."""
    return publisher.get_subscription_count() > 0 or _is_kept(publisher)


def _is_kept(publisher: Publisher) -> bool:
    return publisher.qos_profile.durability != DurabilityPolicy.VOLATILE


class RclpySubscription:
    """Takes messages in the executor's thread, all of them, each in new memory."""

    def __init__(
        self,
        node: Node,
        message_type: type,
        topic: str,
        qos: QoSProfile,
        on_message: Callable[[np.ndarray], None],
        *,
        on_incompatible: Callable[[str], None] | None = None,
    ) -> None:
        self._node, self._on_message = node, on_message
        self._subscribe = lambda qos: node.create_subscription(
            message_type,
            topic,
            self._receive,
            qos,
            raw=True,
            event_callbacks=event_callbacks(on_incompatible),
        )
        self._subscription: Subscription | None = self._subscribe(qos)

    def change_qos(self, qos: QoSProfile) -> None:
        """Subscribe anew; messages published meanwhile are lost."""
        self.close()
        self._subscription = self._subscribe(qos)

    def is_settled(self) -> bool:
        return True

    def close(self) -> None:
        destroy(self._node, self._subscription)
        self._subscription = None

    def _receive(self, message: bytes) -> None:
        self._on_message(np.frombuffer(message, np.uint8))


_lock = threading.Lock()
_known: tuple[Rcl | None] | None = None  # What this process found out.


def usable_rcl(node: Node) -> Rcl | None:
    """
    Find out, once a process, whether messages can go past rclpy.

    :returns: None where they cannot: says why on the node's log.
    """
    global _known
    with _lock:
        if _known is None:
            rcl, why = None, f'{VARIABLE}=rclpy'
            if os.environ.get(VARIABLE) != 'rclpy':
                try:
                    rcl = Rcl()
                    check_transport(rcl, node.context)
                except Exception as error:  # Whatever it is: rclpy's own way is there.
                    rcl, why = None, repr(error)
            if rcl is None:
                node.get_logger().warning(f'Images and results go through rclpy. Cause: {why}')
            _known = (rcl,)
        return _known[0]


def check_transport(rcl: Rcl, context: Context) -> None:
    """
    Send images there and back within this process, and compare them with rclpy's own.

    :raises Exception: whatever goes wrong.
    """
    node = rclpy.create_node(
        '_transport_check',
        context=context,
        use_global_arguments=False,
        enable_rosout=False,
        start_parameter_services=False,
    )
    topic, qos = (
        f'_transport_check_{os.getpid()}',
        QoSProfile(depth=10, durability=DurabilityPolicy.TRANSIENT_LOCAL),
    )
    # The second is larger than the memory that it is taken into.
    images = [
        Image(height=2, width=3, step=9, encoding='bgr8', data=bytes(range(18))),
        Image(height=300, width=400, step=400, encoding='mono8', data=bytes(range(256)) * 469),
    ]
    for image in images:
        image.header.frame_id = 'camera'
        image.header.stamp.sec, image.header.stamp.nanosec = -2, 999999999
    taken: list[np.ndarray] = []
    infos: list[bytes] = []
    done = threading.Event()

    def keep(message: np.ndarray) -> None:
        taken.append(message)
        infos.append(bytes(subscription.info))
        if len(taken) == 2 * len(images):
            done.set()

    try:
        subscription = RclSubscription(rcl, node, Image, topic, qos, keep)
        try:
            publisher = node.create_publisher(Image, topic, qos)
            for image in images:
                publisher.publish(image)
            with publisher.handle:
                for image in images:
                    rcl.publish(
                        publisher.handle, np.frombuffer(serialize_message(image), np.uint8)
                    )
            if not done.wait(SECONDS_FOR_THE_TEST):
                raise RclError(f'{len(taken)} of {2 * len(images)} messages came')
            with publisher.handle:
                rcl.detect_info_layout(rcl.gid_of(publisher.handle), infos)
        finally:
            subscription.close()
    finally:
        node.destroy_node()
    for message, image in zip(taken, images * 2):
        if deserialize_message(message.tobytes(), Image) != image:
            raise RclError('A message came changed')
