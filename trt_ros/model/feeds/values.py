"""Values of network inputs that bindings give: numbers, or arrays of files."""

from contextlib import suppress

import numpy as np

from trt_ros.errors import ParameterError, TensorMismatchError
from trt_ros.model.array_files import parse_path, read_file
from trt_ros.tensors import TensorSpec, checked_tensor, host_dtype, write_tensor


def read_value(text: str, spec: TensorSpec) -> np.ndarray:
    """
    Return a value of a network input, of the dtype `host_dtype(spec)`.

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
    found = np.empty(value.shape, host_dtype(spec))
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
