"""Frame counters, timings and the /diagnostics publisher."""

from __future__ import annotations

from collections import Counter, deque
from collections.abc import Mapping, Sequence
import math
import platform
import threading
import time
from typing import Any, ClassVar

from diagnostic_msgs.msg import DiagnosticArray, DiagnosticStatus, KeyValue
import numpy as np
from rclpy.publisher import Publisher
from std_msgs.msg import Float64

from trt_ros.errors import printable
from trt_ros.profiling import mark
from trt_ros.ros.lifecycle import ManagedNode
from trt_ros.ros.qos import RESULTS, mistyped, overridden
from trt_ros.ros.sync import DUPLICATE, JUMPED, LATE, NO_PARTNER
from trt_ros.ros.worker import REPLACED, RESET, STOPPED, UNWANTED

#: Causes of dropped frames that are part of normal operation.
HARMLESS = (REPLACED, STOPPED, UNWANTED, NO_PARTNER, JUMPED, RESET)
#: Causes after which a result is still expected.
WITHOUT_RESULT = (REPLACED, NO_PARTNER, LATE, DUPLICATE)
SECONDS_BETWEEN_LOGS = 10.0
WARNING_SECONDS = 5.0
SECONDS_WITHOUT_A_FRAME = 5.0

# Warn when at least this number and fraction of frames was lost within the last seconds.
MIN_LOST, MIN_LOST_FRACTION, LOSS_WINDOW_SECONDS = 3, 0.1, 5

# Timings of a stage: maximum number and age.
MAX_TIMES = 1000
TIMES_WINDOW_SECONDS = 10.0

#: Stages whose timings every node reports; a node adds its own.
QUEUE_AGE, LATENCY = 'queue age', 'latency'


class FrameCounts:
    """
    Counters of received, published and dropped frames, and timings of stages; thread-safe.

    :param total: counters that count the same frames, too, as of a node; not the timings.
    :ivar lost: number of frames that were published and never arrived; None if unknown.
    :ivar noun: kind of frame in messages: 'image' or 'message'.
    :ivar notes: numbers by what was counted by note().
    """

    noun = 'image'

    def __init__(self, total: FrameCounts | None = None) -> None:
        self._lock, self._total = threading.Lock(), total
        self.received = self.published = 0
        self.lost: int | None = None
        self.dropped: Counter[str] = Counter()
        self.notes: Counter[str] = Counter()
        self.last_error = ''
        self._last_received = self._last_error_time = float('-inf')
        self._no_result_since = math.inf
        self._last_logged: dict[str, float] = {}
        # Reported first, recorded last.
        self._times: dict[str, deque[tuple[float, float]]] = {QUEUE_AGE: deque(maxlen=MAX_TIMES)}

    def receive(self, count: int = 1) -> None:
        """Count received frames."""
        now = time.monotonic()
        if self._total is not None:
            self._total.receive(count)
        with self._lock:
            self.received += count
            self._last_received = now
            self._no_result_since = min(self._no_result_since, now)

    def publish(self) -> None:
        """Count a published result."""
        if self._total is not None:
            self._total.publish()
        with self._lock:
            self.published += 1
            self._no_result_since = math.inf

    def drop(self, cause: str, why: str = '', count: int = 1) -> bool:
        """
        Count dropped frames.

        :param cause: a few words without numbers: the key of a counter.
        :param why: the value of 'last error'; the cause by default.
        :returns: whether to log it: the cause is new, or was last logged SECONDS_BETWEEN_LOGS ago.
        """
        if self._total is not None:
            self._total.drop(cause, why, count)
        with self._lock:
            self.dropped[cause] += count
            if cause not in WITHOUT_RESULT:
                self._no_result_since = math.inf
            if cause in HARMLESS:
                return False
            now = self._last_error_time = time.monotonic()
            self.last_error = why or cause
            if now - self._last_logged.get(cause, float('-inf')) < SECONDS_BETWEEN_LOGS:
                return False
            self._last_logged[cause] = now
            return True

    def miss(self, count: int) -> None:
        """Count frames that never arrived; call it with 0 where losses are detectable."""
        if self._total is not None:
            self._total.miss(count)
        with self._lock:
            self.lost = (self.lost or 0) + count

    def note(self, what: str, count: int = 1) -> None:
        """Count what the diagnostics report beside the frames; call it with 0 to report 0."""
        with self._lock:
            self.notes[what] += count

    def expect_no_more(self) -> None:
        """Suppress the warning about missing frames until the next frame arrives."""
        with self._lock:
            self._last_received = math.inf

    def record_duration(self, stage: str, seconds: float) -> None:
        """Record the duration of a stage of a frame."""
        with self._lock:
            times = self._times.get(stage)
            if times is None:
                times = self._times[stage] = deque(maxlen=MAX_TIMES)
            times.append((time.monotonic(), seconds))

    def timed(self, stage: str) -> Timed:
        """
        Return a context manager that records the duration of a stage, unless it raises.

        It is also a range of `profiling`.
        """
        return Timed(self, stage)

    def percentiles(self) -> dict[str, tuple[float, float]]:
        """Return p50 and p99 in seconds of each stage with recent frames."""
        oldest = time.monotonic() - TIMES_WINDOW_SECONDS
        with self._lock:  # Keep it short: frames wait for the lock.
            kept = {stage: list(times) for stage, times in self._times.items()}
        return {
            stage: tuple(np.percentile(recent, [50, 99]).tolist())
            for stage, times in kept.items()
            if (recent := [seconds for when, seconds in times if when >= oldest])
        }

    def snapshot(self) -> tuple[int, int, dict[str, int]]:
        """Return the numbers of frames received, published, and dropped by cause, consistently."""
        with self._lock:
            return self.received, self.published, dict(self.dropped)

    @property
    def has_recent_errors(self) -> bool:
        """Whether a frame was dropped because of an error within the last seconds."""
        return time.monotonic() - self._last_error_time < WARNING_SECONDS

    def seconds_since_received(self, since: float) -> float:
        """Return the time since the last frame, or since the monotonic time `since` if later."""
        return time.monotonic() - max(self._last_received, since)

    def seconds_without_result(self) -> float:
        """Return the time for which frames have arrived without a result or an error."""
        return time.monotonic() - self._no_result_since


