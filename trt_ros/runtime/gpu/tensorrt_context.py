"""One TensorRT execution context, and RTX's cache of compiled kernels that contexts share."""

from __future__ import annotations

from collections.abc import Mapping
import logging
from typing import Any

import numpy as np

from trt_ros.cuda.calls import check, context_is_lost, keep_forever, runtime
from trt_ros.cuda.memory import Account, DeviceBuffer, megabytes
from trt_ros.engine.cache import Blob
from trt_ros.engine.engine import Engine
from trt_ros.errors import BackendError, ClosedError, TensorMismatchError

log = logging.getLogger('trt_ros.runtime')

Shape = tuple[int, ...]
ITEM_NBYTES = {'bfloat16': 2, 'float8_e4m3fn': 1, 'bool': 1}


def item_nbytes(dtype: str) -> int:
    return ITEM_NBYTES.get(dtype) or np.dtype(dtype).itemsize


class Contexts:
    """
    Makes execution contexts of one engine. Owns the activation memory that they share, and RTX's
    cache; borrows the engine.

    :param share_activations: one piece of scratch memory for all contexts, which then must run
        one after another.
    :param cache: where RTX keeps the kernels it compiles for this GPU; None keeps none.
    """

    def __init__(
        self,
        engine: Engine,
        account: Account,
        *,
        share_activations: bool,
        cache: Blob | None = None,
    ) -> None:
        self.engine, self.account = engine, account
        self._blob = cache
        self._cache: Any = None
        self._config: Any = None
        trt, handle = engine.flavour.trt, engine.handle
        strategies = trt.ExecutionContextAllocationStrategy
        self._strategy = strategies.USER_MANAGED if share_activations else strategies.STATIC
        self.activation_nbytes = _activation_nbytes(handle)
        self._activations: DeviceBuffer | None = None
        if share_activations:
            self._activations = DeviceBuffer(self.activation_nbytes, 'activations', account)
        if engine.flavour.is_rtx:
            self._config = self._rtx_config(trt, handle)

    def _rtx_config(self, trt: Any, handle: Any) -> Any:
        config = handle.create_runtime_config()
        config.set_execution_context_allocation_strategy(self._strategy)
        # We capture by ourselves, with what comes before and after.
        config.cuda_graph_strategy = trt.CudaGraphStrategy.DISABLED
        if any(spec.is_dynamic for spec in self.engine.inputs):
            # LAZY would freeze its provisional kernels into the graph.
            config.dynamic_shapes_kernel_specialization_strategy = (
                trt.DynamicShapesKernelSpecializationStrategy.EAGER
            )
        if self._blob is not None:
            self._cache = config.create_runtime_cache()
            kept = self._blob.load()
            if kept and not self._cache.deserialize(kept):
                log.info(
                    '%s is of another GPU, driver or TensorRT-RTX: compiling anew',
                    self._blob.path.name,
                )
            if not config.set_runtime_cache(self._cache):
                log.warning(
                    '%s takes no runtime cache: it compiles anew at each start',
                    self.engine.flavour,
                )
        return config

    def new(self, shapes: Mapping[str, Shape]) -> Execution:
        """
        Make a context for inputs of these shapes.

        :raises TensorMismatchError: when no profile of the engine takes them.
        """
        handle = self.engine.handle
        with self.engine.flavour.log.collect() as said:
            context = handle.create_execution_context(
                self._strategy if self._config is None else self._config
            )
        if context is None:
            raise BackendError(
                'TensorRT gives no execution context.',
                cause='\n'.join(said.errors),
                remedy=f'It needs {megabytes(self.activation_nbytes)} of GPU memory: free some, '
                'or lower the input size, the batch or the number of slots.',
            )
        if self._activations is not None:
            context.set_device_memory(self._activations.ptr, self._activations.nbytes)
        else:
            self.account.device['activations'] += self.activation_nbytes
        execution = Execution(self, context)
        try:
            execution.set_shapes(shapes)
        except BaseException:
            execution.close()
            raise
        return execution

    def forget(self) -> None:
        """Note that a context with memory of its own is gone."""
        if self._activations is None:
            self.account.device['activations'] -= self.activation_nbytes

    def save_cache(self) -> None:
        """Write what RTX has compiled so far; call after warm-up, with the GPU current."""
        if self._cache is not None and self._blob is not None:
            blob = self._cache.serialize()
            if blob is not None:  # It may be empty, too, and then replaces nothing.
                self._blob.save(bytes(blob))

    def close(self) -> None:
        if context_is_lost():
            keep_forever((self._config, self._cache, self.engine))
        # The cache outlives every context, and goes after the configuration that names it.
        self._config = None
        self._cache = None
        if self._activations is not None:
            self._activations.close()


