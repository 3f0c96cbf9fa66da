"""Progress reports and cancellation of slow steps."""

from collections.abc import Callable
from dataclasses import dataclass
import threading
import time

from trt_ros.errors import TrtRosError

ESTIMATE_SECONDS = 5.0  # Of a phase, before the rest of it is estimated.


class CancelledError(TrtRosError):
    """Cancellation by the caller; all resources of the step are released."""


@dataclass(frozen=True)
class Progress:
    """A report of a slow step: its phase, percent of that, and seconds; None if unknown."""

    phase: str
    percent: float | None
    elapsed_seconds: float
    remaining_seconds: float | None = None

    def __str__(self) -> str:
        percent = '' if self.percent is None else f' {self.percent:.0f} %'
        left = self.remaining_seconds
        remaining = '' if left is None else f', about {left:.0f} s left'
        return f'{self.phase}{percent}, {self.elapsed_seconds:.0f} s{remaining}'


class ProgressThrottle:
    """A filter of the progress reports of one step: the first, then one every few seconds."""

    def __init__(self, seconds: float = 5.0) -> None:
        self._seconds, self._due = seconds, 0.0

    def __call__(self, progress: Progress) -> bool:
        """Return whether to show a report."""
        if progress.elapsed_seconds < self._due:
            return False
        self._due = progress.elapsed_seconds + self._seconds
        return True


class RestEstimate:
    """An estimate of how long the present phase of a step will go on."""

    def __init__(self) -> None:
        self._phase, self._since, self._percent = '', 0.0, 0.0

    def __call__(self, phase: str, percent: float | None, elapsed: float) -> float | None:
        """
        Return the remaining seconds of a phase; None if unknown.

        :param elapsed: seconds since the begin of the step.
        """
        if phase != self._phase:
            self._phase, self._since, self._percent = phase, elapsed, percent or 0.0
        spent, done = elapsed - self._since, (percent or 0.0) - self._percent
        if spent < ESTIMATE_SECONDS or done <= 0:
            return None
        return spent * (100.0 - self._percent - done) / done


class Reporter:
    """A forwarder of progress reports that raises CancelledError once `cancelled` is set."""

    def __init__(
        self,
        on_progress: Callable[[Progress], None] | None = None,
        cancelled: threading.Event | None = None,
    ) -> None:
        self._on_progress, self.cancelled = on_progress, cancelled
        self._start, self._rest = time.monotonic(), RestEstimate()

    def __call__(self, phase: str, percent: float | None = None) -> None:
        """Report a phase, or `percent` of it; raise CancelledError if the step was cancelled."""
        if self.cancelled is not None and self.cancelled.is_set():
            raise CancelledError(f'Cancelled before {phase}.')
        elapsed = time.monotonic() - self._start
        rest = self._rest(phase, percent, elapsed)
        if self._on_progress is not None:
            self._on_progress(Progress(phase, percent, elapsed, rest))
