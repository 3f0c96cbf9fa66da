"""
Messages by reference, where publisher and subscriber are nodes of one process.

A message is its serialized bytes, which images are drawn into and read from where they lie; so
what is handed over is a read-only view of these, and neither DDS nor a copy is in the way.

DDS still connects the two, and brings what is published to subscribers elsewhere, to nodes that
are not asked to do this, and to subscriptions that want what was published before they came.
What it brings twice is left out by the publisher's id.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Callable
import threading

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

from trt_ros.ros.dds.memory import read_only

_Key = tuple[Context, str, type]  # Context, resolved topic, type.

_lock = threading.Lock()
_buffers: dict[_Key, tuple[IntraProcessBuffer, ...]] = {}  # A tuple is replaced, never changed.


def is_requested(node: Node, qos: QoSProfile) -> bool:
    """
    Tell whether messages of this node and QoS may go by reference.

    The container sets the attribute before the node is constructed; so may any program.
    """
    return (
        getattr(node, 'use_intra_process_comms', False)
        and qos.history == HistoryPolicy.KEEP_LAST
        and qos.durability == DurabilityPolicy.VOLATILE
    )


def count_buffers() -> int:
    """Count the subscriptions of this process that messages are handed to."""
    with _lock:
        return sum(map(len, _buffers.values()))


class IntraProcessBuffer:
    """
    Where messages wait for a subscription of this process: the newest, as many as its depth.

    Must be there before DDS knows the subscription: what DDS brings of a publisher is left out
    from the moment when that one hands over.

    :param wake: called in the publisher's thread when a message waits; must not block.
    """

    def __init__(
        self, node: Node, message_type: type, topic: str, qos: QoSProfile, wake: Callable[[], None]
    ) -> None:
        self._key = node.context, node.resolve_topic_name(topic), message_type
        self._qos, self._wake = qos, wake
        self._lock = threading.Lock()
        self._waiting: deque[np.ndarray] = deque(maxlen=max(1, qos.depth))
        self._lost = 0
        # Publishers that hand over, by id: whether DDS was seen to bring their messages too.
        self._publishers: dict[bytes, bool] = {}
        self._strangers: set[bytes] = set()
        self._is_closed = False
        with _lock:
            _buffers[self._key] = (*_buffers.get(self._key, ()), self)

    def change_qos(self, qos: QoSProfile) -> None:
        """Take from publishers with another QoS from now on; the depth stays."""
        with self._lock:
            self._qos = qos
            self._strangers.clear()

    def put(self, message: np.ndarray, gid: bytes, qos: QoSProfile) -> bool:
        """
        Hand over a message; never waits for the subscriber.

        :param gid, qos: the publisher's.
        :returns: whether DDS, too, is known to connect that publisher with this subscription, and
            need not for this message.
        """
        with self._lock:
            if self._is_closed or not self._may_talk(gid, qos):
                return False
            self._lost += len(self._waiting) == self._waiting.maxlen
            self._waiting.append(message)
            self._wake()
            return self._publishers[gid]

    def take(self) -> np.ndarray | None:
        """Take the oldest message that waits."""
        with self._lock:
            return self._waiting.popleft() if self._waiting else None

    def take_lost(self) -> int:
        """Count the messages that had to go for newer ones since this was asked last."""
        with self._lock:
            lost, self._lost = self._lost, 0
            return lost

    def is_copy(self, gid: bytes) -> bool:
        """Tell whether a message that DDS brought was handed over, too, by its publisher's id."""
        with self._lock:
            is_here = gid in self._publishers
            if is_here:
                self._publishers[gid] = True
            return is_here

    def close(self) -> None:
        """Take nothing more; may be called twice."""
        with _lock:
            left = tuple(each for each in _buffers.pop(self._key, ()) if each is not self)
            if left:
                _buffers[self._key] = left
        with self._lock:
            self._is_closed = True
            self._waiting.clear()

    def _may_talk(self, gid: bytes, qos: QoSProfile) -> bool:
        if gid not in self._publishers and gid not in self._strangers:
            if qos_check_compatible(qos, self._qos)[0] == QoSCompatibility.ERROR:
                self._strangers.add(gid)
            else:
                self._publishers[gid] = False
        return gid in self._publishers


class IntraProcessPublisher:
    """
    Where a publisher hands its messages over to the subscriptions of its process.

    :param gid: its id in DDS.
    """

    def __init__(self, node: Node, publisher: Publisher, gid: bytes) -> None:
        self._key = node.context, publisher.topic_name, publisher.msg_type
        self._gid, self._qos = gid, publisher.qos_profile

    def hand_over(self, message: np.ndarray) -> int:
        """
        Hand a message, (N,) uint8, to whom it may concern; it must not change any more.

        :returns: how many of the publisher's subscriptions in DDS need not be told by that.
        """
        return sum(
            [
                each.put(read_only(message), self._gid, self._qos)
                for each in _buffers.get(self._key, ())
            ]
        )
