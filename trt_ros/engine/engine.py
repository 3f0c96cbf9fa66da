"""Deserialized TensorRT engines, shared by those who open the same file."""

from collections.abc import Callable, Hashable, Mapping, Sequence
import hashlib
from pathlib import Path
import threading
from types import MappingProxyType
from typing import Any
from weakref import WeakSet, WeakValueDictionary

from trt_ros.cuda.memory import Account, describe_gpu_memory, measured, megabytes
from trt_ros.engine.plan import header_of, read_plan
from trt_ros.errors import BackendError, ClosedError, ModelError, TensorMismatchError
from trt_ros.tensors import Shape, TensorSpec
from trt_ros.trt import OUT_OF_MEMORY, Library, load_trt

_lock = threading.RLock()  # Garbage collection may release an engine while the lock is held.


class LoadedPlan:
    """
    TensorRT's IRuntime and ICudaEngine of a plan; destroyed with the last engine that uses it.

    :param key: content of the plan and options of its loading; None if it is not shared.
    :param device: CUDA device index.
    :ivar nbytes: GPU memory that they took when they were loaded.
    """

    def __init__(self, key: Hashable, device: int) -> None:
        self.device = device
        self.runtime: Any = None
        self.handle: Any = None
        self.nbytes = 0
        self.loading = threading.Lock()
        self._key = key
        self._engines: WeakSet[Any] = WeakSet()

    @property
    def users(self) -> int:
        """Number of open engines; forgotten ones are not counted."""
        with _lock:
            return len(self._engines)

    def add(self, engine: object) -> None:
        """Count an engine that was opened."""
        with _lock:
            self._engines.add(engine)

    def remove(self, engine: object) -> None:
        """Stop counting an engine that was closed."""
        with _lock:
            self._engines.discard(engine)

    def retire(self) -> None:
        """Load the plan again for the next engine; the present ones keep this one."""
        with _lock:
            if _shared.get(self._key) is self:
                del _shared[self._key]

    def __del__(self) -> None:
        self.handle = None  # TensorRT requires that the engine is destroyed before its runtime.
        self.runtime = None


_plans: WeakSet[LoadedPlan] = WeakSet()
_shared: WeakValueDictionary[Hashable, LoadedPlan] = WeakValueDictionary()


def load_once(key: Hashable, load: Callable[[], tuple[Any, Any, int]], device: int) -> LoadedPlan:
    """Return the loaded plan of a key; the first caller loads it, others wait meanwhile."""
    with _lock:
        plan = _shared.get(key)
        if plan is None:
            plan = LoadedPlan(key, device)
            _plans.add(plan)
            if key is not None:
                _shared[key] = plan
    with plan.loading:
        if plan.handle is None:
            plan.runtime, plan.handle, plan.nbytes = load()
    return plan


def engines_on(device: int) -> int:
    """Return the number of open engines of this process on a GPU."""
    with _lock:
        return sum(plan.users for plan in _plans if plan.device == device)


SAME_NAMES = (
    'Give the ONNX file of this engine, exported with the same names (input_names, output_names): '
    'trt-ros adopt ENGINE --onnx MODEL.onnx --force'
)
# Name of TensorRT's DataType -> NumPy name.
DTYPES = {
    'FLOAT': 'float32',
    'HALF': 'float16',
    'BF16': 'bfloat16',
    'INT8': 'int8',
    'INT32': 'int32',
    'INT64': 'int64',
    'BOOL': 'bool',
    'UINT8': 'uint8',
    'FP8': 'float8_e4m3fn',
    'INT4': 'int4',
    'FP4': 'float4_e2m1fn',
}


