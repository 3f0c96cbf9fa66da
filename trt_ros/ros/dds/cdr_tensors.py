"""CDR serialization of the tensor lists of Isaac ROS, read in place."""

import math
from typing import Any

import numpy as np

from trt_ros.errors import BadFrameError
from trt_ros.ros.dds import cdr
from trt_ros.tensors import Arrays

# isaac_ros_tensor_list_interfaces/Tensor.data_type.
_DTYPES = dict(enumerate(('i1', 'u1', 'i2', 'u2', 'i4', 'u4', 'i8', 'u8', 'f4', 'f8'), 1))
_CODES = {np.dtype(name): code for code, name in _DTYPES.items()}
# Types without a code; the wider type that is sent instead holds all their values.
SENT_AS: dict[np.dtype[Any], np.dtype[Any]] = {
    np.dtype(np.float16): np.dtype('f4'),
    np.dtype(np.bool_): np.dtype('u1'),
}

_MAX_DIMENSIONS = 32  # NumPy's, before 2.0.


def read_tensor_list(message: np.ndarray) -> cdr.Content:
    """
    Read an isaac_ros_tensor_list_interfaces/TensorList, or raise BadFrameError.

    :returns: tensors by name: views with any strides.
    """
    fields = cdr.Fields(message)
    stamp, frame_id = fields.stamp(), fields.text('frame_id')
    tensors: dict[str, np.ndarray] = {}
    for _ in range(fields.number('tensors')):
        name = fields.text('name')
        if name in tensors:
            raise BadFrameError('bad tensor', f'Duplicate tensor name {name!r}.')
        rank = fields.byte('rank')
        shape = fields.numbers('dims', 'I')
        code = fields.numbers('data_type', 'i', 1)[0]
        strides = fields.numbers('strides', 'Q')
        tensors[name] = _tensor(
            name, rank, shape, code, strides, fields.bytes('data'), fields.order
        )
    return cdr.Content(tensors, frame_id, stamp)


def _tensor(
    name: str,
    rank: int,
    shape: tuple[int, ...],
    code: int,
    strides: tuple[int, ...],
    data: np.ndarray,
    order: str,
) -> np.ndarray:
    if code not in _DTYPES:
        raise BadFrameError(
            'bad tensor',
            f'Tensor {name!r} has unknown data_type {code}.',
            remedy='Send a data_type of 1 to 10 (int8 to float64).',
        )
    if rank != len(shape) or len(strides) not in (0, rank):
        raise BadFrameError(
            'bad tensor',
            f'Tensor {name!r} has rank {rank}, {len(shape)} dims and {len(strides)} strides.',
            remedy='Send one dim and one stride per dimension, or no strides.',
        )
    return tensor_view(name, np.dtype(order + _DTYPES[code]), shape, strides, data)


def tensor_view(
    name: str, dtype: np.dtype, shape: tuple[int, ...], strides: tuple[int, ...], data: np.ndarray
) -> np.ndarray:
    """Return a tensor as a view into (N,) uint8, with strides in bytes; or BadFrameError."""
    if len(shape) > _MAX_DIMENSIONS:
        raise BadFrameError(
            'bad tensor', f'Tensor {name!r} has rank {len(shape)}, more than {_MAX_DIMENSIONS}.'
        )
    end = nbytes = dtype.itemsize * math.prod(shape)
    if nbytes and strides:
        # The stride of a dimension of size 1 is arbitrary.
        strides = tuple(step if size > 1 else 0 for size, step in zip(shape, strides))
        end = max(
            nbytes, dtype.itemsize + sum((size - 1) * step for size, step in zip(shape, strides))
        )
    if end > data.size:
        raise BadFrameError(
            'bad tensor',
            f'Tensor {name!r} of shape {list(shape)} and type {dtype} needs {end} bytes, but has '
            f'{data.size}.',
            remedy='Send data that matches shape and strides.',
        )
    try:
        if not nbytes:
            return np.empty(shape, dtype)
        return np.ndarray(shape, dtype, data, strides=strides or None)
    except ValueError as error:  # Empty, but too large along another dimension.
        raise BadFrameError(
            'bad tensor', f'Tensor {name!r} has invalid shape {list(shape)}.', cause=str(error)
        ) from error


