"""Waiting for the GPU: modes, timeouts, and permanent failures, which are reported once."""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Hashable
import ctypes
import logging
import threading
import time

from trt_ros.cuda.calls import CudaError
from trt_ros.cuda.device import Event
from trt_ros.errors import GpuFailedError

log = logging.getLogger('trt_ros.runtime')

#: Runs of a graph, and sleeps, from which the next ones are estimated.
MAX_RUNS, MAX_SLEEPS = 32, 64
#: A graph is waited for by spinning until it has run this often.
MIN_RUNS = 4
#: Time before the estimated end at which a sleep ends, beside the usual delay of wakeups.
MARGIN_SECONDS = 100e-6
#: Share of the wakeups with at most the usual delay.
USUAL = 0.9
#: Shorter sleeps are not worth their system call.
MIN_SLEEP_SECONDS = 50e-6
#: Delay of wakeups before any was measured.
FIRST_DELAY_SECONDS = 100e-6
#: Factor on the estimate of a graph that has ended during a sleep that was not too long.
SHORTER = 0.8

_PR_SET_TIMERSLACK = 29
_thread = threading.local()


class RunTimes:
    """
    Times of the last runs of one captured graph, in seconds.

    :ivar estimate: the second shortest, so that one odd measurement has no effect; 0.0 at first.
    """

    def __init__(self) -> None:
        self._seconds: deque[float] = deque(maxlen=MAX_RUNS)
        self.estimate = 0.0

    def add(self, seconds: float) -> None:
        """Add the time of a run."""
        times = self._seconds
        oldest = times[0] if len(times) == MAX_RUNS else 0.0
        times.append(seconds)
        # Sorting takes longer than the rest; few times are shorter than the second shortest.
        if min(oldest, seconds) <= self.estimate and len(times) >= MIN_RUNS:
            self.estimate = sorted(times)[1]


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
        self.estimate = times.estimate
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
    sleeps, so a graph of less than about 0.3 ms is only spun for. `block` and `spin` are left to
    the CUDA event.

    :param mode: 'adaptive', 'spin' or 'block', as the option gpu_wait.
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

    def end(self, run: Run | None, event: Event) -> None:
        """Wait for the end of a run, which `event` follows; releases the GIL meanwhile."""
        try:
            is_exact = run is None or self._sleep_through(run, event)
        finally:  # After Ctrl-C, too: the next run writes to the memory of this one.
            event.wait()
        if run is not None:
            run.end(self._clock() if is_exact else None)

    def _sleep_through(self, run: Run, event: Event) -> bool:
        """Sleep through most of a run; return whether it was still running afterwards."""
        began = self._clock()
        if run.estimated_end - MARGIN_SECONDS - began < MIN_SLEEP_SECONDS:
            return True
        delays = sorted(self._delays)  # Of more than ten, one long delay has no effect.
        margin = max(MARGIN_SECONDS + delays[int(USUAL * len(delays))], delays[-2])
        seconds = run.estimated_end - margin - began
        if seconds < MIN_SLEEP_SECONDS:
            self._delays.append(FIRST_DELAY_SECONDS)  # Long ones are forgotten, and tried again.
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


class Faults:
    """
    Permanent failure of a runner's GPU: an error, or a run that takes too long.

    A CUDA wait has no timeout, so the first run starts a watchdog thread. Owns it until close().

    :param timeout_seconds: maximum time per run; 0 starts no thread.
    :param retire: called first when the GPU has failed: later pipelines load the engine again.
    :ivar error: the failure; None while the GPU works.
    """

    def __init__(
        self,
        timeout_seconds: float,
        retire: Callable[[], None],
        clock: Callable[[], float] = time.monotonic,
    ) -> None:
        self.error: GpuFailedError | None = None
        self.timeout_seconds, self._retire, self._clock = timeout_seconds, retire, clock
        self._on_fault: Callable[[GpuFailedError], None] | None = None
        self._lock, self._stop = threading.Lock(), threading.Event()
        self._started: dict[Hashable, float] = {}
        self._thread: threading.Thread | None = None
        self._is_idle = timeout_seconds > 0

    def begin(self, run: Hashable) -> None:
        """Start the time of a run."""
        self._started[run] = self._clock()
        if self._is_idle:
            self._start_watchdog()

    def _start_watchdog(self) -> None:
        with self._lock:
            if self._is_idle:
                self._is_idle = False
                self._stop.clear()
                self._thread = threading.Thread(
                    target=self._watch, name='gpu watchdog', daemon=True
                )
                self._thread.start()

    def end(self, run: Hashable) -> None:
        """Stop the time of a run."""
        self._started.pop(run, None)

    def _watch(self) -> None:
        while not (self._stop.wait(self.timeout_seconds / 4) or self.error):
            self.check_time()

    def check_time(self) -> None:
        """Mark the GPU as failed if the oldest run in flight exceeds the timeout."""
        oldest = min(list(self._started.values()), default=None)
        seconds = 0.0 if oldest is None else self._clock() - oldest
        if seconds > self.timeout_seconds:
            self.fail(
                GpuFailedError(
                    f'The GPU has not responded for {seconds:.1f} s.',
                    cause='a kernel that never ends, a GPU error, or other processes that occupy '
                    'it',
                    remedy='Check nvidia-smi, and the kernel log for "NVRM: Xid"; raise '
                    'gpu_timeout if frames take this long in normal operation.',
                )
            )

    def report_to(self, on_fault: Callable[[GpuFailedError], None]) -> None:
        """Call `on_fault` on failure from now on; at once if the GPU has already failed."""
        with self._lock:
            self._on_fault, error = on_fault, self.error
        if error is not None:
            on_fault(error)

    def check(self) -> None:
        """Raise GpuFailedError if the GPU has failed."""
        if self.error is not None:
            raise self.error

    def raise_if_device_lost(self, error: BaseException) -> None:
        """Raise GpuFailedError if the GPU has failed, or `error` means a lost CUDA context."""
        if isinstance(error, CudaError) and error.is_sticky:
            self.fail(GpuFailedError(error.problem, cause=error.cause, remedy=error.remedy))
        if self.error is not None:
            raise self.error from error

    def fail(self, error: GpuFailedError) -> None:
        """Mark the GPU as failed; only the first error is reported."""
        with self._lock:
            if self.error is not None:
                return
            self.error, on_fault = error, self._on_fault
        self._retire()
        log.error('%s', error)
        if on_fault is not None:
            on_fault(error)

    def close(self) -> None:
        """Stop the watchdog, which the next run would start again; may be called twice."""
        with self._lock:
            self._stop.set()
            thread, self._thread, self._is_idle = self._thread, None, self.timeout_seconds > 0
        if thread is not None and thread is not threading.current_thread():
            thread.join()
