"""Small networks whose layers can be told by hand."""

from collections.abc import Callable
from typing import Any

import numpy as np
import pytest


@pytest.fixture
def residual_model() -> Callable[..., Any]:
    """
    Make a ModelProto: conv a, relu, conv b, their sum, conv head; 3 channels of 16 x 16.
    """
    from onnx import TensorProto, helper, numpy_helper

    def make() -> Any:
        rng = np.random.default_rng(0)
        weights = {
            'wa': rng.normal(size=(3, 3, 1, 1)),
            'wb': rng.normal(size=(3, 3, 1, 1)),
            'wh': rng.normal(size=(2, 3, 1, 1)),
            'bb': rng.normal(size=3),
        }
        graph = helper.make_graph(
            [
                helper.make_node('Conv', ['images', 'wa'], ['c'], 'a'),
                helper.make_node('Relu', ['c'], ['a'], 'relu'),
                helper.make_node('Conv', ['a', 'wb', 'bb'], ['b'], 'b'),
                helper.make_node('Add', ['a', 'b'], ['sum'], 'sum'),
                helper.make_node('Conv', ['sum', 'wh'], ['logits'], 'head'),
                helper.make_node('Sigmoid', ['logits'], ['scores'], 'scores'),
            ],
            'residual',
            [helper.make_tensor_value_info('images', TensorProto.FLOAT, [1, 3, 16, 16])],
            [helper.make_tensor_value_info('scores', TensorProto.FLOAT, [1, 2, 16, 16])],
            [
                numpy_helper.from_array(value.astype(np.float32), name)
                for name, value in weights.items()
            ],
        )
        return helper.make_model(graph, opset_imports=[helper.make_opsetid('', 17)], ir_version=9)

    return make
