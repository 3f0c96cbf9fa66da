"""Nearest families of networks that no decoder recognizes."""

import pytest

from trt_ros.families import registry as decoder
from trt_ros.families.mismatches import nearest
from trt_ros.families.yolo_tasks import YOLOV8_POSE


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
