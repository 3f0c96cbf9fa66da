"""Shapes for dynamic inputs: what was asked, checked against the model, or a sensible default."""

from __future__ import annotations

import ast
from collections.abc import Mapping, Sequence

from trt_ros.engine.options import Profile, ShapeRange
from trt_ros.errors import ParameterError
from trt_ros.tensors import TensorSpec, refuse_large

DEFAULT_INPUT_HW = (640, 640)


def resolve_profiles(
    inputs: Sequence[TensorSpec],
    asked: Sequence[Profile],
    *,
    metadata: Mapping[str, str],
    input_size: Sequence[int],
    batch: int = 1,
) -> tuple[Profile, ...]:
    """
    Give the profiles to build with; none for a network of fixed shapes.

    :raises ParameterError: when a profile names no input, does not fit one, or lacks one.
    """
    dynamic = [spec for spec in inputs if spec.is_dynamic]
    if not asked:
        hw = tuple(input_size) or metadata_hw(metadata) or DEFAULT_INPUT_HW
        profile = tuple(_default(spec, (hw[0], hw[1]), batch) for spec in dynamic)
        asked = (profile,) if profile else ()
    for profile in asked:
        for each in profile:
            _check(each, inputs)
        missing = {spec.name for spec in dynamic} - {each.name for each in profile}
        if missing:
            raise ParameterError(
                f'A profile says nothing of {", ".join(sorted(missing))}.',
                cause='Every dynamic input needs its shapes in every profile.',
            )
    refuse_large(spec for spec in inputs if not spec.is_dynamic)
    refuse_large(
        TensorSpec(each.name, each.high, 'float32', 'input')
        for profile in asked
        for each in profile
    )
    return tuple(asked)


def largest_batch(inputs: Sequence[TensorSpec], profiles: Sequence[Profile]) -> int:
    """The batch that engines are filed under: the first input's first dimension, at most."""
    first = inputs[0]
    sizes = [
        each.high[0]
        for profile in profiles
        for each in profile
        if each.name == first.name and each.high
    ]
    return max(sizes, default=first.shape[0] if first.shape else 1)


def _check(each: ShapeRange, inputs: Sequence[TensorSpec]) -> None:
    spec = next((spec for spec in inputs if spec.name == each.name), None)
    if spec is None:
        raise ParameterError(
            f'A profile names {each.name}, which is no input.',
            remedy=f'The inputs are: {"; ".join(str(spec) for spec in inputs)}.',
        )
    for shape in (each.low, each.best, each.high):
        if len(shape) != len(spec.shape) or any(
            want not in (-1, have) for want, have in zip(spec.shape, shape)
        ):
            raise ParameterError(
                f'A profile gives {each.name} the shape {shape}.',
                cause=f'The model has {spec}.',
                remedy='Change only dimensions that it leaves open (?).',
            )


def _default(spec: TensorSpec, hw: tuple[int, int], batch: int) -> ShapeRange:
    """Batch 1 to `batch`, images of `hw`; anything else must be asked for."""
    shape = list(spec.shape)
    if shape and shape[0] == -1:
        shape[0] = 1
    if len(shape) == 4:
        if shape[1] == -1 and shape[3] != 3:
            shape[1] = 3
        rows, columns = (1, 2) if shape[3] == 3 and shape[1] != 3 else (2, 3)
        for axis, size in zip((rows, columns), hw):
            shape[axis] = size if shape[axis] == -1 else shape[axis]
    if -1 in shape:
        raise ParameterError(
            f'The input {spec} has dimensions that nobody can guess.',
            remedy=f'Give a profile: {spec.name}=MIN:OPT:MAX, each like 1x3x64.',
        )
    most = (batch, *shape[1:]) if spec.shape[:1] == (-1,) else tuple(shape)
    return ShapeRange(spec.name, tuple(shape), most, most)


def metadata_hw(metadata: Mapping[str, str]) -> tuple[int, int] | None:
    """
    Read the image size that Ultralytics writes as `imgsz`: '[height, width]'.

    :returns: height and width; None where there is none that makes sense.
    """
    text = metadata.get('imgsz', '')
    try:
        height, width = map(int, ast.literal_eval(text if len(text) < 100 else ''))
    except (ValueError, TypeError, SyntaxError, OverflowError):
        return None
    return (height, width) if min(height, width) > 0 else None
