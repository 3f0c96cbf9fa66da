"""Palm detection of MediaPipe."""

import math

import numpy as np
import pytest

from trt_ros.decode.choice import open_head
from trt_ros.families.faces import MEDIAPIPE_PALM
from trt_ros.vision.letterbox import Letterbox
from trt_ros.vision.thresholds import Thresholds

HW = (64, 96)
#: Anchors: 8 x 12 cells of two, 4 x 6 cells of six.
COUNT = 2 * 8 * 12 + 6 * 4 * 6
OUTPUTS = f'Identity (1, {COUNT}, 18); Identity_1 (1, {COUNT}, 1)'
TWICE = Letterbox.fit((192, 128), HW, 'stretch')
THRESHOLDS = Thresholds(score=0.25, iou=0.5, max_detections=100)
OFFSETS = np.arange(14, dtype=np.float32)


def empty(dtype=np.float32):
    return {
        'Identity': np.zeros((1, COUNT, 18), dtype),
        'Identity_1': np.full((1, COUNT, 1), -9, dtype),
    }


def place(outputs, anchor, logit, box=(4, -2, 16, 8)):
    outputs['Identity'][0, anchor] = [*box, *OFFSETS]
    outputs['Identity_1'][0, anchor] = logit


def decode(network, outputs):
    return open_head(MEDIAPIPE_PALM, network(OUTPUTS, hw=HW))(outputs, TWICE, THRESHOLDS)


@pytest.mark.parametrize('dtype', [np.float32, np.float16])
@pytest.mark.parametrize(('stride', 'which'), [(8, 0), (8, 1), (16, 0), (16, 5)])
def test_boxes_and_landmarks_are_relative_to_the_center_of_the_cell(network, stride, which, dtype):
    row, column = 2, 3
    columns, per_cell, before = (12, 2, 0) if stride == 8 else (6, 6, 2 * 8 * 12)
    outputs = empty(dtype)
    place(outputs, before + per_cell * (row * columns + column) + which, math.log(3))
    found = decode(network, outputs)
    x, y = (column + 0.5) * stride, (row + 0.5) * stride
    box = [x + 4 - 8, y - 2 - 4, x + 4 + 8, y - 2 + 4]
    assert found.detections.xyxy.tolist() == [[2 * side for side in box]]
    assert found.detections.scores.tolist() == pytest.approx([0.75], abs=1e-3)
    points = 2 * (np.array([x, y]) + OFFSETS.reshape(7, 2))
    assert found.keypoints[0].tolist() == [[*point, 1] for point in points.tolist()]
    assert (len(found.regions), found.regions.scores.tolist()) == (
        1,
        found.detections.scores.tolist(),
    )


def test_overlapping_palms_are_suppressed_and_non_finite_ones_dropped(network):
    outputs = empty()
    place(outputs, 0, 1)
    place(outputs, 1, 2)
    place(outputs, 40, np.inf)
    place(outputs, 60, 2, box=(np.nan, 0, 16, 8))
    found = decode(network, outputs)
    assert found.detections.scores.tolist() == pytest.approx([1 / (1 + math.exp(-2))])
