"""Keypoints of boxes, priors and masks of some families, and landmarks of faces from 0 to 1."""

import numpy as np
import pytest

from support.descriptions import head as open_as
from trt_ros.decode.choice import open_head
from trt_ros.errors import ScoreRangeError
from trt_ros.families.keypoints import PFLD
from trt_ros.vision.letterbox import Letterbox
from trt_ros.vision.thresholds import Thresholds

HW = (64, 96)
WHOLE = Letterbox.fit((96, 64), HW, 'stretch')
FIVE = np.array([[0, 0], [1, 0], [0.5, 0.5], [0, 1], [1, 1]], np.float32)


def decode(family, outputs, letterbox=WHOLE, **known):
    head = open_as(family, outputs, hw=letterbox.input_hw, **known)
    return head(outputs, letterbox, Thresholds(score=0.25, iou=0.5))


def pose(*anchors):
    """Decode (cx, cy, w, h, score, x, y, visibility, x, y, visibility) of YOLOv8-pose."""
    output = np.zeros((1, 11, 20), np.float32)
    output[0, :, : len(anchors)] = np.transpose(anchors)
    return decode('yolov8_pose', {'output0': output}, task='pose', kpt_shape='[2, 3]')


@pytest.mark.parametrize(
    ('given', 'visible'),
    [
        ((1, 2, 1.0005, 3, 4, -0.0005), [[1, 2, 1], [3, 4, 0]]),  # Rounding.
        ((np.nan, 2, 0.9, 3, np.inf, 0.8), [[0, 0, 0], [0, 0, 0]]),
        ((1, 2, np.nan, 3, 4, 0.5), [[0, 0, 0], [3, 4, 0.5]]),
    ],
)
def test_visibilities_are_0_to_1_and_0_where_a_value_is_not_finite(given, visible):
    assert pose((30, 30, 20, 20, 0.6, *given)).keypoints[0].tolist() == visible


def scrfd():
    sizes = {'score': 1, 'bbox': 4, 'kps': 10}
    return {
        f'{name}_{stride}': np.zeros((2 * cells, size), np.float32)
        for name, size in sizes.items()
        for stride, cells in ((8, 96), (16, 24), (32, 6))
    }


def test_landmarks_stay_with_their_face_and_are_visible_if_finite():
    outputs = scrfd()
    outputs['score_32'][:2, 0], outputs['bbox_32'][:2, 2:] = (0.6, 0.8), 1
    outputs['kps_32'][0], outputs['kps_32'][1] = 0.6, 0.8
    outputs['kps_32'][1, 2] = np.nan
    found = decode('scrfd', outputs)
    assert found.detections.scores.tolist() == pytest.approx([0.8])
    assert found.keypoints[0, 0, :2].tolist() == pytest.approx([25.6, 25.6])
    assert found.keypoints[0, :, 2].tolist() == [1, 0, 1, 1, 1]


