"""TensorLists that we read and write, against rclpy's own."""

from hypothesis import given
from hypothesis import strategies as st
from hypothesis.extra import numpy as hnp
import numpy as np
import pytest

pytest.importorskip('isaac_ros_tensor_list_interfaces')

from isaac_ros_tensor_list_interfaces.msg import Tensor, TensorList, TensorShape
from rclpy.serialization import deserialize_message

from support.properties import repeatable, texts
from support.ros_messages import serialized
from trt_ros.errors import BadFrameError
from trt_ros.ros.dds.cdr_tensors import read_tensor_list, write_tensor_list

CODES = {1: 'i1', 2: 'u1', 3: 'i2', 4: 'u2', 5: 'i4', 6: 'u4', 7: 'i8', 8: 'u8', 9: 'f4', 10: 'f8'}


@st.composite
def arrays(draw):
    dtype = draw(st.sampled_from([*CODES.values(), 'f2', '?']))
    shape = draw(hnp.array_shapes(min_dims=0, max_dims=4, min_side=0, max_side=4))
    no_nan = {'allow_nan': False} if dtype[0] == 'f' else None
    array = draw(hnp.arrays(dtype, shape, elements=no_nan))
    return draw(st.sampled_from([array, array.T]))


def tensor(name='x', dims=(2, 3), rank=None, data_type=9, strides=(12, 4), nbytes=24):
    return Tensor(
        name=name,
        shape=TensorShape(rank=len(dims) if rank is None else rank, dims=dims),
        data_type=data_type,
        strides=strides,
        data=bytes(range(nbytes)),
    )


def row_major(array):
    strides, step = [], array.itemsize
    for size in reversed(array.shape):
        strides.insert(0, step)
        step *= size
    return strides


@repeatable
@given(st.dictionaries(texts, arrays(), max_size=4), texts)
def test_tensors_are_written_so_that_rclpy_reads_them_and_read_as_they_were(tensors, frame_id):
    written = write_tensor_list(tensors, (-5, 7), frame_id)
    message = deserialize_message(written.tobytes(), TensorList)
    assert (message.header.stamp.sec, message.header.stamp.nanosec) == (-5, 7)
    assert message.header.frame_id == frame_id
    sent_as = {'float16': 'f4', 'bool': 'u1'}
    expected = [each.astype(sent_as.get(each.dtype.name, each.dtype)) for each in tensors.values()]
    assert [each.name for each in message.tensors] == list(tensors)
    for each, values in zip(message.tensors, expected):
        assert (each.shape.rank, tuple(each.shape.dims)) == (values.ndim, values.shape)
        assert CODES[each.data_type] == values.dtype.str[1:]
        assert list(each.strides) == row_major(values)
        assert bytes(each.data) == values.tobytes()
    found = read_tensor_list(serialized(message))
    assert (found.stamp, found.frame_id) == ((-5, 7), frame_id)
    assert list(found.value) == list(tensors)
    for values, back in zip(expected, found.value.values()):
        assert np.array_equal(back, values)
        assert back.dtype == values.dtype


def test_reads_tensors_with_and_without_strides():
    message = TensorList(
        tensors=[
            tensor('padded', (2, 2), data_type=2, strides=(5, 1), nbytes=7),
            tensor('transposed', (2, 3), data_type=2, strides=(1, 2), nbytes=6),
            tensor('plain', (2, 3), data_type=2, strides=(), nbytes=6),
            tensor('one', (1, 2), data_type=2, strides=(2**64 - 1, 1), nbytes=2),
            tensor('none', (1, 2), data_type=2, strides=(0, 1), nbytes=2),
            tensor('column', (2, 1), data_type=2, strides=(1, 77), nbytes=2),
            tensor('scalar', (), data_type=2, strides=(), nbytes=1),
            tensor('empty', (0, 3), data_type=2, strides=(9, 9), nbytes=0),
        ]
    )
    found = {
        name: values.tolist()
        for name, values in read_tensor_list(serialized(message)).value.items()
    }
    assert found == {
        'padded': [[0, 1], [5, 6]],
        'transposed': [[0, 2, 4], [1, 3, 5]],
        'plain': [[0, 1, 2], [3, 4, 5]],
        'one': [[0, 1]],
        'none': [[0, 1]],
        'column': [[0], [1]],
        'scalar': 0,
        'empty': [],
    }


@pytest.mark.parametrize(
    ('wrong', 'why'),
    [
        ({'nbytes': 23}, 'needs 24 bytes, but has 23'),
        ({'strides': (16, 4)}, 'needs 28 bytes, but has 24'),
        ({'strides': (0, 0), 'dims': (2**32 - 1, 2**32 - 1)}, 'bytes, but has 24'),
        ({'strides': (4,)}, 'rank 2, 2 dims and 1 strides'),
        ({'rank': 3, 'strides': ()}, 'rank 3, 2 dims and 0 strides'),
        ({'data_type': 0}, 'data_type 0'),
        ({'dims': (1,) * 40, 'strides': ()}, 'has rank 40, more than 32'),
    ],
)
def test_rejects_tensor_beyond_its_data(wrong, why):
    with pytest.raises(BadFrameError, match=why):
        read_tensor_list(serialized(TensorList(tensors=[tensor(**wrong)])))


def test_two_tensors_of_one_name_and_a_type_without_a_code_are_refused():
    with pytest.raises(BadFrameError, match="Duplicate tensor name 'x'"):
        read_tensor_list(serialized(TensorList(tensors=[tensor(), tensor()])))
    with pytest.raises(BadFrameError, match='has type complex64'):
        write_tensor_list({'x': np.zeros(1, np.complex64)}, (0, 0), '')
