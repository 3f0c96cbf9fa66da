"""Base class of codecs: how the messages of a topic are subscribed to and read."""

from abc import ABC, abstractmethod
from collections.abc import Callable, Sequence
from typing import Any, ClassVar

import numpy as np
from rclpy.node import Node
from std_msgs.msg import Header

from trt_ros.ros.dds.cdr import Content as Content
from trt_ros.ros.dds.cdr import ImageView, read_stamp
from trt_ros.ros.dds.cdr import Stamp as Stamp
from trt_ros.ros.qos import type_name

#: A serialized message, (N,) uint8, or an image that came by pointer.
Serialized = np.ndarray | ImageView


def to_header(frame_id: str, stamp: Stamp) -> Header:
    """Return a header as a message."""
    header = Header(frame_id=frame_id)
    target = header.stamp
    target.sec, target.nanosec = stamp
    return header


class Codec(ABC):
    """
    The messages of one topic; one subclass per message family.

    :param topic: topic that is subscribed to, as for create_subscription().
    :cvar noun: kind of message in diagnostics: 'image' or 'message'.
    :cvar has_names: whether a message holds several arrays by name.
    :cvar needs_all: whether each message is read on arrival, in order; None is read where the
        content comes with a later one.
    :cvar min_depth: minimum queue depth.
    :cvar is_copied: whether no value lies in the memory of its message.
    :ivar message_type: the present type of the messages.
    :ivar message_types: those that it follows the publishers among; () for `message_type` alone.
    :ivar image_at: size of the last message that was parsed, and where the pixels begin in it; -1
        without any.
    """

    noun: ClassVar[str] = 'message'
    has_names: ClassVar[bool] = True
    needs_all: ClassVar[bool] = False
    min_depth: ClassVar[int] = 1
    is_copied: ClassVar[bool] = False
    message_type: type
    message_types: Sequence[type] = ()
    image_at = -1, 0

    def __init__(self, node: Node, topic: str) -> None:
        self.node, self.topic = node, topic

    @property
    def has_stamp(self) -> bool:
        """Whether the messages have a header; else their stamp is the time of arrival."""
        return True

    def follow(self) -> tuple[str, type]:
        """Return the topic and type to subscribe to from now on; a published type stays."""
        if self.message_types:
            publishers = self.node.get_publishers_info_by_topic(self.topic)
            names = {info.topic_type for info in publishers}
            published = [each for each in self.message_types if type_name(each) in names]
            if published and self.message_type not in published:
                self.message_type = published[0]
        return self.topic, self.message_type

    def lose(self, count: int) -> None:
        """Take note of messages that were lost before the next one."""
        return

    def close(self) -> None:
        """Forget the messages read so far, since the next ones are not read."""
        return

    def stamp_of(self, message: Serialized) -> Stamp:
        """Return the stamp of a message on arrival, in node time; raises BadFrameError."""
        if self.has_stamp:
            return read_stamp(message)
        seconds, nanoseconds = self.node.get_clock().now().seconds_nanoseconds()
        return int(seconds), int(nanoseconds)

    def rehearse(self, read: Callable[[Any], Content], like_last: np.ndarray) -> None:
        """Read an array like the last message, unless that would convert its pixels."""
        if like_last.size == self.image_at[0]:
            read(like_last)

    @abstractmethod
    def reader(self) -> Callable[[Any], Content]:
        """Return the function that reads messages of the present type; it raises BadFrameError."""
