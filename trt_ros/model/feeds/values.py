"""Values of network inputs that bindings give: numbers, or arrays of files."""

from __future__ import annotations

from pathlib import Path

import numpy as np

from trt_ros.errors import ParameterError, TensorMismatchError
from trt_ros.model.array_files import is_array_file, read_file
from trt_ros.tensors import TensorSpec, as_shaped, checked_tensor, host_dtype, write_tensor


def read_value(text: str, spec: TensorSpec) -> np.ndarray:
    """
    Return a value of a network input, of the dtype `host_dtype(spec)`.

    :param text: a number, which all elements get; as many numbers with commas between them as the
        input has elements; or PATH or PATH#NAME of an array of its shape, see `read_file`. A
        dynamic dimension has the size of the value; for a single number, all of them are 1.
    :raises ParameterError: when it is none of them, or cannot be read.
    :raises TensorMismatchError: when it has another shape, or values that would change.
    """
    if spec.dtype == 'object':
        raise TensorMismatchError(
            f'The network input {spec.name} takes strings, but a value is numbers.',
            remedy='Export the part of the network that takes numbers.',
        )
    path, _, name = text.partition('#')
    value = read_file(Path(path), name, spec.name) if is_array_file(path) else _parse(text, spec)
    if spec.dtype == 'bool' and np.isin(value, (0, 1)).all():
        value = value.astype(bool)
    checked_tensor(spec, value)
    found = np.empty(value.shape, host_dtype(spec))
    write_tensor(found, spec, value)
    return found


def _parse(text: str, spec: TensorSpec) -> np.ndarray:
    numbers = text.strip('[]').split(',')
    value = None
    for kind in (int, float):
        try:
            value = np.array([kind(each) for each in numbers])
            break
        except (ValueError, OverflowError):
            continue
    if value is None or value.dtype.kind not in 'if':
        raise ParameterError(
            f'The value {text!r} of the network input {spec.name!r} is no number.',
            remedy='Write a number, numbers with commas between them, or the path of a .npy, .npz '
            'or .safetensors file.',
        )
    if value.size == 1:
        return np.full([1 if size < 0 else size for size in spec.shape], value[0])
    return as_shaped(value, spec)
