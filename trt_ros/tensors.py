"""Descriptions of network inputs and outputs: name, shape, dtype, mode."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
import ctypes
from dataclasses import dataclass, replace
from functools import cache
import math
from typing import Any, Literal

import numpy as np

from trt_ros.device_array import DeviceArray
from trt_ros.errors import ModelError, TensorMismatchError

#: Metadata key of the NMS node that was cut off a network: its attributes as JSON. The network
#: then outputs the boxes and scores, and the decoder runs NMS with these attributes.
CUT_NMS = 'trt_ros.cut_nms'
Shape = tuple[int, ...]
Arrays = Mapping[str, np.ndarray]  # By the names of inputs or outputs.
MAX_ELEMENTS = 1 << 28  # Per input: 1 GiB of float32.
INTEGERS = tuple(f'{sign}int{bits}' for sign in ('', 'u') for bits in (8, 16, 32, 64))
_ITEM_NBYTES = {'bfloat16': 2, 'float8_e4m3fn': 1, 'bool': 1}


def address_of(array: np.ndarray) -> int:
    """Return the host address of the data of an array, without the objects of `array.ctypes`."""
    # After the head of every Python object, in NumPy's PyArrayObject_fields.
    return ctypes.c_void_p.from_address(id(array) + object.__basicsize__).value or 0


@dataclass(frozen=True)
class TensorSpec:
    """
    An input or output of a network.

    :param shape: dimensions, -1 if dynamic.
    :param dtype: NumPy name ('float32', 'float16', 'uint8', 'int64', 'bool', ..), or 'bfloat16'.
    :param mode: 'input' or 'output'.
    """

    name: str
    shape: tuple[int, ...]
    dtype: str
    mode: Literal['input', 'output']

    @property
    def is_dynamic(self) -> bool:
        """Whether any dimension is dynamic."""
        return any(size < 0 for size in self.shape)

    def with_ones(self) -> TensorSpec:
        """Return it with dynamic dimensions of 1."""
        return replace(self, shape=tuple(1 if size < 0 else size for size in self.shape))

    def accepts(self, tensor: np.ndarray | DeviceArray) -> bool:
        """Return whether an array has this dtype (uint16 for the bits of bfloat16) and shape."""
        shape = tensor.shape
        return tensor.dtype == numpy_dtype(self.dtype) and (
            shape == self.shape or self.has_shape(shape)
        )

    def has_shape(self, shape: Shape) -> bool:
        """Return whether an array of a shape fits."""
        return shape == self.shape or (
            len(shape) == len(self.shape)
            and all(size in (-1, actual) for size, actual in zip(self.shape, shape))
        )

    def __str__(self) -> str:
        shape = ', '.join('?' if size < 0 else str(size) for size in self.shape)
        return f'{self.name} ({shape}) {self.dtype}'


@cache
def numpy_dtype(name: str) -> np.dtype[np.generic]:
    """Return the NumPy dtype of a tensor dtype in host memory: uint16 for bits of bfloat16."""
    return np.dtype('uint16' if name == 'bfloat16' else name)


def refuse_large(specs: Iterable[TensorSpec]) -> None:
    """Raise ModelError if inputs, dynamic dimensions as 1, are too large to allocate."""
    for spec in specs:
        if math.prod(size for size in spec.shape if size >= 0) > MAX_ELEMENTS:
            raise ModelError(
                f'The input {spec} is too large.',
                cause=f'The limit is {MAX_ELEMENTS} elements per input.',
                remedy='Set a smaller input_size, or export the model with smaller inputs.',
            )


def as_shaped(tensor: np.ndarray, spec: TensorSpec) -> np.ndarray:
    """Return a vector in the input's shape if it fits; of dynamic sizes all but the last are 1."""
    if tensor.ndim != 1 or len(spec.shape) == 1:
        return tensor
    shape = [1 if size < 0 else size for size in spec.shape]
    if spec.is_dynamic:
        shape[max(axis for axis, size in enumerate(spec.shape) if size < 0)] = -1
    known = math.prod(size for size in shape if size > 0)
    is_fitting = tensor.size % known == 0 if -1 in shape else tensor.size == known
    return tensor.reshape(shape) if is_fitting and 0 not in shape else tensor


