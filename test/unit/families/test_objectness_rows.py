"""YOLOv5-seg, YOLOv5-face and YOLOv7-pose."""

import numpy as np
import pytest

from trt_ros.decode.choice import open_head
from trt_ros.families.yolo_tasks import YOLOV5_FACE, YOLOV5_SEG, YOLOV7_POSE
from trt_ros.vision.letterbox import Letterbox
from trt_ros.vision.thresholds import Thresholds

HW = (64, 64)
COUNT = 3 * (64 + 16 + 4)
TWICE = Letterbox.fit((128, 128), HW, 'letterbox')
THRESHOLDS = Thresholds(score=0.25, iou=0.5, max_detections=100)
POINTS = list(range(10, 20))


def rows(channels, *anchors, dtype=np.float32):
    output = np.zeros((1, COUNT, channels), dtype)
    output[0, : len(anchors)] = np.array(anchors).reshape(len(anchors), channels)
    return output


@pytest.fixture
def face(network):
    head = open_head(YOLOV5_FACE, network(f'out (1, {COUNT}, 16)', hw=HW))
    return lambda output: head({'out': output}, TWICE, THRESHOLDS)


@pytest.mark.parametrize('dtype', [np.float32, np.float16])
def test_a_face_has_its_landmarks_before_the_class_score(face, dtype):
    found = face(rows(16, [30, 20, 20, 10, 0.75, *POINTS, 0.5], dtype=dtype))
    assert found.detections.xyxy.tolist() == [[40, 30, 80, 50]]
    assert found.detections.scores.tolist() == [0.375]
    assert found.detections.labels.tolist() == [0]
    xy = np.array(POINTS).reshape(5, 2) * 2
    assert found.keypoints.tolist() == [[[x, y, 1] for x, y in xy]]


@pytest.mark.parametrize('points', [5, 17])
def test_yolov7_pose_has_its_keypoints_after_the_class_score(network, points):
    channels = 6 + 3 * points
    head = open_head(YOLOV7_POSE, network(f'out (1, {COUNT}, {channels})', hw=HW))
    keypoints = np.stack([np.arange(points), np.arange(points) + 1, np.full(points, 0.5)], axis=1)
    output = rows(channels, [30, 20, 20, 10, 0.75, 0.5, *keypoints.ravel()])
    found = head({'out': output}, TWICE, THRESHOLDS)
    assert found.detections.xyxy.tolist() == [[40, 30, 80, 50]]
    assert found.detections.scores.tolist() == [0.375]
    assert found.keypoints[0].tolist() == (keypoints * [2, 2, 1]).tolist()
    assert head.keypoint_count == points


@pytest.mark.parametrize('classes', [1, 3])
def test_masks_are_those_of_the_coefficients(network, classes):
    channels = 5 + classes + 2
    outputs = f'out (1, {COUNT}, {channels}); protos (1, 2, 16, 16)'
    head = open_head(YOLOV5_SEG, network(outputs, hw=HW))
    assert head.class_count == classes
    scores = [*np.full(classes - 1, 0.1), 0.5]
    output = rows(
        channels,
        [32, 32, 32, 32, 0.75, *scores, 1.0, 0.0],
        [32, 8, 32, 16, 0.75, *scores, 0.0, 1.0],
    )
    protos = np.full((1, 2, 16, 16), -5, np.float32)
    protos[0, 0, :, :8] = 5  # The left half.
    protos[0, 1] = 5  # Everywhere.
    found = head({'out': output, 'protos': protos}, TWICE, THRESHOLDS)
    assert found.detections.scores.tolist() == [0.375, 0.375]
    assert found.detections.labels.tolist() == [classes - 1] * 2
    assert found.origins_xy.tolist() == [[32, 32], [32, 0]]
    left, whole = found.masks
    assert (left.shape, left[:, :32].all(), left[:, 32:].any()) == ((64, 64), True, False)
    assert (whole.shape, whole.all()) == ((32, 64), True)
