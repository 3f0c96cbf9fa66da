"""Waiting for the GPU: spinning, sleeping until an interrupt, or sleeping and then spinning."""

from __future__ import annotations

from collections import deque
from collections.abc import Callable
import ctypes
import threading
import time
from typing import Protocol

WAITS = ('adaptive', 'spin', 'block')

#: Runs of a graph, and sleeps, from which the next ones are estimated.
MAX_RUNS, MAX_SLEEPS = 32, 64
#: A graph is waited for by spinning until it has run this often.
MIN_RUNS = 4
#: Time before the estimated end at which a sleep ends, beside the measured delay of wakeups.
MARGIN_SECONDS = 30e-6
#: Shorter sleeps are not worth their system call.
MIN_SLEEP_SECONDS = 50e-6
#: Delay of wakeups before any was measured.
FIRST_DELAY_SECONDS = 100e-6
#: Factor on the estimate of a graph that has ended during a sleep that was not too long.
SHORTER = 0.8

_PR_SET_TIMERSLACK = 29
_thread = threading.local()


class Waitable(Protocol):
    """A CUDA event, as far as waiting is concerned."""

    def wait(self) -> None:
        """Wait until the stream has reached the event."""
        ...

    def is_done(self) -> bool:
        """Return whether the stream has reached the event."""
        ...


class RunTimes:
    """Times of the last runs of one captured graph, in seconds."""

    def __init__(self) -> None:
        self._seconds: deque[float] = deque(maxlen=MAX_RUNS)

    def add(self, seconds: float) -> None:
        """Add the time of a run."""
        self._seconds.append(seconds)

    def estimate(self) -> float:
        """Return the second shortest time, so that one odd measurement has no effect; or 0."""
        return sorted(self._seconds)[1] if len(self._seconds) >= MIN_RUNS else 0.0


class Run:
    """
    A launched graph.

    :param before: the run that the GPU finishes first; None if it has ended.
    :ivar estimated_end: earliest probable end; 0.0 if unknown.
    :ivar ended_at: time of the end; None before, and where it was observed too late.
    """

    def __init__(self, times: RunTimes, launched_at: float, before: Run | None) -> None:
        self.times, self.launched_at, self._before = times, launched_at, before
        self.is_running = True
        self.ended_at: float | None = None
        self.estimate: float = times.estimate()
        begin: float = launched_at if before is None else max(launched_at, before.estimated_end)
        self.estimated_end: float = begin + self.estimate if self.estimate else 0.0

    def end(self, now: float | None) -> None:
        """Record the end of the run, and its time where that is known."""
        self.is_running, self.ended_at = False, now
        before, self._before = self._before, None  # Each run would keep all earlier ones.
        begin = self.launched_at if before is None else before.ended_at
        if now is not None and begin is not None:
            self.times.add(now - max(begin, self.launched_at))


class GpuWait:
    """
    The waiting mode of one pipeline; `begin` and `end` may be called from several threads.

    `adaptive` sleeps until shortly before the probable end of the run, then spins. The end follows
    from the times of the last runs of the same graph, the wakeup from the delays of the last
    sleeps, so a graph of less than about 0.2 ms is only spun for. `block` and `spin` are left to
    the CUDA event.

    :param mode: one of WAITS.
    :param clock: returns seconds; `sleep` takes as many.
    """

    def __init__(
        self,
        mode: str,
        *,
        clock: Callable[[], float] = time.perf_counter,
        sleep: Callable[[float], None] | None = None,
    ) -> None:
        self.is_adaptive = mode == 'adaptive'
        self._clock, self._sleep = clock, sleep or precise_sleep
        self._delays = deque([FIRST_DELAY_SECONDS] * 2, maxlen=MAX_SLEEPS)
        self._last: Run | None = None

    def begin(self, times: RunTimes) -> Run | None:
        """Record the launch of a graph; the caller orders the launches."""
        if not self.is_adaptive:
            return None
        before = self._last
        if before is not None and not before.is_running:
            before = None
        self._last = run = Run(times, self._clock(), before)
        return run

    def end(self, run: Run | None, event: Waitable) -> None:
        """Wait for the end of a run, which `event` follows; releases the GIL meanwhile."""
        is_exact = run is None or self._sleep_through(run, event)
        event.wait()
        if run is not None:
            run.end(self._clock() if is_exact else None)

    def _sleep_through(self, run: Run, event: Waitable) -> bool:
        """Sleep through most of a run; return whether it was still running afterwards."""
        margin = MARGIN_SECONDS + sorted(self._delays)[-2]  # One long delay has no effect.
        began = self._clock()
        seconds = run.estimated_end - margin - began
        if seconds < MIN_SLEEP_SECONDS:
            return True
        self._sleep(seconds)
        delay = self._clock() - began - seconds
        self._delays.append(delay)
        if not event.is_done():
            return True
        if delay <= margin:  # Not the sleep was too long, but the estimate.
            run.times.add(SHORTER * run.estimate)
        return False


def precise_sleep(seconds: float) -> None:
    """Sleep without the timer slack of 50 µs by which Linux delays the wakeups of a thread."""
    if not getattr(_thread, 'has_no_slack', False):
        _thread.has_no_slack = True
        # Best effort: without it, the delays are measured and slept less.
        ctypes.CDLL(None).prctl(_PR_SET_TIMERSLACK, ctypes.c_ulong(1), 0, 0, 0)
    time.sleep(seconds)
