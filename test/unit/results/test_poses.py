"""Which keypoints are published."""

import numpy as np
import pytest

from trt_ros.results.boxes import Detections
from trt_ros.results.poses import Poses

NOTHING = Poses(Detections.empty(), np.zeros((0, 3, 3), np.float32))


def test_no_objects_have_no_keypoints():
    boxes = NOTHING.keypoint_boxes(0.5)
    assert len(boxes) == len(boxes.ids) == 0


@pytest.mark.parametrize(
    ('threshold', 'labels', 'places'),
    [
        (0.0, [0, 1, 2, 0, 1, 2], [0, 0, 0, 1, 1, 1]),
        (0.5, [1, 2, 0], [0, 0, 1]),
        (0.51, [2], [0]),
        (1.0, [], []),
    ],
)
def test_keypoints_as_visible_as_the_threshold_or_more_are_published(threshold, labels, places):
    points = np.zeros((2, 3, 3), np.float32)
    points[..., 0] = [[1, 2, 3], [4, 5, 6]]
    points[..., 2] = [[0.25, 0.5, 0.75], [0.5, 0.125, 0]]
    boxes = Poses(Detections.empty(), points).keypoint_boxes(threshold)
    assert (boxes.labels.tolist(), boxes.ids.tolist()) == (labels, places)
    assert boxes.scores.tolist() == points[places, labels, 2].tolist()
    assert boxes.cxcywh[:, 0].tolist() == points[places, labels, 0].tolist()
