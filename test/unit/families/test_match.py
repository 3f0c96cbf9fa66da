"""Unification of layouts with the outputs of networks."""

from __future__ import annotations

import pytest

from support.recognized_networks import TOLD
from trt_ros.families.layout import BoxLayout, Out
from trt_ros.families.match import bind, solve
from trt_ros.families.registry import ALL_FAMILIES

FAMILIES = {
    family.name: family
    for family in ALL_FAMILIES
    if all(isinstance(layout, BoxLayout) for layout in family.layouts)
}
READ = [each for each in TOLD if each[0] in FAMILIES and 'trt_ros.cut_nms' not in each[4]]


@pytest.mark.parametrize(
    'name, classes, outputs, how', [(each[0], each[1], each[3], each[4]) for each in READ]
)
def test_every_recognized_network_of_boxes_is_read(network, name, classes, outputs, how):
    reading = bind(FAMILIES[name], network(outputs, **how))
    assert reading is not None
    assert reading.class_count == classes


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
