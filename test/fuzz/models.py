"""Broken and hostile ONNX files, several hundred, the same ones each time."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from pathlib import Path

import numpy as np
from onnx import TensorProto, helper, numpy_helper

import trt_ros

FLOAT, INT64 = TensorProto.FLOAT, TensorProto.INT64
IMAGE = (1, 3, 64, 64)
HEAD = (1, 7, 84)  # What a YOLOv8 of three classes answers on such an image.


def model(
    nodes,
    *,
    weights=None,
    image=IMAGE,
    head=HEAD,
    kind=FLOAT,
    opset=17,
    functions=(),
    metadata=None,
    domains=(),
    more_weights=(),
    more_inputs=(),
):
    """Return the ModelProto of a graph from `images` to `output0`."""
    graph = helper.make_graph(
        nodes,
        'hostile',
        [helper.make_tensor_value_info('images', kind, image), *more_inputs],
        [helper.make_tensor_value_info('output0', FLOAT, head)],
        [
            *(
                numpy_helper.from_array(np.asarray(value), name)
                for name, value in (weights or {}).items()
            ),
            *more_weights,
        ],
    )
    made = helper.make_model(
        graph,
        ir_version=9,
        functions=list(functions),
        opset_imports=[
            helper.make_opsetid('', opset),
            *(helper.make_opsetid(domain, 1) for domain in domains),
        ],
    )
    helper.set_model_props(made, metadata or {'names': "['a', 'b', 'c']"})
    return made


def node(op, inputs, outputs, **attributes):
    return helper.make_node(op, inputs, outputs, **attributes)


def to_head(source='sum'):
    """Bring a scalar into the form of the head."""
    return [node('Expand', [source, 'head_shape'], ['output0'])]


HEAD_SHAPE = {'head_shape': np.array(HEAD, np.int64)}


def detector(**changes):
    """Return a small detector that is right: sum of convolved pixels, spread over a head."""
    weights = {'w': np.full((4, 3, 3, 3), 0.01, np.float32), **HEAD_SHAPE}
    conv = {
        'kernel_shape': [3, 3],
        'strides': [2, 2],
        'pads': [1, 1, 1, 1],
        'group': 1,
        'dilations': [1, 1],
    }
    conv.update(changes)
    conv = {name: value for name, value in conv.items() if value is not None}
    return model(
        [
            node('Conv', ['images', 'w'], ['c'], **conv),
            node('ReduceMean', ['c'], ['sum'], keepdims=0),
            *to_head(),
        ],
        weights=weights,
    )


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


def branch(name, nodes, output):
    return helper.make_graph(nodes, name, [], [helper.make_tensor_value_info(output, FLOAT, None)])


def nested_ifs(depth):
    """Nest Ifs in both branches."""

    def inner(level, prefix):
        if level == 0:
            return branch(
                f'{prefix}_leaf', [node('Identity', ['s'], [f'{prefix}_o'])], f'{prefix}_o'
            )
        then, other = inner(level - 1, f'{prefix}a'), inner(level - 1, f'{prefix}b')
        return branch(
            f'{prefix}_g',
            [node('If', ['c'], [f'{prefix}_o'], then_branch=then, else_branch=other)],
            f'{prefix}_o',
        )

    top = inner(depth, 'x')
    return [
        node('ReduceMean', ['images'], ['s'], keepdims=0),
        node('Greater', ['s', 'z'], ['c']),
        *top.node,
        node('Identity', ['x_o'], ['sum']),
        *to_head(),
    ]


def deep_ifs(weights: dict[str, np.ndarray]) -> Iterator[tuple[str, object]]:
    """Yield branches within branches, deeper than any parser recurses."""
    for depth in (20, 31):
        nodes = [node('Identity', ['s'], ['o0'])]
        for level in range(depth):
            nodes = [
                node(
                    'If',
                    ['c'],
                    [f'o{level + 1}'],
                    then_branch=branch(f't{level}', nodes, f'o{level}'),
                    else_branch=branch(
                        f'e{level}', [node('Identity', ['s'], [f'p{level}'])], f'p{level}'
                    ),
                )
            ]
        yield (
            f'deep_ifs_{depth}',
            model(
                [
                    node('ReduceMean', ['images'], ['s'], keepdims=0),
                    node('Greater', ['s', 'z'], ['c']),
                    *nodes,
                    node('Identity', [f'o{depth}'], ['sum']),
                    *to_head(),
                ],
                weights=weights,
            ),
        )


def control() -> Iterator[tuple[str, object]]:
    """Give nested and endless control flow, and functions that call themselves or multiply."""
    zero = {'z': np.float32(0), **HEAD_SHAPE}
    for depth in (3, 8, 10, 12):
        yield f'nested_ifs_{depth}', model(nested_ifs(depth), weights=zero)
    yield from deep_ifs(zero)
    for index, trips in enumerate((10**3, 2**40, 2**62, -1)):
        body = helper.make_graph(
            [node('Identity', ['go_in'], ['go_out']), node('Add', ['v_in', 'v_in'], ['v_out'])],
            'body',
            [
                helper.make_tensor_value_info('i', INT64, []),
                helper.make_tensor_value_info('go_in', TensorProto.BOOL, []),
                helper.make_tensor_value_info('v_in', FLOAT, []),
            ],
            [
                helper.make_tensor_value_info('go_out', TensorProto.BOOL, []),
                helper.make_tensor_value_info('v_out', FLOAT, []),
            ],
        )
        yield (
            f'loop_{index}',
            model(
                [
                    node('ReduceMean', ['images'], ['s'], keepdims=0),
                    node('Loop', ['n', 'yes', 's'], ['sum'], body=body),
                    *to_head(),
                ],
                weights={'n': np.int64(trips), 'yes': np.bool_(True), **HEAD_SHAPE},
            ),
        )
    body = helper.make_graph(
        [
            node('Identity', ['go_in'], ['go_out']),
            node('Concat', ['v_in', 'v_in'], ['v_out'], axis=0),
        ],
        'body',
        [
            helper.make_tensor_value_info('i', INT64, []),
            helper.make_tensor_value_info('go_in', TensorProto.BOOL, []),
            helper.make_tensor_value_info('v_in', FLOAT, ['n']),
        ],
        [
            helper.make_tensor_value_info('go_out', TensorProto.BOOL, []),
            helper.make_tensor_value_info('v_out', FLOAT, ['m']),
        ],
    )
    yield (
        'loop_that_doubles',
        model(
            [
                node('Reshape', ['images', 'flat'], ['f']),
                node('Loop', ['n', 'yes', 'f'], ['big'], body=body),
                node('ReduceMean', ['big'], ['sum'], keepdims=0),
                *to_head(),
            ],
            weights={
                'n': np.int64(60),
                'yes': np.bool_(True),
                'flat': np.array([-1], np.int64),
                **HEAD_SHAPE,
            },
        ),
    )
    opsets = [helper.make_opsetid('', 17), helper.make_opsetid('f', 1)]

    def function(name, nodes):
        return helper.make_function('f', name, ['a'], ['b'], nodes, opsets)

    def call(name, source, target):
        return helper.make_node(name, [source], [target], domain='f')

    through = [
        node('ReduceMean', ['images'], ['s'], keepdims=0),
        call('F0', 's', 'sum'),
        *to_head(),
    ]
    recursive = {
        'itself': [function('F0', [call('F0', 'a', 'b')])],
        'each_other': [
            function('F0', [call('F1', 'a', 'b')]),
            function('F1', [call('F0', 'a', 'b')]),
        ],
        'missing': [function('F0', [call('F9', 'a', 'b')])],
        'twice': [
            function('F0', [node('Relu', ['a'], ['b'])]),
            function('F0', [call('F0', 'a', 'b')]),
        ],
        'without_nodes': [function('F0', [])],
    }
    for name, functions in recursive.items():
        yield (
            f'function_{name}',
            model(through, functions=functions, domains=['f'], weights=HEAD_SHAPE),
        )
    for levels, width in ((10, 4), (14, 4), (30, 2), (60, 2)):
        functions = [
            function(
                f'F{level}',
                [
                    *(
                        call(
                            f'F{level + 1}',
                            'a' if i == 0 else f't{i - 1}',
                            f't{i}' if i < width - 1 else 'b',
                        )
                        for i in range(width)
                    )
                ],
            )
            for level in range(levels)
        ] + [function(f'F{levels}', [node('Relu', ['a'], ['b'])])]
        yield (
            f'function_bomb_{levels}_{width}',
            model(through, functions=functions, domains=['f'], weights=HEAD_SHAPE),
        )
    inside = function(
        'F0',
        [
            node(
                'If',
                ['k'],
                ['b'],
                then_branch=branch('then', [call('F0', 'a', 'u')], 'u'),
                else_branch=branch('else', [call('F0', 'a', 'v')], 'v'),
            )
        ],
    )
    inside.node.insert(
        0, node('Constant', [], ['k'], value=helper.make_tensor('k', TensorProto.BOOL, [], [True]))
    )
    yield (
        'function_in_its_own_if',
        model(through, functions=[inside], domains=['f'], weights=HEAD_SHAPE),
    )
    for length in (1000, 5000):
        nodes = [
            node('ReduceMean', ['images'], ['t0'], keepdims=0),
            *(node('Neg', [f't{i}'], [f't{i + 1}']) for i in range(length)),
            node('Identity', [f't{length}'], ['sum']),
            *to_head(),
        ]
        yield f'long_chain_{length}', model(nodes, weights=HEAD_SHAPE)
    yield (
        'cycle',
        model(
            [
                node('Add', ['images', 'b'], ['a']),
                node('Relu', ['a'], ['b']),
                node('ReduceMean', ['b'], ['sum'], keepdims=0),
                *to_head(),
            ],
            weights=HEAD_SHAPE,
        ),
    )
    yield (
        'same_name_twice',
        model(
            [
                node('Relu', ['images'], ['a']),
                node('Relu', ['a'], ['a']),
                node('ReduceMean', ['a'], ['sum'], keepdims=0),
                *to_head(),
            ],
            weights=HEAD_SHAPE,
        ),
    )
    for index, equation in enumerate(
        (
            '...',
            'ij,jk->ik',
            'abcd->',
            'ZZZZ->Z',
            '->' * 50,
            '',
            'a' * 5000 + '->a',
            'abcd,abcd,->',
        )
    ):
        yield (
            f'einsum_{index}',
            model(
                [
                    node('Einsum', ['images'], ['e'], equation=equation),
                    node('ReduceMean', ['e'], ['sum'], keepdims=0),
                    *to_head(),
                ],
                weights=HEAD_SHAPE,
            ),
        )


def shapes() -> Iterator[tuple[str, object]]:
    """Give declared inputs, outputs and metadata that make no sense."""
    for index, image in enumerate(
        (
            (),
            (0,),
            (1, 3),
            (1, 3, 0, 0),
            (1, 3, 10**9, 10**9),
            (1, 3, 2**62, 2**62),
            (2**31, 3, 64, 64),
            (1, 3, 100_000, 100_000),
            (1, 3, 2**32, 1),
            (0, 3, 64, 64),
            (1, 3, 65536, 65536),
            (1, 3, 64, 64, 64),
            (3, 64, 64),
            (1,) * 64,
            (1, 2**63 - 1),
            (1, 3, 20_000, 20_000),
            (10**6, 3, 640, 640),
            (1, 64, 64, 3),
            ('n', 'c', 'h', 'w'),
            (1, 1, 64, 64),
            (1, 3, 1, 1),
            (1, 3, 7, 7),
        )
    ):
        yield (
            f'image_{index}',
            model(
                [node('ReduceMean', ['images'], ['sum'], keepdims=0), *to_head()],
                image=image,
                weights=HEAD_SHAPE,
            ),
        )
    for index, head in enumerate(
        (
            (),
            (0,),
            (1, 7, 0),
            (1, 7, 2**40),
            (1, 2**40, 84),
            (1, 84, 7),
            (2**40,) * 3,
            (1, 4, 84),
            (1, 5, 84),
            (1, 3, 84),
            (1, 300, 6),
            (1, 3, 10, 10, 8),
            (1, 10**9),
            (1, 1, 64, 64),
            (1, 10**7, 64, 64),
            (7, 84),
            (1, 'a', 'b'),
            ('x', 'y', 'z'),
        )
    ):
        yield (
            f'head_{index}',
            model(
                [node('ReduceMean', ['images'], ['sum'], keepdims=0), *to_head()],
                head=head,
                weights=HEAD_SHAPE,
            ),
        )
        real = [size if isinstance(size, int) and size < 10**5 else 5 for size in head]
        yield (
            f'head_real_{index}',
            model(
                [node('ReduceMean', ['images'], ['sum'], keepdims=0), *to_head()],
                head=head,
                weights={'head_shape': np.array(real, np.int64)},
            ),
        )
    for index, value in enumerate((np.nan, np.inf, -np.inf, 1e38, -1.0)):
        yield (
            f'answer_{index}',
            model(
                [
                    node('ReduceMean', ['images'], ['m'], keepdims=0),
                    node('Mul', ['m', 'z'], ['zero']),
                    node('Add', ['zero', 'v'], ['sum']),
                    *to_head(),
                ],
                weights={'z': np.float32(0), 'v': np.float32(value), **HEAD_SHAPE},
            ),
        )
    dynamic = (1, 3, 'h', 'w')
    for index, imgsz in enumerate(
        (
            '[1000000000, 1000000000]',
            'float("inf")',
            '[1e999, 1e999]',
            '[inf, inf]',
            '[nan, 1]',
            '[-1, -1]',
            '[0, 0]',
            '640',
            '[640]',
            '["a", "b"]',
            '[' * 5000,
            '[65536, 65536]',
            '[1e9, 1e9]',
            '9' * 5000,
            '[20000, 20000]',
            '{}',
            '[1, 1]',
            '(64, 64)',
            '[10**9, 1]',
            '\x00',
            '[1e308*10, 1]',
            'é',
            '[9999999999999999999999, 1]',
        )
    ):
        yield (
            f'imgsz_{index}',
            model(
                [node('ReduceMean', ['images'], ['sum'], keepdims=0), *to_head()],
                image=dynamic,
                weights=HEAD_SHAPE,
                metadata={'imgsz': imgsz},
            ),
        )
    for index, names in enumerate(
        (
            "['\\ud800', 'b', 'c']",
            '[' * 10_000,
            '-' * 50_000 + '1',
            '{0: None, 1: 2, 2: []}',
            '["a"] * 10**9',
            "{0: 'a', 5: 'b'}",
            '(' * 100 + ')' * 100,
            '{' * 999,
            '"' + 'a' * 10**6 + '"',
            "['a', 'b', 'c', 'd']",
            '\x00',
            'b"x"',
            '{1e999: "a"}',
            "['a\\x00b', '\\x1b[2J', '\\u202e']",
            '\n' * 10_000,
            'set()',
            '[[]] * 3',
        )
    ):
        yield (
            f'names_{index}',
            model(
                [node('ReduceMean', ['images'], ['sum'], keepdims=0), *to_head()],
                weights=HEAD_SHAPE,
                metadata={'names': names},
            ),
        )
    for kind in (*range(0, 28), 99, -1, 2**31 - 1):
        yield (
            f'type_of_input_{kind}',
            model(
                [node('ReduceMean', ['images'], ['sum'], keepdims=0), *to_head()],
                kind=kind,
                weights=HEAD_SHAPE,
            ),
        )


def damaged_tensors() -> Iterator[tuple[str, object]]:
    """Give weights whose bytes, type and shape contradict each other."""

    def tensor(**fields):
        made = TensorProto(name='w', data_type=FLOAT)
        made.dims.extend(fields.pop('dims', [1]))
        for name, value in fields.items():
            if isinstance(value, list):
                getattr(made, name).extend(value)
            else:
                setattr(made, name, value)
        return made

    cases = {
        'short_raw': {'raw_data': b'\0\0'},
        'no_raw': {'raw_data': b''},
        'no_data': {},
        'long_raw': {'raw_data': b'\0' * 99},
        'type_0': {'data_type': 0, 'raw_data': b'\0' * 4},
        'type_99': {'data_type': 99, 'raw_data': b'\0' * 4},
        'type_negative': {'data_type': -5, 'raw_data': b'\0' * 4},
        'negative_dim': {'dims': [-4], 'raw_data': b'\0' * 4},
        'huge_dims': {'dims': [2**40, 2**40], 'raw_data': b'\0' * 4},
        'overflow_dims': {'dims': [2**32, 2**32], 'raw_data': b''},
        'zero_and_huge': {'dims': [0, 2**62], 'raw_data': b''},
        'large_dim': {'dims': [2**33]},
        'both': {'raw_data': b'\0' * 4, 'float_data': [1.0]},
        'wrong_field': {'int64_data': [1]},
        'few_floats': {'dims': [5], 'float_data': [1.0]},
        'int64_misshapen': {'data_type': INT64, 'dims': [3], 'int64_data': [1]},
        'int64_short_raw': {'data_type': INT64, 'dims': [3], 'raw_data': b'\0' * 9},
        'int64_extreme': {'data_type': INT64, 'dims': [2], 'int64_data': [2**63 - 1, -(2**63)]},
        'strings': {'data_type': TensorProto.STRING, 'string_data': [b'\xff']},
        'int4_short': {'data_type': TensorProto.INT4, 'dims': [9], 'raw_data': b'\0'},
        'float8': {'data_type': TensorProto.FLOAT8E4M3FN, 'dims': [3], 'raw_data': b'\0'},
        'complex': {'data_type': TensorProto.COMPLEX64, 'raw_data': b'\0' * 3},
        'bool_17': {'data_type': TensorProto.BOOL, 'raw_data': b'\x11'},
        'many_dims': {'dims': [1] * 1000, 'raw_data': b'\0' * 4},
    }
    for name, fields in cases.items():
        weights = tensor(**fields)
        yield (
            f'tensor_{name}',
            model(
                [
                    node('ReduceMean', ['images'], ['s'], keepdims=0),
                    node('Add', ['s', 'w'], ['a']),
                    node('ReduceMean', ['a'], ['sum'], keepdims=0),
                    *to_head(),
                ],
                weights=HEAD_SHAPE,
                more_weights=[weights],
            ),
        )
        constant = TensorProto()
        constant.CopyFrom(weights)
        yield (
            f'constant_{name}',
            model(
                [
                    node('Constant', [], ['w'], value=constant),
                    node('ReduceMean', ['images'], ['s'], keepdims=0),
                    node('Add', ['s', 'w'], ['a']),
                    node('ReduceMean', ['a'], ['sum'], keepdims=0),
                    *to_head(),
                ],
                weights=HEAD_SHAPE,
            ),
        )
    for index, (location, offset, length) in enumerate(
        (
            ('/etc/passwd', 0, 4),
            ('../secret', 0, 4),
            ('/dev/zero', 0, 4),
            ('nowhere', 0, 4),
            ('.', 0, 4),
            ('', 0, 4),
            ('data.bin', 2**62, 4),
            ('data.bin', -4, 4),
            ('data.bin', 0, 2**62),
            ('data.bin', 0, 0),
            ('pipe', 0, 4),
            ('data.bin', 'x', 4),
        )
    ):
        outside = tensor(data_location=TensorProto.EXTERNAL)
        for key, value in (('location', location), ('offset', offset), ('length', length)):
            outside.external_data.add(key=key, value=str(value))
        yield (
            f'external_{index}',
            model(
                [
                    node('ReduceMean', ['images'], ['s'], keepdims=0),
                    node('Add', ['s', 'w'], ['a']),
                    node('ReduceMean', ['a'], ['sum'], keepdims=0),
                    *to_head(),
                ],
                weights=HEAD_SHAPE,
                more_weights=[outside],
            ),
        )


def versions() -> Iterator[tuple[str, object]]:
    """Give models of versions and with parts that nobody writes."""
    for ir_version in (0, 1, 99, 2**62, -1):
        made = detector()
        made.ir_version = ir_version
        yield f'ir_version_{ir_version}', made
    for opset in (0, 1, 5, 99, -1, 2**62):
        made = detector()
        made.opset_import[0].version = opset
        yield f'opset_{opset}', made
    for name, change in {
        'no_opset': lambda made: made.ClearField('opset_import'),
        'no_graph': lambda made: made.ClearField('graph'),
        'no_nodes': lambda made: made.graph.ClearField('node'),
        'no_inputs': lambda made: made.graph.ClearField('input'),
        'no_outputs': lambda made: made.graph.ClearField('output'),
        'no_weights': lambda made: made.graph.ClearField('initializer'),
        'no_names': lambda made: [node.ClearField('output') for node in made.graph.node],
        'no_op': lambda made: setattr(made.graph.node[0], 'op_type', ''),
        'unknown_op': lambda made: setattr(made.graph.node[0], 'op_type', 'Frobnicate'),
        'unknown_domain': lambda made: setattr(made.graph.node[0], 'domain', 'x.y'),
        'no_type': lambda made: made.graph.input[0].ClearField('type'),
        'long_name': lambda made: setattr(made.graph.input[0], 'name', 'x' * 10**6),
        'nul_name': lambda made: setattr(made.graph.node[0], 'name', 'a\0b'),
        'two_inputs': lambda made: made.graph.input.append(made.graph.input[0]),
        'two_outputs': lambda made: made.graph.output.append(made.graph.output[0]),
        'two_weights': lambda made: made.graph.initializer.append(made.graph.initializer[0]),
        'many_metadata': lambda made: helper.set_model_props(
            made, {f'k{i}': 'v' * 100 for i in range(10_000)}
        ),
    }.items():
        made = detector()
        change(made)
        yield name, made


def files() -> Iterator[tuple[str, bytes]]:
    """Give every model as a name and the bytes of its file."""
    for group in (attributes, memory, control, shapes, damaged_tensors, versions):
        for name, made in group():
            yield f'{group.__name__}_{name}', made.SerializeToString()
    whole = detector().SerializeToString()
    surrogate = model(
        [node('ReduceMean', ['images'], ['sum'], keepdims=0), *to_head()],
        weights=HEAD_SHAPE,
        metadata={'names': 'REPLACED!!'},
    ).SerializeToString()
    for index, raw in enumerate((b'\xff\xfe\xed\xa0\x80abcde', b'\xed\xa0\x80\xed\xb0\x80abcd')):
        yield f'bytes_not_utf8_{index}', surrogate.replace(b'REPLACED!!', raw[:10])
    yield from {
        'bytes_empty': b'',
        'bytes_html': b'<html>not found</html>',
        'bytes_zeros': b'\0' * 4096,
        'bytes_ff': b'\xff' * 4096,
        'bytes_zip': b'PK\x03\x04' + b'\0' * 99,
        'bytes_plan': b'ftrt' + b'\0' * 200,
        'bytes_plan_rtx': b'vtrt' + b'\0' * 200,
        'bytes_lfs': b'version https://git-lfs.github.com/spec/v1\n',
        'bytes_nested': b''.join(
            b'\x3a' + bytes([0x80 | size & 127, size >> 7]) for size in range(9000, 200, -3)
        ),
        'bytes_twice': whole + whole,
    }.items()
    demo = (Path(trt_ros.__file__).parent / 'demo' / 'shapes.onnx').read_bytes()
    for turn in range(60):
        yield f'mutation_{turn:03}', mutated(whole, turn)
        yield f'mutation_demo_{turn:03}', mutated(demo, turn)


def mutated(whole: bytes, turn: int) -> bytes:
    """Return the bytes of a model cut, flipped, or with a piece of it elsewhere."""
    rng = np.random.default_rng(turn)
    if turn % 5 == 0:
        return whole[: int(rng.integers(1, len(whole)))]
    data = bytearray(whole)
    if turn % 5 == 1:
        start, length = int(rng.integers(0, len(data))), int(rng.integers(1, 40))
        where = int(rng.integers(0, len(data)))
        data[where:where] = data[start : start + length]
    else:
        for _ in range(int(rng.integers(1, 8))):
            data[int(rng.integers(0, len(data)))] = int(rng.integers(0, 256))
    return bytes(data)


def write(folder: Path, wanted: Callable[[str], bool] = lambda name: True) -> list[Path]:
    """Write the files, and what those with external data find beside them."""
    folder.mkdir(parents=True, exist_ok=True)
    (folder / 'data.bin').write_bytes(b'\0' * 4)
    paths = []
    for name, data in files():
        if wanted(name):
            paths.append(folder / f'{name}.onnx')
            paths[-1].write_bytes(data)
    return paths
