"""TensorRT execution contexts, their shared activation memory and TensorRT-RTX's runtime cache."""

from __future__ import annotations

from collections.abc import Callable, Collection, Mapping
import logging
from typing import Any

from trt_ros.cuda.calls import check, context_is_lost, keep_forever, runtime
from trt_ros.cuda.device import Stream
from trt_ros.cuda.memory import DeviceBuffer, measured
from trt_ros.engine.engine import Engine
from trt_ros.errors import BackendError, ClosedError, TensorMismatchError
from trt_ros.regular_file import Blob
from trt_ros.tensors import Shape

log = logging.getLogger('trt_ros.runtime')

#: Owner of the memory of TensorRT's contexts, the kernels it loads, and CUDA graphs.
CONTEXTS = 'contexts'


class Contexts:
    """
    Factory of the execution contexts of one engine, which it borrows.

    Owns the activation memory and the auxiliary streams that all contexts share, so that only one
    may run at a time, and TensorRT-RTX's runtime cache.

    :param cache: file of the runtime cache with kernels compiled for this GPU; None for none.
    :param activations: memory to use, which may be shared with contexts that run at other times;
        closed with this. None allocates it.
    :param priority: of the auxiliary streams.
    """

    def __init__(
        self,
        engine: Engine,
        *,
        cache: Blob | None = None,
        activations: DeviceBuffer | None = None,
        priority: int = 0,
    ) -> None:
        self.engine = engine
        self._blob = cache
        self._cache: Any = None
        self._config: Any = None
        trt, handle = engine.library.trt, engine.handle
        _refuse_host_tensors(engine)
        self._strategy = trt.ExecutionContextAllocationStrategy.USER_MANAGED
        self._activations = activations or DeviceBuffer(
            activation_nbytes(handle), 'activations', engine.account
        )
        # TensorRT's own would have the default priority, and all SMs where the GPU is shared.
        self._aux_streams = [Stream(priority) for _ in range(handle.num_aux_streams)]
        if engine.library.is_rtx:
            self._config = self._rtx_config(trt, handle)

    def _rtx_config(self, trt: Any, handle: Any) -> Any:
        config = handle.create_runtime_config()
        config.set_execution_context_allocation_strategy(self._strategy)
        # Our graph contains the copies, preprocessing and decoding too.
        config.cuda_graph_strategy = trt.CudaGraphStrategy.DISABLED
        if any(spec.is_dynamic for spec in self.engine.inputs):
            # LAZY would capture its provisional kernels in the graph.
            config.dynamic_shapes_kernel_specialization_strategy = (
                trt.DynamicShapesKernelSpecializationStrategy.EAGER
            )
        if self._blob is not None:
            self._cache = config.create_runtime_cache()
            data = self._blob.load()
            if data and not self._cache.deserialize(data):
                log.info(
                    'Ignoring runtime cache %s of another GPU, driver or TensorRT-RTX: '
                    'recompiling kernels',
                    self._blob.path.name,
                )
            if not config.set_runtime_cache(self._cache):
                log.warning(
                    '%s rejects the runtime cache: kernels are recompiled at each start',
                    self.engine.library,
                )
        return config

    def new(self, shapes: Mapping[str, Shape]) -> Execution:
        """Create a context for input shapes; raises BackendError or TensorMismatchError."""
        handle, account = self.engine.handle, self.engine.account
        nbytes = account.device[CONTEXTS]
        # Without waiting: a run with new shapes comes here within its time limit.
        counted = measured(account, CONTEXTS, wait_seconds=0)
        with self.engine.library.log.collect() as captured, counted:
            context = handle.create_execution_context(
                self._strategy if self._config is None else self._config
            )
        if context is None:
            raise BackendError(
                'TensorRT could not create an execution context.',
                cause='\n'.join(captured.errors),
                remedy='Free GPU memory (nvidia-smi lists the processes that use it), or lower '
                'the input size, the batch or the number of slots.',
            )
        context.set_device_memory(self._activations.ptr, self._activations.nbytes)
        if self._aux_streams:
            context.set_aux_streams([stream.handle for stream in self._aux_streams])
        execution = Execution(self.engine, context, account.device[CONTEXTS] - nbytes)
        try:
            execution.set_shapes(shapes)
        except BaseException:
            execution.close()
            raise
        return execution

    def save_cache(self) -> None:
        """Write the kernels compiled so far; call after warm-up, with the GPU current."""
        if self._cache is not None and self._blob is not None:
            blob = self._cache.serialize()
            if blob is not None:  # An empty one replaces nothing, see `Blob.save`.
                self._blob.save(bytes(blob))

    def close(self) -> None:
        """Release the activation memory and the cache, after all contexts; may be called twice."""
        if context_is_lost():
            keep_forever((self._config, self._cache, self.engine))
        # The cache must outlive every context and the configuration that references it.
        self._config = None
        self._cache = None
        for stream in self._aux_streams:
            stream.close()
        self._activations.close()
        self.engine.account.drop(CONTEXTS)


