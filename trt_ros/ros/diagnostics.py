"""What goes through a node, how fast, and what does not: counted, and told on /diagnostics."""

from __future__ import annotations

from collections import Counter, deque
from collections.abc import Callable, Mapping
import math
import platform
import threading
import time

from diagnostic_msgs.msg import DiagnosticArray, DiagnosticStatus, KeyValue
import numpy as np
from rclpy.publisher import Publisher
from rclpy.qos import QoSProfile
from std_msgs.msg import Float64

from trt_ros.ros.lifecycle import STEADY_CLOCK, ManagedNode
from trt_ros.ros.qos import overridden
from trt_ros.ros.worker import REPLACED, STOPPED, UNWANTED

#: Why frames are given up without a cause for worry.
HARMLESS = (REPLACED, STOPPED, UNWANTED)
SECONDS_BETWEEN_LOGS = 10.0
SECONDS_A_WARNING_STAYS = 5.0
SECONDS_WITHOUT_A_FRAME = 5.0

# Frames lost before they arrive are worth a warning when there are so many, and such a part of
# all frames, within the last seconds.
MIN_LOST, MIN_LOST_PART, SECONDS_OF_LOSS = 3, 0.1, 5

# The times of a frame that are told: the last so many, and none older than that.
TIMES_KEPT = 1000
SECONDS_TIMES_ARE_KEPT = 10.0

#: The times that every node tells; a node adds its own.
QUEUE_AGE, LATENCY = 'queue age', 'latency'


class FrameCounts:
    """
    How many frames came, went, and were dropped for which cause, and what took how long.

    For several threads.

    :ivar lost: frames that were published and never came; None where that is unknown.
    """

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self.received = self.published = 0
        self.lost: int | None = None
        self.dropped: Counter[str] = Counter()
        self.last_error = ''
        self._last_received = self._last_trouble = float('-inf')
        self._unsettled_since = math.inf
        self._last_logged: dict[str, float] = {}
        self._times: dict[str, deque[tuple[float, float]]] = {}

    def receive(self) -> None:
        now = time.monotonic()
        with self._lock:
            self.received += 1
            self._last_received = now
            self._unsettled_since = min(self._unsettled_since, now)

    def publish(self) -> None:
        with self._lock:
            self.published += 1
            self._unsettled_since = math.inf

    def drop(self, cause: str, why: str = '') -> bool:
        """
        Count a dropped frame.

        :param cause: a few words without numbers.
        :returns: whether this is worth a line in the log: the cause is new, or was last logged a
            while ago.
        """
        with self._lock:
            self.dropped[cause] += 1
            if cause != REPLACED:
                self._unsettled_since = math.inf
            if cause in HARMLESS:
                return False
            now = self._last_trouble = time.monotonic()
            self.last_error = why or cause
            if now - self._last_logged.get(cause, float('-inf')) < SECONDS_BETWEEN_LOGS:
                return False
            self._last_logged[cause] = now
            return True

    def miss(self, count: int) -> None:
        """Count frames that were published and never came; 0 where they can be known."""
        with self._lock:
            self.lost = (self.lost or 0) + count

    def expect_no_more(self) -> None:
        """Let nobody wait for another frame, until one comes."""
        with self._lock:
            self._last_received = math.inf

    def took(self, stage: str, seconds: float) -> None:
        """Note how long a stage of a frame took."""
        with self._lock:
            times = self._times.get(stage)
            if times is None:
                times = self._times[stage] = deque(maxlen=TIMES_KEPT)
            times.append((time.monotonic(), seconds))

    def timed(self, stage: str) -> Timed:
        """Note how long a stage of a frame takes, unless it raises: `with counts.timed(..):`."""
        return Timed(self, stage)

    def percentiles(self) -> dict[str, tuple[float, float]]:
        """Of each stage with frames within the last seconds, half and 99 % of its seconds."""
        oldest = time.monotonic() - SECONDS_TIMES_ARE_KEPT
        with self._lock:  # Frames wait for it: no more than a copy.
            kept = {stage: list(times) for stage, times in self._times.items()}
        recent = {
            stage: [seconds for when, seconds in times if when >= oldest]
            for stage, times in kept.items()
        }
        return {
            stage: tuple(np.percentile(seconds, [50, 99]).tolist())
            for stage, seconds in recent.items()
            if seconds
        }

    def snapshot(self) -> tuple[int, int, dict[str, int]]:
        """Frames received, published, and dropped by cause, of one moment."""
        with self._lock:
            return self.received, self.published, dict(self.dropped)

    @property
    def has_recent_errors(self) -> bool:
        """Whether a frame was dropped for a bad reason within the last seconds."""
        return time.monotonic() - self._last_trouble < SECONDS_A_WARNING_STAYS

    def seconds_since_received(self, since: float) -> float:
        """Seconds without a frame, counted from the monotonic time `since` at the earliest."""
        return time.monotonic() - max(self._last_received, since)

    def seconds_without_result(self) -> float:
        """Seconds for which frames have come, and none was published or dropped for its own."""
        return time.monotonic() - self._unsettled_since


