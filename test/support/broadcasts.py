"""Networks in which a column is broadcast, concatenated and multiplied by a matrix."""

from pathlib import Path

import numpy as np

from support.save_network import save_network

#: By name: nodes from `x` (1, 4) to `m` (1, 4), and the constants.
BROADCASTS = {
    'quaternion': (
        'g = Gather <axis = 1> (x, zero) s = Sign(g) u = Unsqueeze(s, axis) m = Mul(x, u)',
        {'zero': np.array(0), 'axis': np.array([1])},
    ),
    'sum': (
        'u = Slice(x, start, axis, axis) m = Add(x, u)',
        {'start': np.array([0]), 'axis': np.array([1])},
    ),
    'norm': ('u = ReduceMean <axes = [1], keepdims = 1> (x) d = Sub(x, u) m = Tanh(d)', {}),
}


def save_broadcast(path: Path, name: str) -> str:
    """Write one of the networks."""
    nodes, constants = BROADCASTS[name]
    weights = np.random.default_rng(0).normal(0, 1, (9, 16)).astype(np.float32)
    return save_network(
        path,
        f'{nodes} c = Concat <axis = 1> (e, m) y = MatMul(c, w)',
        {'x': (1, 4), 'e': (1, 5)},
        {'y': (1, 16)},
        constants={**constants, 'w': weights},
    )
