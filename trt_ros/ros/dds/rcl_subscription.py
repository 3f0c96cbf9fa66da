"""A subscription that takes serialized messages through rcl."""

from collections.abc import Callable, Iterator
from contextlib import ExitStack, suppress
from dataclasses import dataclass
from functools import partial
import threading
import time
import traceback
from typing import Any

import numpy as np
from rclpy.callback_groups import ReentrantCallbackGroup
from rclpy.exceptions import InvalidHandle
from rclpy.impl.implementation_singleton import rclpy_implementation
from rclpy.node import Node
from rclpy.qos import QoSProfile, qos_policy_name_from_kind
from rclpy.signals import SignalHandlerGuardCondition
from rclpy.subscription import Subscription

from trt_ros.errors import BadFrameError
from trt_ros.profiling import mark
from trt_ros.ros.dds import intra_process as intra
from trt_ros.ros.dds.rcl import NO_HOOKS, MemoryHooks, Rcl, ReceiveBufferPool
from trt_ros.ros.dds.shared_memory import uses_shared_memory
from trt_ros.ros.dds.shared_receiver import SharedReceiver
from trt_ros.ros.releases import SubscriptionEventCallbacks

#: Time between two looks for events of a subscription that is polled.
EVENTS_SECONDS = 1.0
_HEADER_NBYTES = 4096  # More than images have before their pixels.
_MAX_PUBLISHERS = 64  # The number of publishers whose last message is remembered.


@dataclass(frozen=True)
class MessageCallbacks:
    """
    Callbacks of a subscription to serialized messages.

    :param on_message: called with (N,) uint8, read-only, or with an ImageView of an image that
        came by pointer; one at a time; must not raise.
    :param on_replaced: called for each waiting message but the newest, which alone is delivered.
        None: all messages are delivered.
    :param on_lost: called for each intra-process message that a newer one replaced in the full
        queue of depth `qos.depth`, which DDS does not report. None: as on_replaced, or on_missed.
    :param on_missed: called with the number of messages that never arrived, by gaps in sequence
        numbers; once with 0 where the middleware numbers messages. None: gaps are not reported.
    :param on_incompatible: called with the incompatible QoS policy, such as 'RELIABILITY', of a
        new publisher that offers less than `qos` requests. None: rclpy logs it.
    :param on_reference: called instead of on_message, in the publisher's thread, with a message
        that is passed by reference; must return soon. None: on_message gets these, too.
    :param is_first: whether on_reference is called before those of subscriptions without it.
    :param rehearse: called with an array like the last message, some milliseconds before the next
        one from shared memory is due, to bring the code that reads it into the CPU caches; may
        raise BadFrameError.
    :param is_polled: whether poll() delivers the messages, where the transport can wait with them.
    """

    on_message: Callable[[Any], None]
    on_replaced: Callable[[], None] | None = None
    on_lost: Callable[[], None] | None = None
    on_missed: Callable[[int], None] | None = None
    on_incompatible: Callable[[str], None] | None = None
    on_reference: Callable[[Any], None] | None = None
    is_first: bool = False
    rehearse: Callable[[np.ndarray], object] = lambda message: None
    is_polled: bool = False


