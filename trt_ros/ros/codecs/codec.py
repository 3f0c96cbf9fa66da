"""Base class of codecs: how the messages of a topic are subscribed to and read."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Callable
from typing import Any, ClassVar, NamedTuple

import numpy as np
from rclpy.node import Node
from std_msgs.msg import Header

from trt_ros.ros.dds.cdr import ImageView, read_stamp
from trt_ros.ros.dds.rcl import MemoryHooks

#: Seconds, nanoseconds.
Stamp = tuple[int, int]
#: A serialized message, (N,) uint8, or an image that came by pointer.
Serialized = np.ndarray | ImageView


class Content(NamedTuple):
    """
    The content of one message.

    :param value: a frame, arrays by name, or a ROS message; may be a view into the message.
    """

    value: Any
    frame_id: str
    stamp: Stamp


def to_header(frame_id: str, stamp: Stamp) -> Header:
    """Return a header as a message."""
    header = Header(frame_id=frame_id)
    header.stamp.sec, header.stamp.nanosec = stamp
    return header


class Codec(ABC):
    """
    The messages of one topic; one subclass per message family.

    :param topic: topic that is subscribed to, as for create_subscription().
    :cvar noun: kind of message in diagnostics: 'image' or 'message'.
    :cvar has_stamp: whether the messages have a header; else their stamp is the time of arrival.
    :cvar follows_type: whether follow_type() may change while the node is active.
    """

    noun: ClassVar[str] = 'message'
    has_stamp: ClassVar[bool] = True
    follows_type: ClassVar[bool] = False
    message_type: type

    def __init__(self, node: Node, topic: str) -> None:
        self.node, self.topic = node, topic

    def follow_type(self) -> type:
        """Return the message type to subscribe to now, which becomes `message_type`."""
        return self.message_type

    def hooks(self, hooks: MemoryHooks) -> MemoryHooks:
        """Return the hooks for the memory of the messages, of those for raw images."""
        return hooks._replace(expected_nbytes=0)

    def stamp_of(self, message: Serialized) -> Stamp:
        """Return the stamp of a message on arrival; raises BadFrameError."""
        return read_stamp(message)

    @abstractmethod
    def reader(self) -> Callable[[Any], Content]:
        """Return the function that reads messages of the present type; it raises BadFrameError."""
