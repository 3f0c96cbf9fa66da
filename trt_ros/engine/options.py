"""Options of an engine build."""

from __future__ import annotations

from dataclasses import asdict, dataclass
import json
from math import inf
from typing import Any

from trt_ros.errors import ParameterError
from trt_ros.parameter_field import check_options, param

PRECISIONS = ('auto', 'fp32', 'tf32', 'fp16', 'bf16')
IO_DTYPES = ('keep', 'lower')
HARDWARE = ('none', 'ampere_plus', 'same_compute_capability')
#: Flags that are not named as their options; those of several values are given once per value.
FLAGS = {
    'profiles': '--profile',
    'timing_cache': '--no-timing-cache',
    'plugins': '--plugin',
    'compute_capabilities': '--compute-capability',
    'fp32': '--fp32',
    'tactics': '--tactic',
}

Shape = tuple[int, ...]


def flag_of(name: str) -> str:
    """Return the flag of an option."""
    return FLAGS.get(name, f'--{name.replace("_", "-")}')


@dataclass(frozen=True)
class ShapeRange:
    """Smallest (TensorRT: min), best (opt) and largest (max) shape of a dynamic input."""

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

    :param profiles: optimization profiles of the dynamic inputs; empty creates one from
        `input_size` and `batch`.
    :raises ParameterError: at construction, when a value or a combination is invalid.
    """

    profiles: tuple[Profile, ...] = ()
    precision: str = param(
        'auto',
        'Arithmetic precision: auto uses the types of the ONNX file and allows TF32; tf32 and '
        'fp32 require float32 with and without TF32; fp16 and bf16 convert the ONNX file. The '
        'types of Q/DQ nodes (int8, fp8, int4) are always kept.',
        choices=PRECISIONS,
    )
    io_dtypes: str = param(
        'keep',
        'Types of the inputs and outputs: keep float32, or lower them to the precision as well.',
        choices=IO_DTYPES,
    )
    fp32: tuple[str, ...] = param(
        (),
        'Layers that stay float32 in precision fp16 or bf16: names of nodes or their outputs, or '
        "operators, also patterns such as '/head/*'.",
    )
    cut_nms: bool = param(
        False,
        'Cut NMS off the end of the network and run it in the decoder; always done if this '
        'TensorRT cannot run it.',
    )
    input_size: tuple[int, ...] = param(
        (),
        "Height and width of images of dynamic size; default: the model's metadata, else 640x640.",
        between=(1, inf),
        lengths=(0, 2),
    )
    batch: int = param(
        1,
        'Maximum number of images per run if the batch dimension is dynamic; the engine is '
        'optimized for this number.',
        between=(1, inf),
    )
    workspace_mib: int | None = param(
        None,
        "Limit of scratch memory at build and run time in MiB; default: TensorRT's.",
        between=(0, inf),
    )
    optimization_level: int | None = param(
        None,
        "Optimization level: 0 (fastest build) to 5 (longest search); default: TensorRT's.",
        between=(0, 5),
    )
    avg_timing_iterations: int | None = param(
        None,
        "Number of runs over which the time of each kernel is averaged; default: TensorRT's.",
        between=(1, inf),
    )
    sparse: bool = param(
        False, 'Allow kernels for weights of which two in four are zero (structured sparsity).'
    )
    aux_streams: int | None = param(
        None, "Maximum number of auxiliary CUDA streams; default: TensorRT's.", between=(0, inf)
    )
    timing_cache: bool = param(
        True, 'Time every kernel again, and store no times beside the engines (tensorrt only).'
    )
    editable_timing_cache: bool = param(
        False,
        'Keep the timing cache editable, and list its keys, kernels and times in the .engine.json '
        '(tensorrt only).',
    )
    tactics: tuple[str, ...] = param(
        (), 'Kernels to use whatever their times, as KEY=TACTIC of an editable timing cache.'
    )
    dla_core: int | None = param(
        None,
        'Deep learning accelerator (DLA) core; unsupported layers run on the GPU.',
        between=(0, inf),
    )
    plugins: tuple[str, ...] = param(
        (), 'Plugin libraries, or Python files (.py) that register plugins: executable code.'
    )
    version_compatible: bool = param(
        False, 'Build an engine that other releases of TensorRT can load.'
    )
    hardware_compatible: str = param(
        'none', 'GPUs that the engine runs on (tensorrt).', choices=HARDWARE
    )
    compute_capabilities: tuple[str, ...] = param(
        (), 'Target GPUs such as 8.6; current for the GPU of this machine (tensorrt_rtx).'
    )
    strip_weights: bool = param(
        False, 'Build without weights and load them from the ONNX file at each start.'
    )
    refit: bool = param(
        False,
        'Build an engine whose weights can be replaced: a later version of the model that differs '
        'in weights alone then takes it, without a build.',
    )
    weight_streaming_budget_mib: int | None = param(
        None,
        'GPU memory for weights in MiB; each run reads the others from host memory; default: all '
        'on the GPU.',
        between=(0, inf),
    )

    def __post_init__(self) -> None:
        check_options(self)
        object.__setattr__(self, 'profiles', tuple(self.profiles))
        if self.tactics and not (self.editable_timing_cache and self.timing_cache):
            raise ParameterError(
                'tactics has no effect without an editable timing cache.',
                remedy='Set editable_timing_cache (--editable-timing-cache) and timing_cache, or '
                'remove tactics (--tactic).',
            )
        if self.fp32 and self.precision not in ('fp16', 'bf16'):
            raise ParameterError(
                f'fp32 has no effect with precision {self.precision}.',
                remedy='Set precision to fp16 or bf16, or remove fp32.',
            )

    def to_json(self) -> str:
        """Return the options as canonical JSON: keys sorted, independent of locale and time."""
        return json.dumps(asdict(self), sort_keys=True)

    @classmethod
    def from_json(cls, text: str) -> BuildOptions:
        """Parse the result of `to_json`."""
        values: dict[str, Any] = json.loads(text)
        values['profiles'] = tuple(
            tuple(
                ShapeRange(one['name'], *(tuple(one[key]) for key in ('low', 'best', 'high')))
                for one in profile
            )
            for profile in values['profiles']
        )
        return cls(**values)