class Timed:
    """A context manager that times and marks a stage; half the overhead of a generator."""

    __slots__ = '_began', '_counts', '_range', '_stage'

    def __init__(self, counts: FrameCounts, stage: str) -> None:
        self._counts, self._stage, self._range = counts, stage, mark(stage)

    def __enter__(self) -> None:
        self._range.__enter__()
        self._began = time.monotonic()

    def __exit__(self, kind: type[BaseException] | None, *_: object) -> None:
        if kind is None:
            self._counts.record_duration(self._stage, time.monotonic() - self._began)
        self._range.__exit__(None, None, None)


class CountedTopic:
    """The counters of a topic, and why it is silent; `may_be_silent` if it need not come."""

    may_be_silent = False

    def __init__(self, name: str, counts: FrameCounts) -> None:
        self.name, self.counts = name, counts

    def why_silent(self) -> str:
        """Return the likely reason why there are no messages; '' if unknown."""
        return ''

    def why_lost(self) -> str:
        """Return the likely reason why messages are lost; '' if unknown."""
        return ''


class CountingNode(ManagedNode):
    """
    A node that counts frames and publishes a DiagnosticStatus per second, as diagnostic_updater.

    OK: no problem, including idle states. WARN: frames were dropped because of an error, or lost
    before arrival, within the last seconds, or `_warning` says so. ERROR: a transition or the GPU
    failed. STALE: the node is active, but receives no frames from a camera, or produces no
    results.

    The hooks are called once per second while /diagnostics has a subscriber, in one thread.

    :cvar task: name of the task: the part of the status name after the colon.
    :ivar _topics: CountedTopics while configured; the key-value pairs of one whose counters are
        those of the node have no name.
    """

    task: ClassVar[str] = 'image'

    def __init__(self, name: str = '', **kwargs: Any) -> None:
        self._counts = FrameCounts()
        self._topics: Sequence[Any] = ()
        super().__init__(name, **kwargs)
        self._losses: dict[str, RecentLoss] = {}
        self._mistyped: dict[str, str] = {}
        self._before = (time.monotonic(), 0, 0)
        self._active_since: float | None = None
        self._status_publisher = self.create_publisher(DiagnosticArray, '/diagnostics', RESULTS)
        self.followers.append(self._publish_status)

    def _diagnostics(self) -> Mapping[str, str]:
        """Return additional key-value pairs."""
        return {}

    def _why_no_result(self) -> str:
        """Return the likely cause why frames arrive, but no result; '' if unknown."""
        return ''

    def _warning(self) -> str:
        """Return a further warning while the node is active; '' for none."""
        return ''

    def _publish_status(self) -> None:
        now = time.monotonic()
        state = self.state_label
        if state != 'active':
            self._active_since = None
            self._losses = {}
        elif self._active_since is None:
            self._active_since = now
        received, published, _ = self._counts.snapshot()
        before, self._before = self._before, (now, received, published)
        seconds = now - before[0]
        self._warn_of_types(state)
        topics = self._topics or [CountedTopic('', self._counts)]
        losses = [
            (topic, self._losses.setdefault(topic.name, RecentLoss()).add(topic.counts))
            for topic in topics
        ]
        has_subscribers = self._status_publisher.get_subscription_count() > 0
        self.is_idle = received == before[1] and not has_subscribers
        if not has_subscribers:  # The rest takes most of the time.
            return
        level, message = self._judge(state, losses)
        values = {
            'state': state,
            **self._diagnostics(),
            **{key: str(count) for key, count in _counters(self._counts).items()},
            'rate in (Hz)': f'{(received - before[1]) / seconds:.1f}',
            'rate out (Hz)': f'{(published - before[2]) / seconds:.1f}',
            **{
                f'{stage} {name} (ms)': f'{1e3 * seconds:.3f}'
                for stage, times in self._counts.percentiles().items()
                for name, seconds in zip(('p50', 'p99'), times)
            },
            **{
                f'{topic.name}: {key}': str(count)
                for topic in topics
                if topic.counts is not self._counts
                for key, count in _counters(topic.counts).items()
            },
            'last error': self._counts.last_error,
        }
        texts = {key: printable(value, lines=True) for key, value in values.items()}
        status = DiagnosticStatus(
            level=level,
            name=f'{self.get_fully_qualified_name()[1:]}: {self.task}',
            message=printable(message, lines=True),
            hardware_id=platform.node(),
            values=[KeyValue(key=key, value=text) for key, text in texts.items()],
        )
        array = DiagnosticArray(status=[status])
        array.header.stamp = self.get_clock().now().to_msg()
        self._status_publisher.publish(array)

    def _warn_of_types(self, state: str) -> None:
        """Log topics of another type once, if they were it a second ago: types are followed."""
        before, self._mistyped = self._mistyped, {}
        if state == 'active':
            self._mistyped = mistyped(self)
            for topic in before.keys() & self._mistyped.keys():
                self.warn_once(self._mistyped[topic])

    def _judge(self, state: str, losses: Sequence[tuple[CountedTopic, str]]) -> tuple[bytes, str]:
        if self.failure:
            return DiagnosticStatus.ERROR, self.failure
        if self._active_since is None:
            return DiagnosticStatus.OK, state
        # Read first: a topic that never had a message is then silent for at least as long.
        without_result = min(
            self._counts.seconds_without_result(), time.monotonic() - self._active_since
        )
        rates = (getattr(self.parameters, name, 0.0) for name in ('rate_hz', 'max_rate_hz'))
        longest_period = max((1 / rate for rate in rates if rate > 0), default=0.0)
        patience = SECONDS_WITHOUT_A_FRAME + longest_period
        silent = [
            f'no {topic.counts.noun} for {waited:.0f} s {topic.why_silent()}'
            for topic, _ in losses
            if not topic.may_be_silent
            and (waited := topic.counts.seconds_since_received(self._active_since)) > patience
        ]
        if silent:
            return DiagnosticStatus.STALE, silent[0].rstrip()
        for counts in (self._counts, *(topic.counts for topic, _ in losses)):
            if counts.has_recent_errors:
                return DiagnosticStatus.WARN, f'frames dropped: {counts.last_error}'
        if without_result > patience:
            return (
                DiagnosticStatus.STALE,
                f'{self._counts.noun}s arrive, but no result for {without_result:.0f} s '
                f'{self._why_no_result()}'.rstrip(),
            )
        for topic, loss in losses:
            if loss:
                why = topic.why_lost()
                return DiagnosticStatus.WARN, f'{loss} lost before arrival {why}'.rstrip()
        warning = self._warning()
        return (DiagnosticStatus.WARN, warning) if warning else (DiagnosticStatus.OK, state)


