"""What goes through a node and what does not: counted, and published on /diagnostics."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Mapping
import platform
import threading
import time

from diagnostic_msgs.msg import DiagnosticArray, DiagnosticStatus, KeyValue

from trt_ros.ros.lifecycle import STEADY_CLOCK, ManagedNode
from trt_ros.ros.worker import REPLACED, STOPPED, UNWANTED

#: Why frames are given up without a cause for worry.
HARMLESS = (REPLACED, STOPPED, UNWANTED)
SECONDS_BETWEEN_LOGS = 10.0
SECONDS_A_WARNING_STAYS = 5.0
SECONDS_WITHOUT_A_FRAME = 5.0


class FrameCounts:
    """How many frames came, went, and were dropped for which cause; for several threads."""

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self.received = self.published = 0
        self.dropped: Counter[str] = Counter()
        self.last_error = ''
        self._last_received = self._last_trouble = float('-inf')
        self._last_logged: dict[str, float] = {}

    def receive(self) -> None:
        with self._lock:
            self.received += 1
            self._last_received = time.monotonic()

    def publish(self) -> None:
        with self._lock:
            self.published += 1

    def drop(self, cause: str, why: str = '') -> bool:
        """
        Count a dropped frame.

        :param cause: a few words without numbers.
        :returns: whether this is worth a line in the log: the cause is new, or was last logged a
            while ago.
        """
        with self._lock:
            self.dropped[cause] += 1
            if cause in HARMLESS:
                return False
            now = self._last_trouble = time.monotonic()
            self.last_error = why or cause
            if now - self._last_logged.get(cause, float('-inf')) < SECONDS_BETWEEN_LOGS:
                return False
            self._last_logged[cause] = now
            return True

    def snapshot(self) -> tuple[int, int, dict[str, int]]:
        """Frames received, published, and dropped by cause, of one moment."""
        with self._lock:
            return self.received, self.published, dict(self.dropped)

    @property
    def is_troubled(self) -> bool:
        """Whether a frame was dropped for a bad reason within the last seconds."""
        return time.monotonic() - self._last_trouble < SECONDS_A_WARNING_STAYS

    def seconds_since_received(self, since: float) -> float:
        """Seconds without a frame, counted from the monotonic time `since` at the earliest."""
        return time.monotonic() - max(self._last_received, since)


class Diagnostics:
    """
    Publishes a DiagnosticStatus each second, in every state, as diagnostic_updater would.

    OK: all is well, also while nobody asked for more. WARN: frames were dropped for a bad reason
    within the last seconds, or none comes though the node is active. ERROR: a transition failed.

    :param task: what the status is about, the part of its name after the colon.
    :param facts: more key-value pairs, asked once a second in the executor's thread.
    :param why_no_image: says where images should come from and what may be wrong there, asked
        likewise.
    """

    def __init__(
            self, node: ManagedNode, counts: FrameCounts, *, task: str,
            facts: Callable[[], Mapping[str, str]] = dict,
            why_no_image: Callable[[ManagedNode], str] = lambda node: '') -> None:
        self._node, self._counts, self._facts = node, counts, facts
        self._why_no_image = why_no_image
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
        elif self._active_since is None:
            self._active_since = now
        received, published, dropped = self._counts.snapshot()
        seconds = now - self._before[0]
        values = {
            'state': state,
            **self._facts(),
            'frames received': str(received),
            'frames published': str(published),
            'frames dropped': str(sum(dropped.values())),
            **{f'dropped: {cause}': str(count) for cause, count in sorted(dropped.items())},
            'rate in (Hz)': f'{(received - self._before[1]) / seconds:.1f}',
            'rate out (Hz)': f'{(published - self._before[2]) / seconds:.1f}',
            'last error': self._counts.last_error,
        }
        self._before = (now, received, published)
        level, message = self._judge(state)
        array = DiagnosticArray(status=[DiagnosticStatus(
            level=level, name=self._name, message=message, hardware_id=platform.node(),
            values=[KeyValue(key=key, value=value) for key, value in values.items()])])
        array.header.stamp = self._node.get_clock().now().to_msg()
        self._publisher.publish(array)

    def _judge(self, state: str) -> tuple[bytes, str]:
        if self._node.failure:
            return DiagnosticStatus.ERROR, self._node.failure
        if self._active_since is not None:
            if self._counts.is_troubled:
                return DiagnosticStatus.WARN, f'frames dropped: {self._counts.last_error}'
            waited = self._counts.seconds_since_received(self._active_since)
            if waited > SECONDS_WITHOUT_A_FRAME:
                why = self._why_no_image(self._node)
                return DiagnosticStatus.WARN, f'no image for {waited:.0f} s {why}'.rstrip()
        return DiagnosticStatus.OK, state
