import numpy as np
import pytest

from support.descriptions import head as open_as
from trt_ros.vision.letterbox import Letterbox
from trt_ros.vision.thresholds import Thresholds

WHOLE = Letterbox.fit((200, 200), (200, 200), 'stretch')


def head(*anchors, points=2, values=3, count=20, dtype=np.float32):
    """Each (cx, cy, w, h, score, *keypoints); one class."""
    output = np.zeros((1, 5 + points * values, count), dtype)
    for index, anchor in enumerate(anchors):
        output[0, :, index] = anchor
    return output


def decode(output, letterbox=WHOLE, *, points=2, values=3, is_decoded=False):
    metadata = {'task': 'pose', 'kpt_shape': f'[{points}, {values}]'}
    if is_decoded:
        metadata['end2end'] = 'True'
    return open_as('yolov8_pose', 'output0 (1, ?, ?)', **metadata)(
        {'output0': output}, letterbox, Thresholds(score=0.25, iou=0.5, max_detections=100)
    )


def test_keypoints_come_back_in_image_pixels_and_may_lie_outside():
    letterbox = Letterbox.fit((1280, 960), (640, 640), 'letterbox')
    found = decode(head((50, 120, 20, 10, 0.9, 40, 100, 0.5, -5, 70, 0.1)), letterbox)
    assert found.detections.xyxy.tolist() == [[80, 70, 120, 90]]
    assert found.keypoints[0, :, :2].tolist() == [[80, 40], [-10, -20]]
    assert found.keypoints[0, :, 2].tolist() == pytest.approx([0.5, 0.1])
    assert found.keypoints.dtype == np.float32


def test_keypoints_stay_with_their_box():
    found = decode(
        head(
            (50, 50, 20, 20, 0.6, 0, 1, 1, 3, 4, 1),
            (51, 50, 20, 20, 0.8, 10, 11, 1, 13, 14, 0),
            (150, 50, 20, 20, 0.7, 20, 21, 0, 23, 24, 1),
        )
    )
    assert found.detections.scores.tolist() == pytest.approx([0.8, 0.7])
    assert found.keypoints.reshape(2, 6).tolist() == [
        [10, 11, 1, 13, 14, 0],
        [20, 21, 0, 23, 24, 1],
    ]


def test_keypoints_without_visibility_count_as_visible():
    found = decode(head((50, 50, 20, 20, 0.6, 1, 2, 3, 4), values=2), values=2)
    assert found.keypoints.tolist() == [[[1, 2, 1], [3, 4, 1]]]


def test_visibilities_beyond_the_range_by_rounding_are_limited():
    found = decode(head((50, 50, 20, 20, 0.6, 1, 2, 1.0005, 3, 4, -0.0005)))
    assert found.keypoints[..., 2].tolist() == [[1, 0]]


def test_end_to_end_rows_hold_keypoints_after_class():
    output = np.zeros((1, 9, 12), np.float32)
    output[0, 2] = 40, 40, 60, 60, 0.5, 0, 1, 2, 0.25, 3, 4, 0.75
    found = decode(output, is_decoded=True)
    assert found.detections.xyxy.tolist() == [[40, 40, 60, 60]]
    assert found.keypoints.tolist() == [[[1, 2, 0.25], [3, 4, 0.75]]]


def test_a_keypoint_that_is_not_finite_is_not_visible():
    found = decode(head((50, 50, 20, 20, 0.6, np.nan, 2, 0.9, 3, np.inf, 0.8)))
    assert found.keypoints.tolist() == [[[0, 0, 0], [0, 0, 0]]]
    found = decode(head((50, 50, 20, 20, 0.6, 1, 2, np.nan, 3, 4, 0.5)))
    assert found.keypoints.tolist() == [[[0, 0, 0], [3, 4, 0.5]]]
