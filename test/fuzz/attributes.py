"""Attributes out of range, and operators that request too much memory."""

from __future__ import annotations

from collections.abc import Iterator

import numpy as np
from onnx import helper

from fuzz.graphs import FLOAT, HEAD_SHAPE, INT64, detector, model, node, to_head


def attributes() -> Iterator[tuple[str, object]]:
    """Give convolutions and pools whose attributes make no sense."""
    huge = 2**62
    for name, values in {
        'strides': ([0, 0], [-1, 1], [huge, huge], [1], [1, 1, 1]),
        'pads': ([-9, -9, -9, -9], [huge] * 4, [2**31] * 4, [1], [-(2**63)] * 4),
        'kernel_shape': ([0, 0], [huge, huge], [-3, -3], [3], [100000, 100000]),
        'dilations': ([0, 0], [huge, huge], [-1, -1], [2**31, 1]),
        'group': (0, -1, huge, 2, 3),
    }.items():
        for index, value in enumerate(values):
            yield f'conv_{name}_{index}', detector(**{name: value})
    for op in ('MaxPool', 'AveragePool', 'LpPool'):
        for index, more in enumerate(
            (
                {'strides': [0, 0]},
                {'kernel_shape': [0, 0]},
                {'pads': [huge] * 4},
                {'kernel_shape': [huge, huge]},
                {'strides': [-1, -1]},
            )
        ):
            yield (
                f'{op}_{index}',
                model(
                    [
                        node(op, ['images'], ['p'], **{'kernel_shape': [2, 2], **more}),
                        node('ReduceMean', ['p'], ['sum'], keepdims=0),
                        *to_head(),
                    ],
                    weights=HEAD_SHAPE,
                ),
            )
    for index, (op, more) in enumerate(
        (
            ('Softmax', {'axis': 99}),
            ('Concat', {'axis': -99}),
            ('Flatten', {'axis': huge}),
            ('Transpose', {'perm': [9, 9, 9, 9]}),
            ('Transpose', {'perm': [0, 0, 0, 0]}),
            ('SpaceToDepth', {'blocksize': 0}),
            ('DepthToSpace', {'blocksize': 0}),
            ('DepthToSpace', {'blocksize': -2}),
            ('LRN', {'size': 0}),
            ('ReduceMean', {'axes': [7]}),
            ('Cast', {'to': 99}),
            ('Cast', {'to': 8}),
            ('Squeeze', {}),
            ('GlobalLpPool', {'p': 0}),
            ('EyeLike', {'k': huge}),
            ('OneHot', {'axis': 5}),
            ('Mod', {'fmod': 7}),
            ('Unsqueeze', {}),
            ('TopK', {'axis': 44}),
            ('Split', {'axis': 3}),
            ('CumSum', {}),
        )
    ):
        yield (
            f'attribute_{index}_{op}',
            model(
                [
                    node(op, ['images'], ['p'], **more),
                    node('ReduceMean', ['p'], ['sum'], keepdims=0),
                    *to_head(),
                ],
                weights=HEAD_SHAPE,
            ),
        )
    for index, divisor in enumerate((0, -1)):
        yield (
            f'integer_division_{index}',
            model(
                [
                    node('Cast', ['images'], ['i'], to=INT64),
                    node('Div', ['i', 'zero'], ['d']),
                    node('Cast', ['d'], ['f'], to=FLOAT),
                    node('ReduceMean', ['f'], ['sum'], keepdims=0),
                    *to_head(),
                ],
                weights={'zero': np.int64(divisor), **HEAD_SHAPE},
            ),
        )
        yield (
            f'integer_modulo_{index}',
            model(
                [
                    node('Cast', ['images'], ['i'], to=INT64),
                    node('Mod', ['i', 'zero'], ['d']),
                    node('Cast', ['d'], ['f'], to=FLOAT),
                    node('ReduceMean', ['f'], ['sum'], keepdims=0),
                    *to_head(),
                ],
                weights={'zero': np.int64(divisor), **HEAD_SHAPE},
            ),
        )
    minimum = np.iinfo(np.int64).min
    yield (
        'integer_overflow_constant',
        model(
            [
                node('Div', ['low', 'minus'], ['d']),
                node('Cast', ['d'], ['f'], to=FLOAT),
                node('ReduceMean', ['images'], ['s'], keepdims=0),
                node('Add', ['s', 'f'], ['sum']),
                *to_head(),
            ],
            weights={'low': np.int64(minimum), 'minus': np.int64(-1), **HEAD_SHAPE},
        ),
    )


