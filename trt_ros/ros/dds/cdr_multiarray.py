"""CDR serialization of the multi-arrays of std_msgs, read in place."""

import math
from typing import Any

import numpy as np

from trt_ros.errors import BadFrameError
from trt_ros.ros.dds.cdr import ENCAPSULATION, Fields, append_aligned, append_text
from trt_ros.ros.dds.cdr_tensors import SENT_AS, tensor_view

#: Element type of std_msgs/NAMEMultiArray by NAME.
MULTI_ARRAYS: dict[str, np.dtype[Any]] = {
    name: np.dtype(name.lower())
    for name in (
        *('Float32', 'Float64', 'Int8', 'Int16', 'Int32', 'Int64'),
        *('UInt8', 'UInt16', 'UInt32', 'UInt64'),
    )
}
_NAMES = {dtype: name for name, dtype in MULTI_ARRAYS.items()}


def multi_array_name(dtype: str) -> str:
    """Return the type that holds all values of a dtype, as 'Float32MultiArray'; or raise."""
    wide = np.dtype('f4') if dtype == 'bfloat16' else np.dtype(dtype)
    wide = SENT_AS.get(wide, wide)
    if wide not in _NAMES:
        raise BadFrameError('bad tensor', f'std_msgs has no multi-array of {dtype}.')
    return f'{_NAMES[wide]}MultiArray'


def read_multi_array(message: np.ndarray, dtype: np.dtype, name: str = 'data') -> np.ndarray:
    """
    Read a serialized std_msgs multi-array.

    Element (i, j, k) is data[data_offset + dim[1].stride i + dim[2].stride j + k], as std_msgs
    defines it. Strides that are all 0 count as row-major; without dimensions, data has one.

    :param message: (N,) uint8, contiguous; borrowed by the result.
    :param dtype: that of the elements, as in MULTI_ARRAYS.
    :param name: for error messages.
    :raises BadFrameError: 'bad CDR', or 'bad tensor' when the layout exceeds the data; no byte
        outside of the message is read.
    """
    fields = Fields(message)
    dimensions = []
    for _ in range(fields.number('layout.dim')):
        fields.text('label')
        dimensions.append((fields.number('size'), fields.number('stride')))
    offset = fields.number('data_offset')
    values = fields.array('data', dtype)[offset:]
    if not dimensions:
        return values
    shape = tuple(size for size, _ in dimensions)
    strides: tuple[int, ...] = ()
    if any(stride for _, stride in dimensions):
        elements = (*(stride for _, stride in dimensions[1:]), 1)
        strides = tuple(dtype.itemsize * each for each in elements)
    return tensor_view(name, values.dtype, shape, strides, values.view(np.uint8))


def write_multi_array(tensor: np.ndarray) -> np.ndarray:
    """Write a serialized multi-array, row-major with labels dim0, dim1, ..; or BadFrameError."""
    multi_array_name(tensor.dtype.name)
    native = tensor.dtype.newbyteorder('=')
    dtype = SENT_AS.get(native, native).newbyteorder('<')
    values = np.ascontiguousarray(tensor, dtype)
    head = bytearray(ENCAPSULATION)
    append_aligned(head, 'I', tensor.ndim)
    for axis, size in enumerate(tensor.shape):
        append_text(head, f'dim{axis}')
        append_aligned(head, 'I', size, math.prod(tensor.shape[axis:]))
    append_aligned(head, 'I', 0, values.size)  # After data_offset.
    if values.size:
        head += bytes(-(len(head) - len(ENCAPSULATION)) % values.itemsize)
    head += values.reshape(-1).view(np.uint8).data
    return np.frombuffer(head, np.uint8)