class CameraCounts(FrameCounts):
    """Those of one camera of several; all but the times count in the whole, too."""

    def __init__(self, whole: FrameCounts) -> None:
        super().__init__()
        self._whole = whole

    def receive(self) -> None:
        super().receive()
        self._whole.receive()

    def publish(self) -> None:
        super().publish()
        self._whole.publish()

    def miss(self, count: int) -> None:
        super().miss(count)
        self._whole.miss(count)

    def drop(self, cause: str, why: str = '') -> bool:
        self._whole.drop(cause, why)
        return super().drop(cause, why)


class Timed:
    """A stage of a frame; half the price of a generator."""

    __slots__ = '_began', '_counts', '_stage'

    def __init__(self, counts: FrameCounts, stage: str) -> None:
        self._counts, self._stage = counts, stage

    def __enter__(self) -> None:
        self._began = time.monotonic()

    def __exit__(self, kind: type | None, *_: object) -> None:
        if kind is None:
            self._counts.took(self._stage, time.monotonic() - self._began)


class Diagnostics:
    """
    Publishes a DiagnosticStatus each second, in every state, as diagnostic_updater would.

    OK: all is well, also while nobody asked for more. WARN: frames were dropped for a bad reason,
    or lost before they arrived, within the last seconds. ERROR: a transition or the GPU failed.
    STALE: the node is active, but no frame comes of some camera, or those that come are not done
    with.

    :param task: what the status is about, the part of its name after the colon.
    :param diagnostics: more key-value pairs, asked once a second in the executor's thread.
    :param why_no_image: given the node and a topic, says where images should come from and what
        may be wrong there, asked likewise.
    :param why_lost: likewise, why frames of a topic may be lost before they arrive.
    :param cameras: the counts by topic, where there are several; asked likewise.
    """

    def __init__(
        self,
        node: ManagedNode,
        counts: FrameCounts,
        *,
        task: str,
        diagnostics: Callable[[], Mapping[str, str]] = dict,
        why_no_image: Callable[[ManagedNode, str], str] = lambda node, topic: '',
        why_lost: Callable[[ManagedNode, str], str] = lambda node, topic: '',
        cameras: Callable[[], Mapping[str, FrameCounts]] = dict,
    ) -> None:
        self._node, self._counts, self._diagnostics = node, counts, diagnostics
        self._why_no_image, self._why_lost, self._cameras = why_no_image, why_lost, cameras
        self._losses: dict[str, RecentLoss] = {}
        self._name = f'{node.get_fully_qualified_name()[1:]}: {task}'
        self._before = (time.monotonic(), 0, 0)
        self._active_since: float | None = None
        self._publisher = node.create_publisher(DiagnosticArray, '/diagnostics', 10)
        # Steady: with use_sim_time and no /clock, the node's own clock never ticks.
        node.create_timer(1.0, self._publish, clock=STEADY_CLOCK)

    def _publish(self) -> None:
        now = time.monotonic()
        state = self._node.state_label
        if state != 'active':
            self._active_since = None
            self._losses = {}
        elif self._active_since is None:
            self._active_since = now
        told = _told(self._counts)
        received, published = told['frames received'], told['frames published']
        seconds = now - self._before[0]
        values = {
            'state': state,
            **self._diagnostics(),
            **{key: str(count) for key, count in told.items()},
            'rate in (Hz)': f'{(received - self._before[1]) / seconds:.1f}',
            'rate out (Hz)': f'{(published - self._before[2]) / seconds:.1f}',
            **{
                f'{stage} {name} (ms)': f'{1e3 * seconds:.3f}'
                for stage, times in self._counts.percentiles().items()
                for name, seconds in zip(('p50', 'p99'), times)
            },
            **{
                f'{topic}: {key}': str(count)
                for topic, counts in self._cameras().items()
                for key, count in _told(counts).items()
            },
            'last error': self._counts.last_error,
        }
        self._before = (now, received, published)
        level, message = self._judge(state)
        array = DiagnosticArray(
            status=[
                DiagnosticStatus(
                    level=level,
                    name=self._name,
                    message=message,
                    hardware_id=platform.node(),
                    values=[KeyValue(key=key, value=value) for key, value in values.items()],
                )
            ]
        )
        array.header.stamp = self._node.get_clock().now().to_msg()
        self._publisher.publish(array)

    def _judge(self, state: str) -> tuple[bytes, str]:
        if self._node.failure:
            return DiagnosticStatus.ERROR, self._node.failure
        if self._active_since is not None:
            cameras = self._cameras() or {'image': self._counts}
            losses = {
                topic: self._losses.setdefault(topic, RecentLoss()).add(counts)
                for topic, counts in cameras.items()
            }
            if self._counts.has_recent_errors:
                return DiagnosticStatus.WARN, f'frames dropped: {self._counts.last_error}'
            patience = SECONDS_WITHOUT_A_FRAME + self._seconds_between_frames()
            for topic, counts in cameras.items():
                waited = counts.seconds_since_received(self._active_since)
                if waited > patience:
                    why = self._why_no_image(self._node, topic)
                    return DiagnosticStatus.STALE, f'no image for {waited:.0f} s {why}'.rstrip()
            waited = self._counts.seconds_without_result()
            if waited > patience:
                return DiagnosticStatus.STALE, f'images arrive, but no result for {waited:.0f} s'
            for topic, loss in losses.items():
                if loss:
                    why = self._why_lost(self._node, topic)
                    return DiagnosticStatus.WARN, f'{loss} lost before arrival {why}'.rstrip()
        return DiagnosticStatus.OK, state

    def _seconds_between_frames(self) -> float:
        """As the parameters ask for; 0.0 where they let frames come as they do."""
        rates = (getattr(self._node.parameters, name, 0.0) for name in ('rate_hz', 'max_rate_hz'))
        return max((1 / rate for rate in rates if rate > 0), default=0.0)


