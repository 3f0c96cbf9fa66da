"""Optimization profiles of dynamic inputs: requested ones, validated, or a default."""

import ast
from collections.abc import Mapping, Sequence

from trt_ros.engine.options import BuildOptions, Profile, ShapeRange
from trt_ros.errors import ParameterError
from trt_ros.tensors import TensorSpec, refuse_large

DEFAULT_INPUT_HW = (640, 640)


def resolve_profiles(
    inputs: Sequence[TensorSpec],
    requested: Sequence[Profile],
    *,
    metadata: Mapping[str, str],
    input_size: Sequence[int],
    batch: int = 1,
) -> tuple[Profile, ...]:
    """
    Return the profiles to build with; none for a network of fixed shapes.

    :param requested: profiles of the build options; the shapes of other dynamic inputs are created
        from the other parameters, in a profile of their own without any.
    :param metadata: metadata of the model, which may contain its image size.
    :param input_size: (height, width) of images of dynamic size; empty for the metadata's.
    :param batch: maximum size of a dynamic batch dimension.
    :raises ParameterError: if a profile names an unknown input, does not match the shape of an
        input, or a dynamic input has no default.
    """
    dynamic = [spec for spec in inputs if spec.is_dynamic]
    hw = tuple(input_size) or metadata_hw(metadata) or DEFAULT_INPUT_HW
    profiles = []
    for profile in requested or [()]:
        for each in profile:
            _check(each, inputs)
        given = {each.name for each in profile}
        missing = [spec for spec in dynamic if spec.name not in given]
        profiles.append((*profile, *(_default(spec, (hw[0], hw[1]), batch) for spec in missing)))
    refuse_large(spec for spec in inputs if not spec.is_dynamic)
    refuse_large(
        TensorSpec(each.name, each.high, 'float32', 'input')
        for profile in profiles
        for each in profile
    )
    return tuple(filter(None, profiles))


def sizes_without_effect(inputs: Sequence[TensorSpec], options: BuildOptions) -> list[str]:
    """Return a line for `batch` and `input_size` if they were set and no input has such a size."""
    if options.profiles:
        return []
    found = []
    if options.batch > 1 and not any(spec.shape[:1] == (-1,) for spec in inputs):
        found.append(f'batch {options.batch}: the batch size of the model is fixed')
    if options.input_size and not any(
        len(spec.shape) == 4 and -1 in spec.shape[1:] for spec in inputs
    ):
        found.append('input_size: the image size of the model is fixed')
    return found


def largest_batch(inputs: Sequence[TensorSpec], profiles: Sequence[Profile]) -> int:
    """Return the maximum of the first input's first dimension, part of an engine's path."""
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
            f'A profile names the unknown input {each.name}.',
            remedy=f'Use one of the inputs: {"; ".join(str(spec) for spec in inputs)}.',
        )
    for shape in (each.low, each.best, each.high):
        if len(shape) != len(spec.shape) or any(
            size not in (-1, actual) for size, actual in zip(spec.shape, shape)
        ):
            raise ParameterError(
                f'The profile shape {shape} does not match the input {each.name}.',
                cause=f'The model declares {spec}.',
                remedy='Change only dynamic dimensions (?).',
            )


def _default(spec: TensorSpec, hw: tuple[int, int], batch: int) -> ShapeRange:
    """Return the default shapes of an input: batch 1 to `batch`, images of size `hw`."""
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
            f'The input {spec} has dynamic dimensions without a default.',
            cause='Only batch, height, width and channels of images have one.',
            remedy=f'Add a profile, {spec.name}=MIN:OPT:MAX, each like 1x3x64; or fill the input '
            'up to a fixed size: ?capacity= in inputs.',
        )
    high = (batch, *shape[1:]) if spec.shape[:1] == (-1,) else tuple(shape)
    return ShapeRange(spec.name, tuple(shape), high, high)


def metadata_hw(metadata: Mapping[str, str]) -> tuple[int, int] | None:
    """Return height and width of Ultralytics' metadata `imgsz`: '[height, width]', or None."""
    text = metadata.get('imgsz', '')
    try:
        height, width = map(int, ast.literal_eval(text if len(text) < 100 else ''))
    except (ValueError, TypeError, SyntaxError, OverflowError):
        return None
    return (height, width) if min(height, width) > 0 else None
