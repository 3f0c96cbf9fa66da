"""An engine on a GPU, its options, and its runs from arrays to arrays without a CUDA graph."""

from collections.abc import Iterator
from contextlib import AbstractContextManager, ExitStack, contextmanager, nullcontext
import os
from pathlib import Path
import threading

import numpy as np

from trt_ros.cuda.device import Event, Gpu, Stream
from trt_ros.cuda.memory import DeviceBuffer, copy_async
from trt_ros.engine.cache import EngineCache
from trt_ros.engine.engine import Engine
from trt_ros.engine.files import locked
from trt_ros.errors import ClosedError
from trt_ros.progress import Reporter
from trt_ros.regular_file import Blob
from trt_ros.runtime.gpu.slots import LruCache
from trt_ros.runtime.gpu.tensorrt_context import Contexts, Execution, close_engine
from trt_ros.runtime.gpu.waiting import Faults, GpuWait, RunTimes
from trt_ros.runtime.options import PipelineOptions
from trt_ros.runtime.runner import Runner, check_inputs
from trt_ros.tensors import Arrays, Shape, TensorSpec, numpy_dtype, widen

_compiling = threading.local()


@contextmanager
def one_compiler(root: Path, report: Reporter) -> Iterator[None]:
    """Lock an engine cache, unless this thread has done so already for another network."""
    if getattr(_compiling, 'is_this_thread', False):
        yield
        return
    with locked(root, report):
        _compiling.is_this_thread = True
        try:
            yield
        finally:
            _compiling.is_this_thread = False


