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


class Reporter:
    """A forwarder of progress reports that raises CancelledError once `cancelled` is set."""

    def __init__(
        self,
        on_progress: Callable[[Progress], None] | None = None,
        cancelled: threading.Event | None = None,
        clock: Callable[[], float] = time.monotonic,
    ) -> None:
        self._on_progress, self.cancelled, self._clock = on_progress, cancelled, clock
        self._start = clock()
        self._phase = ''

    def __call__(self, phase: str, percent: float | None = None) -> None:
        """Report a phase, or `percent` of it; raise CancelledError if the step was cancelled."""
        if self.cancelled is not None and self.cancelled.is_set():
            raise CancelledError(f'Cancelled before {phase}.')
        elapsed = self._clock() - self._start
        if phase != self._phase:
            self._phase, self._phase_elapsed, self._phase_percent = phase, elapsed, percent or 0.0
        if self._on_progress is not None:
            spent = elapsed - self._phase_elapsed
            self._on_progress(Progress(phase, percent, elapsed, self._remaining(percent, spent)))

    def _remaining(self, percent: float | None, spent: float) -> float | None:
        done = (percent or 0.0) - self._phase_percent
        if spent < ESTIMATE_SECONDS or done <= 0:
            return None
        return spent * (100.0 - self._phase_percent - done) / done
