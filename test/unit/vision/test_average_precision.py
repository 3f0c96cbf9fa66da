"""Mean average precision, against cases computed by hand."""

import numpy as np
import pytest

from support.objects import detections
from trt_ros.results.boxes import Detections
from trt_ros.vision.average_precision import average_precision, average_precisions, matches

BOX, OTHER = (0, 0, 10, 10), (50, 50, 70, 60)


def found(*each: tuple[tuple[float, ...], float, int]) -> Detections:
    """Detections, each (box, score, label), best first."""
    boxes, scores, labels = zip(*each) if each else ((), (), ())
    return detections(*boxes, score=scores, label=labels)


def truth(*each: tuple[tuple[float, ...], int]) -> tuple[np.ndarray, np.ndarray]:
    boxes, labels = zip(*each) if each else ((), ())
    return np.array(boxes, np.float32).reshape(-1, 4), np.array(labels, np.int32)


SHIFTED = (2, 0, 12, 10)


@pytest.mark.parametrize(
    ('detected', 'true', 'is_right'),
    [
        ([], [(BOX, 0)], []),
        ([(BOX, 0.9, 0)], [], [False]),
        ([(BOX, 0.9, 0), (BOX, 0.8, 0)], [(BOX, 0)], [True, False]),  # Found twice.
        ([(BOX, 0.9, 1)], [(BOX, 0)], [False]),  # Of another class.
        ([((0, 0, 5.1, 10), 0.9, 0)], [(BOX, 0)], [True]),  # IoU is a tenth of the width.
        ([((0, 0, 4.9, 10), 0.9, 0)], [(BOX, 0)], [False]),
        ([(SHIFTED, 0.9, 0), (BOX, 0.8, 0)], [(BOX, 0), (SHIFTED, 0)], [True, True]),
    ],
)
def test_a_box_is_right_from_iou_of_half_to_the_nearest_truth_of_its_class(
    detected, true, is_right
):
    assert matches(found(*detected), *truth(*true)).tolist() == is_right


@pytest.mark.parametrize(
    ('scores', 'right', 'count', 'expected'),
    [
        ([], [], 3, 0),
        ([0.5], [False], 0, np.nan),  # A class that is never there.
        # Right, wrong, right, of 4: precision 1 at recall 1/4, 2/3 at recall 2/4, nothing beyond.
        ([0.7, 0.9, 0.8], [True, True, False], 4, 1 / 4 + 2 / 3 / 4),
        # Wrong, right, right, of 2: precisions 0, 1/2, 2/3; both recalls get 2/3.
        ([0.9, 0.8, 0.7], [False, True, True], 2, 2 / 3),
    ],
)
def test_precision_at_each_recall_is_the_best_there_or_beyond(scores, right, count, expected):
    precision = average_precision(np.array(scores), np.array(right, bool), count)
    assert precision == pytest.approx(expected, nan_ok=True)


def test_classes_are_counted_apart_and_over_all_pictures():
    pictures = [
        (found((BOX, 0.9, 0), (OTHER, 0.8, 1)), *truth((BOX, 0), (OTHER, 1))),
        (found((OTHER, 0.95, 1)), *truth((BOX, 0))),
        (found(), *truth()),
    ]
    # Class 0: one of two found. Class 1: a wrong one before the right one. Class 2: never there.
    precisions = average_precisions(pictures, class_count=3)
    assert precisions[:2].tolist() == [pytest.approx(0.5), pytest.approx(0.5)]
    assert np.isnan(precisions[2])
