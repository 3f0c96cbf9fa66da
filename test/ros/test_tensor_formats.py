"""Multi-arrays of std_msgs and tensor lists of Isaac ROS 5 that we read and write."""

from contextlib import suppress
import struct

from hypothesis import given
from hypothesis import strategies as st
from hypothesis.extra import numpy as hnp
import numpy as np
import pytest
from rclpy.serialization import deserialize_message
from std_msgs import msg as std_msgs

from support.properties import repeatable, texts
from support.ros_messages import serialized
from trt_ros.errors import BadFrameError
from trt_ros.ros.dds.cdr_multiarray import (
    MULTI_ARRAYS,
    multi_array_name,
    read_multi_array,
    write_multi_array,
)
from trt_ros.ros.dds.cdr_tensors import (
    read_dlpack_list,
    read_tensor_list,
    write_dlpack_list,
    write_tensor_list,
)


@st.composite
def arrays(draw):
    dtype = draw(st.sampled_from([each.str[1:] for each in MULTI_ARRAYS.values()] + ['f2', '?']))
    shape = draw(hnp.array_shapes(min_dims=0, max_dims=4, min_side=0, max_side=4))
    no_nan = {'allow_nan': False} if dtype[0] == 'f' else None
    array = draw(hnp.arrays(dtype, shape, elements=no_nan))
    return draw(st.sampled_from([array, array.T, array.astype(array.dtype.newbyteorder('>'))]))


# Multi-arrays.


def multi_array(sizes, strides, data, offset=0, kind=std_msgs.Float64MultiArray):
    return kind(
        layout=std_msgs.MultiArrayLayout(
            dim=[
                std_msgs.MultiArrayDimension(label='x' * index, size=size, stride=stride)
                for index, (size, stride) in enumerate(zip(sizes, strides))
            ],
            data_offset=offset,
        ),
        data=data,
    )


def read_doubles(message):
    return read_multi_array(message, np.dtype('f8'), 'q')


@repeatable
@given(arrays())
def test_multi_arrays_are_written_so_that_rclpy_reads_them_and_read_as_they_were(array):
    name = multi_array_name(array.dtype.name)
    dtype = MULTI_ARRAYS[name.removesuffix('MultiArray')]
    message = deserialize_message(write_multi_array(array).tobytes(), getattr(std_msgs, name))
    assert [each.size for each in message.layout.dim] == list(array.shape)
    strides = [int(np.prod(array.shape[axis:], dtype=int)) for axis in range(array.ndim)]
    assert [each.stride for each in message.layout.dim] == strides
    assert [each.label for each in message.layout.dim] == [f'dim{n}' for n in range(array.ndim)]
    assert list(message.data) == array.astype(dtype).ravel().tolist()
    found = read_multi_array(serialized(message), dtype)
    assert found.dtype == dtype
    assert np.array_equal(found, array if array.ndim else array.reshape(1))


@pytest.mark.parametrize(
    ('message', 'values'),
    [
        (multi_array((), (), [1.0, 2.0]), [1, 2]),
        (multi_array((), (), [1.0, 2.0], offset=1), [2]),
        (multi_array((2, 2), (4, 2), [1.0, 2.0, 3.0, 4.0]), [[1, 2], [3, 4]]),
        (multi_array((2, 2), (0, 0), [1.0, 2.0, 3.0, 4.0]), [[1, 2], [3, 4]]),
        (multi_array((2, 2), (6, 3), [9.0, 1.0, 2.0, 9.0, 3.0, 4.0], 1), [[1, 2], [3, 4]]),
        (multi_array((3,), (99,), [1.0, 2.0, 3.0]), [1, 2, 3]),
        (multi_array((0, 2), (0, 2), []), []),
        (multi_array((2, 1), (1, 1), [1.0, 2.0]), [[1], [2]]),
    ],
)
def test_a_layout_is_read_as_std_msgs_defines_it(message, values):
    assert read_doubles(serialized(message)).tolist() == values


