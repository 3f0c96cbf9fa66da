"""A new kind of feed is a class for its binding and the CPU, and one for the GPU."""

from typing import Any

import numpy as np
import pytest

from support.fake_runner import open_fake
from support.recipes import names_of
from trt_ros.model.feeds import FEEDS
from trt_ros.runtime.pipeline import Pipeline

DecayFeed = names_of('adding_an_input_kind')['DecayFeed']


@pytest.fixture
def open_decaying(monkeypatch):
    """Open a network of x and k that returns their sum."""
    monkeypatch.setitem(FEEDS, 'decay', DecayFeed)

    def open_decaying(*inputs: str) -> Pipeline[Any]:
        return open_fake(
            lambda tensors: {'y': tensors['x'] + tensors['k']},
            'x (1, 1); k (1, 1)',
            'y (1, 1)',
            inputs,
        )

    return open_decaying


def test_a_new_kind_is_bound_described_and_run(open_decaying):
    with open_decaying('x=tensor:x', 'k=decay:0.5') as pipeline:
        assert pipeline.feeds['k'] == DecayFeed(0.5)
        assert 'k: decay' in pipeline.log_lines
        x = np.array([[10]], np.float32)
        assert [pipeline({'x': x})['y'].item() for _ in range(3)] == [11, 10.5, 10.25]
        pipeline.reset_state()
        assert pipeline({'x': x})['y'].item() == 11