def memory() -> Iterator[tuple[str, object]]:
    """Give a few bytes that become gigabytes, when folded and when run."""
    for exponent in (31, 33, 36, 40, 50, 62):
        count = 2**exponent
        shape = np.array([count], np.int64)
        yield (
            f'constant_of_shape_{exponent}',
            model(
                [
                    node('ConstantOfShape', ['n'], ['big']),
                    node('ReduceMean', ['big'], ['mean'], keepdims=0),
                    node('ReduceMean', ['images'], ['s'], keepdims=0),
                    node('Add', ['s', 'mean'], ['sum']),
                    *to_head(),
                ],
                weights={'n': shape, **HEAD_SHAPE},
            ),
        )
        yield (
            f'expand_{exponent}',
            model(
                [
                    node('ReduceMean', ['images'], ['s'], keepdims=0),
                    node('Expand', ['s', 'n'], ['big']),
                    node('Sqrt', ['big'], ['root']),
                    node('ReduceMean', ['root'], ['sum'], keepdims=0),
                    *to_head(),
                ],
                weights={'n': shape, **HEAD_SHAPE},
            ),
        )
        yield (
            f'range_{exponent}',
            model(
                [
                    node('Range', ['zero', 'n', 'one'], ['big']),
                    node('Cast', ['big'], ['f'], to=FLOAT),
                    node('ReduceMean', ['f'], ['mean'], keepdims=0),
                    node('ReduceMean', ['images'], ['s'], keepdims=0),
                    node('Add', ['s', 'mean'], ['sum']),
                    *to_head(),
                ],
                weights={
                    'zero': np.int64(0),
                    'n': np.int64(count),
                    'one': np.int64(1),
                    **HEAD_SHAPE,
                },
            ),
        )
        yield (
            f'tile_{exponent}',
            model(
                [
                    node('ReduceMean', ['images'], ['s'], keepdims=1),
                    node('Tile', ['s', 'n4'], ['big']),
                    node('Relu', ['big'], ['r']),
                    node('ReduceMean', ['r'], ['sum'], keepdims=0),
                    *to_head(),
                ],
                weights={'n4': np.array([1, 1, 1, count], np.int64), **HEAD_SHAPE},
            ),
        )
        yield (
            f'pad_{exponent}',
            model(
                [
                    node('Pad', ['images', 'p'], ['big']),
                    node('Relu', ['big'], ['r']),
                    node('ReduceMean', ['r'], ['sum'], keepdims=0),
                    *to_head(),
                ],
                weights={'p': np.array([0, 0, 0, 0, 0, 0, 0, count], np.int64), **HEAD_SHAPE},
            ),
        )
    for doublings in (26, 30, 34):
        nodes = [node('Constant', [], ['t0'], value=helper.make_tensor('v', FLOAT, [4], [1] * 4))]
        nodes += [
            node('Concat', [f't{i}', f't{i}'], [f't{i + 1}'], axis=0) for i in range(doublings)
        ]
        yield (
            f'concat_folded_{doublings}',
            model(
                [
                    *nodes,
                    node('ReduceMean', [f't{doublings}'], ['mean'], keepdims=0),
                    node('ReduceMean', ['images'], ['s'], keepdims=0),
                    node('Add', ['s', 'mean'], ['sum']),
                    *to_head(),
                ],
                weights=HEAD_SHAPE,
            ),
        )
        yield (
            f'concat_run_{doublings}',
            model(
                [
                    node('Reshape', ['images', 'flat'], ['t0']),
                    *(
                        node('Concat', [f't{i}', f't{i}'], [f't{i + 1}'], axis=0)
                        for i in range(doublings)
                    ),
                    node('ReduceMean', [f't{doublings}'], ['sum'], keepdims=0),
                    *to_head(),
                ],
                weights={'flat': np.array([-1], np.int64), **HEAD_SHAPE},
            ),
        )
    for size in (10**4, 10**5, 10**9):
        yield (
            f'resize_{size}',
            model(
                [
                    node('Resize', ['images', '', '', 'sizes'], ['big']),
                    node('ReduceMean', ['big'], ['sum'], keepdims=0),
                    *to_head(),
                ],
                weights={'sizes': np.array([1, 3, size, size], np.int64), **HEAD_SHAPE},
            ),
        )
        yield (
            f'matmul_{size}',
            model(
                [
                    node('ConstantOfShape', ['n'], ['a']),
                    node('ConstantOfShape', ['m'], ['b']),
                    node('ReduceMean', ['images'], ['s'], keepdims=0),
                    node('Add', ['a', 's'], ['as']),
                    node('MatMul', ['as', 'b'], ['c']),
                    node('ReduceMean', ['c'], ['sum'], keepdims=0),
                    *to_head(),
                ],
                weights={
                    'n': np.array([size, 2], np.int64),
                    'm': np.array([2, size], np.int64),
                    **HEAD_SHAPE,
                },
            ),
        )
    for size in (10**5, 10**8):
        yield (
            f'onehot_{size}',
            model(
                [
                    node('Cast', ['images'], ['i'], to=INT64),
                    node('OneHot', ['i', 'depth', 'values'], ['big']),
                    node('ReduceMean', ['big'], ['sum'], keepdims=0),
                    *to_head(),
                ],
                weights={'depth': np.int64(size), 'values': np.float32([0, 1]), **HEAD_SHAPE},
            ),
        )
        yield (
            f'conv_transpose_{size}',
            model(
                [
                    node('ConvTranspose', ['images', 'w'], ['big'], strides=[size, size]),
                    node('ReduceMean', ['big'], ['sum'], keepdims=0),
                    *to_head(),
                ],
                weights={'w': np.ones((3, 1, 2, 2), np.float32), **HEAD_SHAPE},
            ),
        )
