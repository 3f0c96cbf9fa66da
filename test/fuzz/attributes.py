"""Attributes out of range, and operators that request too much memory."""

from collections.abc import Iterator

import numpy as np
from onnx import helper

from fuzz.graphs import FLOAT, INT64, added, averaged, detector, headed, mean, node


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
                averaged(node(op, ['images'], ['p'], **{'kernel_shape': [2, 2], **more})),
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
        yield f'attribute_{index}_{op}', averaged(node(op, ['images'], ['p'], **more))
    for index, divisor in enumerate((0, -1)):
        yield (
            f'integer_division_{index}',
            averaged(
                node('Cast', ['images'], ['i'], to=INT64),
                node('Div', ['i', 'zero'], ['d']),
                node('Cast', ['d'], ['f'], to=FLOAT),
                weights={'zero': np.int64(divisor)},
            ),
        )
        yield (
            f'integer_modulo_{index}',
            averaged(
                node('Cast', ['images'], ['i'], to=INT64),
                node('Mod', ['i', 'zero'], ['d']),
                node('Cast', ['d'], ['f'], to=FLOAT),
                weights={'zero': np.int64(divisor)},
            ),
        )
    minimum = np.iinfo(np.int64).min
    yield (
        'integer_overflow_constant',
        added(
            node('Div', ['low', 'minus'], ['d']),
            node('Cast', ['d'], ['f'], to=FLOAT),
            weights={'low': np.int64(minimum), 'minus': np.int64(-1)},
        ),
    )


def memory() -> Iterator[tuple[str, object]]:
    """Give a few bytes that become gigabytes, when folded and when run."""
    for exponent in (31, 33, 36, 40, 50, 62):
        count = 2**exponent
        shape = np.array([count], np.int64)
        yield (
            f'constant_of_shape_{exponent}',
            added(
                node('ConstantOfShape', ['n'], ['big']), mean('big', 'mean'), weights={'n': shape}
            ),
        )
        yield (
            f'expand_{exponent}',
            averaged(
                mean(target='s'),
                node('Expand', ['s', 'n'], ['big']),
                node('Sqrt', ['big'], ['root']),
                weights={'n': shape},
            ),
        )
        yield (
            f'range_{exponent}',
            added(
                node('Range', ['zero', 'n', 'one'], ['big']),
                node('Cast', ['big'], ['f'], to=FLOAT),
                mean('f', 'mean'),
                weights={'zero': np.int64(0), 'n': np.int64(count), 'one': np.int64(1)},
            ),
        )
        yield (
            f'tile_{exponent}',
            averaged(
                mean(target='s', keepdims=1),
                node('Tile', ['s', 'n4'], ['big']),
                node('Relu', ['big'], ['r']),
                weights={'n4': np.array([1, 1, 1, count], np.int64)},
            ),
        )
        yield (
            f'pad_{exponent}',
            averaged(
                node('Pad', ['images', 'p'], ['big']),
                node('Relu', ['big'], ['r']),
                weights={'p': np.array([0, 0, 0, 0, 0, 0, 0, count], np.int64)},
            ),
        )
    for doublings in (26, 30, 34):
        nodes = [node('Constant', [], ['t0'], value=helper.make_tensor('v', FLOAT, [4], [1] * 4))]
        nodes += [
            node('Concat', [f't{i}', f't{i}'], [f't{i + 1}'], axis=0) for i in range(doublings)
        ]
        yield f'concat_folded_{doublings}', added(*nodes, mean(f't{doublings}', 'mean'))
        yield (
            f'concat_run_{doublings}',
            headed(
                node('Reshape', ['images', 'flat'], ['t0']),
                *(
                    node('Concat', [f't{i}', f't{i}'], [f't{i + 1}'], axis=0)
                    for i in range(doublings)
                ),
                mean(f't{doublings}'),
                weights={'flat': np.array([-1], np.int64)},
            ),
        )
    for size in (10**4, 10**5, 10**9):
        yield (
            f'resize_{size}',
            averaged(
                node('Resize', ['images', '', '', 'sizes'], ['big']),
                weights={'sizes': np.array([1, 3, size, size], np.int64)},
            ),
        )
        yield (
            f'matmul_{size}',
            averaged(
                node('ConstantOfShape', ['n'], ['a']),
                node('ConstantOfShape', ['m'], ['b']),
                mean(target='s'),
                node('Add', ['a', 's'], ['as']),
                node('MatMul', ['as', 'b'], ['c']),
                weights={'n': np.array([size, 2], np.int64), 'm': np.array([2, size], np.int64)},
            ),
        )
    for size in (10**5, 10**8):
        yield (
            f'onehot_{size}',
            averaged(
                node('Cast', ['images'], ['i'], to=INT64),
                node('OneHot', ['i', 'depth', 'values'], ['big']),
                weights={'depth': np.int64(size), 'values': np.float32([0, 1])},
            ),
        )
        yield (
            f'conv_transpose_{size}',
            averaged(
                node('ConvTranspose', ['images', 'w'], ['big'], strides=[size, size]),
                weights={'w': np.ones((3, 1, 2, 2), np.float32)},
            ),
        )
