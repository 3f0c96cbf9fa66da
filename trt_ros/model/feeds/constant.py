"""Values that bindings give to network inputs, and inputs that are equal in all runs."""

from collections.abc import Sequence
from contextlib import suppress
from dataclasses import dataclass

import numpy as np

from trt_ros.errors import ParameterError, TensorMismatchError
from trt_ros.model.array_files import parse_path, read_file
from trt_ros.model.feeds.base import Binding, Feed, Given
from trt_ros.tensors import Shape, TensorSpec, checked_tensor, numpy_dtype, write_tensor
from trt_ros.vision.letterbox import Letterbox


def read_value(text: str, spec: TensorSpec) -> np.ndarray:
    """
    Return a value of a network input, of the dtype `numpy_dtype(spec.dtype)`.

    :param text: a number, which all elements get; as many numbers with commas between them as the
        input has elements; or PATH or PATH#NAME of an array, see `read_file`. A
        dynamic dimension has the size of the value; for a single number, all of them are 1.
    :raises ParameterError: when it is none of them, or cannot be read.
    :raises TensorMismatchError: when it has another shape, or values that would change.
    """
    if spec.dtype == 'object':
        raise TensorMismatchError(
            f'The network input {spec.name} takes strings, but a value is numbers.',
            remedy='Export the part of the network that takes numbers.',
        )
    file = parse_path(text)
    value = _parse(text, spec) if file is None else read_file(*file, spec)
    if spec.dtype == 'bool' and value.dtype.kind in 'iuf' and np.isin(value, (0, 1)).all():
        value = value.astype(bool)
    value = checked_tensor(spec, value)
    found = np.empty(value.shape, numpy_dtype(spec.dtype))
    write_tensor(found, spec, value)
    return found


def _parse(text: str, spec: TensorSpec) -> np.ndarray:
    numbers = text.strip('[]').split(',')
    value = np.array(None)
    for kind in (int, float):
        with suppress(ValueError, OverflowError):
            value = np.array([kind(each) for each in numbers])
        if value.dtype.kind in 'iuf':
            break
    else:
        raise ParameterError(
            f'The value {text!r} of the network input {spec.name!r} is no number.',
            remedy='Write a number, numbers with commas between them, or the path of a .npy, .npz '
            'or .safetensors file.',
        )
    if np.isinf(value).any() and 'inf' not in text.lower():
        raise TensorMismatchError(
            f'A value of the network input {spec.name!r} is beyond the range of float64.',
            remedy='Write a smaller number, or inf.',
        )
    if value.size == 1:
        return np.full([1 if size < 0 else size for size in spec.shape], value[0])
    return value


@dataclass(frozen=True, eq=False)
class ConstantFeed(Feed):
    """A value that is equal in all runs, repeated for each image if `is_per_image`."""

    value: np.ndarray
    is_per_image: bool = True
    kind = 'constant'
    form = 'constant:VALUE'

    @classmethod
    def size_of(cls, binding: Binding, outputs: Sequence[TensorSpec]) -> int | None:
        """Return how many numbers are written; None for a single one or a file."""
        text = binding.sources[0]
        return text.count(',') + 1 if ',' in text and parse_path(text) is None else None

    @classmethod
    def bind(cls, binding: Binding, spec: TensorSpec, outputs: Sequence[TensorSpec]) -> Feed:
        """Return the feed of a number, of numbers, or of a .npy file; see read_value."""
        value = read_value(binding.sources[0], spec)
        value.flags.writeable = False
        return cls(value, is_per_image=spec.shape[:1] == (-1,) and len(value) == 1)

    def describe(self, name: str) -> str:
        return f'{name}: constant of shape {self.value.shape}'

    @property
    def full_shape(self) -> Shape | None:
        """Shape of the value; None where each image has it."""
        return None if self.is_per_image else self.value.shape

    def of(self, rows: int) -> np.ndarray:
        """Return the value of a run with this batch size."""
        return self.value.repeat(rows, axis=0) if self.is_per_image and rows > 1 else self.value

    def stage(self, given: Given) -> tuple[np.ndarray, Sequence[Letterbox]]:
        return self.of(given.rows), ()