class RclSubscription:
    """
    A subscription that takes messages in a thread of its own, or in poll(), into reused memory.

    The arguments are those of subscribe_serialized().

    :ivar info: MessageInfo of the last message taken.
    """

    def __init__(
        self,
        rcl: Rcl,
        node: Node,
        message_type: type,
        topic: str,
        qos: QoSProfile,
        callbacks: MessageCallbacks,
        hooks: MemoryHooks = NO_HOOKS,
    ) -> None:
        self._rcl, self._node = rcl, node
        self._on_message, self._on_replaced = callbacks.on_message, callbacks.on_replaced
        self._on_reference, self._rehearse = callbacks.on_reference, callbacks.rehearse
        self._zeros: np.ndarray = np.empty(0, np.uint8)
        self._like_last: np.ndarray = self._zeros
        self._on_missed = callbacks.on_missed or (lambda count: None)
        self._on_lost = callbacks.on_lost or callbacks.on_replaced or partial(self._on_missed, 1)
        self._max_taken = max(1, qos.depth)
        self._receive_buffers = ReceiveBufferPool(hooks)
        self._registered_pools = intra.RegisteredPools(hooks)
        self.info = self._receive_buffers.info
        self._last: dict[bytes, int] = {}  # Number of the last message of each publisher.
        self._stopping = threading.Event()
        self._is_closed = False
        self._is_polled, self._polling = callbacks.is_polled, threading.Lock()
        self._round_due = 0.0  # Time of the next poll that looks for events.
        self._guard = SignalHandlerGuardCondition(node.context)
        self._buffer: intra.IntraProcessBuffer | None = None
        self._shared: SharedReceiver | None = None
        self._delivering = threading.Lock()
        try:
            if intra.goes_by_reference(rcl, node, qos):
                self._buffer = intra.IntraProcessBuffer(
                    node,
                    message_type,
                    topic,
                    qos,
                    self._guard.trigger,
                    self._deliver_reference,
                    is_first=callbacks.is_first,
                )
            if not self._is_polled and uses_shared_memory(rcl, message_type, qos):
                # It holds messages that wait, as many in use, and some in flight.
                self._shared = SharedReceiver(
                    2 * self._max_taken + 4,
                    self._on_replaced is not None,
                    self._take_shared,
                    self._rehearse_shared,
                    lambda memory: self._registered_pools.add_memory(memory, memory),
                    lambda work: attempt(node, self._stopping, work, 'messages'),
                )
            self._subscription = node.create_subscription(
                message_type,
                topic,
                lambda _: None,
                qos,
                raw=True,
                callback_group=_NeverExecuted(),
                event_callbacks=event_callbacks(callbacks.on_incompatible),
            )
        except Exception:
            self._close_buffer()
            self._close_shared()
            raise
        if rcl.counts_messages:
            self._on_missed(0)
        node.context.on_shutdown(self._wake)
        self._thread = taking_thread(
            node, self._stopping, self._take_messages, 'messages', self._stop_shared
        )
        if not self._is_polled:
            self._thread.start()

    def poll(self) -> None:
        """Deliver the waiting messages in this thread, if that was asked for."""
        with self._polling:
            if not self._is_polled or self._stopping.is_set():
                return
            now = time.monotonic()
            if now >= self._round_due:
                self._round_due = now + EVENTS_SECONDS
                self._take_messages()
                return
            with self._subscription.handle, mark('take'):
                self._take_all(is_ready=True)

    def close(self) -> None:
        """Stop receiving and wait for the message in progress; may be called twice."""
        if self._is_closed:
            return
        self._is_closed = True
        self._close_buffer()
        self._wake()
        if not self._is_polled:
            self._thread.join()
        self._close_shared()
        with self._polling:
            destroy(self._node, self._subscription)
            self._guard.destroy()
            self._receive_buffers.close()
            with self._delivering:  # Waits for the thread of a publisher.
                self._registered_pools.close()

    def _close_buffer(self) -> None:
        if self._buffer is not None:
            self._buffer.close()

    def _stop_shared(self) -> None:
        if self._shared is not None:
            self._shared.stop()

    def _close_shared(self) -> None:
        if self._shared is not None:
            self._shared.close()

    def _take_shared(self, take: Callable[[], np.ndarray | None]) -> None:
        with self._delivering:
            message = take()
            if message is not None:
                self._on_message(message)
                if message.size > self._zeros.size:  # Those that are not read take no memory.
                    self._zeros = np.zeros(message.size, np.uint8)
                self._like_last = self._zeros[: message.size]
                self._like_last[:_HEADER_NBYTES] = message[:_HEADER_NBYTES]
            del message  # Frees its memory for the next one.
        is_more = True
        while is_more:  # Those that came meanwhile.
            with mark('take'), self._delivering:
                is_more = self._deliver(self._taken_shared())

    def _rehearse_shared(self, take: Callable[[], np.ndarray | None]) -> None:
        self._take_shared(take)
        with suppress(BadFrameError), self._delivering:
            self._rehearse(self._like_last)

    def _wake(self) -> None:
        self._stopping.set()
        if self._thread.is_alive():
            self._guard.trigger()

    def _take_messages(self) -> None:
        """Take messages until this is closed; once, if they are polled."""
        context, subscription = self._node.context.handle, self._subscription.handle
        handlers: Any = self._subscription.event_handlers  # A list, which rclpy annotates wrongly.
        events = list(handlers)
        # Entered for the whole time: none is destroyed while rcl has a pointer to it.
        with ExitStack() as entered:
            for each in (context, self._guard.handle, subscription, *events):
                entered.enter_context(each)
            wait_set = rclpy_implementation.WaitSet(1, 1, 0, 0, 0, len(events), context)
            entered.callback(wait_set.destroy_when_not_in_use)
            entered.enter_context(wait_set)
            while not self._stopping.is_set():
                wait_set.clear_entities()
                wait_set.add_subscription(subscription)
                wait_set.add_guard_condition(self._guard.handle)
                for event in events:
                    event.add_to_wait_set(wait_set)
                self._receive_buffers.prepare()
                wait_set.wait(0 if self._is_polled else -1)
                if wait_set.is_ready('guard_condition', 0) and not self._node.context.ok():
                    self._stopping.set()  # By Ctrl-C, in a program that closes nothing.
                    return
                with mark('take'), self._delivering:
                    self._take_all(is_ready=wait_set.is_ready('subscription', 0))
                for event in events:  # Publishers with incompatible QoS, as the executor.
                    if event.is_ready(wait_set):
                        event.callback(event.take_data())
                if self._is_polled:
                    return

    def _deliver_reference(self, message: np.ndarray) -> bool:
        """Deliver a message in the publisher's thread, unless another one is being delivered."""
        if self._on_reference is None or not self._delivering.acquire(blocking=False):
            return False
        try:
            if not self._stopping.is_set():
                self._registered_pools.add(message)
                self._on_reference(message)
        finally:
            self._delivering.release()
        return True

    def _take_all(self, *, is_ready: bool) -> None:
        for _ in range(self._buffer.take_lost() if self._buffer else 0):
            self._on_lost()
        self._deliver(self._waiting(is_ready))

    def _deliver(self, messages: Iterator[np.ndarray]) -> bool:
        """Return whether there was a message."""
        newest, is_any = None, False
        for message in messages:
            if self._on_replaced is None:
                self._on_message(message)
            else:
                if newest is not None:
                    self._on_replaced()
                newest = message
            is_any = True
            del message  # Frees its memory for the next one.
        if newest is not None:
            self._on_message(newest)
        return is_any

    def _waiting(self, is_ready: bool) -> Iterator[np.ndarray]:
        """Yield the waiting messages, up to the queue depth: more can arrive at any time."""
        for _ in range(self._max_taken if is_ready else 0):
            if self._stopping.is_set():
                break
            message = self._receive_buffers.take(self._rcl, self._subscription.handle)
            if message is None:
                break
            if self._is_new_message():
                is_copy = self._is_copy()
                yield from self._taken_shared()
                if not is_copy:
                    yield message
            del message
        if self._buffer is not None:
            for message in self._buffer.take_all(self._stopping):
                self._registered_pools.add(message)
                yield message
                del message

    def _taken_shared(self) -> Iterator[np.ndarray]:
        messages = self._shared.take() if self._shared is not None else []
        self._registered_pools.release()
        while messages:
            yield messages.pop(0)

    def _is_copy(self) -> bool:
        """Return whether the message just taken also arrives without DDS."""
        if self._buffer is None and self._shared is None:
            return False
        rcl, info = self._rcl, self._receive_buffers.info
        gid = rcl.gid_in(info)
        return (self._buffer is not None and self._buffer.is_copy(gid)) or (
            self._shared is not None and self._shared.is_copy(gid, rcl.stamp_in(info))
        )

    def _is_new_message(self) -> bool:
        """Report messages lost before the one just taken; return False if it is a repeated one."""
        rcl, info = self._rcl, self._receive_buffers.info
        if not rcl.counts_messages:
            return True
        gid, number = rcl.gid_in(info), rcl.number_in(info)
        last = self._last.get(gid, number - 1)
        if number <= last:
            return False
        if number > last + 1:
            self._on_missed(number - last - 1)
        if gid not in self._last and len(self._last) == _MAX_PUBLISHERS:
            del self._last[next(iter(self._last))]
        self._last[gid] = number
        return True


