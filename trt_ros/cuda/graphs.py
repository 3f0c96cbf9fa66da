"""CUDA graphs captured from a stream."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any
import weakref

from trt_ros.cuda.calls import check, count_live, failure, runtime
from trt_ros.cuda.context import Context, current_context
from trt_ros.errors import ClosedError


class Graph:
    """An executable CUDA graph that owns nothing: memory and kernels must outlive it."""

    def __init__(self, executable: Any, node_count: int) -> None:
        self._executable: Any = executable
        self.node_count = node_count
        count_live('graph', 1)
        self._free = weakref.finalize(self, _destroy, current_context(), executable)
        self._launch = runtime().cudaGraphLaunch

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
        status = self._launch(self._executable, stream)[0]
        if status:
            raise failure(int(status), 'launch a graph')

    def close(self) -> None:
        """Destroy the graph; may be called twice."""
        self._executable = None
        self._free()


def _destroy(context: Context, executable: Any) -> None:
    context.release(runtime().cudaGraphExecDestroy, executable)
    count_live('graph', -1)
