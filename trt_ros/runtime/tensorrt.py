"""TensorRT, tensor by tensor: the Runner that needs no graph and no image."""

from __future__ import annotations

from collections.abc import Mapping
from contextlib import ExitStack

import numpy as np

from trt_ros.cuda.device import Gpu, Stream, open_gpu
from trt_ros.cuda.memory import Account, DeviceBuffer, copy_async
from trt_ros.engine.cache import Blob
from trt_ros.engine.engine import Engine
from trt_ros.errors import ClosedError, TensorMismatchError
from trt_ros.runtime.slots import Recent
from trt_ros.runtime.tensorrt_execution import Contexts, Execution, Shape, item_nbytes


class TensorRTRunner:
    """
    Runs one engine from arrays to arrays. Owns the engine that it was opened with.

    Memory grows with the largest shapes seen; a context is kept for each of the last few shapes.
    """

    def __init__(self, engine: Engine, gpu: Gpu, owned: ExitStack, contexts: Contexts,
                 stream: Stream, account: Account) -> None:
        self.engine, self.gpu, self.account = engine, gpu, account
        self.backend = engine.flavour.name
        self.inputs, self.outputs, self.metadata = engine.inputs, engine.outputs, engine.metadata
        self._owned: ExitStack | None = owned
        self._contexts, self._stream = contexts, stream
        self._executions: Recent[Execution] = Recent(capacity=4)
        self._buffers: dict[str, DeviceBuffer] = {}
        self._hosts: dict[str, np.ndarray] = {}

    @classmethod
    def open(cls, engine: Engine, *, device: int = 0, cache: Blob | None = None
             ) -> TensorRTRunner:
        """
        Open an engine on a GPU.

        :param engine: belongs to the runner from now on, also when this raises.
        """
        account = Account()
        with ExitStack() as undo:
            undo.callback(engine.close)
            gpu = open_gpu(device)
            contexts = Contexts(engine, account, share_activations=True, cache=cache)
            undo.callback(contexts.close)
            stream = Stream(gpu)
            undo.callback(stream.close)
            return cls(engine, gpu, undo.pop_all(), contexts, stream, account)

    def infer(self, tensors: Mapping[str, np.ndarray]) -> dict[str, np.ndarray]:
        if self._owned is None:
            raise ClosedError('The TensorRT runner')
        for spec in self.inputs:
            tensor = tensors.get(spec.name)
            if tensor is None or not (spec.accepts(tensor) or spec.dtype == 'bfloat16'):
                given = 'nothing' if tensor is None else f'{tensor.shape} {tensor.dtype}'
                raise TensorMismatchError(f'The network wants {spec}, it was given {given}.')
        shapes = {spec.name: tuple(tensors[spec.name].shape) for spec in self.inputs}
        execution = self._executions.get(
            tuple(shapes.values()), make=lambda: self._contexts.new(shapes))
        stream = self._stream.handle
        for spec in self.inputs:
            tensor = np.ascontiguousarray(tensors[spec.name])
            execution.bind(spec.name, self._buffer(spec.name, tensor.nbytes))
            # From pageable memory: CUDA has read it all when this returns.
            copy_async(self._buffers[spec.name].ptr, tensor.ctypes.data, tensor.nbytes, stream)
        for spec in self.outputs:
            host = self._host(spec.name, spec.dtype, execution.shape_of(spec.name))
            execution.bind(spec.name, self._buffer(spec.name, host.nbytes))
        execution.enqueue(stream)
        results = {}
        for spec in self.outputs:
            host = self._hosts[spec.name]
            copy_async(host.ctypes.data, self._buffers[spec.name].ptr, host.nbytes, stream)
            results[spec.name] = host
        self._stream.synchronize()
        return {name: widen(host) if spec.dtype == 'bfloat16' else host
                for (name, host), spec in zip(results.items(), self.outputs)}

    def _buffer(self, name: str, nbytes: int) -> int:
        have = self._buffers.get(name)
        if have is None or have.nbytes < nbytes:
            if have is not None:
                have.close()
            have = self._buffers[name] = DeviceBuffer(nbytes, 'tensors', self.account)
        return have.ptr

    def _host(self, name: str, dtype: str, shape: Shape) -> np.ndarray:
        have = self._hosts.get(name)
        if have is None or have.shape != shape:
            kind = 'uint16' if item_nbytes(dtype) == 2 and dtype == 'bfloat16' else dtype
            have = self._hosts[name] = np.empty(shape, kind)
        return have

    def save_cache(self) -> None:
        """Keep what RTX compiled for this GPU."""
        self._contexts.save_cache()

    def close(self) -> None:
        """Give everything back; may be called twice."""
        if self._owned is not None:
            owned, self._owned = self._owned, None
            self._executions.clear()
            for buffer in self._buffers.values():
                buffer.close()
            owned.close()


def widen(bits: np.ndarray) -> np.ndarray:
    """Turn bfloat16's bits, (..) uint16, into float32 of the same shape."""
    return (bits.astype(np.uint32) << 16).view(np.float32)
