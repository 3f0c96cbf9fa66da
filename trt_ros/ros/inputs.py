"""Subscriptions to the topics of a network, whose messages meet by stamp or are sampled."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from contextlib import ExitStack, closing
from dataclasses import dataclass
from functools import partial
from typing import Any

import numpy as np
from rclpy.callback_groups import ReentrantCallbackGroup
from std_msgs.msg import Header

from trt_ros.errors import ParameterError
from trt_ros.profiling import mark
from trt_ros.ros.dds.rcl import NO_HOOKS, MemoryHooks
from trt_ros.ros.dds.rcl_subscription import MessageCallbacks
from trt_ros.ros.diagnostics import QUEUE_AGE, FrameCounts, LatencyMeter
from trt_ros.ros.following import RetypedSubscription
from trt_ros.ros.images import subscribe_input, wait_for_input
from trt_ros.ros.lifecycle import ManagedNode
from trt_ros.ros.message_sets import MessageSets, Stamp
from trt_ros.ros.parameters import param
from trt_ros.ros.worker import REPLACED, RESET, UNWANTED, FairWorker


@dataclass(frozen=True)
class SynchronizationParameters:
    """Parameters of the synchronization of several inputs."""

    approximate_sync: bool = param(
        False,
        'Whether messages of several inputs meet if their stamps are close; false needs equal '
        'stamps.',
    )
    approximate_sync_tolerance_seconds: float = param(
        0.01,
        'Maximum difference of the stamps of one set in seconds, for approximate_sync; less than '
        'half the period of the slowest input.',
        between=(1e-6, 10.0),
    )
    queue_size: int = param(
        5,
        'Maximum number of messages per input that wait for messages of the other inputs.',
        between=(1, 1000),
    )

    @property
    def rate_hz(self) -> float:
        """Rate of samples in Hz; 0.0 matches messages by stamp."""
        return 0.0

    def tolerance_ns(self) -> int:
        """Return the maximum difference of the stamps of one set in nanoseconds."""
        if not self.approximate_sync:
            return 0
        return round(1e9 * self.approximate_sync_tolerance_seconds)

    def describe_synchronization(self) -> str:
        """
        Return the kind of synchronization in words.

        :raises ParameterError: when the parameters contradict each other.
        """
        if self.rate_hz and self.approximate_sync:
            raise ParameterError(
                f'approximate_sync is true, but rate_hz is {self.rate_hz}.',
                cause='Inputs are either matched by stamp or sampled at a rate.',
                remedy='Set approximate_sync to false, or rate_hz to 0.0.',
            )
        if self.rate_hz:
            return f'newest messages, sampled at {self.rate_hz:g} Hz'
        if self.approximate_sync:
            return f'stamps at most {self.approximate_sync_tolerance_seconds:g} s apart'
        return 'equal stamps'


@dataclass(frozen=True)
class SamplingParameters(SynchronizationParameters):
    """Parameters of the synchronization of several inputs, which may also be sampled."""

    rate_hz: float = param(
        0.0,
        'Rate in Hz at which the newest messages of all inputs are sampled, whatever their '
        'stamps; 0.0 matches them by stamp instead.',
        between=(0.001, 1000.0),
        or_zero=True,
    )


@dataclass(frozen=True)
class InputTopic:
    """
    A topic of one or several network inputs.

    :param name: as for create_subscription().
    :param counts: counters of its messages.
    :param stamp_of: returns the stamp of a serialized message on arrival; raises BadFrameError.
    :param read: returns the content of a message for `infer` and its frame_id; raises
        BadFrameError.
    :param max_age: maximum age in seconds of a sampled message; None sets no limit.
    :param follow: returns this topic with the message type that is published now; None where the
        type is fixed.
    """

    name: str
    message_type: type
    counts: FrameCounts
    stamp_of: Callable[[np.ndarray], Stamp]
    read: Callable[[np.ndarray], tuple[Any, str]]
    max_age: float | None = None
    follow: Callable[[], InputTopic] | None = None


#: The stamp, and the function that reads the content.
_Message = tuple[Stamp, Callable[[], tuple[Any, str]]]


@dataclass(frozen=True)
class _Set:
    epoch: int
    messages: tuple[_Message, ...]


class InputStream:
    """
    Subscriptions to several topics whose sets of messages are inferred, until close().

    The newest complete set wins. A set with a bad message is dropped, counted by cause, and logged
    at a limited rate. A jump of time back drops all waiting messages and resets the state.

    :param node: its parameters include InputParameters and SynchronizationParameters.
    :param counts: counters of the results, and timings.
    :param primary: index of the topic whose header the results get.
    :param infer: called with the contents of a set, by topic; returns the result.
    :param publish: called with a result and the header of the primary topic.
    :param reset_state: called before the first set and after each reset, never during `infer`.
    :param in_flight: number of calls of `infer` that may overlap; 1 where a run needs the state
        of the previous one.
    """

    def __init__(
        self,
        node: ManagedNode,
        counts: FrameCounts,
        topics: Sequence[InputTopic],
        infer: Callable[[list[Any]], Any],
        publish: Callable[[Any, Header], None],
        *,
        primary: int = 0,
        reset_state: Callable[[], None] = lambda: None,
        is_wanted: Callable[[], bool] = lambda: True,
        in_flight: int = 1,
        hooks: MemoryHooks = NO_HOOKS,
    ) -> None:
        self._node, self._counts, self._topics = node, counts, tuple(topics)
        self._infer, self._publish, self._reset_state = infer, publish, reset_state
        self._primary, self._is_wanted, self._hooks = primary, is_wanted, hooks
        self._latency = LatencyMeter(node, counts)
        parameters = node.parameters
        # All messages are needed where they wait for partners.
        self._is_newest_only = parameters.rate_hz > 0 or len(self._topics) == 1
        self._state_epoch = -1
        with ExitStack() as undo:
            self._worker = undo.enter_context(
                closing(
                    FairWorker[_Set, 'tuple[Any, Header] | None'](
                        lambda items: self._handle(items[0][1]),
                        lambda _, cause: self._sets.drop_all(cause),
                        lanes=1,
                        deliver=self._deliver,
                        in_flight=in_flight,
                        on_taken=partial(counts.record_duration, QUEUE_AGE),
                        max_rate_hz=lambda: parameters.max_rate_hz,
                    )
                )
            )
            self._sets = undo.enter_context(
                closing(
                    MessageSets[_Message](
                        node,
                        [(topic.name, topic.counts) for topic in self._topics],
                        lambda messages: self._worker.put(_Set(self._sets.epoch, messages)),
                        queue_size=parameters.queue_size,
                        tolerance_ns=parameters.tolerance_ns(),
                        max_ages=[topic.max_age for topic in self._topics]
                        if parameters.rate_hz > 0
                        else None,
                        primary=primary,
                    )
                )
            )
            wait_for_input(node, [topic.name for topic in self._topics])
            for number, topic in enumerate(self._topics):
                undo.enter_context(closing(self._subscribe_following(number, topic)))
            if parameters.rate_hz > 0:
                self._start_timer(undo, 1 / parameters.rate_hz)
            self._owned = undo.pop_all()

    def close(self) -> None:
        """Stop receiving, then wait for the sets in progress."""
        self._owned.close()

    def reset(self) -> None:
        """Drop all waiting messages; the next set starts with zero states. From any thread."""
        self._sets.reset(RESET)

    def _subscribe_following(self, number: int, topic: InputTopic) -> Any:
        follow = topic.follow
        if follow is None:
            return self._subscribe(number, topic)
        return RetypedSubscription(
            self._node,
            topic.name,
            lambda: follow().message_type,
            lambda: self._subscribe(number, follow()),
        )

    def _subscribe(self, number: int, topic: InputTopic) -> Any:
        parameters, replaced = self._node.parameters, partial(self._replace, topic)
        return subscribe_input(
            self._node,
            topic.message_type,
            topic.name,
            MessageCallbacks(
                partial(self._receive, number, topic),
                on_replaced=replaced if self._is_newest_only else None,
                on_lost=replaced,
                on_missed=topic.counts.miss,
            ),
            self._hooks,
            depth=parameters.qos_depth
            if self._is_newest_only
            else max(parameters.qos_depth, parameters.queue_size),
        )

    def _start_timer(self, undo: ExitStack, period: float) -> None:
        node = self._node
        # In node time: a simulation that stands still takes no samples.
        timer = node.create_timer(
            period, self._sets.sample, callback_group=ReentrantCallbackGroup()
        )
        undo.callback(node.run_on_executor, lambda: node.destroy_timer(timer))

    def _replace(self, topic: InputTopic) -> None:
        topic.counts.receive()
        topic.counts.drop(REPLACED)

    def _receive(self, number: int, topic: InputTopic, message: np.ndarray) -> None:
        topic.counts.receive()
        if not self._is_wanted():
            topic.counts.drop(UNWANTED)
            return
        with self._sets.dropping_message(number):
            stamp = topic.stamp_of(message)
            self._sets.add(number, stamp, (stamp, partial(topic.read, message)))

    def _handle(self, found: _Set) -> tuple[Any, Header] | None:
        if found.epoch != self._sets.epoch:
            self._sets.drop_all(RESET)
            return None
        if found.epoch != self._state_epoch:
            self._state_epoch = found.epoch
            self._reset_state()
        contents: list[Any] = []
        header = Header()
        for number, (stamp, read) in enumerate(found.messages):
            with self._sets.dropping_set(number), mark('read'):
                content, frame_id = read()
                contents.append(content)
                if number == self._primary:
                    header.frame_id = frame_id
                    header.stamp.sec, header.stamp.nanosec = stamp
                continue
            return None
        with self._sets.dropping_set(), self._counts.timed('infer'):
            return self._infer(contents), header
        return None

    def _deliver(self, done: tuple[Any, Header] | None) -> None:
        if done is None:
            return
        result, header = done
        with self._sets.dropping_set():
            with self._counts.timed('publish'):
                self._publish(result, header)
            self._sets.publish_all()
            self._latency.done((header.stamp.sec, header.stamp.nanosec))
