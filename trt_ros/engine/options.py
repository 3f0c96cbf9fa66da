"""Options of an engine build."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import asdict, dataclass
import json
from typing import Any

from trt_ros.errors import ParameterError

PRECISIONS = ('auto', 'fp32', 'tf32', 'fp16', 'bf16')
CONVERTERS = ('light', 'modelopt')
IO_DTYPES = ('keep', 'lower')
HARDWARE = ('none', 'ampere_plus', 'same_compute_capability')

Shape = tuple[int, ...]


@dataclass(frozen=True)
class ShapeRange:
    """
    Shapes of a dynamic input in an optimization profile.

    :param name: name of the input.
    :param low: smallest shape (TensorRT: min).
    :param best: shape to optimize for (TensorRT: opt).
    :param high: largest shape (TensorRT: max).
    """

    name: str
    low: Shape
    best: Shape
    high: Shape

    def __post_init__(self) -> None:
        ranks = {len(shape) for shape in (self.low, self.best, self.high)}
        if len(ranks) != 1 or not all(
            1 <= a <= b <= c for a, b, c in zip(self.low, self.best, self.high)
        ):
            raise ParameterError(
                f'Invalid profile of {self.name}: {self.low}, {self.best}, {self.high}.',
                remedy='Use min, opt and max shapes of equal length with 1 <= min <= opt <= max.',
            )


Profile = tuple[ShapeRange, ...]  # One entry per input


@dataclass(frozen=True)
class BuildOptions:
    """
    Options of an engine build; all but `timing_cache` are part of the cache key.

    :param precision: 'auto' uses the types of the ONNX file and allows TF32; 'tf32' and 'fp32'
        require float32 with and without TF32; 'fp16' and 'bf16' convert the ONNX file. The types
        of Q/DQ nodes (int8, fp8, int4) are always kept.
    :param io_dtypes: 'keep' float32 inputs and outputs, or 'lower' them to the precision as well.
    :param converter: converter to fp16 and bf16: 'light', or 'modelopt' (NVIDIA's, an extra).
    :param fp32: layers that stay float32 in precision fp16 or bf16: patterns such as `/head/*` for
        names of nodes, operators or names of outputs.
    :param simplify: simplify the network with onnxslim (an extra) before the build, if ONNX
        Runtime computes the same results.
    :param cut_nms: cut NMS off the end of the network and run it in the decoder; always done if
        this TensorRT cannot run it.
    :param profiles: optimization profiles of the dynamic inputs; empty creates one from
        `input_size` and `batch`.
    :param input_size: (height, width) of images of dynamic size; () uses the metadata `imgsz`,
        640 x 640 without it.
    :param batch: maximum number of images per run if the batch dimension is dynamic; the engine
        is optimized for this number.
    :param workspace_mib: limit of scratch memory at build and run time in MiB; None for
        TensorRT's default.
    :param optimization_level: 0 (fastest build) to 5 (longest search); None for TensorRT's
        default.
    :param avg_timing_iterations: runs over which the time of each kernel is averaged; None for
        TensorRT's default.
    :param sparse: allow kernels for weights of which two in four are zero (structured sparsity).
    :param aux_streams: maximum number of auxiliary CUDA streams; None for TensorRT's default.
    :param timing_cache: store measured kernel times beside the engines (tensorrt only).
    :param dla_core: deep learning accelerator to use; unsupported layers run on the GPU.
    :param plugins: plugin libraries to load; they are code.
    :param version_compatible: build an engine that other releases of TensorRT can load.
    :param hardware_compatible: GPUs that the engine runs on, one of `HARDWARE` (tensorrt).
    :param compute_capabilities: target GPUs such as '8.6', 'current' for the GPU of this machine
        (tensorrt_rtx).
    :param strip_weights: build without weights and load them from the ONNX file at each start.
    :param weight_streaming_budget_mib: GPU memory for weights in MiB; each run reads the others
        from host memory. None keeps all weights on the GPU.
    """

    precision: str = 'auto'
    io_dtypes: str = 'keep'
    converter: str = 'light'
    fp32: tuple[str, ...] = ()
    simplify: bool = False
    cut_nms: bool = False
    profiles: tuple[Profile, ...] = ()
    input_size: tuple[int, int] | tuple[()] = ()
    batch: int = 1
    workspace_mib: int | None = None
    optimization_level: int | None = None
    avg_timing_iterations: int | None = None
    sparse: bool = False
    aux_streams: int | None = None
    timing_cache: bool = True
    dla_core: int | None = None
    plugins: tuple[str, ...] = ()
    version_compatible: bool = False
    hardware_compatible: str = 'none'
    compute_capabilities: tuple[str, ...] = ()
    strip_weights: bool = False
    weight_streaming_budget_mib: int | None = None

    def __post_init__(self) -> None:
        for field, allowed in (
            ('precision', PRECISIONS),
            ('io_dtypes', IO_DTYPES),
            ('converter', CONVERTERS),
            ('hardware_compatible', HARDWARE),
        ):
            if getattr(self, field) not in allowed:
                raise ParameterError(
                    f'Invalid {field}: {getattr(self, field)!r}.',
                    remedy=f'Set it to one of {", ".join(allowed)}.',
                )
        if self.fp32 and (self.precision not in ('fp16', 'bf16') or self.converter != 'light'):
            raise ParameterError(
                f'fp32 has no effect with precision {self.precision}, converter {self.converter}.',
                remedy='Set precision to fp16 or bf16 and converter to light, or remove fp32.',
            )
        if self.optimization_level is not None and not 0 <= self.optimization_level <= 5:
            raise ParameterError(
                f'Invalid optimization_level: {self.optimization_level}.',
                remedy='Set it to 0 (fastest build) .. 5 (longest search).',
            )
        if self.avg_timing_iterations is not None and self.avg_timing_iterations < 1:
            raise ParameterError(
                f'Invalid avg_timing_iterations: {self.avg_timing_iterations}.',
                remedy='Set it to at least 1.',
            )
        if self.weight_streaming_budget_mib is not None and self.weight_streaming_budget_mib < 0:
            raise ParameterError(
                f'Invalid weight_streaming_budget_mib: {self.weight_streaming_budget_mib}.',
                remedy='Set it to at least 0.',
            )
        if self.input_size and (len(self.input_size) != 2 or min(self.input_size) < 1):
            raise ParameterError(
                f'Invalid input_size: {self.input_size}.',
                remedy='Set it to (height, width) in pixels.',
            )
        if self.batch < 1:
            raise ParameterError(f'Invalid batch: {self.batch}.', remedy='Set it to at least 1.')

    def to_json(self) -> str:
        """Return the options as canonical JSON: keys sorted, independent of locale and time."""
        return json.dumps(asdict(self), sort_keys=True)

    @classmethod
    def from_json(cls, text: str) -> BuildOptions:
        """Parse the result of `to_json`."""
        raw: Mapping[str, Any] = json.loads(text)
        values: dict[str, Any] = {
            key: tuple(value) if isinstance(value, list) else value for key, value in raw.items()
        }
        values['profiles'] = tuple(
            tuple(
                ShapeRange(one['name'], *(tuple(one[key]) for key in ('low', 'best', 'high')))
                for one in profile
            )
            for profile in raw['profiles']
        )
        return cls(**values)
