"""Agreement of boxes with those of a reference."""

import numpy as np
import pytest

from trt_ros.results.boxes import Detections
from trt_ros.runtime.agreement import BoxAgreement

BOX, WIDER, APART = (0, 0, 10, 10), (0, 0, 16, 10), (50, 0, 60, 10)


def boxes(*rows):
    labels = np.array([label for *_, label in rows], np.int32)
    xyxy = np.array([box for box, _ in rows], np.float32).reshape(-1, 4)
    return Detections(xyxy, np.full(len(rows), 0.9, np.float32), labels)


@pytest.mark.parametrize(
    ('got', 'want', 'matched', 'min_iou'),
    [
        ([], [], 0, 1.0),
        ([(BOX, 0), (APART, 1)], [(WIDER, 0), (APART, 1)], 2, 10 / 16),
        ([(BOX, 0)], [(BOX, 0), (WIDER, 0)], 1, 1.0),  # A box matches once.
        ([(BOX, 0)], [(BOX, 1)], 0, 1.0),  # Of another class.
        ([(BOX, 0)], [(APART, 0)], 0, 1.0),
    ],
)
def test_boxes_match_those_of_their_class_once(got, want, matched, min_iou):
    found = BoxAgreement.of(boxes(*got), boxes(*want))
    assert (found.ours, found.reference, found.matched) == (len(got), len(want), matched)
    assert found.min_iou == pytest.approx(min_iou)
