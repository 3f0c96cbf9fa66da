"""A stream: topics whose messages are inferred, each by itself or in sets."""

from collections.abc import Callable, Sequence
from contextlib import ExitStack, closing
from functools import partial
import time
from typing import Any, NamedTuple, Protocol

import numpy as np
from std_msgs.msg import Header

from trt_ros.errors import BadFrameError, ScoreRangeError
from trt_ros.profiling import mark
from trt_ros.ros.codecs.codec import Codec, Content, Serialized, Stamp, to_header
from trt_ros.ros.dds.cdr import ImageView
from trt_ros.ros.dds.memory import pool_memory_of
from trt_ros.ros.dds.rcl import NO_HOOKS, MemoryHooks
from trt_ros.ros.dds.rcl_subscription import MessageCallbacks
from trt_ros.ros.diagnostics import QUEUE_AGE, FrameCounts, LatencyMeter
from trt_ros.ros.following import InputSubscription, wait_for_input
from trt_ros.ros.lifecycle import ManagedNode
from trt_ros.ros.message_sets import MessageSets
from trt_ros.ros.ticks import Ticks
from trt_ros.ros.topic import Dropping, Topic
from trt_ros.ros.worker import REPLACED, RESET, UNWANTED, FairWorker

#: Time after which the code that publishes a result has left the caches of the CPU.
REHEARSAL_SECONDS = 5e-3
#: The stamp on arrival, if it was read, and the function that reads the content.
_Message = tuple[Stamp | None, Callable[[], Content]]


#: Epoch, index of the primary topic, and the messages that are run together: without sets one
#: message, of the primary topic. A plain tuple: there is one per message.
_Set = tuple[int, int, tuple[_Message, ...]]


class StartedRun(Protocol):
    """A run that may be in progress."""

    def result(self) -> Sequence[Any]:
        """Wait, and return one result per set; called once."""


class _Input(NamedTuple):
    primary: int
    stamp: Stamp
    frame_id: str
    values: list[Any]


