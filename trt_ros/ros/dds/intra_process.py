"""
Intra-process communication: messages by reference between nodes of one process.

A message is its serialized bytes. Images are written into and read from these bytes in place, so
a read-only view is passed to the subscriber, without DDS and without a copy.

DDS still connects publisher and subscriber. It delivers to other processes, to nodes without
`use_intra_process_comms`, and to subscriptions with transient local durability. Messages that
arrive both ways are dropped by the publisher's id.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Iterator
from dataclasses import dataclass
import threading
from typing import Any
import weakref

import numpy as np
from rclpy.context import Context
from rclpy.node import Node
from rclpy.publisher import Publisher
from rclpy.qos import (
    DurabilityPolicy,
    HistoryPolicy,
    QoSCompatibility,
    QoSProfile,
    qos_check_compatible,
)

from trt_ros.ros.dds.memory import Memory, pool_memory_of, read_only
from trt_ros.ros.dds.rcl import MemoryHooks, Rcl

_Key = tuple[Context, str, object]  # Context, resolved topic, message type.

_lock = threading.Lock()
# The tuples are immutable: readers need no lock.
_buffers: dict[_Key, tuple[IntraProcessBuffer, ...]] = {}


def is_requested(node: Node, qos: QoSProfile) -> bool:
    """
    Return whether messages of this node and QoS may be passed by reference.

    The container sets the attribute before it constructs the node; so can any program.
    """
    return (
        getattr(node, 'use_intra_process_comms', False)
        and qos.history == HistoryPolicy.KEEP_LAST
        and qos.durability == DurabilityPolicy.VOLATILE
    )


def goes_by_reference(rcl: Rcl, node: Node, qos: QoSProfile) -> bool:
    """Return whether messages pass by reference within the process; log why not if requested."""
    is_wanted = is_requested(node, qos)
    if is_wanted and not rcl.knows_gids:
        node.get_logger().warning(
            'use_intra_process_comms has no effect. Cause: this middleware does not report the '
            'publisher of a message.',
            once=True,
        )
    return is_wanted and rcl.knows_gids


class IntraProcessBuffer:
    """
    The newest messages for a subscription of this process, up to its QoS depth.

    Create it before the DDS subscription: messages from DDS are dropped as soon as their publisher
    passes them by reference.

    :param wake: called in the publisher's thread when a message waits; must not block.
    :param deliver: called in the publisher's thread with a message while none waits; returns
        whether it has been delivered, and need not wait.
    :param is_first: whether messages are delivered here before the buffers without it.
    """

    def __init__(
        self,
        node: Node,
        message_type: type,
        topic: str,
        qos: QoSProfile,
        wake: Callable[[], None],
        deliver: Callable[[np.ndarray], bool] = lambda message: False,
        *,
        is_first: bool = False,
    ) -> None:
        self._key = node.context, node.resolve_topic_name(topic), message_type
        self._qos, self._wake, self._deliver = qos, wake, deliver
        self._lock = threading.Lock()
        self._waiting: deque[np.ndarray] = deque(maxlen=max(1, qos.depth))
        self._lost = 0
        # Whether DDS also delivered messages of a publisher that passes references, by its id.
        self._publishers: dict[bytes, bool] = {}
        self._incompatible: set[bytes] = set()
        self._is_closed = False
        with _lock:
            others = _buffers.get(self._key, ())
            _buffers[self._key] = (self, *others) if is_first else (*others, self)

    def put(self, message: np.ndarray, gid: bytes, qos: QoSProfile) -> bool:
        """
        Add a message; never waits for the subscriber.

        :param gid, qos: the publisher's.
        :returns: whether DDS is known to connect the publisher with this subscription, too, so
            that DDS need not send this message.
        """
        with self._lock:
            if self._is_closed or not self._is_compatible(gid, qos):
                return False
            is_matched, is_next = self._publishers[gid], not self._waiting
        if is_next and self._deliver(message):
            return is_matched
        with self._lock:
            if not self._is_closed:
                self._lost += len(self._waiting) == self._waiting.maxlen
                self._waiting.append(message)
                self._wake()
        return is_matched

    def take_all(self, stopping: threading.Event) -> Iterator[np.ndarray]:
        """Yield the waiting messages, up to the queue depth: more can arrive at any time."""
        for _ in range(self._waiting.maxlen or 0):
            with self._lock:
                if stopping.is_set() or not self._waiting:
                    return
                message = self._waiting.popleft()
            yield message
            del message

    def take_lost(self) -> int:
        """Return the number of messages replaced by newer ones since the last call."""
        with self._lock:
            lost, self._lost = self._lost, 0
            return lost

    def is_copy(self, gid: bytes) -> bool:
        """Return whether the publisher of a message from DDS also passes it by reference."""
        with self._lock:
            is_here = gid in self._publishers
            if is_here:
                self._publishers[gid] = True
            return is_here

    def close(self) -> None:
        """Stop accepting messages; may be called twice."""
        with _lock:
            left = tuple(each for each in _buffers.pop(self._key, ()) if each is not self)
            if left:
                _buffers[self._key] = left
        with self._lock:
            self._is_closed = True
            self._waiting.clear()

    def _is_compatible(self, gid: bytes, qos: QoSProfile) -> bool:
        if gid not in self._publishers and gid not in self._incompatible:
            if qos_check_compatible(qos, self._qos)[0] == QoSCompatibility.ERROR:
                self._incompatible.add(gid)
            else:
                self._publishers[gid] = False
        return gid in self._publishers


@dataclass
class _Registration:
    """Pool memory that a subscription has registered, and the last message in it."""

    pages: np.ndarray
    message: weakref.ref[np.ndarray]
    memory: weakref.ref[Any]


class RegisteredPools:
    """
    Memory of publishers' pools, registered with a subscription's hooks from its first message on.

    Owns the registrations, borrows the memory. For one thread.
    """

    def __init__(self, hooks: MemoryHooks) -> None:
        self._hooks = hooks
        self._registrations: dict[int, _Registration] = {}
        self._freed: deque[int] = deque()

    def release(self) -> None:
        """Unregister the memory that was freed."""
        while self._freed:
            self._hooks.unregister(self._registrations.pop(self._freed.popleft()).pages)

    def add(self, message: np.ndarray) -> None:
        """Register the memory of a message that was passed by reference, if it is of a pool."""
        memory = pool_memory_of(message)
        if memory is not None:
            self.add_memory(memory, message)

    def add_memory(self, memory: Memory, used: Any) -> None:
        """Register memory, which is in use as long as `used` is referenced."""
        self.release()
        key, last = id(memory.pages), weakref.ref(used)
        if key in self._registrations:
            self._registrations[key].message = last
            return
        freed = self._freed  # A callback runs in any thread, so it must not call the hooks.
        self._hooks.register(memory.pages)
        self._registrations[key] = _Registration(
            memory.pages, last, weakref.ref(memory, lambda _: freed.append(key))
        )

    def close(self) -> None:
        """Unregister all memory; that of messages still in use when these are dropped."""
        while self._registrations:
            _, registration = self._registrations.popitem()
            message = registration.message()
            if message is None:
                self._hooks.unregister(registration.pages)
            else:
                end = weakref.finalize(message, self._hooks.unregister, registration.pages)
                end.atexit = False


def intra_process_deliver(
    node: Node, publisher: Publisher, gid: bytes
) -> Callable[[np.ndarray], int]:
    """
    Return the intra-process side of a publisher, with its id in DDS.

    The function passes a message, (N,) uint8, on, and returns how many DDS subscriptions got it.
    """
    key, qos = (node.context, publisher.topic_name, publisher.msg_type), publisher.qos_profile
    return lambda message: sum(
        [each.put(read_only(message), gid, qos) for each in _buffers.get(key, ())]
    )
