"""Branches, loops and functions, nested and recursive."""

from collections.abc import Iterator
from itertools import pairwise

import numpy as np
from onnx import parser

from fuzz.graphs import MEAN, averaged, headed, node

ASK = f'{MEAN} c = Greater(s, z)'


def nested_ifs(depth: int, name: str = 'x') -> str:
    """Nest Ifs in both branches."""
    if depth == 0:
        return f'{name}_o = Identity(s)'
    then, other = (nested_ifs(depth - 1, f'{name}{side}') for side in 'ab')
    return f"""{name}_o = If(c) <
        then_branch = then () => (float[] {name}a_o) {{ {then} }},
        else_branch = other () => (float[] {name}b_o) {{ {other} }}>"""


def deep_ifs(depth: int) -> str:
    """Nest Ifs in one branch, deeper than any parser recurses."""
    nodes = 'o0 = Identity(s)'
    for level in range(depth):
        nodes = f"""o{level + 1} = If(c) <
            then_branch = then () => (float[] o{level}) {{ {nodes} }},
            else_branch = other () => (float[] p{level}) {{ p{level} = Identity(s) }}>"""
    return nodes


def loop(size: str, doubled: str) -> str:
    """Return the body of a loop; the size of its value is '' for a scalar, or '[n]'."""
    return f"""<body = body (int64 i, bool go_in, float{size} v_in) =>
        (bool go_out, float{size.replace('n', 'm')} v_out)
        {{ go_out = Identity(go_in) v_out = {doubled} }}>"""


def function(name: str, nodes: str):
    return parser.parse_function(
        f'<opset_import: ["" : 17, "f" : 1], domain: "f"> {name} (a) => (b) {{ {nodes} }}'
    )


def control() -> Iterator[tuple[str, object]]:
    """Give nested and endless control flow, and functions that call themselves or multiply."""
    zero = {'z': np.float32(0)}
    for depth in (3, 8, 10, 12):
        nodes = f'{ASK} {nested_ifs(depth)} sum = Identity(x_o)'
        yield f'nested_ifs_{depth}', headed(nodes, weights=zero)
    for depth in (20, 31):
        nodes = f'{ASK} {deep_ifs(depth)} sum = Identity(o{depth})'
        yield f'deep_ifs_{depth}', headed(nodes, weights=zero)
    yes = np.bool_(True)
    for index, trips in enumerate((10**3, 2**40, 2**62, -1)):
        nodes = f'{MEAN} sum = Loop {loop("", "Add(v_in, v_in)")} (n, yes, s)'
        yield f'loop_{index}', headed(nodes, weights={'n': np.int64(trips), 'yes': yes})
    body = loop('[n]', 'Concat <axis = 0> (v_in, v_in)')
    yield (
        'loop_that_doubles',
        averaged(
            f'f = Reshape(images, flat) big = Loop {body} (n, yes, f)',
            weights={'n': np.int64(60), 'yes': yes, 'flat': np.array([-1], np.int64)},
        ),
    )
    recursive = {
        'itself': [function('F0', 'b = f.F0(a)')],
        'each_other': [function('F0', 'b = f.F1(a)'), function('F1', 'b = f.F0(a)')],
        'missing': [function('F0', 'b = f.F9(a)')],
        'twice': [function('F0', 'b = Relu(a)'), function('F0', 'b = f.F0(a)')],
        'without_nodes': [function('F0', '')],
        'in_its_own_if': [
            function(
                'F0',
                """k = Constant <value = bool k {1}> ()
                b = If(k) <then_branch = then () => (float[] u) { u = f.F0(a) },
                    else_branch = other () => (float[] v) { v = f.F0(a) }>""",
            )
        ],
    }
    for levels, width in ((10, 4), (14, 4), (30, 2), (60, 2)):
        names = ['a', *(f't{i}' for i in range(width - 1)), 'b']
        recursive[f'bomb_{levels}_{width}'] = [
            function(
                f'F{level}', ' '.join(f'{to} = f.F{level + 1}({of})' for of, to in pairwise(names))
            )
            for level in range(levels)
        ] + [function(f'F{levels}', 'b = Relu(a)')]
    for name, functions in recursive.items():
        nodes = f'{MEAN} sum = f.F0(s)'
        yield f'function_{name}', headed(nodes, functions=functions, domains=['f'])
    for length in (1000, 5000):
        chain = ' '.join(f't{i + 1} = Neg(t{i})' for i in range(length))
        nodes = f't0 = ReduceMean <keepdims = 0> (images) {chain} sum = Identity(t{length})'
        yield f'long_chain_{length}', headed(nodes)
    yield 'cycle', averaged('a = Add(images, b) b = Relu(a)')
    yield 'same_name_twice', averaged('a = Relu(images) a = Relu(a)')
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
