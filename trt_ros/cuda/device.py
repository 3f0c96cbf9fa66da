"""GPUs: properties, free memory, streams, events and graphs."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from functools import cached_property
from typing import Any

from trt_ros.cuda.calls import (
    Context,
    check,
    current_context,
    driver,
    driver_call,
    failure,
    owned,
    primary_context,
    runtime,
)
from trt_ros.cuda.share import Share, create_stream, open_share
from trt_ros.driver import PCI_ORDER, device_order, nvidia_driver
from trt_ros.errors import ClosedError

_NOT_READY = 600  # CUDA_ERROR_NOT_READY.


@dataclass(frozen=True)
class Gpu:
    """
    A GPU. Make every CUDA call for it, from any thread, inside `with gpu.context:`.

    Create streams and all that launches kernels, and launch them, in `gpu.launch_context`, in one
    thread at a time: it is that of the share, if there is one.

    :param index: CUDA device index among the GPUs visible to this process.
    :param arch: such as 'sm_90'.
    :param is_integrated: whether it shares the host's memory (Jetson, DGX Spark).
    :param pci_bus_id: such as '0000:1B:00.0'; the same for CUDA, NVML and nvidia-smi.
    """

    index: int
    name: str
    arch: str
    is_integrated: bool
    pci_bus_id: str
    context: Context
    share: Share | None = None

    @cached_property
    def launch_context(self) -> Context:
        """Context of the share; that of the whole GPU without one."""
        return self.context if self.share is None else self.share.context

    def close(self) -> None:
        """Return the share, after all that uses it is closed; may be called twice."""
        if self.share is not None:
            self.share.close()

    def __str__(self) -> str:
        order = device_order()
        counted = '' if order == PCI_ORDER else f' in CUDA_DEVICE_ORDER={order}'
        share = '' if self.share is None else f', {self.share}'
        place = f'device {self.index}{counted}, PCI {self.pci_bus_id}{share}'
        return f'{self.name} ({self.arch}, {place})'

    def synchronize(self) -> None:
        """Wait for all work submitted to the GPU by this process."""
        with self.context:
            check(runtime().cudaDeviceSynchronize(), 'wait for the GPU')


def open_gpu(index: int = 0, share: float = 0.0) -> Gpu:
    """Open GPU `index`, and reserve a `share` of its SMs, without making it current; or raise."""
    found = nvidia_driver().gpu(index)
    major, minor = found.compute_capability
    context = primary_context(index)
    return Gpu(
        index,
        found.name,
        f'sm_{major}{minor}',
        found.integrated,
        found.pci_bus_id,
        context,
        open_share(index, share) if share else None,
    )


class Stream:
    """
    A non-blocking CUDA stream on the current GPU, owned by its creator.

    :param priority: 0 is the default, lower values run first; clamped to the GPU's range.
    """

    def __init__(self, priority: int = 0) -> None:
        rt, context = runtime(), current_context()
        lowest, highest = check(
            rt.cudaDeviceGetStreamPriorityRange(), 'query the stream priority range'
        )
        priority = max(int(highest), min(int(lowest), priority))
        created = create_stream(context, priority) or rt.cudaStreamCreateWithPriority(
            rt.cudaStreamNonBlocking, priority
        )
        self.handle = int(check(created, 'create a stream'))
        self._free = owned(self, 'stream', context, rt.cudaStreamDestroy, self.handle)

    def synchronize(self) -> None:
        """Wait for all work in the stream; releases the GIL meanwhile."""
        check(runtime().cudaStreamSynchronize(self.handle), 'wait for a stream')

    def wait_for(self, event: Event) -> None:
        """Make later work of this stream wait for `event`; returns at once."""
        check(runtime().cudaStreamWaitEvent(self.handle, event.handle, 0), 'order two streams')

    def close(self) -> None:
        """Destroy the stream; may be called twice."""
        self._free()


class Event:
    """
    A CUDA event on the current GPU, owned by its creator.

    :param blocking_sync: whether `wait` sleeps until an interrupt instead of spinning.
    :param timing: whether to record timestamps; has a small cost, so only for measurements.
    """

    def __init__(self, *, blocking_sync: bool = False, timing: bool = False) -> None:
        rt, context = runtime(), current_context()
        flags = (rt.cudaEventBlockingSync if blocking_sync else 0) | (
            0 if timing else rt.cudaEventDisableTiming
        )
        created = check(rt.cudaEventCreateWithFlags(flags), 'create an event')
        self._event: int | None = int(created)
        destroy = driver().cuEventDestroy
        self._free = owned(self, 'event', context, destroy, self._event)
        self._record = driver_call('cuEventRecord', 2)
        self._query = driver_call('cuEventQuery', 1)
        self._synchronize = driver_call('cuEventSynchronize', 1, may_wait=True)

    @property
    def handle(self) -> int:
        """CUDA's handle of the event."""
        if self._event is None:
            raise ClosedError('The event')
        return self._event

    def record(self, stream: int) -> None:
        """Record the event in `stream`; returns at once."""
        status = self._record(self.handle, stream)
        if status:
            raise failure(status, 'record an event')

    def wait(self) -> None:
        """Wait until the stream has reached the event; releases the GIL meanwhile."""
        status = self._synchronize(self.handle)
        if status:
            raise failure(status, 'wait for the GPU')

    def is_done(self) -> bool:
        """Return whether the stream has reached the event; also True after an error."""
        # The runtime's own query would leave an error behind for cudaGetLastError.
        return self._query(self.handle) != _NOT_READY

    def ms_since(self, earlier: Event) -> float:
        """Return the milliseconds since an earlier timing event; both must have completed."""
        return float(
            check(
                runtime().cudaEventElapsedTime(earlier.handle, self.handle),
                'read the time between two events',
            )
        )

    def close(self) -> None:
        """Destroy the event; may be called twice."""
        self._event = None
        self._free()


