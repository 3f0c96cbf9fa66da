"""Branches, loops and functions, nested and recursive."""

from collections.abc import Iterator

import numpy as np
from onnx import TensorProto, helper

from fuzz.graphs import FLOAT, INT64, averaged, headed, mean, node


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
            headed(
                mean(target='s'),
                node('Greater', ['s', 'z'], ['c']),
                *nodes,
                node('Identity', [f'o{depth}'], ['sum']),
                weights=weights,
            ),
        )


def control() -> Iterator[tuple[str, object]]:
    """Give nested and endless control flow, and functions that call themselves or multiply."""
    zero = {'z': np.float32(0)}
    for depth in (3, 8, 10, 12):
        yield f'nested_ifs_{depth}', headed(*nested_ifs(depth), weights=zero)
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
            headed(
                mean(target='s'),
                node('Loop', ['n', 'yes', 's'], ['sum'], body=body),
                weights={'n': np.int64(trips), 'yes': np.bool_(True)},
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
        averaged(
            node('Reshape', ['images', 'flat'], ['f']),
            node('Loop', ['n', 'yes', 'f'], ['big'], body=body),
            weights={'n': np.int64(60), 'yes': np.bool_(True), 'flat': np.array([-1], np.int64)},
        ),
    )
    opsets = [helper.make_opsetid('', 17), helper.make_opsetid('f', 1)]

    def function(name, nodes):
        return helper.make_function('f', name, ['a'], ['b'], nodes, opsets)

    def call(name, source, target):
        return helper.make_node(name, [source], [target], domain='f')

    through = [mean(target='s'), call('F0', 's', 'sum')]
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
        yield f'function_{name}', headed(*through, functions=functions, domains=['f'])
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
            headed(*through, functions=functions, domains=['f']),
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
    yield 'function_in_its_own_if', headed(*through, functions=[inside], domains=['f'])
    for length in (1000, 5000):
        nodes = [
            node('ReduceMean', ['images'], ['t0'], keepdims=0),
            *(node('Neg', [f't{i}'], [f't{i + 1}']) for i in range(length)),
            node('Identity', [f't{length}'], ['sum']),
        ]
        yield f'long_chain_{length}', headed(*nodes)
    yield 'cycle', averaged(node('Add', ['images', 'b'], ['a']), node('Relu', ['a'], ['b']))
    yield (
        'same_name_twice',
        averaged(node('Relu', ['images'], ['a']), node('Relu', ['a'], ['a'])),
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
        yield f'einsum_{index}', averaged(node('Einsum', ['images'], ['e'], equation=equation))