class Engine:
    """
    A deserialized engine, one per pipeline; several of them may share TensorRT's ICudaEngine.

    Destroy all execution contexts created from `handle` before close().

    :param plan: holds TensorRT's IRuntime and ICudaEngine.
    :param path: path of the plan; None if it was built in memory.
    :param metadata: metadata of the ONNX file, if the engine has a sidecar.
    :ivar account: memory of the engine, also if it is shared, and of everything that runs it.
    :ivar diagnostics: build information for /diagnostics; empty if unknown.
    :ivar profiles: one mapping per profile, from the name of a dynamic input to its (min, opt,
        max) shapes.
    """

    def __init__(
        self, library: Library, plan: LoadedPlan, *, path: Path | None, metadata: Mapping[str, str]
    ) -> None:
        self.library, self.path = library, path
        self.account = Account()
        self.account.add('engine', plan.nbytes)
        self.metadata: Mapping[str, str] = MappingProxyType(dict(metadata))
        self.diagnostics: Mapping[str, str] = {}
        self._plan: LoadedPlan | None = plan
        handle = plan.handle
        specs = [
            tensor_spec(handle, handle.get_tensor_name(index))
            for index in range(handle.num_io_tensors)
        ]
        self.inputs = tuple(spec for spec in specs if spec.mode == 'input')
        self.outputs = tuple(spec for spec in specs if spec.mode == 'output')
        self.profiles: tuple[Mapping[str, tuple[Shape, Shape, Shape]], ...] = tuple(
            {
                spec.name: _profile_shapes(handle, spec.name, index)
                for spec in self.inputs
                if spec.is_dynamic
            }
            for index in range(handle.num_optimization_profiles)
        )

        plan.add(self)

    @property
    def handle(self) -> Any:
        """TensorRT's ICudaEngine; raises ClosedError after close()."""
        if self._plan is None:
            raise ClosedError('The engine')
        return self._plan.handle

    @property
    def users(self) -> int:
        """Number of open engines, this one included, that share `handle`; 0 after close()."""
        plan = self._plan
        return 0 if plan is None else plan.users

    def retire(self) -> None:
        """Do not share `handle` with engines that are loaded later, as after a GPU failure."""
        plan = self._plan
        if plan is not None:
            plan.retire()

    def close(self) -> None:
        """Release the engine, which the last of its users destroys; may be called twice."""
        plan, self._plan = self._plan, None
        if plan is not None:
            plan.remove(self)
        self.account.drop('engine')


def tensor_spec(handle: Any, name: str) -> TensorSpec:
    """Return the description of an input or output of an ICudaEngine."""
    return TensorSpec(
        name,
        tuple(handle.get_tensor_shape(name)),
        DTYPES[handle.get_tensor_dtype(name).name],
        'input' if handle.get_tensor_mode(name).name == 'INPUT' else 'output',
    )


def refuse_formats(engine: Engine, path: Path) -> None:
    """Raise ModelError unless the tensors of an engine are in row-major order."""
    formats = {
        spec.name: engine.handle.get_tensor_format(spec.name).name
        for spec in (*engine.inputs, *engine.outputs)
    }
    others = [f'{tensor} is {each}' for tensor, each in formats.items() if each != 'LINEAR']
    if others:
        raise ModelError(
            f'{path} has inputs or outputs in another memory format than LINEAR.',
            cause=f'{"; ".join(others)}.',
            remedy='Build it without formats of inputs and outputs.',
        )


def refuse_other_tensors(
    engine: Path, found: Sequence[TensorSpec], onnx: Path | str, wanted: Sequence[TensorSpec]
) -> None:
    """Raise TensorMismatchError unless an engine has the tensors of an ONNX file."""

    def key(spec: TensorSpec) -> tuple[str, str, str]:
        return spec.name, spec.mode, 'float' if 'float' in spec.dtype else spec.dtype

    shapes: Mapping[str, TensorSpec] = {spec.name: spec for spec in wanted}
    if sorted(map(key, found)) == sorted(map(key, wanted)) and all(
        len(spec.shape) == len(shapes[spec.name].shape)
        and all(a == b or -1 in (a, b) for a, b in zip(spec.shape, shapes[spec.name].shape))
        for spec in found
    ):
        return
    raise TensorMismatchError(
        f'{engine} has other inputs or outputs than {onnx}.',
        cause=f'{"; ".join(map(str, found))}, instead of {"; ".join(map(str, wanted))}.',
        remedy=SAME_NAMES,
    )