@pytest.mark.parametrize(
    ('message', 'why'),
    [
        (multi_array((3,), (3,), [1.0, 2.0]), r"'q' of shape \[3\] and type float64 needs 24"),
        (multi_array((2,), (2,), [1.0, 2.0], offset=1), 'needs 16 bytes, but has 8'),
        (multi_array((2, 2), (6, 3), [0.0] * 4), 'needs 40 bytes, but has 32'),
        (multi_array((1,) * 40, (0,) * 40, [1.0]), 'rank 40, more than 32'),
    ],
)
def test_a_layout_that_exceeds_its_data_is_refused(message, why):
    with pytest.raises(BadFrameError, match=why):
        read_doubles(serialized(message))


@pytest.mark.parametrize(
    ('dtype', 'name'),
    [('float16', 'Float32'), ('bfloat16', 'Float32'), ('bool', 'UInt8'), ('int64', 'Int64')],
)
def test_a_type_without_a_multi_array_is_widened(dtype, name):
    assert multi_array_name(dtype) == f'{name}MultiArray'
    assert hasattr(std_msgs, f'{name}MultiArray')


def test_a_type_that_no_multi_array_holds_is_refused():
    with pytest.raises(BadFrameError, match='no multi-array of complex64'):
        write_multi_array(np.zeros(1, np.complex64))


# Isaac ROS 5. Its packages are not on PyPI: messages are encoded here, and the encoder is compared
# with rclpy on a message that is installed.


def cdr(*fields):
    """Encode (format character of struct, value) pairs; lists are sequences."""
    message = bytearray()

    def append(kind, value):
        if isinstance(value, list):
            append('I', len(value))
            for each in value:
                append(kind, each)
        elif kind == 's':
            append('B', [*value.encode(), 0])
        else:
            message.extend(bytes(-len(message) % struct.calcsize(kind)))
            message.extend(struct.pack(f'<{kind}', value))

    for kind, value in fields:
        append(kind, value)
    return np.frombuffer(b'\0\1\0\0' + message, np.uint8)


def dlpack_list(tensors, stamp=(3, 4), frame_id='arm', names=None):
    """Encode a list of dicts of the fields of ExperimentalTensor that are not the default."""
    fields = [('i', stamp[0]), ('I', stamp[1]), ('s', frame_id)]
    fields += [('s', list('abcdefgh'[: len(tensors)]) if names is None else names)]
    fields += [('I', len(tensors))]
    for each in tensors:
        each = {'code': 2, 'bits': 32, 'lanes': 1, 'strides': [], 'offset': 0, **each}
        fields += [('B', each['code']), ('B', each['bits']), ('H', each['lanes'])]
        fields += [('q', each['shape']), ('q', each['strides']), ('Q', each['offset'])]
        fields += [('B', list(each['data']))]
    return cdr(*fields)


def test_the_encoder_of_these_tests_equals_rclpy():
    message = multi_array((2, 1), (2, 7), [1.5, -2.5], 3)
    dimensions = [('I', 2), ('s', ''), ('I', 2), ('I', 2), ('s', 'x'), ('I', 1), ('I', 7)]
    encoded = cdr(*dimensions, ('I', 3), ('d', [1.5, -2.5]))
    assert len(encoded) == len(serialized(message))
    assert deserialize_message(encoded.tobytes(), std_msgs.Float64MultiArray) == message


@repeatable
@given(st.dictionaries(texts, arrays(), max_size=4), texts)
def test_tensors_for_isaac_5_are_written_as_defined_and_read_as_they_were(tensors, frame_id):
    written = write_dlpack_list(tensors, (-5, 7), frame_id)
    codes = {'i': 0, 'u': 1, 'f': 2, 'b': 6}
    expected = dlpack_list(
        [
            {
                'code': codes[each.dtype.kind],
                'bits': 8 * each.itemsize,
                'shape': list(each.shape),
                'strides': [
                    int(np.prod(each.shape[axis + 1 :], dtype=int)) for axis in range(each.ndim)
                ],
                'data': each.astype(each.dtype.newbyteorder('<')).tobytes(),
            }
            for each in tensors.values()
        ],
        (-5, 7),
        frame_id,
        list(tensors),
    )
    assert written.tobytes() == expected.tobytes()
    found = read_dlpack_list(written)
    assert (found.stamp, found.frame_id) == ((-5, 7), frame_id)
    assert list(found.value) == list(tensors)
    for values, back in zip(tensors.values(), found.value.values()):
        assert np.array_equal(back, values)
        assert back.dtype == values.dtype.newbyteorder('=')


