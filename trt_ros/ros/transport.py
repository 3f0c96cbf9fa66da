"""Serialized messages in and out: past rclpy where that is proven to work, else through it."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import ExitStack
import os
import threading
import traceback
from typing import Any, Protocol

import numpy as np
import rclpy
from rclpy.callback_groups import ReentrantCallbackGroup
from rclpy.context import Context
from rclpy.guard_condition import GuardCondition
from rclpy.impl.implementation_singleton import rclpy_implementation
from rclpy.node import Node
from rclpy.publisher import Publisher
from rclpy.qos import DurabilityPolicy, QoSProfile, qos_policy_name_from_kind
from rclpy.serialization import deserialize_message, serialize_message
from rclpy.subscription import Subscription
from sensor_msgs.msg import Image

from trt_ros.ros import intra
from trt_ros.ros.rcl import NOBODY, MemoryHooks, Rcl, RclError, Ring

try:
    from rclpy.event_handler import SubscriptionEventCallbacks
except ImportError:  # Humble.
    from rclpy.qos_event import SubscriptionEventCallbacks

#: Set to 'rclpy', everything goes through rclpy.
VARIABLE = 'TRT_ROS_TRANSPORT'
SECONDS_FOR_THE_TEST = 5.0


class SerializedSubscription(Protocol):
    """Takes the messages of a topic as bytes, from construction until close()."""

    def close(self) -> None:
        """Stop taking, and wait for the message in hand; may be called twice."""
        ...


def subscribe_serialized(
        node: Node, message_type: type, topic: str, qos: QoSProfile,
        on_message: Callable[[np.ndarray], None], *,
        on_replaced: Callable[[], None] | None = None,
        on_lost: Callable[[], None] | None = None,
        on_incompatible: Callable[[str], None] | None = None,
        hooks: MemoryHooks = NOBODY) -> SerializedSubscription:
    """
    Take a topic's messages as bytes; by reference from a node of this process, where both of them
    have `use_intra_process_comms`.

    :param on_message: called with (N,) uint8, read-only, one at a time; must not raise.
    :param on_replaced: of messages that wait together, only the newest is handed over, and this
        is called for each of the others. None: all are handed over.
    :param on_lost: called for each message of a node of this process that had to go for a newer
        one because more of them waited than `qos` keeps. None: as on_replaced. What DDS gives up
        likewise, it does not tell.
    :param on_incompatible: called with the QoS policy, 'RELIABILITY', of a new publisher that
        offers less of it than `qos` asks for. None: rclpy logs it.
    :param hooks: told of the memory that messages lie in, where it is used again and again.
    """
    rcl = usable_rcl(node)
    if rcl is None:
        return RclpySubscription(
            node, message_type, topic, qos, on_message, on_incompatible=on_incompatible)
    return RclSubscription(
        rcl, node, message_type, topic, qos, on_message, on_replaced=on_replaced,
        on_lost=on_lost, on_incompatible=on_incompatible, hooks=hooks)


def serialized_publish(node: Node, publisher: Publisher) -> Callable[[np.ndarray], None]:
    """
    Return what publishes a serialized message, (N,) uint8 and contiguous.

    The message must not be changed any more: subscribers in this process may look at it. As with
    publish() of a lifecycle publisher, nothing happens unless the node is active.
    """
    rcl = usable_rcl(node)
    if rcl is None:
        return lambda message: publisher.publish(message.tobytes())
    is_kept, handle, outlet = _is_kept(publisher), publisher.handle, None
    if _goes_by_reference(rcl, node, publisher.qos_profile):
        with handle:
            outlet = intra.Outlet(node, publisher, rcl.gid_of(handle))

    def publish(message: np.ndarray) -> None:
        if not getattr(publisher, 'is_activated', True):
            return
        with handle:
            # Counted first: one that goes after that costs a message, but nobody misses one.
            listeners = handle.get_subscription_count()
            if outlet is not None:
                listeners -= outlet.hand_over(message)
            if listeners > 0 or is_kept:
                rcl.publish(handle, message)
    return publish


def is_heard(publisher: Publisher) -> bool:
    """Tell whether a message would reach somebody, now or when one comes."""
    return publisher.get_subscription_count() > 0 or _is_kept(publisher)


def _is_kept(publisher: Publisher) -> bool:
    return publisher.qos_profile.durability != DurabilityPolicy.VOLATILE


def _goes_by_reference(rcl: Rcl, node: Node, qos: QoSProfile) -> bool:
    is_asked_for = intra.is_asked_for(node, qos)
    if is_asked_for and not rcl.knows_gids:
        node.get_logger().warning(
            'use_intra_process_comms has no effect. Cause: this middleware does not tell who '
            'published a message.', once=True)
    return is_asked_for and rcl.knows_gids


class RclpySubscription:
    """Takes messages in the executor's thread, all of them, each in new memory."""

    def __init__(
            self, node: Node, message_type: type, topic: str, qos: QoSProfile,
            on_message: Callable[[np.ndarray], None], *,
            on_incompatible: Callable[[str], None] | None = None) -> None:
        self._node, self._on_message = node, on_message
        self._subscription: Subscription | None = node.create_subscription(
            message_type, topic, self._receive, qos, raw=True,
            event_callbacks=_event_callbacks(on_incompatible))

    def close(self) -> None:
        _destroy(self._node, self._subscription)
        self._subscription = None

    def _receive(self, message: bytes) -> None:
        self._on_message(np.frombuffer(message, np.uint8))