def is_finite(values: np.ndarray) -> bool:
    """Return whether all values are finite."""
    if values.dtype.kind != 'f':
        return True
    if values.itemsize >= 4:
        # One fast pass without warnings; the sum of squares may be infinite for finite ones, too.
        flat = values.ravel()
        if math.isfinite(flat.dot(flat)):
            return True
    return bool(np.isfinite(values).all())


def item_nbytes(dtype: str) -> int:
    """Return the bytes per element of a tensor dtype."""
    return _ITEM_NBYTES.get(dtype) or np.dtype(dtype).itemsize


def widen(bits: np.ndarray) -> np.ndarray:
    """Convert bfloat16 bits, (..) uint16, to float32 of the same shape."""
    return (bits.astype(np.uint32) << 16).view(np.float32)


def checked_tensor(spec: TensorSpec, value: Any) -> np.ndarray:
    """Return an array that can become a tensor, maybe reshaped, or raise TensorMismatchError."""
    if not isinstance(value, np.ndarray):
        raise TensorMismatchError(
            f'The network input {spec} takes an array, but got {type(value).__name__}.',
            remedy='Pass a NumPy array, as of numpy.asarray(values).',
        )
    dtype = numpy_dtype(spec.dtype)
    if value.shape == spec.shape and (
        value.dtype == dtype or value.dtype.kind == dtype.kind == 'f'
    ):  # Most runs.
        return value
    array = as_shaped(value, spec)
    if not spec.has_shape(array.shape):
        raise TensorMismatchError(
            f'The network takes {spec}, but {spec.name} came as '
            f'({", ".join(map(str, value.shape))}) {value.dtype}.',
            remedy='Send an array of that shape.',
        )
    if not _is_convertible(spec.dtype, array):
        raise TensorMismatchError(
            f'The network takes {spec}, but {spec.name} came as {value.dtype}.',
            cause='The conversion could change the values.',
            remedy=f'Send {spec.dtype}.',
        )
    return array


def _is_convertible(dtype: str, value: np.ndarray) -> bool:
    """Return whether `value` can become `dtype`: floats of any size, integers that fit, bool."""
    kind = value.dtype.kind
    wanted = numpy_dtype(dtype)
    if dtype == 'bfloat16' or wanted.kind == 'f':
        return kind in 'fiub'
    if wanted.kind == 'b':
        return kind in 'bu'
    if kind not in 'iub':
        return False
    if np.can_cast(value.dtype, wanted) or value.size == 0:
        return True
    limits = np.iinfo(dtype)
    return bool(value.min() >= limits.min and value.max() <= limits.max)


def as_tensor(spec: TensorSpec, value: np.ndarray) -> np.ndarray:
    """Return an array converted to `numpy_dtype(spec.dtype)`, as write_tensor(); maybe itself."""
    dtype = numpy_dtype(spec.dtype)
    if value.dtype == dtype and value.flags.c_contiguous and spec.dtype != 'bfloat16':
        return value
    target = np.empty(value.shape, dtype)
    write_tensor(target, spec, value)
    return target


def write_tensor(target: np.ndarray, spec: TensorSpec, value: np.ndarray) -> None:
    """Convert an array into memory of `numpy_dtype(spec.dtype)`, or raise for values beyond it."""
    try:
        with np.errstate(over='raise'):
            if spec.dtype != 'bfloat16':
                np.copyto(target, value, casting='unsafe')
                return
            bits = np.ascontiguousarray(value, np.float32).view(np.uint32)
    except FloatingPointError as error:
        raise TensorMismatchError(
            f'The network takes {spec}, but {spec.name} came as {value.dtype}.',
            cause=f'A value is beyond the range of {spec.dtype}.',
            remedy=f'Send values in the range of {spec.dtype}, or export a wider input.',
        ) from error
    # Round to nearest even; NaN stays NaN.
    rounded = (bits + 0x7FFF + ((bits >> 16) & 1)) >> 16
    np.copyto(target, np.where(value != value, 0x7FC0, rounded), casting='unsafe')
