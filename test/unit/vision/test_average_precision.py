"""Mean average precision, against cases computed by hand."""

import numpy as np
import pytest

from trt_ros.results.boxes import Detections
from trt_ros.vision.average_precision import average_precision, average_precisions, matches

BOX, OTHER = (0, 0, 10, 10), (50, 50, 70, 60)


def found(*each: tuple[tuple[float, ...], float, int]) -> Detections:
    """Detections, each (box, score, label), best first."""
    boxes, scores, labels = zip(*each) if each else ((), (), ())
    return Detections(
        np.array(boxes, np.float32).reshape(-1, 4),
        np.array(scores, np.float32),
        np.array(labels, np.int32),
    )


def truth(*each: tuple[tuple[float, ...], int]) -> tuple[np.ndarray, np.ndarray]:
    boxes, labels = zip(*each) if each else ((), ())
    return np.array(boxes, np.float32).reshape(-1, 4), np.array(labels, np.int32)


def test_no_detections_have_zero_precision():
    assert matches(found(), *truth((BOX, 0))).tolist() == []
    assert average_precision(np.zeros(0), np.zeros(0, bool), 3) == 0.0


def test_detections_without_truth_are_all_wrong():
    assert matches(found((BOX, 0.9, 0)), *truth()).tolist() == [False]


def test_class_without_truth_has_no_precision():
    assert np.isnan(average_precision(np.array([0.5]), np.array([False]), 0))


def test_a_box_found_twice_counts_once():
    twice = found((BOX, 0.9, 0), (BOX, 0.8, 0))
    assert matches(twice, *truth((BOX, 0))).tolist() == [True, False]


def test_the_class_has_to_be_right():
    assert matches(found((BOX, 0.9, 1)), *truth((BOX, 0))).tolist() == [False]


@pytest.mark.parametrize(('width', 'is_right'), [(5.1, True), (4.9, False)])
def test_box_is_correct_from_iou_of_half(width, is_right):
    part = found(((0, 0, width, 10), 0.9, 0))  # IoU is width / 10.
    assert matches(part, *truth((BOX, 0))).tolist() == [is_right]


def test_box_matches_truth_of_highest_iou():
    shifted = (2, 0, 12, 10)
    assert matches(
        found((shifted, 0.9, 0), (BOX, 0.8, 0)), *truth((BOX, 0), (shifted, 0))
    ).tolist() == [True, True]


def test_average_precision_by_hand():
    # Right, wrong, right, of 4: precision 1 at recall 1/4, 2/3 at recall 2/4, nothing beyond.
    scores, right = np.array([0.7, 0.9, 0.8]), np.array([True, True, False])
    assert average_precision(scores, right, 4) == pytest.approx(1 / 4 + 2 / 3 / 4)


def test_precision_is_the_best_at_that_recall_or_beyond():
    # Wrong, right, right, of 2: precisions 0, 1/2, 2/3; both recalls get 2/3.
    scores, right = np.array([0.9, 0.8, 0.7]), np.array([False, True, True])
    assert average_precision(scores, right, 2) == pytest.approx(2 / 3)


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