class RclSubscription:
    """
    Takes messages in a thread of its own, into memory that is used again.

    The arguments are those of subscribe_serialized.

    :ivar info: what the middleware tells about the message that it brought last.
    """

    def __init__(
            self, rcl: Rcl, node: Node, message_type: type, topic: str, qos: QoSProfile,
            on_message: Callable[[np.ndarray], None], *,
            on_replaced: Callable[[], None] | None = None,
            on_lost: Callable[[], None] | None = None,
            on_incompatible: Callable[[str], None] | None = None,
            hooks: MemoryHooks = NOBODY) -> None:
        self._rcl, self._node = rcl, node
        self._on_message, self._on_replaced = on_message, on_replaced
        self._on_lost = on_lost or on_replaced or (lambda: None)
        self._at_once = max(1, qos.depth)
        self._ring = Ring(hooks)
        self.info = self._ring.info
        self._stopping = threading.Event()
        self._guard = GuardCondition(None, None, node.context)
        self._subscription: Subscription | None = None
        self._inlet: intra.Inlet | None = None
        try:
            if _goes_by_reference(rcl, node, qos):
                self._inlet = intra.Inlet(node, message_type, topic, qos, self._guard.trigger)
            self._subscription = node.create_subscription(
                message_type, topic, lambda _: None, qos, raw=True, callback_group=_Nobody(),
                event_callbacks=_event_callbacks(on_incompatible))
            self._events = list(self._subscription.event_handlers)
            with node.context.handle:
                self._wait_set = rclpy_implementation.WaitSet(
                    1, 1, 0, 0, 0, len(self._events), node.context.handle)
        except Exception:
            self._close_inlet()
            _destroy(node, self._subscription)
            raise
        node.context.on_shutdown(self._wake)
        self._thread = threading.Thread(target=self._run, name='messages')
        self._thread.start()

    def close(self) -> None:
        if self._subscription is None:
            return
        self._close_inlet()
        self._wake()
        self._thread.join()
        _destroy(self._node, self._subscription)
        self._subscription = None
        self._wait_set.destroy_when_not_in_use()
        self._guard.destroy()
        self._ring.close()

    def _close_inlet(self) -> None:
        if self._inlet is not None:
            self._inlet.close()

    def _wake(self) -> None:
        self._stopping.set()
        if self._thread.is_alive():
            self._guard.trigger()

    def _run(self) -> None:
        # Entered for the whole time: none of them goes away while rcl has a pointer to it.
        subscription, guard, wait_set = \
            self._subscription.handle, self._guard.handle, self._wait_set
        with ExitStack() as entered:
            for each in (self._node.context.handle, subscription, guard, wait_set, *self._events):
                entered.enter_context(each)
            while not self._stopping.is_set():
                try:
                    wait_set.clear_entities()
                    wait_set.add_subscription(subscription)
                    wait_set.add_guard_condition(guard)
                    for event in self._events:
                        event.add_to_wait_set(wait_set)
                    self._ring.prepare()
                    wait_set.wait(-1)
                    self._take_all(subscription)
                    self._tell_events(wait_set)
                except Exception:
                    self._node.get_logger().error(
                        f'Messages could not be taken.\n{traceback.format_exc()}',
                        throttle_duration_sec=10.0)
                    self._stopping.wait(0.1)

    def _take_all(self, subscription: Any) -> None:
        newest = None
        for _ in range(self._inlet.take_lost() if self._inlet else 0):
            self._on_lost()
        for message in self._waiting(subscription):
            if self._on_replaced is None:
                self._on_message(message)
            else:
                if newest is not None:
                    self._on_replaced()
                newest = message
            del message  # Its memory is free for the next one.
        if newest is not None:
            self._on_message(newest)

    def _waiting(self, subscription: Any) -> Iterator[np.ndarray]:
        """Take what waits, but no more than waited at the beginning: more may come always."""
        inlet = self._inlet
        for _ in range(self._at_once):
            message = None if self._stopping.is_set() else self._ring.take(self._rcl, subscription)
            if message is None:
                break
            if inlet is None or not inlet.is_copy(self._rcl.gid_in(self._ring.info)):
                yield message
            del message
        for _ in range(self._at_once if inlet is not None else 0):
            message = None if self._stopping.is_set() else inlet.take()
            if message is None:
                break
            yield message
            del message

    def _tell_events(self, wait_set: Any) -> None:
        """Tell of publishers whose QoS does not fit, as the executor would."""
        for event in self._events:
            if event.is_ready(wait_set):
                event.callback(event.take_data())


