"""A topic that a node subscribes to, with its counters."""

from collections.abc import Callable, Sequence
from typing import Any

from trt_ros.ros.codecs.codec import Codec, Stamp
from trt_ros.ros.diagnostics import CountedTopic, FrameCounts
from trt_ros.ros.held import HeldTopic
from trt_ros.ros.lifecycle import ManagedNode
from trt_ros.ros.qos import type_name, why_lost, why_silent
from trt_ros.ros.sync import NO_PARTNER


class Topic(CountedTopic):
    """
    A topic that a node subscribes to, its counters, and the reasons why it has no messages.

    :param name: as in parameters and diagnostics; `codec` has the topic subscribed to.
    :param max_age: maximum age in seconds of a sampled or held message; None sets no limit.
    :param held: what keeps its messages, if they start no run.
    :ivar stamp: of its message in the last set.
    :ivar prepare: called with each value before it is used; may raise BadFrameError.
    """

    def __init__(
        self,
        node: ManagedNode,
        name: str,
        codec: Codec,
        counts: FrameCounts,
        max_age: float | None = None,
        held: HeldTopic | None = None,
    ) -> None:
        super().__init__(name, counts)
        self._node, self.codec, self.max_age, self.held = node, codec, max_age, held
        self.stamp: Stamp = 0, 0
        counts.noun = codec.noun
        self.may_be_silent = held is not None
        self.prepare: Callable[[Any], Any] = lambda value: value

    def why_silent(self) -> str:
        """Return the resolved topic and the likely reason why it has no messages."""
        name = type_name(self.codec.message_type)
        return self._located(why_silent(self._node, self.codec.topic, name))

    def why_lost(self) -> str:
        """Return the resolved topic and the likely reason why its messages are lost."""
        return self._located(why_lost(self._node, self.codec.topic))

    def _located(self, why: str) -> str:
        return f'on {self._node.resolve_topic_name(self.codec.topic)}: {why}'


def without_partner(node: ManagedNode, topics: Sequence[Topic], remedy: str) -> str:
    """Return how many messages of each topic found no partner, and the remedy; '' for none."""
    counts = ', '.join(
        f'{node.resolve_topic_name(topic.name)} {topic.counts.dropped[NO_PARTNER]}'
        for topic in topics
        if topic.counts.dropped[NO_PARTNER]
    )
    return f'(messages without partner: {counts}; {remedy})' if counts else ''
