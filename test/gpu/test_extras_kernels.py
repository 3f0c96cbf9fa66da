"""Boxes with keypoints and rotated boxes are decoded as by the NumPy reference."""

import numpy as np
import pytest

from support.box_cases import rounded
from support.descriptions import head as open_as
from trt_ros.vision.class_choice import ClassThresholds
from trt_ros.vision.letterbox import Letterbox
from trt_ros.vision.thresholds import Thresholds

pytestmark = [pytest.mark.gpu, pytest.mark.xdist_group('kernels 3')]

BOX = Letterbox.fit((1920, 1080), (640, 640), 'letterbox')
CHOICE = {'classes': (0, 2), 'class_scores': {2: 0.5}, 'class_agnostic': True}
STRETCHED = Letterbox.fit((1920, 1080), (640, 640), 'stretch')


def rows(count, classes, extras, *, seed=0) -> np.ndarray:
    """Boxes in clusters, cx, cy, w, h, C scores and E extras each: (N, 4 + C + E) float32."""
    rng = np.random.default_rng(seed)
    center = rng.uniform(60, 580, (40, 2))[rng.integers(0, 40, count)]
    scores = rng.uniform(0, 0.2, (count, classes))
    high = np.flatnonzero(rng.random(count) < 0.3)
    scores[high, rng.integers(0, classes, len(high))] = rng.uniform(0.3, 1, len(high))
    boxes = np.hstack([center + rng.normal(0, 6, (count, 2)), rng.uniform(20, 150, (count, 2))])
    return np.hstack([boxes, scores, extras(rng, count)]).astype(np.float32)


def finished(raw, *, are_corners: bool) -> np.ndarray:
    """The same with one score and class each, (N, 6 + E), of which the last rows are unused."""
    classes = 3
    boxes, scores, extras = np.split(raw, [4, 4 + classes], axis=1)
    if are_corners:
        boxes = np.hstack([boxes[:, :2] - boxes[:, 2:] / 2, boxes[:, :2] + boxes[:, 2:] / 2])
    labels = scores.argmax(axis=1).astype(np.float32)
    found = np.column_stack([boxes, scores.max(axis=1), labels, extras])
    found[-30:] = 0
    found[3, 5], found[4, 5] = -1, np.nan
    return found


def keypoints(rng, count, points=17, values=3):
    found = rng.uniform(-20, 660, (count, points, values))
    found[..., 2:] = rng.uniform(0, 1, (count, points, values - 2))
    return found.reshape(count, -1)


def angle(rng, count):
    return rng.uniform(-np.pi / 4, 3 * np.pi / 4, (count, 1))


def decided(rows: np.ndarray, iou: float) -> np.ndarray:
    """
    Return which rows (N, 3 classes, 1 angle) leave no pair whose suppression rounding decides.

    Within 1e-5 of the threshold the IoU in float32 may be on either side: its steps are 6e-8
    close to 0, and logarithms and exponentials of the GPU differ from NumPy's.
    """
    center, size, angle = (rows[:, part].astype(float) for part in (slice(2), slice(2, 4), -1))
    turn = np.moveaxis(
        np.array([[np.cos(angle), -np.sin(angle)], [np.sin(angle), np.cos(angle)]]), -1, 0
    )
    covariance = turn * (size**2 / 12)[:, None] @ np.swapaxes(turn, 1, 2)
    roots = np.sqrt(np.linalg.det(covariance))
    chosen = np.zeros(len(rows), bool)
    for i in range(len(rows)):
        both = covariance[chosen] + covariance[i]
        apart = (center[chosen] - center[i])[..., None]
        distance = (apart * np.linalg.solve(both, apart)).sum(axis=(1, 2)) / 4
        distance += np.log(np.linalg.det(both) / (4 * roots[chosen] * roots[i])) / 2
        overlap = 1 - np.sqrt(-np.expm1(-np.maximum(distance, 0)))
        # No rounding makes an overlap of boxes so far apart.
        chosen[i] = not np.any((np.abs(overlap - iou) < 1e-5) & (distance < 30))
    return chosen


def given(raw: np.ndarray, dtype: str) -> tuple[dict[str, np.ndarray], dict[str, np.ndarray]]:
    """Return the output as the GPU's memory holds it, and as float32."""
    bits, wide = rounded(np.ascontiguousarray(raw, np.float32)[None], dtype)
    return {'head': bits}, {'head': wide}


