"""TensorRT runner from tensors to tensors, without images or a CUDA graph."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from contextlib import ExitStack
from typing import Any

import numpy as np

from trt_ros.blob import Blob
from trt_ros.cuda.device import Event, Stream, open_gpu
from trt_ros.cuda.memory import DeviceBuffer, copy_async
from trt_ros.engine.engine import Engine
from trt_ros.errors import ClosedError, GpuFailedError
from trt_ros.runtime.fitting import ResolvedModel
from trt_ros.runtime.gpu.executor import GraphPipeline
from trt_ros.runtime.gpu.faults import Faults
from trt_ros.runtime.gpu.graph_options import GraphOptions
from trt_ros.runtime.gpu.slots import LruCache
from trt_ros.runtime.gpu.tensorrt_context import (
    Contexts,
    Execution,
    Shape,
    close_engine,
    widen,
)
from trt_ros.runtime.gpu.waiting import GpuWait, RunTimes
from trt_ros.runtime.runner import Runner, check_inputs


class TensorRTRunner(Runner):
    """
    Runner of one engine from arrays to arrays. Owns the engine.

    Allocates memory at the first run, and more for larger shapes; keeps an execution context for
    each of the last four combinations of input shapes.

    :param cache: TensorRT-RTX's runtime cache of this engine.
    :param log_lines: lines for the log about the engine.
    :param options: of these the device, stream_priority, gpu_wait and gpu_timeout_seconds
        apply to tensors, all to `for_frames`.
    """

    def __init__(
        self,
        engine: Engine,
        *,
        cache: Blob | None = None,
        log_lines: tuple[str, ...] = (),
        options: GraphOptions | None = None,
    ) -> None:
        self.account = engine.account
        self.backend = engine.library.name
        self.inputs, self.outputs, self.metadata = engine.inputs, engine.outputs, engine.metadata
        self._engine: Engine | None = engine
        self._cache, self.log_lines = cache, log_lines
        self._options = options or GraphOptions()
        self._waiting, self._times = GpuWait(self._options.gpu_wait), RunTimes()
        self._gpu = open_gpu(self._options.device)
        self.faults = Faults(self._options.gpu_timeout_seconds, engine.retire)
        self._owned: ExitStack | None = None
        self._executions: LruCache[Execution] = LruCache(capacity=4)
        self._buffers: dict[str, DeviceBuffer] = {}
        self._hosts: dict[str, np.ndarray] = {}

    def for_frames(self, fitted: ResolvedModel[Any], *, batch: int = 1) -> GraphPipeline:
        """
        Return a pipeline that runs camera frames on this engine, each as one CUDA graph.

        The pipeline owns the engine from now on; this runner is closed.

        :param batch: number of frames that may arrive together.
        """
        if self._engine is None:
            raise ClosedError('The TensorRT runner')
        engine, self._engine = self._engine, None
        self.close()
        return GraphPipeline.open(
            engine,
            fitted,
            cache=self._cache,
            log_lines=self.log_lines,
            options=self._options,
            batch=batch,
        )

    def _open(self, engine: Engine) -> None:
        with ExitStack() as undo:
            self._contexts = Contexts(engine, cache=self._cache)
            undo.callback(self._contexts.close)
            self._stream = Stream(self._options.stream_priority)
            undo.callback(self._stream.close)
            self._done = Event(blocking_sync=self._options.gpu_wait == 'block')
            undo.callback(self._done.close)
            self._owned = undo.pop_all()

    def infer(self, tensors: Mapping[str, np.ndarray]) -> dict[str, np.ndarray]:
        """Run the network once, see `Runner.infer`."""
        if self._engine is None:
            raise ClosedError('The TensorRT runner')
        self.faults.check()
        check_inputs(self.inputs, tensors)
        try:
            with self._gpu.context:
                if self._owned is None:
                    self._open(self._engine)
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

    def _run(
        self, execution: Execution, tensors: Mapping[str, np.ndarray]
    ) -> dict[str, np.ndarray]:
        stream = self._stream.handle
        for spec in self.inputs:
            tensor = np.ascontiguousarray(tensors[spec.name])
            execution.bind(spec.name, self._buffer(spec.name, tensor.nbytes))
            # Pageable memory: CUDA has read all of it when the call returns.
            copy_async(self._buffers[spec.name].ptr, tensor.ctypes.data, tensor.nbytes, stream)
        for spec in self.outputs:
            host = self._host(spec.name, spec.dtype, execution.shape_of(spec.name))
            execution.bind(spec.name, self._buffer(spec.name, host.nbytes))
        run = self._waiting.begin(self._times)
        execution.enqueue(stream)
        # Wait here, as gpu_wait says: a copy to pageable memory would spin until the end.
        self._done.record(stream)
        self._waiting.end(run, self._done)
        results = {}
        for spec in self.outputs:
            host = self._hosts[spec.name]
            copy_async(host.ctypes.data, self._buffers[spec.name].ptr, host.nbytes, stream)
            results[spec.name] = host
        self._stream.synchronize()
        return {
            name: widen(host) if spec.dtype == 'bfloat16' else host
            for (name, host), spec in zip(results.items(), self.outputs)
        }

    def _buffer(self, name: str, nbytes: int) -> int:
        buffer = self._buffers.get(name)
        if buffer is None or buffer.nbytes < nbytes:
            if buffer is not None:
                buffer.close()
            buffer = self._buffers[name] = DeviceBuffer(nbytes, 'tensors', self.account)
        return buffer.ptr

    def _host(self, name: str, dtype: str, shape: Shape) -> np.ndarray:
        host = self._hosts.get(name)
        if host is None or host.shape != shape:
            kind = 'uint16' if dtype == 'bfloat16' else dtype
            host = self._hosts[name] = np.empty(shape, kind)
        return host

    def on_fault(self, callback: Callable[[GpuFailedError], None]) -> None:
        """Call `callback` once, on any thread, when the GPU has failed or does not respond."""
        self.faults.report_to(callback)

    def save_cache(self) -> None:
        """Write the kernels that TensorRT-RTX has compiled for this GPU so far."""
        if self._owned is not None:
            with self._gpu.context:
                self._contexts.save_cache()

    def close(self) -> None:
        """Release everything; may be called twice."""
        self.faults.close()
        self._gpu.context.release(self._close)

    def _close(self) -> None:
        if self._owned is not None:
            owned, self._owned = self._owned, None
            self._executions.clear()
            for buffer in self._buffers.values():
                buffer.close()
            owned.close()
        if self._engine is not None:
            engine, self._engine = self._engine, None
            close_engine(engine)
