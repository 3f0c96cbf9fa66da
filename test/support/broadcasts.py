"""Networks in which a column is broadcast, concatenated and multiplied by a matrix."""

from pathlib import Path

import numpy as np
from onnx import helper

from support.save_network import save_network

node = helper.make_node

ZERO, ONE = np.array(0), np.array([1])
#: By name: nodes from `x` (1, 4) to `m` (1, 4), and the constants.
BROADCASTS = {
    'quaternion': (
        [
            node('Gather', ['x', 'zero'], ['g'], axis=1),
            node('Sign', ['g'], ['s']),
            node('Unsqueeze', ['s', 'axis'], ['u']),
            node('Mul', ['x', 'u'], ['m']),
        ],
        {'zero': ZERO, 'axis': ONE},
    ),
    'sum': (
        [node('Slice', ['x', 'start', 'axis', 'axis'], ['u']), node('Add', ['x', 'u'], ['m'])],
        {'start': np.array([0]), 'axis': ONE},
    ),
    'norm': (
        [
            node('ReduceMean', ['x'], ['u'], axes=[1], keepdims=1),
            node('Sub', ['x', 'u'], ['d']),
            node('Tanh', ['d'], ['m']),
        ],
        {},
    ),
}


def save_broadcast(path: Path, name: str) -> str:
    """Write one of the networks."""
    nodes, constants = BROADCASTS[name]
    weights = np.random.default_rng(0).normal(0, 1, (9, 16)).astype(np.float32)
    return save_network(
        path,
        [*nodes, node('Concat', ['e', 'm'], ['c'], axis=1), node('MatMul', ['c', 'w'], ['y'])],
        {'x': (1, 4), 'e': (1, 5)},
        {'y': (1, 16)},
        constants={**constants, 'w': weights},
    )
