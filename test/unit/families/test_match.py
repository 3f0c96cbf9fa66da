"""Layouts and outputs of networks: unification, and the nearest families of what fits none."""

import pytest

from trt_ros.families import registry as decoder
from trt_ros.families.layout import Out
from trt_ros.families.match import solve
from trt_ros.families.mismatches import nearest
from trt_ros.families.yolo_tasks import YOLOV8_POSE


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


@pytest.mark.parametrize(
    ('outputs', 'expected'),
    [
        ('out (1, 84, 8401)', 'yolov8 reads (1, 4 + classes, 8400 or 34000 or 8500)'),
        ('out (1, 4, 8400)', 'yolov8 reads (1, 4 + classes, 8400 or 34000 or 8500)'),
        ('out (1, 25201, 85)', 'yolov5 reads (1, 25200 or 25500, 5 + classes)'),
        ('out (1, 300, 7)', 'yolov10 reads (1, N, 6)'),
        (
            'rows (?, 6); numbers (1) int32',
            'ppyoloe reads (N, 6) and needs the input scale_factor',
        ),
        (
            'cov (1, 3, 34, 60); bbox (1, 12, 34, 60)',
            'detectnet_v2 reads (1, classes, 40, 40) with (1, 4 * classes, 40, 40)',
        ),
        (
            'boxes (1, 99, 4); ids (?, 3) int32; scores (1, 9, 98)',
            'onnx_nms reads (S, 3) of integers with (1, N, 4) with (1, classes, N)',
        ),
    ],
)
def test_the_nearest_family_comes_first_with_its_expected_outputs(network, outputs, expected):
    first, *others = nearest(network(outputs), decoder.DETECTORS)
    assert first == expected
    assert len(others) == 2


def test_only_families_of_the_node_are_named(network):
    assert [text.split()[0] for text in nearest(network('x (1, 57, 8401)'), [YOLOV8_POSE])] == [
        'yolov8_pose'
    ]