def write_tensor_list(tensors: Arrays, stamp: tuple[int, int], frame_id: str) -> np.ndarray:
    """
    Write a serialized isaac_ros_tensor_list_interfaces/TensorList.

    Strides are row-major in bytes, one per dimension, as Isaac ROS writes them: NumPy's own are
    arbitrary along a dimension of 1. float16 is sent as float32 and bool as uint8, because the
    message has no code for them.

    :param stamp: seconds, nanoseconds.
    :returns: (N,) uint8.
    :raises BadFrameError: 'bad tensor' when the message has no code for the type of a tensor.
    """
    message, data = cdr.begin_message(stamp, frame_id), list[tuple[int, np.ndarray]]()
    cdr.append_aligned(message, 'I', len(tensors))
    for name, tensor in tensors.items():
        dtype = SENT_AS.get(tensor.dtype, tensor.dtype)
        tensor = np.ascontiguousarray(tensor, dtype).reshape(tensor.shape)
        if tensor.dtype not in _CODES:
            raise BadFrameError(
                'bad tensor', f'Tensor {name!r} has type {tensor.dtype}, which TensorList lacks.'
            )
        cdr.append_text(message, name)
        message.append(tensor.ndim)
        cdr.append_numbers(message, 'I', tensor.shape)
        cdr.append_aligned(message, 'I', _CODES[tensor.dtype])
        cdr.append_numbers(message, 'Q', _row_major(tensor.shape, tensor.itemsize))
        cdr.append_data(message, tensor, data)
    return cdr.with_data(message, data)


def _row_major(shape: tuple[int, ...], itemsize: int) -> list[int]:
    return [itemsize * math.prod(shape[axis + 1 :]) for axis in range(len(shape))]


# DLDataTypeCode: Int, UInt, Float and Bool.
_DLPACK_KINDS = {0: 'i', 1: 'u', 2: 'f', 6: 'b'}
_DLPACK_CODES = {kind: code for code, kind in _DLPACK_KINDS.items()}
_DLPACK_BITS = {'i': (8, 16, 32, 64), 'u': (8, 16, 32, 64), 'f': (16, 32, 64), 'b': (8,)}


def read_dlpack_list(message: np.ndarray) -> cdr.Content:
    """Read an isaac_ros_tensor_msgs/TensorList of ExperimentalTensor, or BadFrameError."""
    fields = cdr.Fields(message)
    stamp, frame_id = fields.stamp(), fields.text('frame_id')
    names = [fields.text('names') for _ in range(fields.number('names'))]
    count = fields.number('tensors')
    if count != len(names) or len(set(names)) < count:
        raise BadFrameError(
            'bad tensor',
            f'The list has {len(set(names))} different names for {count} tensors.',
            remedy='Send one name per tensor.',
        )
    return cdr.Content({name: _dlpack_tensor(name, fields) for name in names}, frame_id, stamp)


def _dlpack_tensor(name: str, fields: cdr.Fields) -> np.ndarray:
    code, bits = fields.byte('dtype_code'), fields.byte('dtype_bits')
    (lanes,) = fields.numbers('dtype_lanes', 'H', 1)
    shape, strides = fields.numbers('shape', 'q'), fields.numbers('strides', 'q')
    (offset,) = fields.numbers('byte_offset', 'Q', 1)
    data = fields.bytes('data')
    kind = _DLPACK_KINDS.get(code, '')
    if bits not in _DLPACK_BITS.get(kind, ()) or lanes != 1:
        raise BadFrameError(
            'bad tensor',
            f'Tensor {name!r} has unsupported DLPack type code {code}, {bits} bits, {lanes} '
            'lanes.',
            remedy='Send integers of 8 to 64 bits, floating-point numbers of 16 to 64 bits, or '
            'bool.',
        )
    if min((*shape, *strides), default=0) < 0 or len(strides) not in (0, len(shape)):
        raise BadFrameError(
            'bad tensor',
            f'Tensor {name!r} has shape {list(shape)} and strides {list(strides)}.',
            remedy='Send one non-negative stride per dimension, or no strides.',
        )
    dtype = np.dtype('?' if kind == 'b' else f'{fields.order}{kind}{bits // 8}')
    steps = tuple(stride * dtype.itemsize for stride in strides)
    return tensor_view(name, dtype, shape, steps, data[min(offset, data.size) :])


def write_dlpack_list(tensors: Arrays, stamp: tuple[int, int], frame_id: str) -> np.ndarray:
    """Write an isaac_ros_tensor_msgs/TensorList: row-major, (N,) uint8; or BadFrameError."""
    message, data = cdr.begin_message(stamp, frame_id), list[tuple[int, np.ndarray]]()
    cdr.append_aligned(message, 'I', len(tensors))
    for name in tensors:
        cdr.append_text(message, name)
    cdr.append_aligned(message, 'I', len(tensors))
    for name, tensor in tensors.items():
        kind, bits = tensor.dtype.kind, 8 * tensor.dtype.itemsize
        if bits not in _DLPACK_BITS.get(kind, ()):
            raise BadFrameError(
                'bad tensor', f'Tensor {name!r} has type {tensor.dtype}, which TensorList lacks.'
            )
        message += bytes((_DLPACK_CODES[kind], bits))
        cdr.append_aligned(message, 'H', 1)  # Lanes.
        cdr.append_numbers(message, 'q', tensor.shape)
        cdr.append_numbers(message, 'q', _row_major(tensor.shape, 1))
        cdr.append_aligned(message, 'Q', 0)  # Offset.
        values = np.ascontiguousarray(tensor, tensor.dtype.newbyteorder('<'))
        cdr.append_data(message, values, data)
    return cdr.with_data(message, data)
