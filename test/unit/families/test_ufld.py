import numpy as np
import pytest

from support.descriptions import head
from trt_ros.vision.class_choice import ClassThresholds
from trt_ros.vision.letterbox import Letterbox
from trt_ros.vision.thresholds import Thresholds

INPUT = Letterbox.fit((800, 288), (288, 800), 'stretch')


def outputs(lanes, rows=18, columns=200, logit=20.0):
    """Each lane {row: column}; "no lane" at the other rows."""
    logits = np.zeros((1, columns + 1, rows, 4))
    logits[:, -1] = logit
    for lane, points in lanes.items():
        for row, column in points.items():
            logits[0, -1, row, lane] = 0
            logits[0, column, row, lane] = logit
    return {'out': logits.astype(np.float32)}


def decode(tensors, letterbox=INPUT, score=0.25, max_detections=100):
    thresholds = Thresholds(score, 0.5, max_detections)
    return head('ufld', tensors, hw=INPUT.input_hw)(tensors, letterbox, thresholds)


def test_a_lane_is_a_line_of_keypoints_in_input_pixels():
    found = decode(outputs({2: {3: 99, 4: 100, 5: 101}}))
    assert found.detections.labels.tolist() == [2]
    np.testing.assert_allclose(found.detections.scores, [1], atol=1e-5)
    pitch = 800 / 199
    np.testing.assert_allclose(
        found.keypoints[0, 3:6, :2],
        [(99.5 * pitch, 150), (100.5 * pitch, 160), (101.5 * pitch, 170)],
        atol=0.01,
    )
    assert (found.keypoints[0, :, 2] > 0.5).nonzero()[0].tolist() == [3, 4, 5]
    np.testing.assert_allclose(
        found.detections.xyxy, [[99.5 * pitch, 150, 101.5 * pitch, 170]], atol=0.01
    )


def test_rows_of_tusimple_in_the_pixels_of_the_image():
    letterbox = Letterbox.fit((1280, 720), (288, 800), 'stretch')
    found = decode(outputs({0: dict.fromkeys(range(56), 49)}, rows=56, columns=100), letterbox)
    # The rows 160, 170 .. 710 of TuSimple's annotations.
    np.testing.assert_allclose(found.keypoints[0, :, 1], np.arange(160, 720, 10), atol=1e-3)
    np.testing.assert_allclose(found.keypoints[0, :, 0], 49.5 * 1280 / 99, atol=0.01)


def test_a_point_between_columns_is_their_mean():
    tensors = outputs({1: {3: 50, 4: 50, 5: 50}})
    tensors['out'][0, 51, 3:6, 1] = 20
    found = decode(tensors)
    np.testing.assert_allclose(found.keypoints[0, 3, 0], 51 * 800 / 199, atol=0.01)


def test_lanes_of_two_points_or_of_a_low_score_are_left_out():
    lanes = {0: {1: 5, 2: 6}, 1: {1: 9, 2: 9, 3: 9}}
    assert decode(outputs(lanes)).detections.labels.tolist() == [1]
    unsure = outputs({3: {1: 9, 2: 9, 3: 9}})
    unsure['out'][0, -1, 1:4, 3] = 19.9
    assert decode(unsure, score=0.5).detections.labels.tolist() == [3]
    assert len(decode(unsure, score=0.6)) == 0


@pytest.mark.parametrize(
    'value, points', [(np.nan, [1, 3, 4]), (np.inf, [1, 3, 4]), (-np.inf, [1, 2, 3, 4])]
)
def test_rows_with_nan_or_infinity_have_no_point_but_a_cell_may_be_impossible(value, points):
    tensors = outputs({0: {1: 9, 2: 9, 3: 9, 4: 9}})
    tensors['out'][0, 7, 2, 0] = value
    found = decode(tensors)
    assert found.keypoints[0, :, 2].nonzero()[0].tolist() == points
    assert np.isfinite(found.keypoints).all()


def test_lanes_are_chosen_before_the_limit():
    points = {row: 99 for row in range(3, 9)}
    tensors = outputs({0: points, 1: points, 2: points})
    asked = Thresholds(0.25, max_detections=1, classes=['2', '3'])
    found = head('ufld', tensors)(tensors, INPUT, ClassThresholds.of(asked, ()))
    assert found.detections.labels.tolist() == [2]
