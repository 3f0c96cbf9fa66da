"""Whether a GPU failed for good, reported once: a lost CUDA context, or no answer in time."""

from __future__ import annotations

from collections.abc import Callable
import logging
import threading

from trt_ros.cuda.calls import CudaError
from trt_ros.errors import GpuFailedError
from trt_ros.runtime.gpu.slots import Watchdog

log = logging.getLogger('trt_ros.runtime')


class Faults:
    """
    What ends the use of a GPU by a runner. Owns a watchdog thread until close().

    :param timeout_seconds: a frame that takes longer means that the GPU does not answer; 0
        watches nothing.
    :param on_fault: called once, on any thread, when the GPU has failed.
    :ivar error: why it failed; None while it works.
    """

    def __init__(
        self, timeout_seconds: float, on_fault: Callable[[GpuFailedError], None] | None = None
    ) -> None:
        self.error: GpuFailedError | None = None
        self._on_fault, self._lock = on_fault, threading.Lock()
        self._watchdog = Watchdog(timeout_seconds, self._is_late)
        self.begin, self.end = self._watchdog.begin, self._watchdog.end

    def report_to(self, on_fault: Callable[[GpuFailedError], None]) -> None:
        """Have `on_fault` called instead; at once where the GPU has failed already."""
        with self._lock:
            self._on_fault, error = on_fault, self.error
        if error is not None:
            on_fault(error)

    def check(self) -> None:
        """:raises GpuFailedError: when the GPU has failed."""
        if self.error is not None:
            raise self.error

    def judge(self, error: BaseException) -> None:
        """
        Fail where an error means that the CUDA context is lost.

        :raises GpuFailedError: instead of any error, once the GPU has failed.
        """
        if isinstance(error, CudaError) and error.is_sticky:
            self.fail(GpuFailedError(error.problem, cause=error.cause, remedy=error.remedy))
        if self.error is not None:
            raise self.error from error

    def fail(self, error: GpuFailedError) -> None:
        """Count the GPU as failed; only the first error is reported."""
        with self._lock:
            if self.error is not None:
                return
            self.error, on_fault = error, self._on_fault
        log.error('%s', error)
        if on_fault is not None:
            on_fault(error)

    def _is_late(self, seconds: float) -> None:
        self.fail(
            GpuFailedError(
                f'The GPU has not answered for {seconds:.1f} s.',
                cause='a kernel that never ends, a GPU in trouble, or one that others keep busy',
                remedy='Look at nvidia-smi and for "NVRM: Xid" in the kernel log; raise '
                'gpu_timeout '
                'where frames really take this long.',
            )
        )

    def close(self) -> None:
        self._watchdog.close()
