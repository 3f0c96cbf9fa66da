"""Results that look impossible over many frames."""

import numpy as np
import pytest

from support.objects import detections
from trt_ros.results.arrays import Depth, Tensors
from trt_ros.results.classes import Classification
from trt_ros.results.masks import ClassMask, ClassMasks
from trt_ros.results.watch import ResultWatch


def mask(value, **fields):
    return ClassMask(np.full((80, 80), value, np.uint8), **fields)


BOXES = [[n, n, n + 9, n + 9] for n in range(6)]
SCORES = [0.9, 0.8, 0.7, 0.6, 0.5, 0.4]
ROAD = {'class_names': ('road', 'sky')}


@pytest.mark.parametrize(
    ('result', 'problem'),
    [
        (detections(), ''),
        (detections(BOXES[0]), ''),
        (detections(*BOXES, score=SCORES), ''),
        (detections(*BOXES, score=1.0), 'equal scores of all objects'),
        (detections(*[(0, 0, 640, 480)] * 6, score=SCORES), 'equal boxes of all objects'),
        (mask(3), 'class 3 in every pixel'),
        (mask(255), 'class 255 in every pixel'),
        (mask(0), ''),
        (mask(0, is_binary=True, **ROAD), ''),
        (mask(0, class_names=('background', 'road')), ''),
        (mask(0, **ROAD), 'class 0 in every pixel'),
        (ClassMask(np.eye(80, dtype=np.uint8), **ROAD), ''),
        (ClassMasks({'lane': mask(1), 'road': mask(0)}, [2, 2]), 'class 1 in every pixel of lane'),
        (Depth(np.full((9, 9), 2.0)), 'equal depth of all pixels'),
        (Depth(np.full((9, 9), np.nan)), 'equal depth of all pixels'),
        (Depth(np.arange(900.0).reshape(30, 30)), ''),
        (Classification(np.full(4, 0.25)), 'equal scores of all classes'),
        (Classification(np.float32([0.1, 0.9])), ''),
        (Tensors(), ''),
    ],
)
def test_a_problem_is_reported_after_a_hundred_frames_in_a_row(result, problem):
    watch = ResultWatch()
    for number in range(1, 201):
        watch.add(result)
        assert bool(watch.problem) == (bool(problem) and number >= 100)
    assert watch.problem == (problem and f'{problem} in the last 200 frames')
    for _ in range(20):
        watch.add(detections(*BOXES, score=SCORES))
    assert not watch.problem