class TensorRTRunner(Runner):
    """
    An engine on a GPU, which runs from arrays to arrays, or as a pipeline. Owns the engine.

    Opens nothing until the first run of arrays, which allocates memory, as larger shapes do; keeps
    an execution context for each of the last four combinations of input shapes.

    :param cache: TensorRT-RTX's runtime cache of this engine.
    :param log_lines: lines for the log about the engine.
    :param options: of these stream_priority, gpu_wait and gpu_timeout apply to arrays.
    :param use_graph: False launches every stage of a frame separately instead of one CUDA graph.
    """

    def __init__(
        self,
        gpu: Gpu,
        engine: Engine,
        *,
        cache: Blob | None = None,
        log_lines: tuple[str, ...] = (),
        options: PipelineOptions | None = None,
        use_graph: bool = True,
    ) -> None:
        self.gpu, self.engine, self.cache, self.log_lines = gpu, engine, cache, log_lines
        self.options, self.account = options or PipelineOptions(), engine.account
        self.use_graph = use_graph
        self.backend = engine.library.name
        self.inputs, self.outputs, self.metadata = engine.inputs, engine.outputs, engine.metadata
        self.faults = Faults(self.options.gpu_timeout, engine.retire)
        self._waiting, self._times = GpuWait(self.options.gpu_wait), RunTimes()
        self._owned: ExitStack | None = None
        self._is_closed = False
        self._executions: LruCache[Execution] = LruCache(capacity=4)
        self._buffers: dict[str, DeviceBuffer] = {}
        self._hosts: dict[str, np.ndarray] = {}

    def has_kernels(self) -> bool:
        """Return whether the kernels need not be compiled first."""
        return self.cache is None or self.cache.path.exists()

    def compiling(self, report: Reporter) -> AbstractContextManager[None]:
        """
        Return a context that lets one node of this machine compile kernels at a time.

        Those that need the same ones find them in the cache. Eight compilers at once take eight
        times the memory, and longer than `gpu_timeout`.
        """
        root = EngineCache(self.options.engine_cache_dir).root
        if self.has_kernels() or not os.access(root, os.W_OK):
            return nullcontext()
        return one_compiler(root, report)

    def open_contexts(self, activations: DeviceBuffer | None = None) -> Contexts:
        """Return the factory of execution contexts, which the caller closes; see Contexts."""
        return Contexts(
            self.engine,
            cache=self.cache,
            activations=activations,
            priority=self.options.stream_priority,
        )

    def _open(self) -> None:
        with ExitStack() as undo:
            self._contexts = self.open_contexts()
            undo.callback(self._contexts.close)
            self._stream = Stream(self.options.stream_priority)
            undo.callback(self._stream.close)
            self._done = Event(blocking_sync=self.options.gpu_wait == 'block')
            undo.callback(self._done.close)
            self._owned = undo.pop_all()

    def infer(self, tensors: Arrays) -> dict[str, np.ndarray]:
        if self._is_closed:
            raise ClosedError('The TensorRT runner')
        self.faults.check()
        check_inputs(self.inputs, tensors)
        try:
            with self.gpu.launch_context:
                if self._owned is None:
                    self._open()
                shapes = {spec.name: tuple(tensors[spec.name].shape) for spec in self.inputs}
                execution = self._executions.get(
                    tuple(shapes.values()), make=lambda: self._contexts.new(shapes)
                )
                self.faults.begin(0)  # Not earlier: a new shape may compile for seconds.
                return self._run(execution, tensors)
        except BaseException as error:
            self.faults.raise_if_device_lost(error)
            raise
        finally:
            self.faults.end(0)

    def _run(self, execution: Execution, tensors: Arrays) -> dict[str, np.ndarray]:
        stream = self._stream.handle
        for spec in self.inputs:
            tensor = np.ascontiguousarray(tensors[spec.name])
            execution.bind(spec.name, self._buffer(spec.name, tensor.nbytes))
            # Pageable memory: CUDA has read all of it when the call returns.
            copy_async(self._buffers[spec.name].ptr, tensor.ctypes.data, tensor.nbytes, stream)
        for spec in self.outputs:
            host = self._host(spec, execution.shape_of(spec.name))
            execution.bind(spec.name, self._buffer(spec.name, host.nbytes))
        run = self._waiting.begin(self._times)
        execution.enqueue(stream)
        # Wait here, as gpu_wait says: a copy to pageable memory would spin until the end.
        self._done.record(stream)
        self._waiting.end(run, self._done)
        results = {spec.name: self._hosts[spec.name] for spec in self.outputs}
        for name, host in results.items():
            copy_async(host.ctypes.data, self._buffers[name].ptr, host.nbytes, stream)
        self._stream.synchronize()
        widened = {
            spec.name: widen(results[spec.name])
            for spec in self.outputs
            if spec.dtype == 'bfloat16'
        }
        return results | widened

    def _buffer(self, name: str, nbytes: int) -> int:
        buffer = self._buffers.get(name)
        if buffer is None or buffer.nbytes < nbytes:
            if buffer is not None:
                buffer.close()
            buffer = self._buffers[name] = DeviceBuffer(nbytes, 'tensors', self.account)
        return buffer.ptr

    def _host(self, spec: TensorSpec, shape: Shape) -> np.ndarray:
        host = self._hosts.get(spec.name)
        if host is None or host.shape != shape:
            host = self._hosts[spec.name] = np.empty(shape, numpy_dtype(spec.dtype))
        return host

    def save_cache(self) -> None:
        """Write the kernels that TensorRT-RTX has compiled for this GPU so far."""
        if self._owned is not None:
            with self.gpu.launch_context:
                self._contexts.save_cache()

    def free(self) -> None:
        """Release what runs have opened; the next one opens it again."""
        self.faults.close()
        self.gpu.launch_context.release(self._free)

    def _free(self) -> None:
        if self._owned is not None:
            owned, self._owned = self._owned, None
            self._executions.clear()
            while self._buffers:
                self._buffers.popitem()[1].close()
            owned.close()

    def close(self) -> None:
        self._is_closed = True
        self.free()
        self.gpu.launch_context.release(close_engine, self.engine)
        self.gpu.close()
