"""Unification of layouts with the outputs of networks."""

import pytest

from trt_ros.families.layout import Out
from trt_ros.families.match import solve


@pytest.mark.parametrize(
    'text, size, known, expected',
    [
        ('4+C', 84, {}, {'C': 80}),
        ('4+C', 84, {'C': 80}, {'C': 80}),
        ('4+C', 84, {'C': 79}, None),
        ('4+C', 4, {}, None),
        ('4+C', -1, {}, {}),
        ('6', 7, {}, None),
        ('4*D', 33, {}, None),
        ('4*D', 4, {}, None),
        ('C+4*D', 112, {}, {'C': 80, 'D': 8}),
        ('C+4*D', 124, {}, {'C': 80, 'D': 11}),
        ('C+4*D', 42, {}, {'C': 10, 'D': 8}),
        ('C+4*D', 51, {'C': 7}, {'C': 7, 'D': 11}),
        ('C+3*K', 52, {}, None),
    ],
)
def test_sizes_decide_the_symbols(text, size, known, expected):
    assert solve(text, size, known, {'D': (8, 11)}) == expected


def test_an_output_is_described_as_the_documentation_writes_it():
    out = Out('B N V', 'scores:C box:4*D', ('.*logits',), per_level=True)
    assert out.describe({}) == 'logits (1, N, classes + 4 * bins) per stride'
