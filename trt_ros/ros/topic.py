"""Topics that a node subscribes to, with their counters, and exceptions that drop messages."""

from collections.abc import Callable, Sequence
from operator import attrgetter
from typing import Any

from rclpy.exceptions import InvalidTopicNameException
from rclpy.node import Node

from trt_ros.errors import BadFrameError, GpuFailedError, ParameterError, log_text, problem_of
from trt_ros.ros.codecs.codec import Codec, Content, Stamp
from trt_ros.ros.diagnostics import CountedTopic, FrameCounts
from trt_ros.ros.lifecycle import ManagedNode
from trt_ros.ros.qos import type_name, why_lost, why_silent
from trt_ros.ros.sync import AHEAD, NO_PARTNER, TOO_OLD


class Dropping:
    """
    Turns an exception into a dropped frame, counted and logged by its cause; a context manager.

    A failed GPU also deactivates the node. It may be entered again, and by several threads.

    :param origin: identifies the frame in the log, as in ' of /camera/image'.
    :param others: further counters of the frame.
    """

    def __init__(
        self,
        node: ManagedNode,
        counts: FrameCounts,
        origin: str = '',
        others: Sequence[FrameCounts] = (),
    ) -> None:
        self._node, self._counts, self._origin, self._others = node, counts, origin, others

    def __enter__(self) -> None:
        pass

    def __exit__(self, kind: object, error: BaseException | None, trace: object) -> bool:
        if not isinstance(error, Exception):
            return False
        cause = getattr(error, 'kind', type(error).__name__)
        for each in self._others:
            each.drop(cause)
        if self._counts.drop(cause, problem_of(error)):
            self._node.get_logger().error(
                f'A frame{self._origin} was dropped ({cause}). {log_text(error)}'
            )
        if isinstance(error, GpuFailedError):
            self._node.fail(error)
        return True


class Topic(CountedTopic):
    """
    A topic that a node subscribes to, its counters, and the reasons why it has no messages.

    :param name: as in parameters and diagnostics; `codec` has the topic subscribed to.
    :param max_age: maximum age in seconds of a sampled or held message, and maximum time by which
        its stamp is ahead; None sets no limit.
    :param is_held: whether its newest message is kept for the runs, which other topics start.
    :param first: value of a held topic without a message of `max_age`; None for none.
    :ivar dropping: turns an exception into a dropped message.
    :ivar stamp: of its message in the last set.
    :ivar prepare: called with each content before it is used; returns its value for the run, or
        raises BadFrameError.
    """

    def __init__(
        self,
        node: ManagedNode,
        name: str,
        codec: Codec,
        counts: FrameCounts,
        max_age: float | None = None,
        is_held: bool = False,
        first: Any = None,
    ) -> None:
        super().__init__(name, counts)
        self._node, self.codec, self.max_age = node, codec, max_age
        self.is_held = self.may_be_silent = is_held
        self._first = first
        self._newest: tuple[Stamp, Any] | None = None
        self.dropping = Dropping(node, counts, f' of {node.resolve_topic_name(codec.topic)}')
        self.stamp: Stamp = 0, 0
        counts.noun = codec.noun
        self.prepare: Callable[[Content], Any] = attrgetter('value')

    def hold(self, stamp: Stamp, value: Any) -> None:
        """Replace the message that is held; from any thread."""
        self._newest = stamp, value

    def held_value(self) -> Any:
        """Return what is held for a run that begins now, or raise BadFrameError."""
        newest = self._newest
        if newest is not None:
            (seconds, nanoseconds), value = newest
            now = self._node.get_clock().now()
            age = now.nanoseconds * 1e-9 - seconds - nanoseconds * 1e-9
            if self.max_age is None or abs(age) <= self.max_age:
                return value
        if self._first is not None:
            return self._first
        topic = self._node.resolve_topic_name(self.codec.topic)
        if newest is None:
            raise BadFrameError(
                'no held message',
                f'There is no message on {topic} yet, which inputs holds.',
                remedy='Publish one, or set ?initial= of the binding.',
            )
        raise BadFrameError(
            TOO_OLD if age > 0 else AHEAD,
            f'The message held of {topic} is {abs(age):.3f} s '
            f'{"old" if age > 0 else "ahead of the clock"}.',
            cause=f'Its max_age is {self.max_age:g} s.',
            remedy='Publish more often, or set ?initial= of the binding.',
        )

    def why_silent(self) -> str:
        name = type_name(self.codec.message_type)
        return self._located(why_silent(self._node, self.codec.topic, name))

    def why_lost(self) -> str:
        return self._located(why_lost(self._node, self.codec.topic))

    def _located(self, why: str) -> str:
        return f'on {self._node.resolve_topic_name(self.codec.topic)}: {why}'


def resolve_topic(node: Node, name: str, parameter: str) -> str:
    """Return the full name of a topic in a parameter, or raise ParameterError."""
    try:
        return str(node.resolve_topic_name(name))
    except (InvalidTopicNameException, RuntimeError) as error:
        raise ParameterError(
            f'{parameter} has an invalid topic {name!r}.', cause=str(error)
        ) from error


def without_partner(node: ManagedNode, topics: Sequence[Topic], remedy: str) -> str:
    """Return how many messages of each topic found no partner, and the remedy; '' for none."""
    counts = ', '.join(
        f'{node.resolve_topic_name(topic.name)} {topic.counts.dropped[NO_PARTNER]}'
        for topic in topics
        if topic.counts.dropped[NO_PARTNER]
    )
    return f'(messages without partner: {counts}; {remedy})' if counts else ''
