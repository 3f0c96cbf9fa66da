"""Palm detection of MediaPipe: its decoding in the OpenCV zoo of random outputs."""

from __future__ import annotations

import numpy as np
import pytest

from trt_ros.tensors import TensorSpec
from trt_ros.vision.decoders.family import NetworkDescription
from trt_ros.vision.decoders.palms import MEDIAPIPE_PALM
from trt_ros.vision.letterbox import Letterbox
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
    specs = tuple(
        TensorSpec(name, value.shape, 'float32', 'output')
        for name, value in (('Identity', rows), ('Identity_1', logits))
    )
    image = TensorSpec('input_1', (1, 192, 192, 3), 'float32', 'input')
    head = MEDIAPIPE_PALM.open(NetworkDescription((image,), specs, {}, (192, 192)))
    whole = Letterbox.fit((192, 192), (192, 192), 'stretch')
    found = head({'Identity': rows, 'Identity_1': logits}, whole, ASKED)
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
