"""Networks, the feed of each of their inputs, and the outputs of a run."""

from __future__ import annotations

import numpy as np
import pytest

from trt_ros.errors import TensorMismatchError
from trt_ros.model.bundle import Bundle, NetworkSpec
from trt_ros.model.feeds.constant import ConstantFeed
from trt_ros.tensors import TensorSpec


def network(inputs: str, outputs: str) -> NetworkSpec:
    def specs(names, mode):
        return tuple(TensorSpec(name, (1,), 'float32', mode) for name in names)

    return NetworkSpec(specs(inputs, 'input'), specs(outputs, 'output'))


def feeds(*names: str) -> dict[str, ConstantFeed]:
    return {name: ConstantFeed(np.zeros(1, np.float32)) for name in names}


def test_a_single_network_keeps_its_names_and_the_order_of_chosen_outputs():
    bundle = Bundle({'': network('xy', 'abc')}, feeds('y', 'x'), ('c', 'a'))
    assert [spec.name for spec in bundle.output_specs] == ['c', 'a']


def test_inputs_and_outputs_of_several_networks_have_the_name_of_theirs():
    networks = {'eyes': network('x', 'y'), 'hand': network('x', 'y')}
    bundle = Bundle(networks, feeds('eyes/x', 'hand/x'), ('hand/y',))
    assert bundle.output_specs == networks['hand'].outputs


@pytest.mark.parametrize('given', [('x',), ('x', 'y', 'z')])
def test_each_input_has_exactly_one_feed(given):
    with pytest.raises(TensorMismatchError, match='are not those of the network inputs x, y'):
        Bundle({'': network('xy', 'a')}, feeds(*given), ('a',))
