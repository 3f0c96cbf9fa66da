"""The decoding kernels find what the NumPy reference finds."""

from __future__ import annotations

import numpy as np
import pytest

from trt_ros.vision.letterbox import Letterbox
from trt_ros.vision.yolov8 import YoloV8Head
from trt_ros.vision.yolox import YoloxHead

pytestmark = pytest.mark.gpu

BOX = Letterbox.fit((1920, 1080), (640, 640), 'letterbox')


def yolov8_head(anchors=8400, classes=80, *, seed=0, dense=0.02) -> np.ndarray:
    """Random boxes in clusters, so that many overlap; a share of the scores is high."""
    rng = np.random.default_rng(seed)
    clusters = rng.uniform(20, 620, (40, 2))
    centre = clusters[rng.integers(0, 40, anchors)] + rng.normal(0, 8, (anchors, 2))
    size = rng.uniform(10, 120, (anchors, 2))
    scores = rng.uniform(0, 0.2, (anchors, classes))
    high = rng.random(anchors) < dense
    scores[high, rng.integers(0, min(classes, 3), high.sum())] = rng.uniform(0.3, 1, high.sum())
    return np.concatenate([centre, size, scores], axis=1).T.astype(np.float32)


def yolox_head(input_hw=(416, 416), classes=3, *, seed=0) -> np.ndarray:
    rng = np.random.default_rng(seed)
    anchors = sum((input_hw[0] // s) * (input_hw[1] // s) for s in (8, 16, 32))
    return np.concatenate([
        rng.normal(0, 1, (anchors, 2)), rng.normal(1, 0.7, (anchors, 2)),
        rng.uniform(0, 1, (anchors, 1 + classes))], axis=1).astype(np.float32)


def assert_same(got, want, *, pixels=1e-2) -> None:
    assert len(got) == len(want)
    np.testing.assert_allclose(got.scores, want.scores, rtol=1e-6)
    assert got.labels.tolist() == want.labels.tolist()
    np.testing.assert_allclose(got.xyxy, want.xyxy, atol=pixels)


def reference(family, head, letterbox, **thresholds):
    classes = head.shape[0] - 4 if family == 'yolov8' else head.shape[1] - 5
    decode = YoloV8Head('head', classes) if family == 'yolov8' else YoloxHead('head', classes)
    return decode({'head': head[None]}, letterbox, **thresholds)


@pytest.mark.parametrize('family', ['yolov8', 'yolox'])
def test_nothing_above_the_threshold_is_an_empty_result(family, decode_on_gpu):
    head = yolov8_head() if family == 'yolov8' else yolox_head()
    found, counts = decode_on_gpu(
        family, head, BOX, score_threshold=1.01, iou_threshold=0.5, max_detections=300)
    assert len(found) == 0
    assert counts.tolist() == [0, 0, 0, 0]


@pytest.mark.parametrize('seed', range(12))
@pytest.mark.parametrize('threshold', [0.25, 0.6])
def test_random_yolov8_heads_give_the_boxes_of_numpy(seed, threshold, decode_on_gpu):
    head = yolov8_head(seed=seed, dense=(0.0005, 0.02, 0.2)[seed % 3])
    asked = dict(score_threshold=threshold, iou_threshold=0.45, max_detections=300)
    got, _ = decode_on_gpu('yolov8', head, BOX, **asked)
    assert_same(got, reference('yolov8', head, BOX, **asked), pixels=1e-3)


@pytest.mark.parametrize('seed', range(12))
def test_random_yolox_heads_give_the_boxes_of_numpy(seed, decode_on_gpu):
    box = Letterbox.fit((1280, 720), (416, 416), 'letterbox_topleft')
    head = yolox_head(seed=seed)
    asked = dict(score_threshold=0.3, iou_threshold=0.5, max_detections=1000)
    got, _ = decode_on_gpu('yolox', head, box, strides=(8, 16, 32), **asked)
    assert_same(got, reference('yolox', head, box, **asked))


def test_more_candidates_than_are_sorted_at_once_still_equal_numpy(decode_on_gpu):
    """All 8400 pass; the answer needs several rounds of 2048."""
    rng = np.random.default_rng(5)
    head = yolov8_head(seed=5)
    head[:2] = rng.uniform(300, 340, (2, 8400))  # One heap: nearly all are suppressed.
    head[2:4] = rng.uniform(80, 120, (2, 8400))
    for iou_threshold in (0.1, 0.5, 0.9):
        asked = dict(score_threshold=0.001, iou_threshold=iou_threshold, max_detections=1000)
        got, counts = decode_on_gpu('yolov8', head, BOX, **asked)
        assert counts[1] > 8000
        assert_same(got, reference('yolov8', head, BOX, **asked), pixels=1e-3)


def test_equal_scores_keep_the_earlier_anchor(decode_on_gpu):
    head = np.zeros((6, 5000), np.float32)
    head[:4] = np.array([320, 320, 50, 50], np.float32)[:, None]
    head[4] = 0.5
    found, counts = decode_on_gpu(
        'yolov8', head, BOX, score_threshold=0.5, iou_threshold=0.5, max_detections=10)
    assert counts[:2].tolist() == [1, 5000]
    assert found.scores.tolist() == [0.5]


def test_max_detections_keeps_the_best(decode_on_gpu):
    head = yolov8_head(dense=0.2)
    asked = dict(score_threshold=0.25, iou_threshold=0.7)
    few, _ = decode_on_gpu('yolov8', head, BOX, max_detections=7, **asked)
    many, _ = decode_on_gpu('yolov8', head, BOX, max_detections=300, **asked)
    assert len(few) == 7
    assert few.scores.tolist() == many.scores[:7].tolist()


def test_boxes_of_different_classes_do_not_suppress_each_other(decode_on_gpu):
    head = np.zeros((6, 2), np.float32)
    head[:4] = np.array([320, 320, 100, 100], np.float32)[:, None]
    head[4, 0], head[5, 1] = 0.9, 0.8
    found, _ = decode_on_gpu(
        'yolov8', head, BOX, score_threshold=0.5, iou_threshold=0.1, max_detections=10)
    assert found.labels.tolist() == [0, 1]
    assert found.xyxy[0].tolist() == pytest.approx([810, 390, 1110, 690], abs=1e-3)


@pytest.mark.parametrize('family', ['yolov8', 'yolox'])
@pytest.mark.parametrize('dtype', ['float16', 'bfloat16'])
def test_half_heads_decode_in_float32(family, dtype, decode_on_gpu):
    full = yolov8_head(seed=2) if family == 'yolov8' else yolox_head(seed=2)
    strides = () if family == 'yolov8' else (8, 16, 32)
    box = Letterbox.fit((1280, 720), (416, 416), 'letterbox_topleft') if strides else BOX
    if dtype == 'float16':
        head = full.astype(np.float16)
        widened = head.astype(np.float32)
    else:
        head = (full.view(np.uint32) >> 16).astype(np.uint16)
        widened = (head.astype(np.uint32) << 16).view(np.float32)
    asked = dict(score_threshold=0.4, iou_threshold=0.5, max_detections=1000)
    got, _ = decode_on_gpu(family, head, box, dtype=dtype, strides=strides, **asked)
    assert_same(got, reference(family, widened, box, **asked))


@pytest.mark.parametrize('family', ['yolov8', 'yolox'])
def test_nan_and_inf_are_dropped_and_counted(family, decode_on_gpu):
    head = yolov8_head(seed=3) if family == 'yolov8' else yolox_head(seed=3)
    strides = () if family == 'yolov8' else (8, 16, 32)
    box = Letterbox.fit((1280, 720), (416, 416), 'letterbox_topleft') if strides else BOX
    values = head if family == 'yolov8' else head.T
    values[0, 10] = np.nan
    values[2, 20] = -np.inf
    values[-1, 30] = np.nan
    values[-2, 40] = np.inf
    asked = dict(score_threshold=0.2, iou_threshold=0.5, max_detections=1000)
    got, counts = decode_on_gpu(family, head, box, strides=strides, **asked)
    assert counts[2] == 4
    assert np.isfinite(got.xyxy).all()
    assert_same(got, reference(family, head, box, **asked))


@pytest.mark.parametrize('anchors', [1, 31, 33, 1000])
@pytest.mark.parametrize('classes', [1, 2, 9, 200])
def test_any_number_of_anchors_and_classes_works(anchors, classes, decode_on_gpu):
    head = yolov8_head(anchors, classes, dense=0.5)
    asked = dict(score_threshold=0.25, iou_threshold=0.5, max_detections=300)
    got, _ = decode_on_gpu('yolov8', head, BOX, **asked)
    assert_same(got, reference('yolov8', head, BOX, **asked), pixels=1e-3)
