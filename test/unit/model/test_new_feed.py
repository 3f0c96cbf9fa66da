"""A new kind of feed is a class for its binding and the CPU, and one for the GPU."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

from support.fake_runner import FakeRunner
from support.recipes import names_of
from trt_ros.errors import ParameterError
from trt_ros.families.registry import TENSORS
from trt_ros.model.bindings import parse_bindings
from trt_ros.model.feeds import FEEDS
from trt_ros.runtime.pipeline import Pipeline
from trt_ros.tensors import TensorSpec

CounterFeed = names_of('adding_an_input_kind')['CounterFeed']


@pytest.fixture
def open_counted(monkeypatch):
    """Open a network of x and k that returns their sum, and the next k."""
    monkeypatch.setitem(FEEDS, 'counter', CounterFeed)

    def open_counted(*inputs: str) -> Pipeline[Any]:
        runner = FakeRunner(
            lambda tensors: {'y': tensors['x'] + tensors['k'], 'k_next': tensors['k'] + 1},
            inputs=[TensorSpec(name, (1, 1), 'float32', 'input') for name in 'xk'],
            outputs=[TensorSpec(name, (1, 1), 'float32', 'output') for name in ('y', 'k_next')],
        )
        return Pipeline.open('any', families=TENSORS, runner=runner, inputs=inputs, outputs='y')

    return open_counted


def test_a_new_kind_is_bound_described_and_run(open_counted):
    with open_counted('x=tensor:x', 'k=counter:5') as pipeline:
        assert pipeline.feeds['k'] == CounterFeed(5)
        assert 'k: counter' in pipeline.log_lines
        x = np.array([[10]], np.float32)
        assert [pipeline({'x': x})['y'].item() for _ in range(3)] == [15, 16, 17]
        pipeline.reset_state()
        assert pipeline({'x': x})['y'].item() == 15


def test_a_new_kind_refuses_what_it_cannot_parse(open_counted):
    with pytest.raises(ParameterError, match="'k=counter:one' has no number"):
        open_counted('x=tensor:x', 'k=counter:one')


def test_a_kind_that_is_no_topic_starts_no_run(open_counted):
    with pytest.raises(ParameterError, match='No network input is bound to a topic'):
        open_counted('x=counter:1', 'k=counter:5')


def test_a_kind_outside_the_registry_is_not_bound():
    with pytest.raises(ParameterError, match="Unknown kind 'counter'"):
        parse_bindings(('k=counter:5',))