class Execution:
    """One context with its shapes; whoever asked `Contexts` for it owns it."""

    def __init__(self, contexts: Contexts, context: Any) -> None:
        self._contexts = contexts
        self._context: Any = context
        self.engine = contexts.engine

    @property
    def context(self) -> Any:
        if self._context is None:
            raise ClosedError('The execution context')
        return self._context

    def set_shapes(self, shapes: Mapping[str, Shape]) -> None:
        profile = self._profile_for(shapes)
        if profile:
            if not self.context.set_optimization_profile_async(profile, 0):
                raise BackendError(f'TensorRT does not take profile {profile} of the engine.')
            check(runtime().cudaStreamSynchronize(0), 'choose a profile')
        for name, shape in shapes.items():
            if not self.context.set_input_shape(name, shape):
                raise TensorMismatchError(
                    f'The engine refuses shape {shape} for input {name}.',
                    remedy='Build it with a profile that holds this shape.',
                )

    def _profile_for(self, shapes: Mapping[str, Shape]) -> int:
        for index, profile in enumerate(self.engine.profiles):
            if all(
                all(low <= have <= high for low, have, high in zip(least, shapes[name], most))
                for name, (least, _, most) in profile.items()
            ):
                return index
        if not self.engine.profiles:
            return 0
        ranges = '; '.join(
            f'{name} {least} to {most}'
            for profile in self.engine.profiles
            for name, (least, _, most) in profile.items()
        )
        raise TensorMismatchError(
            f'No profile of the engine takes {dict(shapes)}.',
            cause=f'It was built for {ranges}.',
            remedy='Build it with a profile that holds these shapes.',
        )

    def shape_of(self, name: str) -> Shape:
        """
        Return an input's or output's shape for the inputs' present shapes.

        :raises TensorMismatchError: when it depends on the data.
        """
        shape = tuple(int(size) for size in self.context.get_tensor_shape(name))
        if any(size < 0 for size in shape):
            raise TensorMismatchError(
                f'The shape of output {name} depends on the data.',
                remedy='Give the ONNX file, not an engine, so that NMS at its end is cut off; '
                'where that is refused, export without it, or use backend onnxruntime.',
            )
        return shape

    def bind(self, name: str, address: int) -> None:
        if not self.context.set_tensor_address(name, address):
            raise BackendError(f'TensorRT refuses the memory for {name}.')

    def enqueue(self, stream: int) -> None:
        """
        Put one inference into the stream; returns at once.

        :raises BackendError: when TensorRT refuses.
        """
        with self.engine.flavour.log.collect() as said:
            done = self.context.execute_async_v3(stream)
        if not done:
            raise BackendError(
                'TensorRT could not run the engine.',
                cause='\n'.join(said.errors) or 'it does not say',
            )

    def why_not_capturable(self, stream: int) -> str:
        """Say why this context cannot be in a CUDA graph; '' where it can, or nobody knows."""
        ask = getattr(self.context, 'is_stream_capturable', None)
        if ask is None or ask(stream):
            return ''
        return 'TensorRT-RTX says that this network cannot be captured'

    def close(self) -> None:
        if self._context is not None:
            if context_is_lost():
                keep_forever(self._context)
            self._context = None
            self._contexts.forget()


def close_engine(engine: Engine) -> None:
    """Close an engine, unless its context is lost: TensorRT would crash, and all is freed."""
    if context_is_lost():
        keep_forever(engine)
    else:
        engine.close()


def _activation_nbytes(handle: Any) -> int:
    size = getattr(handle, 'device_memory_size_v2', None)
    return int(handle.device_memory_size if size is None else size)


def widen(bits: np.ndarray) -> np.ndarray:
    """Turn bfloat16's bits, (..) uint16, into float32 of the same shape."""
    return (bits.astype(np.uint32) << 16).view(np.float32)