class RecentLoss:
    """Frames of a topic that were received and lost within the last seconds."""

    def __init__(self) -> None:
        self._counts: deque[tuple[int, int]] = deque(maxlen=LOSS_WINDOW_SECONDS + 1)

    def add(self, counts: FrameCounts) -> str:
        """Add the present counters; return a description of the loss, or '' if it is small."""
        self._counts.append((counts.received, counts.lost or 0))
        received, lost = (now - before for now, before in zip(self._counts[-1], self._counts[0]))
        if lost < max(MIN_LOST, MIN_LOST_FRACTION * (received + lost)):
            return ''
        return f'{lost} of {received + lost} frames of the last {len(self._counts) - 1} s were'


def _counters(counts: FrameCounts) -> dict[str, int]:
    received, published, dropped = counts.snapshot()
    return {
        'frames received': received,
        'frames published': published,
        'frames dropped': sum(dropped.values()),
        **{f'dropped: {cause}': count for cause, count in sorted(dropped.items())},
        **({} if counts.lost is None else {'frames lost before arrival': counts.lost}),
        **counts.notes,
    }


class LatencyMeter:
    """A meter from image stamp to result; created on activation, with publish_latency."""

    def __init__(self, node: ManagedNode, counts: FrameCounts) -> None:
        self._node, self._counts = node, counts
        self._publisher: Publisher | None = None
        if node.parameters.publish_latency:
            qos = overridden(node, Publisher, '~/latency', RESULTS)
            made = node.create_publisher(Float64, '~/latency', qos)
            self._publisher = node.own(node.while_active, node.destroy_publisher, made)

    def done(self, stamp: tuple[int, int]) -> None:
        """Record the latency of an image by its stamp (seconds, nanoseconds); 0, 0 is ignored."""
        if stamp == (0, 0):
            return  # The stamp was not set.
        seconds = (self._node.now_ns() - stamp[0] * 1_000_000_000 - stamp[1]) * 1e-9
        self._counts.record_duration(LATENCY, seconds)
        if self._publisher is not None:
            self._publisher.publish(Float64(data=1e3 * seconds))
