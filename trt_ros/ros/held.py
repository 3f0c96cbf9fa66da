"""Topics whose messages are held: runs take the newest, and other topics start them."""

from typing import Any

from rclpy.node import Node

from trt_ros.errors import BadFrameError
from trt_ros.ros.codecs.codec import Stamp
from trt_ros.ros.sync import TOO_OLD


class HeldTopic:
    """The newest message of a topic, or `first` without one of `max_age`; thread-safe."""

    def __init__(self, node: Node, topic: str, max_age: float | None, first: Any) -> None:
        self._clock, self._topic = node.get_clock(), node.resolve_topic_name(topic)
        self._max_age, self._first = max_age, first
        self._newest: tuple[Stamp, Any] | None = None

    def put(self, stamp: Stamp, value: Any) -> None:
        """Replace the message."""
        self._newest = stamp, value

    def value(self) -> Any:
        """Return the value for a run that begins now, or raise BadFrameError."""
        newest = self._newest
        if newest is not None:
            (seconds, nanoseconds), value = newest
            age = self._clock.now().nanoseconds * 1e-9 - seconds - nanoseconds * 1e-9
            if self._max_age is None or age <= self._max_age:
                return value
        if self._first is not None:
            return self._first
        if newest is None:
            raise BadFrameError(
                'no held message',
                f'There is no message on {self._topic} yet, which inputs holds.',
                remedy='Publish one, or set ?initial= of the binding.',
            )
        raise BadFrameError(
            TOO_OLD,
            f'The message held of {self._topic} is {age:.3f} s old.',
            cause=f'Its max_age is {self._max_age:g} s.',
            remedy='Publish more often, or set ?initial= of the binding.',
        )