def wait_for_library(stream: int, other: int = 0) -> None:
    """Make later work of a stream wait for the work of a library, by default in stream 0."""
    event = Event()
    event.record(other)
    check(runtime().cudaStreamWaitEvent(stream, event.handle, 0), 'order two streams')
    event.close()


class Graph:
    """An executable CUDA graph that owns nothing: memory and kernels must outlive it."""

    def __init__(self, executable: Any, node_count: int) -> None:
        self._executable: int | None = int(executable)
        self.node_count = node_count
        destroy = runtime().cudaGraphExecDestroy
        self._free = owned(self, 'graph', current_context(), destroy, executable)
        self._launch = driver_call('cuGraphLaunch', 2)

    @classmethod
    def capture(cls, stream: int, work: Callable[[int], None]) -> Graph:
        """
        Capture the work that `work` enqueues into `stream`, without running it.

        :raises: any exception of `work`, or CudaError when part of it cannot be captured; the
            stream is then in its previous state.
        """
        rt = runtime()
        # Thread-local: other threads may allocate meanwhile, this one may not.
        check(
            rt.cudaStreamBeginCapture(
                stream, rt.cudaStreamCaptureMode.cudaStreamCaptureModeThreadLocal
            ),
            'begin a capture',
        )
        try:
            work(stream)
        except BaseException:
            code, broken = rt.cudaStreamEndCapture(stream)
            if not int(code) and broken:
                rt.cudaGraphDestroy(broken)
            rt.cudaGetLastError()  # Forget the status of the broken capture.
            raise
        graph = check(rt.cudaStreamEndCapture(stream), 'end a capture')
        try:
            executable = check(rt.cudaGraphInstantiate(graph, 0), 'instantiate a graph')
            _, count = check(rt.cudaGraphGetNodes(graph, 0), 'count the nodes of a graph')
        finally:
            rt.cudaGraphDestroy(graph)
        made = cls(executable, int(count))
        check(rt.cudaGraphUpload(executable, stream), 'upload a graph')
        return made

    def launch(self, stream: int) -> None:
        """Enqueue the whole graph into `stream`; returns at once."""
        if self._executable is None:
            raise ClosedError('The graph')
        status = self._launch(self._executable, stream)
        if status:
            raise failure(status, 'launch a graph')

    def close(self) -> None:
        """Destroy the graph; may be called twice."""
        self._executable = None
        self._free()
