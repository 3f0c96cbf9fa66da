import math

import numpy as np
import pytest

from support.descriptions import head as open_as
from trt_ros.vision.letterbox import Letterbox
from trt_ros.vision.nms import probabilistic_iou
from trt_ros.vision.thresholds import Thresholds

WHOLE = Letterbox.fit((200, 200), (200, 200), 'stretch')


def head(*anchors, classes=2, count=20):
    """Each (cx, cy, w, h, label, score, theta)."""
    output = np.zeros((1, 5 + classes, count), np.float32)
    for index, (*box, label, score, theta) in enumerate(anchors):
        output[0, :4, index] = box
        output[0, 4 + label, index] = score
        output[0, -1, index] = theta
    return output


def decode(output, letterbox=WHOLE, *, is_decoded=False, max_detections=100):
    metadata = {'task': 'obb', 'end2end': str(is_decoded)}
    return open_as('yolov8_obb', 'output0 (1, ?, ?)', **metadata)(
        {'output0': output},
        letterbox,
        Thresholds(score=0.25, iou=0.5, max_detections=max_detections),
    )


def density(box, points):
    """The normal distribution of a box, at points (N, 2)."""
    cx, cy, w, h, theta = box
    turn = np.array([[math.cos(theta), -math.sin(theta)], [math.sin(theta), math.cos(theta)]])
    covariance = turn @ np.diag([w * w / 12, h * h / 12]) @ turn.T
    away = points - (cx, cy)
    power = np.einsum('ni,ij,nj->n', away, np.linalg.inv(covariance), away)
    return np.exp(-power / 2) / (2 * math.pi * math.sqrt(np.linalg.det(covariance)))


@pytest.mark.slow
@pytest.mark.parametrize(
    ('box', 'other'),
    [
        ((0, 0, 20, 10, 0.0), (3, 2, 20, 10, 0.0)),
        ((0, 0, 20, 10, 0.3), (3, -2, 15, 12, -0.6)),
        ((0, 0, 30, 6, 0.7), (0, 0, 30, 6, 0.7 + math.pi / 2)),
        ((0, 0, 20, 10, 1.2), (9, 9, 12, 12, 0.1)),
    ],
)
def test_probabilistic_iou_is_that_of_the_distributions_summed_over_a_fine_grid(box, other):
    step = 0.1
    axis = np.arange(-60, 60, step)
    points = np.stack(np.meshgrid(axis, axis), axis=-1).reshape(-1, 2)
    shared = np.sqrt(density(box, points) * density(other, points)).sum() * step * step
    expected = 1 - math.sqrt(1 - shared)
    found = probabilistic_iou(np.array(box), np.array([other, other]))
    assert found.tolist() == pytest.approx([expected] * 2, abs=1e-4)


def test_rotated_iou_of_identical_half_turned_and_distant_boxes():
    box = np.array([50, 60, 20, 4, 0.4])
    others = box + np.array([[0, 0, 0, 0, 0], [0, 0, 0, 0, math.pi], [900, 0, 0, 0, 0]])
    assert probabilistic_iou(box, others).tolist() == pytest.approx([1, 1, 0], abs=2e-3)


def test_a_suppressed_box_suppresses_no_other_and_those_beyond_the_image_are_left_out():
    # Each resembles the next one by more than the threshold, the first and the last do not.
    chain = [(50 + 6 * i, 50, 40, 20, 0, 0.9 - i / 10, 0.0) for i in range(3)]
    boxes = np.array([(*box[:4], box[6]) for box in chain])
    likeness = probabilistic_iou(boxes[:, None], boxes)
    assert likeness[0, 1] > 0.5 and likeness[1, 2] > 0.5 and likeness[0, 2] < 0.7
    found = open_as('yolov8_obb', 'output0 (1, ?, ?)')(
        {'output0': head(*chain)},
        WHOLE,
        Thresholds(score=0.25, iou=float(likeness[0, 2] + likeness[0, 1]) / 2, max_detections=9),
    )
    assert found.scores.tolist() == pytest.approx([0.9, 0.7])
    found = decode(head((-5, 50, 40, 10, 0, 0.9, 0.0), (-5, 120, 40, 5, 0, 0.8, math.pi / 2)))
    assert found.cxcywh.tolist() == [[-5, 50, 40, 10]]


def test_end_to_end_rows_hold_angle_after_class():
    output = np.zeros((1, 9, 7), np.float32)
    output[0, 3] = 50, 60, 20, 10, 0.9, 1, 0.25
    output[0, 4] = 50, 60, 20, 10, 0.8, 1, 0.25
    found = decode(output, is_decoded=True)
    assert found.cxcywh.tolist() == [[50, 60, 20, 10]] * 2
    assert found.theta.tolist() == [0.25, 0.25]


@pytest.mark.parametrize('bad', [np.nan, np.inf])
@pytest.mark.parametrize('where', range(7))
def test_non_finite_scores_never_pass(where, bad):
    output = head((50, 50, 20, 20, 1, 0.9, 0.1), (150, 150, 20, 20, 0, 0.8, 0.1))
    output[0, where, 0] = bad
    assert decode(output).scores.tolist() == pytest.approx([0.8])
