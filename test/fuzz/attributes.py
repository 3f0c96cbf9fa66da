"""Attributes out of range, and operators that request too much memory."""

from collections.abc import Iterator

import numpy as np

from fuzz.graphs import MEAN, added, averaged, detector, headed, node


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
        for name, op in (('division', 'Div'), ('modulo', 'Mod')):
            nodes = f'i = Cast <to = 7> (images) d = {op}(i, zero) f = Cast <to = 1> (d)'
            weights = {'zero': np.int64(divisor)}
            yield f'integer_{name}_{index}', averaged(nodes, weights=weights)
    weights = {'low': np.int64(np.iinfo(np.int64).min), 'minus': np.int64(-1)}
    nodes = 'd = Div(low, minus) f = Cast <to = 1> (d)'
    yield 'integer_overflow_constant', added(nodes, weights=weights)


def memory() -> Iterator[tuple[str, object]]:
    """Give a few bytes that become gigabytes, when folded and when run."""
    for exponent in (31, 33, 36, 40, 50, 62):
        count = 2**exponent
        shape = np.array([count], np.int64)
        for name, ends, nodes, weights in (
            (
                'constant_of_shape',
                added,
                'big = ConstantOfShape(n) mean = ReduceMean <keepdims = 0> (big)',
                {'n': shape},
            ),
            ('expand', averaged, f'{MEAN} big = Expand(s, n) root = Sqrt(big)', {'n': shape}),
            (
                'range',
                added,
                'big = Range(zero, n, one) f = Cast <to = 1> (big)'
                ' mean = ReduceMean <keepdims = 0> (f)',
                {'zero': np.int64(0), 'n': np.int64(count), 'one': np.int64(1)},
            ),
            (
                'tile',
                averaged,
                's = ReduceMean <keepdims = 1> (images) big = Tile(s, n4) r = Relu(big)',
                {'n4': np.array([1, 1, 1, count], np.int64)},
            ),
            (
                'pad',
                averaged,
                'big = Pad(images, p) r = Relu(big)',
                {'p': np.array([0, 0, 0, 0, 0, 0, 0, count], np.int64)},
            ),
        ):
            yield f'{name}_{exponent}', ends(nodes, weights=weights)
    for doublings in (26, 30, 34):
        nodes = [f't{i + 1} = Concat <axis = 0> (t{i}, t{i})' for i in range(doublings)]
        yield (
            f'concat_folded_{doublings}',
            added(
                't0 = Constant <value = float[4] v {1, 1, 1, 1}> ()',
                *nodes,
                f'mean = ReduceMean <keepdims = 0> (t{doublings})',
            ),
        )
        yield (
            f'concat_run_{doublings}',
            headed(
                't0 = Reshape(images, flat)',
                *nodes,
                f'sum = ReduceMean <keepdims = 0> (t{doublings})',
                weights={'flat': np.array([-1], np.int64)},
            ),
        )
    for size in (10**4, 10**5, 10**9):
        sizes = {'sizes': np.array([1, 3, size, size], np.int64)}
        yield f'resize_{size}', averaged('big = Resize(images, , , sizes)', weights=sizes)
        nodes = 'a = ConstantOfShape(n) b = ConstantOfShape(m)'
        nodes += f' {MEAN} as = Add(a, s) c = MatMul(as, b)'
        shapes = {'n': np.array([size, 2], np.int64), 'm': np.array([2, size], np.int64)}
        yield f'matmul_{size}', averaged(nodes, weights=shapes)
    for size in (10**5, 10**8):
        nodes = 'i = Cast <to = 7> (images) big = OneHot(i, depth, values)'
        weights = {'depth': np.int64(size), 'values': np.float32([0, 1])}
        yield f'onehot_{size}', averaged(nodes, weights=weights)
        nodes = f'big = ConvTranspose <strides = [{size}, {size}]> (images, w)'
        weights = {'w': np.ones((3, 1, 2, 2), np.float32)}
        yield f'conv_transpose_{size}', averaged(nodes, weights=weights)