def test_strides_in_elements_and_the_byte_offset_are_heeded():
    message = dlpack_list(
        [
            {'code': 1, 'bits': 8, 'shape': [2, 2], 'strides': [3, 1], 'data': range(5)},
            {'code': 0, 'bits': 16, 'shape': [2], 'strides': [2], 'offset': 1, 'data': range(9)},
            {'code': 6, 'bits': 8, 'shape': [], 'data': [1]},
        ]
    )
    found = {name: each.tolist() for name, each in read_dlpack_list(message).value.items()}
    assert found == {'a': [[0, 1], [3, 4]], 'b': [0x0201, 0x0605], 'c': True}


@pytest.mark.parametrize(
    ('wrong', 'why'),
    [
        ({'code': 4, 'bits': 16}, "'a' has unsupported DLPack type code 4, 16 bits, 1 lanes"),
        ({'bits': 8}, 'code 2, 8 bits'),
        ({'lanes': 4}, '4 lanes'),
        ({'shape': [-1, 2]}, r'shape \[-1, 2\]'),
        ({'strides': [-2, 1]}, r'strides \[-2, 1\]'),
        ({'strides': [1]}, r'strides \[1\]'),
        ({'offset': 1}, 'needs 16 bytes, but has 15'),
        ({'offset': 2**64 - 1}, 'needs 16 bytes, but has 0'),
        ({'strides': [2**62, 1]}, 'bytes, but has 16'),
        ({'shape': [0, 2**62, 2**62]}, 'invalid shape'),
    ],
)
def test_a_tensor_of_isaac_5_beside_its_data_is_refused(wrong, why):
    with pytest.raises(BadFrameError, match=why):
        read_dlpack_list(dlpack_list([{'shape': [2, 2], 'data': range(16), **wrong}]))


@pytest.mark.parametrize('names', [[], ['a', 'a'], ['a', 'b', 'c']])
def test_names_and_tensors_of_isaac_5_must_correspond(names):
    tensors = [{'shape': [1], 'data': range(4)}] * 2
    with pytest.raises(BadFrameError, match='different names for 2 tensors'):
        read_dlpack_list(dlpack_list(tensors, names=names))


TENSORS = [{'shape': [2, 2], 'strides': [2, 1], 'data': range(16)}] * 2
MESSAGES = pytest.mark.parametrize(
    ('message', 'reader'),
    [
        (
            write_tensor_list({'x': np.ones((2, 3)), 'y': np.ones((0, 9))}, (3, 4), 'arm'),
            read_tensor_list,
        ),
        (dlpack_list(TENSORS), read_dlpack_list),
        (serialized(multi_array((2, 2), (4, 2), [1.0] * 4)), read_doubles),
    ],
    ids=['tensors of Isaac', 'tensors of Isaac 5', 'multi-array'],
)


@MESSAGES
@repeatable
@given(changes=st.lists(st.tuples(st.integers(0, 200), st.integers(0, 255)), max_size=20))
def test_messages_with_bytes_changed_are_read_or_refused(message, reader, changes):
    changed = message.copy()
    for place, value in changes:
        changed[place % changed.size] = value
    with suppress(BadFrameError):
        reader(changed)


@MESSAGES
def test_messages_cut_short_anywhere_are_refused(message, reader):
    for size in range(message.size):
        with pytest.raises(BadFrameError, match=r'truncated|not plain CDR'):
            reader(message[:size])
