"""One GPU: what it is, how much memory it has, its streams and events."""

from __future__ import annotations

from contextlib import suppress
from dataclasses import dataclass
from typing import Any
import weakref

from trt_ros.cuda.calls import CudaError, check, core, count_live, driver, failure, runtime
from trt_ros.errors import BackendError, ClosedError, ParameterError


@dataclass(frozen=True)
class Gpu:
    """
    A GPU made current for the calling thread.

    :param arch: such as 'sm_90'.
    :param is_integrated: it shares the host's memory (Jetson, DGX Spark).
    """

    index: int
    name: str
    arch: str
    is_integrated: bool
    multiprocessors: int

    def use(self) -> None:
        """Make this GPU the calling thread's; every thread that calls CUDA does this once."""
        check(runtime().cudaSetDevice(self.index), f'use GPU {self.index}')

    def free_bytes(self) -> tuple[int, int]:
        """Return (free, total) bytes of its memory."""
        free, total = check(runtime().cudaMemGetInfo(), 'ask for the free GPU memory')
        return int(free), int(total)

    def synchronize(self) -> None:
        check(runtime().cudaDeviceSynchronize(), 'wait for the GPU')


def gpu_count() -> int:
    """Return how many GPUs there are; 0 too where there is no driver or no cuda-python."""
    try:
        code, count = runtime().cudaGetDeviceCount()
    except (BackendError, RuntimeError):
        return 0
    return 0 if int(code) else int(count)


def open_gpu(index: int = 0) -> Gpu:
    """
    Make GPU `index` current and say what it is.

    :raises CudaError: no driver, or a driver that is too old.
    :raises ParameterError: fewer GPUs than that.
    """
    try:
        code, count = runtime().cudaGetDeviceCount()
    except RuntimeError as error:
        # cuda-python raises this one itself when libcuda.so is missing.
        raise CudaError('No GPU can be used.', status='cudaErrorInsufficientDriver',
                        cause=str(error),
                        remedy='Install the NVIDIA driver, or choose backend onnxruntime.',
                        ) from error
    if int(code):
        raise failure(int(code), 'find a GPU')
    if not 0 <= index < count:
        raise ParameterError(f'There is no GPU {index}: this machine has {count}.',
                             remedy='Set parameter device to a smaller number.')
    device = core().Device(index)
    device.set_current()
    major, minor = device.compute_capability
    properties = device.properties
    return Gpu(index, str(device.name), f'sm_{major}{minor}', bool(properties.integrated),
               int(properties.multiprocessor_count))


class Stream:
    """
    A non-blocking stream; whoever constructs it owns it.

    :param priority: 0 is ordinary, -1 and below go first; clamped to what the GPU has.
    """

    def __init__(self, gpu: Gpu, priority: int = 0) -> None:
        lowest, highest = check(
            runtime().cudaDeviceGetStreamPriorityRange(), 'ask for the stream priorities')
        options = core().StreamOptions(
            nonblocking=True, priority=max(int(highest), min(int(lowest), priority)))
        self._stream: Any = core().Device(gpu.index).create_stream(options=options)
        self.handle = int(self._stream.handle)
        count_live('stream', 1)
        self._free = weakref.finalize(self, _close_stream, self._stream)

    def synchronize(self) -> None:
        """Wait for all of its work; the GIL is free meanwhile."""
        check(runtime().cudaStreamSynchronize(self.handle), 'wait for a stream')

    def wait_for(self, event: Event) -> None:
        """Let later work of this stream wait for `event`; returns at once."""
        check(runtime().cudaStreamWaitEvent(self.handle, event.handle, 0), 'order two streams')

    def close(self) -> None:
        self._stream = None
        self._free()


def _close_stream(stream: Any) -> None:
    with suppress(Exception):  # After a sticky error even this fails, and nothing is to be done.
        stream.close()
    count_live('stream', -1)


class Event:
    """
    A mark in a stream; whoever constructs it owns it.

    :param blocking_sync: the waiting thread sleeps (an interrupt wakes it) instead of spinning.
    :param timing: it takes the time; costs a little, so only for measurements.
    """

    def __init__(self, *, blocking_sync: bool = False, timing: bool = False) -> None:
        rt = runtime()
        flags = (rt.cudaEventBlockingSync if blocking_sync else 0) | (
            0 if timing else rt.cudaEventDisableTiming)
        self._event: Any = check(rt.cudaEventCreateWithFlags(flags), 'create an event')
        count_live('event', 1)
        self._free = weakref.finalize(self, _destroy_event, int(self._event))
        self._synchronize = rt.cudaEventSynchronize

    @property
    def handle(self) -> Any:
        if self._event is None:
            raise ClosedError('The event')
        return self._event

    def record(self, stream: int) -> None:
        check(runtime().cudaEventRecord(self.handle, stream), 'record an event')

    def wait(self) -> None:
        """Wait until the stream has passed it; the GIL is free meanwhile."""
        status = self._synchronize(self.handle)[0]
        if status:
            raise failure(int(status), 'wait for the GPU')

    @property
    def is_done(self) -> bool:
        code = int(runtime().cudaEventQuery(self.handle)[0])
        if code and code != int(runtime().cudaError_t.cudaErrorNotReady):
            raise failure(code, 'ask whether the GPU is done')
        return code == 0

    def ms_since(self, earlier: Event) -> float:
        """Return the milliseconds between two timing events that have both passed."""
        return float(check(runtime().cudaEventElapsedTime(earlier.handle, self.handle),
                           'read the time between two events'))

    def close(self) -> None:
        self._event = None
        self._free()


def _destroy_event(handle: int) -> None:
    driver().cuEventDestroy(handle)
    count_live('event', -1)
