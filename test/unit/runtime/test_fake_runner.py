"""The fake keeps the same promises as the real runners."""

import numpy as np
import pytest

from support.fake_runner import FakeRunner
from trt_ros.errors import ClosedError, TensorMismatchError
from trt_ros.tensors import TensorSpec

INPUT = TensorSpec('x', (1, 2), 'float32', 'input')
OUTPUT = TensorSpec('y', (1,), 'float32', 'output')
ONES = {'x': np.ones((1, 2), np.float32)}


def fake(answers):
    return FakeRunner(answers, inputs=[INPUT], outputs=[OUTPUT])


def test_list_of_outputs_is_returned_call_by_call_and_last_repeats():
    runner = fake([{'y': np.array([1.0])}, {'y': np.array([2.0])}])
    assert [float(runner.infer(ONES)['y'][0]) for _ in range(4)] == [1, 2, 2, 2]
    assert runner.call_count == 4


def test_function_receives_the_tensors():
    runner = fake(lambda tensors: {'y': tensors['x'].sum(axis=1)})
    assert runner.infer(ONES)['y'].tolist() == [2.0]


def test_wrong_tensors_are_refused_and_not_counted():
    runner = fake([{'y': np.zeros(1)}])
    with pytest.raises(TensorMismatchError, match='is missing'):
        runner.infer({})
    assert runner.call_count == 0


def test_use_after_close_is_an_error():
    runner = fake([{'y': np.zeros(1)}])
    runner.close()
    runner.close()
    with pytest.raises(ClosedError):
        runner.infer(ONES)
