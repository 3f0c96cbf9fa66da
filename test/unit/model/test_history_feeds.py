"""Histories of arrays, on the CPU."""

from collections import deque

import numpy as np
import pytest

from support.fake_runner import open_echo
from trt_ros.errors import ParameterError, TensorMismatchError
from trt_ros.tensors import TensorSpec, widen


def open_history(settings, shape, dtype='float32'):
    """Open a network that returns its input x."""
    return open_echo([TensorSpec('x', shape, dtype, 'input')], f'x=tensor:x?{settings}')


@pytest.mark.parametrize('order', ['', '&order=oldest', '&order=newest'])
@pytest.mark.parametrize('fill', ['', '&fill=first', '&fill=zeros'])
@pytest.mark.parametrize('count', [1, 3])
def test_a_history_is_the_last_values_until_it_is_reset(order, fill, count):
    values = np.random.default_rng(0).normal(size=(7, 2)).astype(np.float32)
    with open_history(f'history={count}{order}{fill}', (1, count, 2)) as pipeline:
        for _ in range(2):
            past = deque([0 * values[0] if 'zeros' in fill else values[0]] * count, count)
            for value in values:
                past.append(value)
                want = list(past)[::-1] if 'newest' in order else list(past)
                np.testing.assert_array_equal(pipeline({'x': value})['x out'], [want])
            pipeline.reset_state()


@pytest.mark.parametrize(
    ('shape', 'value'),
    [
        ((-1, 3, 2), (1, 2)),
        ((1, 6), (1, 2)),
        ((6,), (2,)),
        ((3, 2), (2,)),
        ((3, 2, 4), (2, 4)),
        ((3,), (1,)),
    ],
)
@pytest.mark.parametrize('dtype', ['float32', 'bfloat16', 'int8', 'bool'])
def test_values_follow_each_other_behind_a_batch_of_1(shape, value, dtype):
    with open_history('history=3&fill=zeros', shape, dtype) as pipeline:
        assert pipeline.feeds['x'].array.shape == value
        for _ in range(2):
            found = pipeline({'x': np.ones(value, bool if dtype == 'bool' else int)})['x out']
        rows = (widen(found) if dtype == 'bfloat16' else found).reshape(3, -1)
        assert rows[1:].all() and not rows[0].any()
        assert found.shape == tuple(map(abs, shape))


def test_arithmetic_is_done_before_a_value_is_kept():
    with open_history('history=2&offset=1&scale=10&fill=zeros', (2,)) as pipeline:
        assert pipeline({'x': np.array([3])})['x out'].tolist() == [0, 31]
        assert pipeline({'x': np.array([4])})['x out'].tolist() == [31, 41]
        with pytest.raises(TensorMismatchError):
            pipeline({'x': np.array([1, 2, 3])})
        assert pipeline({'x': np.array([5])})['x out'].tolist() == [41, 51]
        assert 'history of 2, oldest first' in ' '.join(pipeline.log_lines)


@pytest.mark.parametrize(
    ('settings', 'shape', 'error', 'problem'),
    [
        ('history=0', (2,), ParameterError, "history of .* is '0'"),
        ('history=-1', (2,), ParameterError, 'from 1 to'),
        ('history=two', (2,), ParameterError, "is 'two'"),
        ('history=99999999999', (2,), ParameterError, 'from 1 to'),
        ('history=2&order=last', (2,), ParameterError, 'oldest or newest'),
        ('history=2&fill=1', (2,), ParameterError, 'first or zeros'),
        ('order=newest', (2,), ParameterError, 'but not history'),
        ('fill=zeros', (2,), ParameterError, 'but not history'),
        ('history=2&capacity=4', (2, -1), ParameterError, 'both history and capacity'),
        ('history=2', (1, 5), TensorMismatchError, '5 elements are no multiple of 2'),
        ('history=2', (1, 3, 2), TensorMismatchError, r'\(1, 2, D\)'),
        ('history=2', (1, 2, -1), TensorMismatchError, 'size of a value cannot be known'),
        ('history=2', (), TensorMismatchError, 'no multiple'),
    ],
)
def test_rejects_histories_that_do_not_fit(settings, shape, error, problem):
    with pytest.raises(error) as caught:
        open_history(settings, shape)
    assert caught.match(problem)
