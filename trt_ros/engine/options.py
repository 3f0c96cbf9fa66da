"""All that decides what engine comes out of an ONNX file."""

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
    """Shapes that a dynamic input may have: smallest, the one to be fast at, largest."""

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
                f'Profile of {self.name}: {self.low}, {self.best}, {self.high} is no range.',
                remedy='Give min, opt and max of equal length, 1 <= min <= opt <= max.',
            )


Profile = tuple[ShapeRange, ...]  # One entry an input


@dataclass(frozen=True)
class BuildOptions:
    """
    :param precision: 'auto' takes the ONNX file's own types, TF32 allowed; 'tf32' and 'fp32' ask
        that its floats be float32, TF32 allowed or not; 'fp16' and 'bf16' convert the ONNX.
        What Q/DQ nodes say (int8, fp8, int4) is kept in each.
    :param io_dtypes: 'keep' the ONNX file's float32 inputs and outputs, or 'lower' them as well.
    :param converter: what makes fp16 and bf16: 'light', or 'modelopt' (NVIDIA's, an extra).
    :param cut_nms: cut NMS off the end of the network; where this TensorRT cannot run it, it is
        cut off in any case.
    :param profiles: for dynamic inputs; empty makes one from `input_size` and `batch`.
    :param input_size: (height, width) for images of dynamic size; () takes the metadata's imgsz,
        else 640 × 640.
    :param batch: images in a run at most, where the network leaves that open; an engine for more
        than one is fastest with so many.
    :param workspace_mib: limit of scratch memory at build and run; None leaves it to TensorRT.
    :param timing_cache: keep measured kernel times beside the engines (tensorrt only).
    :param dla_core: run on this deep learning accelerator what it can, the rest on the GPU.
    :param plugins: plugin libraries to load; they are code.
    :param compute_capabilities: targets such as '8.6' (tensorrt_rtx); 'current' for this GPU's.
    """

    precision: str = 'auto'
    io_dtypes: str = 'keep'
    converter: str = 'light'
    cut_nms: bool = False
    profiles: tuple[Profile, ...] = ()
    input_size: tuple[int, int] | tuple[()] = ()
    batch: int = 1
    workspace_mib: int | None = None
    optimization_level: int | None = None
    aux_streams: int | None = None
    timing_cache: bool = True
    dla_core: int | None = None
    plugins: tuple[str, ...] = ()
    version_compatible: bool = False
    hardware_compatible: str = 'none'
    compute_capabilities: tuple[str, ...] = ()
    strip_weights: bool = False
    weight_streaming: bool = False

    def __post_init__(self) -> None:
        for field, allowed in (
            ('precision', PRECISIONS),
            ('io_dtypes', IO_DTYPES),
            ('converter', CONVERTERS),
            ('hardware_compatible', HARDWARE),
        ):
            if getattr(self, field) not in allowed:
                raise ParameterError(
                    f'{field} is {getattr(self, field)!r}.',
                    remedy=f'Choose one of {", ".join(allowed)}.',
                )
        if self.optimization_level is not None and not 0 <= self.optimization_level <= 5:
            raise ParameterError(
                f'optimization_level is {self.optimization_level}.',
                remedy='Choose 0 (quick build) .. 5 (long search).',
            )
        if self.input_size and (len(self.input_size) != 2 or min(self.input_size) < 1):
            raise ParameterError(
                f'input_size is {self.input_size}.', remedy='Give (height, width) in pixels.'
            )
        if self.batch < 1:
            raise ParameterError(f'batch is {self.batch}.', remedy='Give at least 1.')

    def to_json(self) -> str:
        """Give the one text for these options: keys sorted, independent of locale and time."""
        return json.dumps(asdict(self), sort_keys=True)

    @classmethod
    def from_json(cls, text: str) -> BuildOptions:
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