def _event_callbacks(
        on_incompatible: Callable[[str], None] | None) -> SubscriptionEventCallbacks:
    if on_incompatible is None:
        return SubscriptionEventCallbacks()
    return SubscriptionEventCallbacks(incompatible_qos=lambda event: on_incompatible(
        qos_policy_name_from_kind(event.last_policy_kind)))


class _Nobody(ReentrantCallbackGroup):
    """
    Keeps a subscription and its events from the executor.

    The events too: they share a condition with the messages, so that the executor would wake for
    each message, and again and again until it is taken.
    """

    def can_execute(self, entity: Any) -> bool:
        return False


def _destroy(node: Node, subscription: Subscription | None) -> None:
    if subscription is not None:
        # A managed node waits until its executor does not.
        between_callbacks = getattr(node, 'between_callbacks', lambda work: work())
        between_callbacks(lambda: node.destroy_subscription(subscription))


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
                    check(rcl, node.context)
                except Exception as error:  # Whatever it is: rclpy's own way is there.
                    rcl, why = None, repr(error)
            if rcl is None:
                node.get_logger().warning(f'Images and results go through rclpy. Cause: {why}')
            _known = (rcl,)
        return _known[0]


def check(rcl: Rcl, context: Context) -> None:
    """
    Send images there and back within this process, and compare them with rclpy's own.

    :raises Exception: whatever goes wrong.
    """
    node = rclpy.create_node(
        '_transport_check', context=context, use_global_arguments=False, enable_rosout=False,
        start_parameter_services=False)
    topic, qos = f'_transport_check_{os.getpid()}', QoSProfile(
        depth=10, durability=DurabilityPolicy.TRANSIENT_LOCAL)
    # The second is larger than the memory that it is taken into.
    images = [
        Image(height=2, width=3, step=9, encoding='bgr8', data=bytes(range(18))),
        Image(height=300, width=400, step=400, encoding='mono8', data=bytes(range(256)) * 469)]
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
                        publisher.handle, np.frombuffer(serialize_message(image), np.uint8))
            if not done.wait(SECONDS_FOR_THE_TEST):
                raise RclError(f'{len(taken)} of {2 * len(images)} messages came')
            with publisher.handle:
                rcl.learn_gid(rcl.gid_of(publisher.handle), infos)
        finally:
            subscription.close()
    finally:
        node.destroy_node()
    for message, image in zip(taken, images * 2):
        if deserialize_message(message.tobytes(), Image) != image:
            raise RclError('A message came changed')