def _profile_shapes(handle: Any, name: str, index: int) -> tuple[Shape, Shape, Shape]:
    low, best, high = handle.get_tensor_profile_shape(name, index)
    return tuple(low), tuple(best), tuple(high)


def load_engine(
    source: Path | str | bytes,
    *,
    device: int = 0,
    metadata: Mapping[str, str] | None = None,
    trusted_code: bool = False,
    dla_core: int | None = None,
    weight_budget_nbytes: int | None = None,
    shared: bool = True,
) -> Engine:
    """
    Deserialize a plan on the current CUDA device, once for all its open engines.

    The plan's header selects tensorrt or tensorrt_rtx. A plan that is incompatible according to
    its header is refused before it reaches the library.

    :param trusted_code: allow a version-compatible plan to run the runtime code it contains.
    :param dla_core: DLA core the plan was built for; the plan itself does not contain its number.
    :param weight_budget_nbytes: GPU memory for the weights of a plan that streams weights.
    :param shared: False where the caller changes the engine, as by a refit.
    :raises ModelError: if the plan is damaged or incompatible with this machine.
    :raises BackendError: if its TensorRT is not installed, without a GPU, or if the GPU has too
        little free memory.
    """
    path = None if isinstance(source, bytes) else Path(source)
    name = str(path or 'the engine')
    plan = source if isinstance(source, bytes) else read_plan(Path(source))
    header = header_of(plan, len(plan), name)
    library = load_trt(header.library)
    # A plan of tensorrt may be version compatible, which only the library can decide.
    if library.is_rtx and library.version != header.version:
        raise ModelError(
            f'{name} is incompatible with {library}.',
            cause=f'It was built by {header.library} {header.version_text}.',
            remedy='Rebuild it on this machine: trt-ros build MODEL.onnx',
        )

    def load() -> tuple[Any, Any, int]:
        runtime, account = library.new_runtime(), Account()
        if trusted_code:
            runtime.engine_host_code_allowed = True
        if dla_core is not None:
            runtime.DLA_core = dla_core
        with library.log.collect() as captured, measured(account, 'engine'):
            handle = runtime.deserialize_cuda_engine(plan)
            if handle is not None and weight_budget_nbytes is not None:
                handle.weight_streaming_budget_v2 = weight_budget_nbytes  # Before any context.
        if handle is None:
            raise _load_error(library, name, len(plan), captured.errors)
        if weight_budget_nbytes is not None and captured.errors:
            raise BackendError(
                f'{library} rejected weight_streaming_budget_mib = {weight_budget_nbytes >> 20}.',
                cause='\n'.join(captured.errors),
                remedy='Build the engine without it, or with a larger budget.',
            )
        return runtime, handle, account.device_nbytes

    digest = hashlib.sha256(plan).hexdigest()
    key = (digest, device, trusted_code, dla_core, weight_budget_nbytes) if shared else None
    loaded = load_once(key, load, device)
    try:
        return Engine(library, loaded, path=path, metadata=metadata or {})
    except KeyError as error:
        raise BackendError(f'{name} has a tensor of unsupported type {error}.') from error


def _load_error(
    library: Library, name: str, nbytes: int, errors: Sequence[str]
) -> ModelError | BackendError:
    text = '\n'.join(errors)
    if OUT_OF_MEMORY.search(text):  # Not a ModelError: the engine is good, and is kept.
        return BackendError(
            f'The GPU has too little free memory to load {name} ({megabytes(nbytes)}).',
            cause=f'{describe_gpu_memory()}. {text}',
            remedy='Stop other processes on the GPU, set device to another GPU, or build with '
            '--weight-streaming-budget-mib.',
        )
    return ModelError(
        f'{library} cannot load {name}.',
        cause=text,
        remedy='Rebuild it on this machine: trt-ros build MODEL.onnx',
    )