def attempt(node: Node, stopping: threading.Event, take: Callable[[], object], noun: str) -> bool:
    """Call `take`, and log its exception; return whether to call it again."""
    try:
        take()
    except InvalidHandle:  # The node was destroyed.
        stopping.set()
    except Exception:
        node.get_logger().error(
            f'Failed to take {noun}.\n{traceback.format_exc()}', throttle_duration_sec=10.0
        )
        stopping.wait(0.1)
    return not stopping.is_set()


def taking_thread(
    node: Node,
    stopping: threading.Event,
    take: Callable[[], object],
    noun: str,
    end: Callable[[], object] = lambda: None,
) -> threading.Thread:
    """Return a thread that calls `take` until `stopping` is set, then `end`."""

    def run() -> None:
        while attempt(node, stopping, take, noun):
            pass
        end()

    return threading.Thread(target=run, name=noun)


def event_callbacks(on_incompatible: Callable[[str], None] | None) -> SubscriptionEventCallbacks:
    """Return callbacks that pass the name of an incompatible QoS policy to `on_incompatible`."""
    if on_incompatible is None:
        return SubscriptionEventCallbacks()

    def report(event: Any) -> None:
        on_incompatible(qos_policy_name_from_kind(event.last_policy_kind))

    return SubscriptionEventCallbacks(incompatible_qos=report)


def destroy(node: Node, subscription: Subscription | None) -> None:
    """Destroy a subscription, in the executor's thread for managed nodes."""
    if subscription is not None:
        run_on_executor = getattr(node, 'run_on_executor', lambda work: work())
        run_on_executor(lambda: node.destroy_subscription(subscription))


class _NeverExecuted(ReentrantCallbackGroup):
    """
    A callback group that hides a subscription and its events from the executor.

    The events, too: they share a condition with the messages, so the executor would wake up for
    each message, repeatedly until it is taken.
    """

    def can_execute(self, entity: Any) -> bool:
        return False
