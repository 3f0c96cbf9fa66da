"""Held arrays: what stays the same is the same object."""

import numpy as np
import pytest

from trt_ros.model.feeds.tensor import COMPARED_NBYTES, HeldFeed
from trt_ros.tensors import TensorSpec


@pytest.fixture
def check():
    return HeldFeed(TensorSpec('h', (1, -1), 'float32', 'input')).check


def test_a_small_array_of_equal_bytes_is_the_last_one_also_where_it_changes_in_place(check):
    array = np.array([[1, np.nan]], np.float32)
    first = check(array)
    assert check(array) is check(array.copy()) is first is not array
    array[:] = 0
    zeros = check(array)
    array[:] = 1
    assert (zeros.tolist(), check(array).tolist()) == ([[0, 0]], [[1, 1]])
    assert not zeros.flags.writeable and array.flags.writeable
    for other in (np.zeros((1, 2), np.int32), np.zeros((1, 1), np.float64)):
        assert (check(other).dtype, check(other).shape) == (other.dtype, other.shape)
        assert check(other) is check(other.copy())


def test_a_read_only_view_of_memory_that_changes_is_copied(check):
    memory = np.ones((1, 2), np.float32)
    view = memory.view()
    view.flags.writeable = False
    ones = check(view)
    memory[:] = 0
    assert ones.tolist() == check(np.ones((1, 2), np.float32)).tolist() == [[1, 1]]
    assert check(view).tolist() == [[0, 0]]


def test_a_large_array_is_the_last_one_where_it_is_read_only(check):
    array = np.zeros((1, COMPARED_NBYTES // 4 + 1), np.float32)
    assert check(array) is array
    array.flags.writeable = False
    read_only = check(array)
    assert check(array) is read_only
    assert check(array.copy()) is not read_only
