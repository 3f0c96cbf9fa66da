"""Permanent GPU failures, reported once: a lost CUDA context, or a timeout."""

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
    Permanent failure of a runner's GPU. Owns a watchdog thread until close().

    :param timeout_seconds: a frame that takes longer counts as a failure; 0 disables the watchdog.
    :param retire: called first when the GPU has failed: later pipelines load the engine again.
    :ivar error: the failure; None while the GPU works.
    """

    def __init__(self, timeout_seconds: float, retire: Callable[[], None]) -> None:
        self.error: GpuFailedError | None = None
        self._retire, self._lock = retire, threading.Lock()
        self._on_fault: Callable[[GpuFailedError], None] | None = None
        self._watchdog = Watchdog(timeout_seconds, self._is_late)
        self.begin, self.end = self._watchdog.begin, self._watchdog.end

    def report_to(self, on_fault: Callable[[GpuFailedError], None]) -> None:
        """Call `on_fault` on failure from now on; at once if the GPU has already failed."""
        with self._lock:
            self._on_fault, error = on_fault, self.error
        if error is not None:
            on_fault(error)

    def check(self) -> None:
        """
        Check that the GPU works.

        :raises GpuFailedError: when the GPU has failed.
        """
        if self.error is not None:
            raise self.error

    def raise_if_device_lost(self, error: BaseException) -> None:
        """
        Record a failure if `error` means that the CUDA context is lost.

        :raises GpuFailedError: in place of any error, once the GPU has failed.
        """
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

    def _is_late(self, seconds: float) -> None:
        self.fail(
            GpuFailedError(
                f'The GPU has not responded for {seconds:.1f} s.',
                cause='a kernel that never ends, a GPU error, or other processes that occupy it',
                remedy='Check nvidia-smi, and the kernel log for "NVRM: Xid"; raise gpu_timeout '
                'if frames take this long in normal operation.',
            )
        )

    def close(self) -> None:
        """Stop the watchdog; may be called twice."""
        self._watchdog.close()