@pytest.mark.parametrize('dtype', ['float32', 'float16', 'bfloat16'])
@pytest.mark.parametrize('is_decoded', [False, True])
@pytest.mark.parametrize('values', [2, 3])
@pytest.mark.parametrize('letterbox', [BOX, STRETCHED], ids=['letterbox', 'stretch'])
def test_poses_equal_numpy(dtype, is_decoded, values, letterbox, decode_on_gpu):
    raw = rows(2100, 3, lambda rng, count: keypoints(rng, count, 17, values))
    raw[7, 8 + values], raw[9, 9 + values], raw[11, -1] = np.nan, np.inf, np.nan
    metadata = {'task': 'pose', 'kpt_shape': f'[17, {values}]', 'end2end': str(is_decoded)}
    head = open_as('yolov8_pose', 'head (1, ?, ?)', **metadata)
    outputs, wide = given(finished(raw, are_corners=True) if is_decoded else raw.T, dtype)
    chosen = ClassThresholds.of(Thresholds(0.25, 0.5, 300, **CHOICE), ())
    plain = (Thresholds(0.25, 0.5, 300), Thresholds(0.3, 0.7, 7), Thresholds(1.0, 0.7, 7))
    for asked in (*plain, chosen):
        got, counts = decode_on_gpu(head, outputs, letterbox, asked)
        want = head(wide, letterbox, asked)
        assert got.keypoints.shape == want.keypoints.shape
        assert got.detections.labels.tolist() == want.detections.labels.tolist()
        np.testing.assert_array_equal(got.detections.scores, want.detections.scores)
        np.testing.assert_allclose(got.detections.xyxy, want.detections.xyxy, atol=1e-3)
        np.testing.assert_allclose(got.keypoints, want.keypoints, rtol=1e-6, atol=1e-4)
        assert counts[2] == np.count_nonzero(~np.isfinite(wide['head'])) - (is_decoded)


@pytest.mark.parametrize('dtype', ['float32', 'float16', 'bfloat16'])
@pytest.mark.parametrize('is_decoded', [False, True])
@pytest.mark.parametrize('letterbox', [BOX, STRETCHED], ids=['letterbox', 'stretch'])
@pytest.mark.parametrize('iou', [0.0, 0.3, 0.7, 1.0])
def test_rotated_boxes_equal_numpy(dtype, is_decoded, letterbox, iou, decode_on_gpu):
    raw = rows(2100, 3, angle, seed=1)
    high = np.flatnonzero(raw[:, 4:7].max(axis=1) > 0.25)
    _, seen = given(raw[high], dtype)
    raw[high[~decided(seen['head'][0], iou)], 4:7] = 0
    raw[7, -1], raw[8, 2], raw[9, 3], raw[10, 0], raw[11, 1] = np.nan, 0, -4, 6e4, np.inf
    head = open_as('yolov8_obb', 'head (1, ?, ?)', end2end=str(is_decoded))
    outputs, wide = given(finished(raw, are_corners=False) if is_decoded else raw.T, dtype)
    chosen = ClassThresholds.of(Thresholds(0.25, iou, 1000, **CHOICE), ())
    for asked in (Thresholds(0.25, iou, 1000), Thresholds(0.3, iou, 9), chosen):
        got, _ = decode_on_gpu(head, outputs, letterbox, asked)
        want = head(wide, letterbox, asked)
        assert len(got) == len(want) > 0
        np.testing.assert_array_equal(got.scores, want.scores)
        np.testing.assert_array_equal(got.labels, want.labels)
        np.testing.assert_allclose(got.cxcywh, want.cxcywh, rtol=1e-5, atol=1e-3)
        np.testing.assert_allclose(got.theta, want.theta, atol=1e-5)


@pytest.mark.parametrize('count', [12000, 140000])
def test_more_rotated_boxes_than_are_sorted_at_once_equal_numpy(count, decode_on_gpu):
    rng = np.random.default_rng(2)
    raw = rows(count, 1, angle, seed=2)
    raw[:, 4] = rng.uniform(0.3, 1, count)
    raw[:, 2:4] = rng.uniform(80, 120, (count, 2))  # Nearly all are suppressed.
    head = open_as('yolov8_obb', 'head (1, ?, ?)')
    outputs, wide = given(raw.T, 'float32')
    got, counts = decode_on_gpu(head, outputs, BOX, Thresholds(0.25, 0.1, 1000))
    want = head(wide, BOX, Thresholds(0.25, 0.1, 1000))
    assert counts[1] > 0.5 * count
    np.testing.assert_array_equal(got.scores, want.scores)
    np.testing.assert_allclose(got.cxcywh, want.cxcywh, rtol=1e-5, atol=1e-3)