@pytest.mark.parametrize(
    ('stride', 'anchor', 'side'), [(8, 1, 16), (16, 0, 32), (32, 1, 96), (64, 2, 256)]
)
def test_yunet_of_2022_has_priors_and_a_limited_objectness(stride, anchor, side):
    hw, per_cell = (128, 192), {8: 3, 16: 2, 32: 2, 64: 3}
    sizes = [(hw[0] // each) * (hw[1] // each) * per_cell[each] for each in per_cell]
    outputs = {
        name: np.zeros((sum(sizes), size), np.float32)
        for name, size in (('loc', 14), ('conf', 2), ('iou', 1))
    }
    row, column = 1, 2
    place = sum(sizes[: [*per_cell].index(stride)]) + anchor
    place += (row * hw[1] // stride + column) * per_cell[stride]
    loc = [0.2, -0.1, -3, -4, *FIVE.ravel()]
    outputs['loc'][place], outputs['conf'][place], outputs['iou'][place] = loc, (0.5, 0.49), 1.2
    outputs['conf'][0], outputs['iou'][0] = (0, 1), -0.1
    found = decode('yunet_2022', outputs, Letterbox.fit(hw[::-1], hw, 'stretch'))
    at = np.array([column + 0.5, row + 0.5]) * stride
    center, half = at + 0.1 * side * np.array([0.2, -0.1]), side * np.exp([-0.6, -0.8]) / 2
    expected = np.clip([*(center - half), *(center + half)], 0, [*hw[::-1]] * 2)
    np.testing.assert_allclose(found.detections.xyxy, [expected], atol=1e-3)
    assert found.detections.scores == pytest.approx([0.7])
    np.testing.assert_allclose(found.keypoints[0, :, :2], at + 0.1 * side * FIVE, atol=1e-3)


def test_keypoints_of_one_person_are_scores_in_the_letterbox():
    letterbox = Letterbox.fit((512, 288), (192, 256), 'letterbox')  # 24 rows of padding.
    points = np.full((1, 1, 17, 3), 0.5, np.float32)
    points[..., 3, 2], points[..., 5, :2] = np.nan, (3e38, -3e38)
    found = decode('movenet', {'output_0': points}, letterbox)
    assert found.keypoints[0, 4].tolist() == [256, (96 - 24) * 2, 0.5]
    assert found.keypoints[0, 3, 2] == 0 and np.isfinite(found.keypoints).all()
    head = open_as('movenet', {'output_0': points}, hw=(192, 256))
    assert (head.keypoint_count, head.takes_regions) == (17, True)
    assert not open_as('movenet', 'output_0 (1, 6, 56)', hw=(192, 256)).takes_regions
    points[..., 3, 2] = 7
    with pytest.raises(ScoreRangeError, match='a score of 7'):
        decode('movenet', {'output_0': points}, letterbox)


@pytest.mark.parametrize(('channels', 'points'), [(21, 5), (57, 17)])
def test_the_values_of_yolov7_pose_are_those_of_its_keypoints(channels, points):
    assert open_as('yolov7_pose', f'out (1, 378, {channels})', hw=HW).keypoint_count == points


@pytest.mark.parametrize('classes', [1, 3])
def test_masks_of_yolov5_are_those_of_the_coefficients(classes):
    hw, scores = (64, 64), [*np.full(classes - 1, 0.1), 0.5]
    output = np.zeros((1, 252, 7 + classes), np.float32)
    output[0, 0] = [32, 32, 32, 32, 0.75, *scores, 1.0, 0.0]
    output[0, 1] = [32, 8, 32, 16, 0.75, *scores, 0.0, 1.0]
    protos = np.full((1, 2, 16, 16), -5, np.float32)
    protos[0, 0, :, :8] = 5  # The left half.
    protos[0, 1] = 5  # Everywhere.
    twice = Letterbox.fit((128, 128), hw, 'letterbox')
    found = decode('yolov5_seg', {'out': output, 'protos': protos}, twice)
    assert found.detections.scores.tolist() == [0.375, 0.375]
    assert found.detections.labels.tolist() == [classes - 1] * 2
    assert found.origins_xy.tolist() == [[32, 32], [32, 0]]
    left, whole = found.masks
    assert (left.shape, left[:, :32].all(), left[:, 32:].any()) == ((64, 64), True, False)
    assert (whole.shape, whole.all()) == ((32, 64), True)


@pytest.mark.parametrize('count', [5, 68, 98])
def test_landmarks_are_shares_of_the_image(network, count):
    values = np.random.default_rng(0).uniform(0, 1, (1, 2 * count)).astype(np.float32)
    head = open_head(PFLD, network(f'out (1, {2 * count})', hw=(112, 112)))
    assert head.keypoint_count == count and head.region_scale == 1.1
    twice = Letterbox.fit((224, 112), (112, 112), 'stretch')
    (found,) = head({'out': values}, twice, Thresholds())
    np.testing.assert_allclose(
        found.keypoints[:, :2], values.reshape(-1, 2) * (224, 112), rtol=1e-5
    )
    assert found.keypoints[:, 2].tolist() == [1] * count