class TopicStream:
    """
    Subscriptions to topics whose messages are inferred in threads of its own, until close().

    Without `in_sets`, each message is inferred by itself, up to `max_batch` of different topics in
    one call, and the newest of a topic wins. With `in_sets`, messages of all topics meet by stamp
    or are sampled at `rate_hz`, and the newest complete set wins; a jump of time back drops all
    waiting messages and resets the state.

    A bad message drops its set, which is counted by cause and logged at a limited rate; the other
    sets of its batch are processed.

    :param node: its parameters include InputParameters, and with `in_sets`
        SynchronizationParameters, else ImageTopicsParameters.
    :param counts: counters and timings of all results together.
    :param start: called with the values of each set, in the order of `topics`; returns the run,
        with one result per set. Up to `in_flight` runs overlap; results are published in order.
    :param publish: called with the index of the primary topic, a result, the header of that
        topic, and the values of the set; an exception counts as a dropped frame.
    :param primary: index of the topic whose header the results of sets get.
    :param is_wanted: evaluated for each message on arrival, with the index of its topic; must not
        raise.
    :param reset_state: called before the first set and after each reset, never during a run.
    :param complete: called with the header of each set; returns what follows its values.
    :param starts_at_once: whether `start` only starts a run: then a publisher's thread calls it
        for an image that it passes by reference.
    :param rehearse: called while a run is in progress, with the index of its topic, to do what
        `publish` did with the result before: its code has left the caches of the CPU meanwhile.
    :param run_ahead: called on arrival with an image message that is as large as the last one, and
        where its pixels begin; with `starts_at_once` and one topic.
    :param hooks: called for the memory of messages, where that is reused.
    """

    def __init__(
        self,
        node: ManagedNode,
        counts: FrameCounts,
        topics: Sequence[Topic],
        start: Callable[[list[list[Any]]], StartedRun],
        publish: Callable[[int, Any, Header, list[Any]], None],
        *,
        in_sets: bool,
        primary: int = 0,
        is_wanted: Callable[[int], bool] = lambda number: True,
        reset_state: Callable[[], None] = lambda: None,
        complete: Callable[[Header], Sequence[Any]] | None = None,
        max_batch: int = 1,
        in_flight: int = 1,
        starts_at_once: bool = False,
        rehearse: Callable[[int], None] = lambda number: None,
        run_ahead: Callable[[np.ndarray, int], None] | None = None,
        hooks: MemoryHooks = NO_HOOKS,
    ) -> None:
        self._node, self._counts, self._topics = node, counts, tuple(topics)
        self._start_run, self._publish, self._reset_state = start, publish, reset_state
        self._is_wanted, self._hooks = is_wanted, hooks
        self._complete = complete
        # Where it is the thread that publishes all results, while a run is in progress there.
        self._can_rehearse, self._rehearse = starts_at_once and in_flight == 1, rehearse
        self._run_ahead = run_ahead if starts_at_once and len(topics) == 1 else None
        self._published = 0.0
        self._latency = LatencyMeter(node, counts)
        parameters = node.parameters
        self._rate_hz = rate_hz = parameters.rate_hz if in_sets else 0.0
        self._subscriptions: list[InputSubscription] = []
        self._held = [number for number, topic in enumerate(topics) if topic.is_held]
        self._awaited = [number for number, topic in enumerate(topics) if not topic.is_held]
        # All messages are needed where they wait for partners.
        self._is_newest_only = not in_sets or rate_hz > 0 or len(self._awaited) == 1
        self._starts_at_once = starts_at_once
        # The threads of images copy the next one meanwhile.
        self._sets_run_here = not any(topic.codec.noun == 'image' for topic in topics)
        self._state_epoch = -1
        self._sets: MessageSets[_Message] | None = None
        with ExitStack() as undo:
            self._worker = FairWorker[_Set, list[tuple[_Input, Header, Any]]](
                self._start,
                self._drop,
                lanes=1 if in_sets else len(topics),
                deliver=self._deliver,
                max_batch=max_batch,
                in_flight=in_flight,
                on_taken=partial(counts.record_duration, QUEUE_AGE),
                max_rate_hz=lambda: node.parameters.max_rate_hz,
                wait_seconds=lambda: 0.0 if in_sets else node.parameters.batch_wait_ms / 1e3,
            )
            undo.enter_context(closing(self._worker))
            if in_sets:
                sets = self._sets = MessageSets[_Message](
                    node,
                    [topics[number] for number in self._awaited],
                    lambda messages: self._worker.offer(
                        (sets.epoch, primary, messages), here=self._sets_run_here
                    ),
                    queue_size=parameters.queue_size,
                    tolerance_ns=parameters.tolerance_ns(),
                    is_sampled=rate_hz > 0,
                    primary=self._awaited.index(primary),
                )
                undo.enter_context(closing(sets))
            wait_for_input(node, [topic.codec.topic for topic in topics])
            for number, topic in enumerate(topics):
                undo.callback(topic.codec.close)
                subscription = self._subscribe(number, topic.codec)
                undo.enter_context(closing(subscription))
                self._subscriptions.append(subscription)
            if rate_hz > 0 and self._sets is not None:
                self._sets_run_here = not node.is_simulated
                undo.enter_context(closing(Ticks(node, 1 / rate_hz, self._sample)))
            self._owned = undo.pop_all()

    def close(self) -> None:
        """Stop receiving, then wait for the sets in progress."""
        self._owned.close()

    def reset(self) -> None:
        """Drop all waiting sets; the next one starts with initial states. From any thread."""
        if self._sets is not None:
            self._sets.reset(RESET)

    # Subscriptions.

    def _is_polled(self, codec: Codec) -> bool:
        """
        Return whether messages wait until a sample is taken: a thread less that wakes for each.

        Images are copied as they come, and without a stamp the age counts from the arrival.
        Between slow samples, the diagnostics would miss the messages.
        """
        return (
            self._rate_hz >= 1
            and not self._node.is_simulated
            and codec.noun == 'message'
            and codec.has_stamp
            and not codec.needs_all
        )

    def _sample(self) -> None:
        for subscription in self._subscriptions:
            subscription.poll()
        assert self._sets is not None
        self._sets.sample()

    def _subscribe(self, number: int, codec: Codec) -> InputSubscription:
        parameters, topic = self._node.parameters, self._topics[number]
        counts = topic.counts
        # An image only waits for its partners: a thread that wakes for it would delay others.
        only_waits = (
            self._sets is not None
            and codec.noun == 'image'
            and not (codec.needs_all or topic.is_held)
        )
        is_taken_at_once = self._starts_at_once or only_waits

        def replaced() -> None:
            counts.receive()
            counts.drop(REPLACED)
            codec.lose(1)

        def missed(count: int) -> None:
            if self._is_polled(codec):  # Newer ones came before the sample.
                counts.receive(count)
                counts.drop(REPLACED, count=count)
                return
            counts.miss(count)
            codec.lose(count)

        def callbacks() -> MessageCallbacks:
            receive, read = partial(self._receive, number, counts), codec.reader()
            return MessageCallbacks(
                partial(receive, read, False),
                on_reference=partial(receive, read, True) if is_taken_at_once else None,
                is_first=self._starts_at_once,
                on_replaced=replaced if self._is_newest_only and not codec.needs_all else None,
                on_lost=replaced,
                on_missed=missed,
                rehearse=partial(codec.rehearse, read),
                is_polled=self._is_polled(codec),
            )

        depth = 0 if self._is_newest_only else parameters.queue_size
        return InputSubscription(
            self._node,
            codec,
            callbacks,
            NO_HOOKS if codec.is_copied else self._hooks,
            depth=max(parameters.qos_depth, codec.min_depth, depth),
            is_held=topic.is_held,
        )

    def _receive(
        self,
        number: int,
        counts: FrameCounts,
        read: Callable[[Serialized], Content],
        is_reference: bool,
        message: Serialized,
    ) -> None:
        topic = self._topics[number]
        is_wanted = topic.is_held or self._is_wanted(number)
        if is_wanted and self._run_ahead is not None and isinstance(message, np.ndarray):
            size, start = topic.codec.image_at
            if message.size == size and not self._node.parameters.max_rate_hz:
                self._run_ahead(message, start)
        counts.receive()
        if not is_wanted:
            counts.drop(UNWANTED)
            topic.codec.close()
        elif topic.codec.needs_all:
            with topic.dropping:
                content = read(message)
                if content is not None:
                    self._put(number, topic, lambda content: content, is_reference, content)
        else:
            self._put(number, topic, read, is_reference, message)

    def _put(
        self,
        number: int,
        topic: Topic,
        read: Callable[[Any], Content],
        is_reference: bool,
        message: Any,
    ) -> None:
        if topic.is_held:
            with topic.dropping:
                value = topic.prepare(read(message))
                topic.hold(topic.codec.stamp_of(message), value)
        elif self._sets is None:
            # What arrives through DDS is copied while the worker's thread runs the one before.
            here = not topic.codec.needs_all and (
                is_reference
                or isinstance(message, ImageView)
                or pool_memory_of(message) is not None
            )
            put = self._worker.start if is_reference else self._worker.put
            put((0, number, ((None, partial(read, message)),)), number, here)
        else:
            with topic.dropping:
                stamp = topic.codec.stamp_of(message)
                self._sets.add(self._awaited.index(number), stamp, (stamp, partial(read, message)))

    # Threads of the worker.

    def _start(
        self, items: list[tuple[int, _Set]]
    ) -> Callable[[], list[tuple[_Input, Header, Any]]]:
        """Start the runs of sets; return the function that waits for their results."""
        taken = [each for _, found in items if (each := self._read(found)) is not None]
        return self._run(taken) if taken else list

    def _run(self, taken: list[_Input]) -> Callable[[], list[tuple[_Input, Header, Any]]]:
        began = time.perf_counter()
        try:
            with mark('start'):
                run = self._start_run([each.values for each in taken])
        except Exception as error:
            return partial(self._failed, taken, error)

        def collect() -> list[tuple[_Input, Header, Any]]:
            # While the run is in progress.
            headers = [to_header(each.frame_id, each.stamp) for each in taken]
            if self._can_rehearse and began - self._published > REHEARSAL_SECONDS:
                with self._counts.timed('rehearse'):
                    for each in taken:
                        self._rehearse(each.primary)
            try:
                with mark('collect'):
                    results = run.result()
            except Exception as error:
                return self._failed(taken, error)
            self._counts.record_duration('infer', time.perf_counter() - began)
            return list(zip(taken, headers, results))

        return collect

    def _read(self, one: _Set) -> _Input | None:
        """Return the contents of a set; None if it is dropped."""
        epoch, primary, messages = one
        if self._sets is None:
            topic = self._topics[primary]
            with topic.dropping, mark('read'):
                content = messages[0][1]()
                value = topic.prepare(content)
                return _Input(primary, content.stamp, content.frame_id, [value])
            return None
        if epoch != self._sets.epoch:
            self._sets.drop_all(RESET)
            return None
        if epoch != self._state_epoch:
            self._state_epoch = epoch
            self._reset_state()
        values = {}
        for index, (stamp, read) in enumerate(messages):
            number = self._awaited[index]
            with self._dropping(primary, index), mark('read'):
                content = read()
                values[number] = self._topics[number].prepare(content)
                self._topics[number].stamp = stamp or content.stamp
                if number == primary:
                    primary_stamp, frame_id = stamp or content.stamp, content.frame_id
                continue
            return None
        with self._dropping(primary):
            for number in self._held:
                values[number] = self._topics[number].held_value()
            found = [values[each] for each in sorted(values)]
            if self._complete is not None:
                found += self._complete(to_header(frame_id, primary_stamp))
            return _Input(primary, primary_stamp, frame_id, found)
        return None

    def _failed(self, taken: list[_Input], error: Exception) -> list[tuple[_Input, Header, Any]]:
        if isinstance(error, (BadFrameError, ScoreRangeError)) and len(taken) > 1:
            # Run them one by one to find the bad one.
            return [found for each in taken for found in self._run([each])()]
        for each in taken:
            with self._dropping(each.primary):
                raise error
        return []

    def _deliver(self, results: list[tuple[_Input, Header, Any]]) -> None:
        for (primary, stamp, _, values), header, result in results:
            with self._dropping(primary):
                with self._counts.timed('publish'):
                    self._publish(primary, result, header, values)
                self._latency.done(stamp)
                if self._sets is None:
                    self._topics[primary].counts.publish()
                else:
                    self._sets.publish_all()
        self._published = time.perf_counter()

    def _drop(self, lane: int, cause: str) -> None:
        if self._sets is None:
            self._topics[lane].counts.drop(cause)
        else:
            self._sets.drop_all(cause)

    def _dropping(self, primary: int, number: int | None = None) -> Dropping:
        if self._sets is not None:
            return self._sets.dropping(number)
        return self._topics[primary].dropping