class RecentLoss:
    """The frames of a topic that came, and that were lost before, of the last seconds."""

    def __init__(self) -> None:
        self._counts: deque[tuple[int, int]] = deque(maxlen=SECONDS_OF_LOSS + 1)

    def add(self, counts: FrameCounts) -> str:
        """Add the counts of now; return the share of frames lost where it is worth a warning."""
        self._counts.append((counts.received, counts.lost or 0))
        received, lost = (now - before for now, before in zip(self._counts[-1], self._counts[0]))
        if lost < max(MIN_LOST, MIN_LOST_PART * (received + lost)):
            return ''
        return f'{lost} of {received + lost} frames of the last {len(self._counts) - 1} s were'


def _told(counts: FrameCounts) -> dict[str, int]:
    received, published, dropped = counts.snapshot()
    return {
        'frames received': received,
        'frames published': published,
        'frames dropped': sum(dropped.values()),
        **{f'dropped: {cause}': count for cause, count in sorted(dropped.items())},
        **({} if counts.lost is None else {'frames lost before arrival': counts.lost}),
    }


class LatencyMeter:
    """
    Tells how old images are when they are done with; publishes it where the node is asked to.

    For an active node whose parameters have `publish_latency`; made when it is being activated.
    """

    def __init__(self, node: ManagedNode, counts: FrameCounts) -> None:
        self._counts, self._clock = counts, node.get_clock()
        self._publisher = None
        if node.parameters.publish_latency:
            self._publisher = node.create_publisher(
                Float64,
                '~/latency',
                overridden(node, Publisher, '~/latency', QoSProfile(depth=10)),
            )
            node.while_active.callback(
                node.between_callbacks, lambda: node.destroy_publisher(self._publisher)
            )

    def done(self, stamp: tuple[int, int]) -> None:
        """Take an image's stamp, (seconds, nanoseconds), right after its result was published."""
        if stamp == (0, 0):
            return  # Nobody has set it.
        # The ROS clock's own answer costs five times as much.
        now_ns = (
            self._clock.now().nanoseconds if self._clock.ros_time_is_active else time.time_ns()
        )
        seconds = (now_ns - stamp[0] * 1_000_000_000 - stamp[1]) * 1e-9
        self._counts.took(LATENCY, seconds)
        if self._publisher is not None:
            self._publisher.publish(Float64(data=1e3 * seconds))
