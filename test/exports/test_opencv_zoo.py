"""Palms and hands of MediaPipe: their decoding in the OpenCV zoo of random outputs."""

import numpy as np
import pytest

from support.descriptions import head as open_as
from trt_ros.families.faces import hand_regions
from trt_ros.results.boxes import Detections
from trt_ros.results.poses import Poses
from trt_ros.vision.letterbox import Letterbox, Preprocess
from trt_ros.vision.regions import Crop
from trt_ros.vision.thresholds import Thresholds

#: The zoo passes corners to an NMS of widths and heights, which suppresses more: so without it.
ASKED = Thresholds(score=0.5, iou=1.0, max_detections=5000)


def test_palms_equal_the_zoos():
    pytest.importorskip('cv2', reason='the zoo decodes with it')
    zoo = pytest.importorskip(
        'mp_palmdet',
        reason='PYTHONPATH=opencv_zoo/models/palm_detection_mediapipe: git clone '
        'https://github.com/opencv/opencv_zoo',
    )
    rng = np.random.default_rng(0)
    rows = np.hstack(
        [rng.normal(0, 4, (2016, 2)), rng.uniform(10, 60, (2016, 2)), rng.normal(0, 9, (2016, 14))]
    ).astype(np.float32)[None]
    logits = rng.normal(-2.5, 1.5, (1, 2016, 1)).astype(np.float32)
    own = zoo.MPPalmDet.__new__(zoo.MPPalmDet)  # Without the network, which is in Git LFS.
    own.input_size = np.array([192, 192])
    own.score_threshold, own.nms_threshold, own.topK = ASKED.score, 0.3, 5000
    own.anchors = own._load_anchors()
    expected = own._postprocess([rows, logits], np.array([192, 192]), np.zeros(2))
    outputs = {'Identity': rows, 'Identity_1': logits}
    whole = Letterbox.fit((192, 192), (192, 192), 'stretch')
    found = open_as('mediapipe_palm', outputs, hw=(192, 192))(outputs, whole, ASKED)
    assert 10 < len(expected) < len(found)
    same = np.abs(found.detections.scores - expected[:, -1:]).argmin(axis=1)
    np.testing.assert_allclose(found.detections.scores[same], expected[:, -1], atol=1e-5)
    # The zoo does not clip boxes to the image.
    np.testing.assert_allclose(
        found.detections.xyxy[same], np.clip(expected[:, :4], 0, 192), atol=0.05
    )
    np.testing.assert_allclose(
        found.keypoints[same, :, :2].reshape(-1, 14), expected[:, 4:-1], atol=0.05
    )


def zoo_hands():
    pytest.importorskip('cv2', reason='the zoo rotates with it')
    zoo = pytest.importorskip(
        'mp_handpose',
        reason='PYTHONPATH=opencv_zoo/models/handpose_estimation_mediapipe: git clone '
        'https://github.com/opencv/opencv_zoo',
    )
    own = zoo.MPHandPose.__new__(zoo.MPHandPose)  # Without the network, which is in Git LFS.
    own.conf_threshold, own.input_size = 0.5, np.array([224, 224])
    own.PALM_LANDMARKS_INDEX_OF_PALM_BASE, own.PALM_LANDMARKS_INDEX_OF_MIDDLE_FINGER_BASE = 0, 2
    own.PALM_BOX_PRE_SHIFT_VECTOR, own.PALM_BOX_PRE_ENLARGE_FACTOR = [0, 0], 4
    own.PALM_BOX_SHIFT_VECTOR, own.PALM_BOX_ENLARGE_FACTOR = [0, -0.4], 3
    own.HAND_BOX_SHIFT_VECTOR, own.HAND_BOX_ENLARGE_FACTOR = [0, -0.1], 1.65
    return own


@pytest.mark.parametrize('angle', [0.0, 0.6, -1.2, 2.5])
def test_hands_in_the_regions_of_palms_equal_the_zoos(angle):
    """The zoo truncates its boxes to whole pixels, twice."""
    own, rng = zoo_hands(), np.random.default_rng(0)
    palm = np.array([[0, 0], [-20, -50], [-2, -52], [10, -50], [20, -44], [-22, -10], [-24, -30]])
    turn = np.array([[np.cos(angle), np.sin(angle)], [-np.sin(angle), np.cos(angle)]])
    points = palm @ turn + [330, 260]
    box = np.hstack([points.min(axis=0), points.max(axis=0)])
    image = rng.integers(0, 256, (480, 640, 3), dtype=np.uint8)
    _, hand_box, degrees, matrix, bias = own._preprocess(image, np.hstack([box, points.ravel()]))
    landmarks = rng.uniform(20, 200, (1, 63)).astype(np.float32)
    outputs = {
        'Identity': landmarks,
        'Identity_1': np.full((1, 1), 0.875, np.float32),
        'Identity_2': np.full((1, 1), 0.25, np.float32),
        'Identity_3': np.zeros((1, 63), np.float32),
    }
    expected = own._postprocess(
        [values.copy() for values in outputs.values()], hand_box, degrees, matrix, bias
    )

    keypoints = np.hstack([points, np.ones((7, 1))]).astype(np.float32)[None]
    found = Detections(box.astype(np.float32)[None], np.ones(1, np.float32), np.zeros(1, np.int32))
    regions = hand_regions(Poses(found, keypoints))
    head = open_as('mediapipe_hand', outputs, hw=(224, 224))
    crop = Crop(Preprocess((224, 224)), head.region_scale)
    (affine,) = crop.maps(np.column_stack([regions.cxcywh, regions.theta]))
    hand = head(outputs, crop.letterbox).to_source(affine)
    np.testing.assert_allclose(
        hand.keypoints[0, :, :2], expected[4:67].reshape(21, 3)[:, :2], atol=4
    )
    assert (hand.detections.scores[0], expected[131]) == (0.875, 0.875)
    name = head.own_class_names[hand.detections.labels[0]]
    assert name == ('left' if expected[130] <= 0.5 else 'right')
