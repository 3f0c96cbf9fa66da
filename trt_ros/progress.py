"""How far a slow step is, and the wish to stop it."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
import threading
import time

from trt_ros.errors import TrtRosError


class CancelledError(TrtRosError):
    """The caller asked to stop; nothing was left open."""


@dataclass(frozen=True)
class Progress:
    """
    One report of a slow step.

    :param phase: what is being done, as one would say it: 'loading the model'.
    :param percent: 0 to 100 within the phase, None where nobody can know.
    :param elapsed_seconds: since the step began.
    """

    phase: str
    percent: float | None
    elapsed_seconds: float

    def __str__(self) -> str:
        percent = '' if self.percent is None else f' {self.percent:.0f} %'
        return f'{self.phase}{percent}, {self.elapsed_seconds:.0f} s'


class ProgressThrottle:
    """
    Tells which reports of one slow step are worth a line: the first, then one every few seconds.

    TensorRT alone begins a phase many times a second.
    """

    def __init__(self, seconds: float = 5.0) -> None:
        self._seconds, self._due = seconds, 0.0

    def __call__(self, progress: Progress) -> bool:
        if progress.elapsed_seconds < self._due:
            return False
        self._due = progress.elapsed_seconds + self._seconds
        return True


class Reporter:
    """
    Says each phase to `on_progress` and stops between phases when `cancelled` is set.

    :param on_progress: called on the step's own thread; what it raises ends the step.
    """

    def __init__(
        self,
        on_progress: Callable[[Progress], None] | None = None,
        cancelled: threading.Event | None = None,
    ) -> None:
        self._on_progress, self._cancelled = on_progress, cancelled
        self._start = time.monotonic()

    def __call__(self, phase: str, percent: float | None = None) -> None:
        """
        Report `phase` as begun, or as `percent` done.

        :raises CancelledError: when the caller has asked to stop.
        """
        if self._cancelled is not None and self._cancelled.is_set():
            raise CancelledError(f'Cancelled before {phase}.')
        if self._on_progress is not None:
            self._on_progress(Progress(phase, percent, time.monotonic() - self._start))