class Execution:
    """A context with its shapes, owned by the caller of `Contexts.new`; `nbytes` it took."""

    def __init__(self, engine: Engine, context: Any, nbytes: int) -> None:
        self._context: Any = context
        self.engine, self._nbytes = engine, nbytes

    @property
    def context(self) -> Any:
        """TensorRT's IExecutionContext."""
        if self._context is None:
            raise ClosedError('The execution context')
        return self._context

    def set_shapes(self, shapes: Mapping[str, Shape]) -> None:
        """Set input shapes with a profile that includes them, or raise TensorMismatchError."""
        profile = self._profile_for(shapes)
        if profile:
            if not self.context.set_optimization_profile_async(profile, 0):
                raise BackendError(
                    f'TensorRT rejected optimization profile {profile} of the engine.'
                )
            check(runtime().cudaStreamSynchronize(0), 'select an optimization profile')
        for name, shape in shapes.items():
            if not self.context.set_input_shape(name, shape):
                raise TensorMismatchError(
                    f'The engine rejects shape {shape} for input {name}.',
                    remedy='Build the engine with a profile that includes this shape.',
                )

    def _profile_for(self, shapes: Mapping[str, Shape]) -> int:
        for index, profile in enumerate(self.engine.profiles):
            if all(
                all(low <= size <= high for low, size, high in zip(lowest, shapes[name], highest))
                for name, (lowest, _, highest) in profile.items()
            ):
                return index
        if not self.engine.profiles:
            return 0
        ranges = '; '.join(
            f'{name} {lowest} to {highest}'
            for profile in self.engine.profiles
            for name, (lowest, _, highest) in profile.items()
        )
        raise TensorMismatchError(
            f'No profile of the engine includes {dict(shapes)}.',
            cause=f'It was built for {ranges}.',
            remedy='Build the engine with a profile that includes these shapes.',
        )

    def shape_of(self, name: str) -> Shape:
        """Return a tensor's shape; raises TensorMismatchError if it depends on the data."""
        shape = tuple(int(size) for size in self.context.get_tensor_shape(name))
        if any(size < 0 for size in shape):
            raise TensorMismatchError(
                f'The shape of output {name} depends on the data.',
                remedy='Use the ONNX file instead of an engine, so that NMS at its end is cut '
                'off; where that is refused, export without NMS, NonZero and other operators that '
                'select by value, or use backend onnxruntime.',
            )
        return shape

    def bind(self, name: str, address: int) -> None:
        """Set the GPU address of an input or output."""
        if not self.context.set_tensor_address(name, address):
            raise BackendError(f'TensorRT rejected the memory for tensor {name}.')

    def hold(self, names: Collection[str]) -> None:
        """Set the names of inputs that stay the same in most runs."""

    def enqueue_held(self, stream: int) -> None:
        """Enqueue what depends on held inputs alone, which `stages` leave out."""

    def stages(self) -> list[tuple[str, Callable[[int], None]]]:
        """Return the work of a run by name, each part as a function of the stream."""
        return [('inference', self.enqueue)]

    def enqueue(self, stream: int) -> None:
        """Enqueue one inference; raise BackendError when TensorRT rejects it."""
        with self.engine.library.log.collect() as captured:
            is_enqueued = self.context.execute_async_v3(stream)
        if not is_enqueued:
            raise BackendError(
                'TensorRT could not run the engine.',
                cause='\n'.join(captured.errors) or 'TensorRT logged no error',
            )

    def why_not_capturable(self, stream: int) -> str:
        """Return why this context cannot be captured; '' if it can, or TensorRT cannot tell."""
        # Only TensorRT-RTX has the query.
        is_capturable = getattr(self.context, 'is_stream_capturable', None)
        if is_capturable is None or is_capturable(stream):
            return ''
        return 'TensorRT-RTX reports that this network cannot be captured'

    def close(self) -> None:
        """Destroy the context; may be called twice."""
        if self._context is not None:
            if context_is_lost():
                keep_forever(self._context)
            self._context = None
            self.engine.account.add(CONTEXTS, -self._nbytes)


def close_engine(engine: Engine) -> None:
    """Close an engine; leaks it after a sticky error, where destroying it crashes the process."""
    if context_is_lost():
        engine.retire()
        keep_forever(engine)
        engine.account.drop('engine')
    else:
        engine.close()


def _refuse_host_tensors(engine: Engine) -> None:
    """Raise TensorMismatchError for a shape tensor, which TensorRT has on the host."""
    for spec in (*engine.inputs, *engine.outputs):
        if engine.handle.get_tensor_location(spec.name).name == 'HOST':
            raise TensorMismatchError(
                f'The {spec.mode} {spec} is a shape tensor in host memory.',
                cause='TensorRT derives shapes from it, so no CUDA graph can contain its value.',
                remedy='Export the network '
                + ('with a constant in its place' if spec.mode == 'input' else 'without it')
                + ', or use backend onnxruntime.',
            )


def activation_nbytes(handle: Any) -> int:
    """Return the bytes of activation memory that a context of an ICudaEngine needs."""
    size = getattr(handle, 'device_memory_size_v2', None)
    return int(handle.device_memory_size if size is None else size)
