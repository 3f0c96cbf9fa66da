"""Publishing and subscribing with serialized messages: directly through rcl, or through rclpy."""

from collections.abc import Callable
import os
import threading
from typing import Protocol
from weakref import WeakKeyDictionary

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
from trt_ros.ros.dds.container_images import ContainerSubscription, container_deliver, images_of
from trt_ros.ros.dds.rcl import NO_HOOKS, MemoryHooks, Rcl, RclError
from trt_ros.ros.dds.rcl_subscription import (
    MessageCallbacks,
    RclSubscription,
    destroy,
    event_callbacks,
)
from trt_ros.ros.dds.shared_memory import VARIABLE, SharedPublisher, uses_shared_memory

CHECK_TIMEOUT_SECONDS = 5.0


class SerializedSubscription(Protocol):
    """A subscription to serialized messages, from construction until close()."""

    def poll(self) -> None:
        """Deliver the waiting messages in this thread, if they wait; see MessageCallbacks."""

    def close(self) -> None:
        """Stop receiving and wait for the message in progress; may be called twice."""


def subscribe_serialized(
    node: Node,
    message_type: type,
    topic: str,
    qos: QoSProfile,
    callbacks: MessageCallbacks,
    hooks: MemoryHooks = NO_HOOKS,
) -> SerializedSubscription:
    """
    Subscribe to the serialized messages of a topic.

    Messages pass by reference between two nodes of one process with `use_intra_process_comms`.
    In a C++ container, images then arrive by pointer, each as an ImageView.

    :param hooks: called for the memory of messages, where that is reused: receive buffers, and
        the pools of publishers that pass messages by reference.
    """
    images = images_of(node, message_type, qos)
    if images is not None:
        return ContainerSubscription(images, node, topic, qos, callbacks)
    rcl = usable_rcl(node)
    if rcl is None:
        return RclpySubscription(node, message_type, topic, qos, callbacks)
    return RclSubscription(rcl, node, message_type, topic, qos, callbacks, hooks)


def serialized_publish(node: Node, publisher: Publisher) -> Callable[[np.ndarray], None]:
    """
    Return a function that publishes a serialized message, (N,) uint8 and contiguous.

    The message must not change any more: subscribers in this process read the same memory. As with
    publish() of a lifecycle publisher, the function does nothing unless the node is active.
    """
    rcl = usable_rcl(node)
    if rcl is None:
        return lambda message: publisher.publish(message.tobytes())
    is_kept, handle = _is_kept(publisher), publisher.handle
    deliver: Callable[[np.ndarray], int] | None = None
    if intra.goes_by_reference(rcl, node, publisher.qos_profile):
        images = images_of(node, publisher.msg_type, publisher.qos_profile)
        with handle:
            gid = rcl.gid_of(handle)
        if images is None:
            deliver = intra.intra_process_deliver(node, publisher, gid)
        else:
            deliver = container_deliver(images, publisher, gid)
    shared: SharedPublisher | None = None
    if uses_shared_memory(rcl, publisher.msg_type, publisher.qos_profile):
        with handle:
            shared = SharedPublisher(rcl.gid_of(handle), node.get_logger().warning)

    counted = -1

    def publish(message: np.ndarray) -> None:
        nonlocal counted
        if not getattr(publisher, 'is_activated', True):
            return
        if shared is not None and shared.borrowers:
            shared.lend(message)  # First: all else would delay it.
        here = 0 if deliver is None else deliver(message)
        with handle:
            subscriptions = handle.get_subscription_count()
            if shared is not None and (subscriptions > here or shared.borrowers):
                here += shared.settle(subscriptions)
            # A subscriber that has left meanwhile may be among those that got it: then DDS sends
            # the message, too, so that no other one misses it.
            if subscriptions > (here if subscriptions == counted else 0) or is_kept:
                rcl.publish(handle, message)
            counted = subscriptions

    return publish


def should_publish(publisher: Publisher) -> bool:
    """Return whether a message would reach a present or (transient local) later subscriber."""
    return publisher.get_subscription_count() > 0 or _is_kept(publisher)


def _is_kept(publisher: Publisher) -> bool:
    return bool(publisher.qos_profile.durability != DurabilityPolicy.VOLATILE)


class RclpySubscription:
    """A subscription through rclpy: every message, in the executor's thread and new memory."""

    def __init__(
        self,
        node: Node,
        message_type: type,
        topic: str,
        qos: QoSProfile,
        callbacks: MessageCallbacks,
    ) -> None:
        self._node, self._on_message = node, callbacks.on_message
        events = event_callbacks(callbacks.on_incompatible)
        self._subscription: Subscription | None = node.create_subscription(
            message_type, topic, self._receive, qos, raw=True, event_callbacks=events
        )

    def poll(self) -> None:
        """Do nothing: the executor delivers all messages."""

    def close(self) -> None:
        """Destroy the subscription; may be called twice."""
        destroy(self._node, self._subscription)
        self._subscription = None

    def _receive(self, message: bytes) -> None:
        if message:  # See Rcl.take.
            self._on_message(np.frombuffer(message, np.uint8))


_lock = threading.Lock()
#: Results of the check of the transport by context; None where messages go through rclpy.
checked: WeakKeyDictionary[Context, Rcl | None] = WeakKeyDictionary()


def usable_rcl(node: Node) -> Rcl | None:
    """Return rcl if messages can bypass rclpy, else None with a warning; checked per context."""
    with _lock:
        if node.context not in checked:
            rcl, why, asked = None, f'{VARIABLE}=rclpy', os.environ.get(VARIABLE, '')
            if asked not in ('', 'dds', 'rclpy'):
                node.get_logger().warning(
                    f'{VARIABLE}={asked!r} has no effect. Remedy: Set it to dds or rclpy.'
                )
            if asked != 'rclpy':
                try:
                    rcl = Rcl()
                    check_transport(rcl, node.context)
                except Exception as error:  # Any failure: rclpy remains as a fallback.
                    rcl, why = None, repr(error)
            if rcl is None:
                node.get_logger().warning(
                    f'Images and results go through rclpy, which is slower. Cause: {why}'
                )
            checked[node.context] = rcl
        return checked[node.context]


def check_transport(rcl: Rcl, context: Context) -> None:
    """Raise any exception unless images through rcl in this process equal rclpy's own."""
    node = rclpy.create_node(
        '_transport_check',
        context=context,
        use_global_arguments=False,
        enable_rosout=False,
        start_parameter_services=False,
    )
    topic = f'_transport_check_{os.getpid()}'
    qos = QoSProfile(depth=10, durability=DurabilityPolicy.TRANSIENT_LOCAL)
    # The second is larger than the buffer that it is received into.
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
        subscription = RclSubscription(rcl, node, Image, topic, qos, MessageCallbacks(keep))
        try:
            publisher = node.create_publisher(Image, topic, qos)
            for image in images:
                publisher.publish(image)
            with publisher.handle:
                for image in images:
                    rcl.publish(
                        publisher.handle, np.frombuffer(serialize_message(image), np.uint8)
                    )
            if not done.wait(CHECK_TIMEOUT_SECONDS):
                raise RclError(f'{len(taken)} of {2 * len(images)} messages arrived')
            with publisher.handle:
                rcl.detect_info_layout(rcl.gid_of(publisher.handle), infos)
        finally:
            subscription.close()
    finally:
        node.destroy_node()
    for message, image in zip(taken, images * 2):
        if deserialize_message(message.tobytes(), Image) != image:
            raise RclError('A message arrived changed')
