"""MoveNet of one person and of several."""

import numpy as np
import pytest

from trt_ros.decode.choice import open_head
from trt_ros.errors import ScoreRangeError
from trt_ros.families.keypoints import MOVENET
from trt_ros.vision.letterbox import Letterbox
from trt_ros.vision.thresholds import Thresholds

HW = (192, 256)
#: An image of 512 x 288: 144 rows of the input between 24 rows of padding.
BOX = Letterbox.fit((512, 288), HW, 'letterbox')
THRESHOLDS = Thresholds(score=0.25, iou=0.5, max_detections=100)


def person(dtype=np.float32):
    """Make keypoints on a diagonal of the input, with scores from 0 to 1."""
    share = np.arange(17) / 16
    return np.stack([share, share / 2, share], axis=1).astype(dtype)


def in_image(dtype=np.float32):
    """Return where they are in the image: x, y and score."""
    share = np.arange(17) / 16
    return np.stack([share / 2 * 512, (share * 192 - 24) * 2, share], axis=1).astype(dtype)


@pytest.mark.parametrize('dtype', [np.float32, np.float16])
def test_one_person_fills_the_input(network, dtype):
    head = open_head(MOVENET, network('output_0 (1, 1, 17, 3)', hw=HW))
    found = head({'output_0': person(dtype)[None, None]}, BOX, THRESHOLDS)
    assert found.keypoints.tolist() == [in_image().tolist()]
    assert found.detections.xyxy.tolist() == [[0, 0, 512, 288]]
    assert found.detections.scores.tolist() == [0.5]
    assert (head.keypoint_count, head.takes_regions) == (17, True)


def test_a_keypoint_with_nan_is_not_visible(network):
    head = open_head(MOVENET, network('output_0 (1, 1, 17, 3)', hw=HW))
    points = person()
    points[3, 2] = np.nan
    found = head({'output_0': points[None, None]}, BOX, THRESHOLDS)
    assert found.keypoints[0, 3, 2] == 0 and found.keypoints[0, 4, 2] > 0


def people(*found, dtype=np.float32):
    """Make six rows of keypoints, box (y1, x1, y2, x2) and score."""
    rows = np.zeros((1, 6, 56), dtype)
    for row, (box, score) in zip(rows[0], found):
        row[:51], row[51:55], row[55] = person(dtype).ravel(), box, score
    return {'output_0': rows}


@pytest.mark.parametrize('dtype', [np.float32, np.float16])
def test_people_have_boxes_and_scores_of_their_own(network, dtype):
    head = open_head(MOVENET, network('output_0 (1, 6, 56)', hw=HW))
    outputs = people(
        ((0.25, 0.25, 0.5, 0.75), 0.5),
        ((0.25, 0.25, 0.5, 0.75), 0.125),
        ((0.5, 0.0, 1.0, 0.5), 0.75),
        dtype=dtype,
    )
    found = head(outputs, BOX, THRESHOLDS)
    assert found.detections.xyxy.tolist() == [[0, 144, 256, 288], [128, 48, 384, 144]]
    assert found.detections.scores.tolist() == [0.75, 0.5]
    assert found.detections.labels.tolist() == [0, 0]
    assert found.keypoints.tolist() == [in_image().tolist()] * 2
    assert (head.keypoint_count, head.class_count, head.takes_regions) == (17, 1, False)


def test_keypoints_of_one_person_that_are_no_scores_are_refused(network):
    points = person()
    points[3, 2] = 7
    with pytest.raises(ScoreRangeError, match='a score of 7'):
        open_head(MOVENET, network('output_0 (1, 1, 17, 3)', hw=HW))(
            {'output_0': points[None, None]}, BOX, THRESHOLDS
        )


def test_keypoints_far_beyond_the_image_stay_finite(network):
    head = open_head(MOVENET, network('output_0 (1, 1, 17, 3)', hw=HW))
    points = np.array(person())
    points[3, :2] = 3e38, -3e38
    found = head({'output_0': points[None, None]}, BOX, THRESHOLDS)
    assert np.isfinite(found.keypoints).all()
