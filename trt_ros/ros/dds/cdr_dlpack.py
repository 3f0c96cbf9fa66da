"""CDR serialization of the TensorList of Isaac ROS 5: tensors described as in DLPack."""

from collections.abc import Mapping
import math
import struct

import numpy as np

from trt_ros.errors import BadFrameError
from trt_ros.ros.dds.cdr import ENCAPSULATION, Fields, append_number, append_text
from trt_ros.ros.dds.cdr_tensors import TensorListView, joined, tensor_view

# DLDataTypeCode: Int, UInt, Float and Bool.
_KINDS = {0: 'i', 1: 'u', 2: 'f', 6: 'b'}
_CODES = {kind: code for code, kind in _KINDS.items()}
_BITS = {'i': (8, 16, 32, 64), 'u': (8, 16, 32, 64), 'f': (16, 32, 64), 'b': (8,)}


def read_dlpack_list(message: np.ndarray) -> TensorListView:
    """
    Read a serialized isaac_ros_tensor_msgs/TensorList of tensor_msgs/ExperimentalTensor.

    :param message: (N,) uint8, contiguous; borrowed by the result.
    :raises BadFrameError: 'bad CDR', or 'bad tensor' when a tensor exceeds its data, has an
        unsupported type, or a duplicate or no name; no byte outside of the message is read.
    """
    fields = Fields(message)
    stamp, frame_id = fields.stamp(), fields.text('frame_id')
    names = [fields.text('names') for _ in range(fields.number('names'))]
    count = fields.number('tensors')
    if count != len(names) or len(set(names)) < count:
        raise BadFrameError(
            'bad tensor',
            f'The list has {len(set(names))} different names for {count} tensors.',
            remedy='Send one name per tensor.',
        )
    return TensorListView(stamp, frame_id, {name: _tensor(name, fields) for name in names})


def _tensor(name: str, fields: Fields) -> np.ndarray:
    code, bits = fields.byte('dtype_code'), fields.byte('dtype_bits')
    (lanes,) = fields.numbers('dtype_lanes', 'H', 1)
    shape, strides = fields.numbers('shape', 'q'), fields.numbers('strides', 'q')
    (offset,) = fields.numbers('byte_offset', 'Q', 1)
    data = fields.bytes('data')
    kind = _KINDS.get(code, '')
    if bits not in _BITS.get(kind, ()) or lanes != 1:
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
    return tensor_view(
        name,
        dtype,
        shape,
        tuple(stride * dtype.itemsize for stride in strides),
        data[min(offset, data.size) :],
    )


def write_dlpack_list(
    tensors: Mapping[str, np.ndarray], stamp: tuple[int, int], frame_id: str
) -> np.ndarray:
    """
    Write a serialized isaac_ros_tensor_msgs/TensorList: row-major, with strides in elements.

    :param stamp: seconds, nanoseconds.
    :returns: (N,) uint8.
    :raises BadFrameError: 'bad tensor' when the type of a tensor is unsupported.
    """
    head = bytearray(ENCAPSULATION + struct.pack('<iI', *stamp))
    append_text(head, frame_id)
    append_number(head, len(tensors))
    for name in tensors:
        append_text(head, name)
    append_number(head, len(tensors))
    parts: list[bytearray | np.ndarray] = [head]
    size = len(head)
    for name, tensor in tensors.items():
        kind, bits = tensor.dtype.kind, 8 * tensor.dtype.itemsize
        if bits not in _BITS.get(kind, ()):
            raise BadFrameError(
                'bad tensor', f'Tensor {name!r} has type {tensor.dtype}, which TensorList lacks.'
            )
        values = np.ascontiguousarray(tensor, tensor.dtype.newbyteorder('<'))
        strides = [math.prod(tensor.shape[axis + 1 :]) for axis in range(tensor.ndim)]
        # Alignment counts from the end of the encapsulation, hence the lead of this part.
        lead = (size - len(ENCAPSULATION)) % 8
        part = bytearray(len(ENCAPSULATION) + lead)
        part += bytes((_CODES[kind], bits))
        part += bytes(-len(part) % 2) + struct.pack('<H', 1)
        for numbers in (tensor.shape, strides):
            append_number(part, len(numbers))
            if numbers:
                _align(part)
                part += struct.pack(f'<{len(numbers)}q', *numbers)
        _align(part)
        part += struct.pack('<Q', 0)
        append_number(part, values.nbytes)
        del part[: len(ENCAPSULATION) + lead]
        parts += [part, values.reshape(-1).view(np.uint8)]
        size += len(part) + values.nbytes
    return joined(parts)


def _align(message: bytearray) -> None:
    message += bytes(-(len(message) - len(ENCAPSULATION)) % 8)
