"""A TensorRT engine, loaded."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from types import MappingProxyType
from typing import Any

from trt_ros.engine.plan import parse_plan_header, read_plan_header
from trt_ros.errors import BackendError, ClosedError, ModelError
from trt_ros.tensors import TensorSpec
from trt_ros.trt import Flavour, load_trt

# TensorRT's DataType by name -> NumPy's name. `float` and `half` are how its enum prints.
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

Shape = tuple[int, ...]


class Engine:
    """
    A deserialised engine; owns TensorRT's runtime and engine, and the bytes' library.

    Borrowers: execution contexts made from `handle` must be gone before close().

    :param handle: TensorRT's ICudaEngine.
    :param metadata: the ONNX file's, where the engine came with its sidecar.
    :param path: where the plan lies; None for one built in memory.
    :ivar diagnostics: of how it was built, for /diagnostics; empty where nothing tells.
    :param profiles: one mapping a profile, of a dynamic input's name to its (min, opt, max) shape.
    """

    def __init__(
        self,
        flavour: Flavour,
        runtime: Any,
        handle: Any,
        *,
        path: Path | None,
        metadata: Mapping[str, str],
        plan_nbytes: int,
    ) -> None:
        self.flavour, self.path, self.plan_nbytes = flavour, path, plan_nbytes
        self.metadata: Mapping[str, str] = MappingProxyType(dict(metadata))
        self.diagnostics: Mapping[str, str] = {}
        self._runtime, self._handle = runtime, handle
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

    @property
    def handle(self) -> Any:
        """:raises ClosedError: after close()."""
        if self._handle is None:
            raise ClosedError('The engine')
        return self._handle

    def close(self) -> None:
        """Give engine and runtime back; may be called twice."""
        self._handle = None  # Before the runtime: TensorRT wants this order.
        self._runtime = None


def tensor_spec(handle: Any, name: str) -> TensorSpec:
    """Describe one input or output of an ICudaEngine."""
    return TensorSpec(
        name,
        tuple(handle.get_tensor_shape(name)),
        DTYPES[handle.get_tensor_dtype(name).name],
        'input' if handle.get_tensor_mode(name).name == 'INPUT' else 'output',
    )


def _profile_shapes(handle: Any, name: str, index: int) -> tuple[Shape, Shape, Shape]:
    low, best, high = handle.get_tensor_profile_shape(name, index)
    return tuple(low), tuple(best), tuple(high)


def load_engine(
    source: Path | str | bytes,
    *,
    metadata: Mapping[str, str] | None = None,
    trusted_code: bool = False,
    dla_core: int | None = None,
) -> Engine:
    """
    Deserialise a plan on the current CUDA device.

    Its header decides which flavour loads it; what cannot fit is refused before a library sees it.

    :param source: the plan's file or bytes.
    :param trusted_code: let a version-compatible plan bring its own runtime (it runs code).
    :param dla_core: that it was built for; the plan itself does not say which of several.
    :raises ModelError: when it is damaged, or does not fit this machine.
    :raises BackendError: when its flavour is not installed, or there is no GPU.
    """
    path = None if isinstance(source, bytes) else Path(source)
    name = str(path or 'the engine')
    if isinstance(source, bytes):
        try:
            header, plan = parse_plan_header(source[:64]), source
        except ValueError as error:
            raise ModelError('These bytes are not a TensorRT engine.', cause=str(error)) from error
    else:
        header = read_plan_header(Path(source))
        plan = Path(source).read_bytes()
    flavour = load_trt(header.flavour)
    # A tensorrt plan may be version compatible; that library judges by itself.
    if flavour.is_rtx and flavour.version != header.version:
        raise ModelError(
            f'{name} does not fit this machine.',
            cause=f'{header.flavour} {header.version_text} built it, here is {flavour}.',
            remedy='Build it here: trt-ros build MODEL.onnx',
        )
    runtime = flavour.new_runtime()
    if trusted_code:
        runtime.engine_host_code_allowed = True
    if dla_core is not None:
        runtime.DLA_core = dla_core
    with flavour.log.collect() as captured:
        handle = runtime.deserialize_cuda_engine(plan)
    if handle is None:
        raise ModelError(
            f'{name} does not load with {flavour}.',
            cause='\n'.join(captured.errors),
            remedy='Build it here: trt-ros build MODEL.onnx',
        )
    try:
        return Engine(
            flavour, runtime, handle, path=path, metadata=metadata or {}, plan_nbytes=len(plan)
        )
    except KeyError as error:
        raise BackendError(f'{name} has a tensor of type {error}, unknown to trt_ros.') from error
