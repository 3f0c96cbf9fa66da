"""The decoding kernels find what the NumPy reference finds."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest

from trt_ros.tensors import TensorSpec
from trt_ros.vision.class_choice import ClassThresholds
from trt_ros.vision.decoders.boxes import BoxesHead, BoxOutputs
from trt_ros.vision.decoders.detr import (
    DetrHead,
    identity,
    sigmoid,
    sigmoid_without_last,
    softmax_without_last,
)
from trt_ros.vision.decoders.semantic import SemanticHead
from trt_ros.vision.decoders.yolov5 import YoloV5Head
from trt_ros.vision.decoders.yolov8 import YoloV8Head
from trt_ros.vision.decoders.yolov10 import EndToEndHead
from trt_ros.vision.decoders.yolox import YoloxHead
from trt_ros.vision.grid import bilinear, taps
from trt_ros.vision.letterbox import Letterbox
from trt_ros.vision.thresholds import Thresholds

pytestmark = [pytest.mark.gpu, pytest.mark.xdist_group('kernels 3')]

BOX = Letterbox.fit((1920, 1080), (640, 640), 'letterbox')
BOX_X = Letterbox.fit((1280, 720), (416, 416), 'letterbox_topleft')
WHOLE = Letterbox.fit((640, 640), (640, 640), 'stretch')
YOLOV8, YOLOX = YoloV8Head('head', None), YoloxHead('head', None)


def yolov8_head(anchors=8400, classes=80, *, seed=0, dense=0.02) -> np.ndarray:
    """Random boxes in clusters, so that many overlap; a share of the scores is high."""
    rng = np.random.default_rng(seed)
    clusters = rng.uniform(20, 620, (40, 2))
    center = clusters[rng.integers(0, 40, anchors)] + rng.normal(0, 8, (anchors, 2))
    size = rng.uniform(10, 120, (anchors, 2))
    scores = rng.uniform(0, 0.2, (anchors, classes))
    high = rng.random(anchors) < dense
    scores[high, rng.integers(0, min(classes, 3), high.sum())] = rng.uniform(0.3, 1, high.sum())
    return np.concatenate([center, size, scores], axis=1).T.astype(np.float32)


def yolox_head(input_hw=(416, 416), classes=3, *, seed=0) -> np.ndarray:
    rng = np.random.default_rng(seed)
    anchors = sum((input_hw[0] // s) * (input_hw[1] // s) for s in (8, 16, 32))
    return np.concatenate(
        [
            rng.normal(0, 1, (anchors, 2)),
            rng.normal(1, 0.7, (anchors, 2)),
            rng.uniform(0, 1, (anchors, 1 + classes)),
        ],
        axis=1,
    ).astype(np.float32)


def yolov5_head(*, seed=0) -> np.ndarray:
    raw = yolov8_head(6300, 5, seed=seed, dense=0.3).T
    return np.insert(raw, 4, np.random.default_rng(seed).uniform(0, 1, len(raw)), axis=1)


def finished(*, seed=0, count=300) -> np.ndarray:
    """x1, y1, x2, y2, score, class; best first, the unused rows zero."""
    rng = np.random.default_rng(seed)
    corner = rng.uniform(0, 560, (count, 2))
    scores = np.sort(rng.uniform(0, 1, count))[::-1]
    labels = rng.integers(0, 5000, count)
    rows = np.column_stack([corner, corner + rng.uniform(5, 200, (count, 2)), scores, labels])
    rows[-40:] = 0
    rows[7, 5], rows[9, 5] = -1, np.nan
    return rows.astype(np.float32)


def queries(classes, *, seed=0, count=300) -> tuple[np.ndarray, np.ndarray]:
    """Logits (Q, C) and boxes (Q, 4) cx, cy, w, h, 0 to 1."""
    rng = np.random.default_rng(seed)
    return (
        rng.normal(-3, 2, (count, classes)).astype(np.float32),
        rng.uniform(0.02, 0.9, (count, 4)).astype(np.float32),
    )


def boxes_and_scores(count=2000, classes=6, *, seed=0, scale=640) -> dict[str, np.ndarray]:
    raw = yolov8_head(count, classes, seed=seed, dense=0.3).T
    center, half = raw[:, :2], raw[:, 2:4] / 2
    xyxy = np.hstack([center - half, center + half]) * scale / 640
    return {'boxes': xyxy[None], 'scores': np.ascontiguousarray(raw[None, :, 4:])}


def parts(outputs) -> BoxOutputs:
    return BoxOutputs(
        **{
            name: TensorSpec(name, value.shape, value.dtype.name, 'output')
            for name, value in outputs.items()
        }
    )


def assert_same(got, want, *, pixels=1e-2, scores=1e-6) -> None:
    assert len(got) == len(want) > 0
    np.testing.assert_allclose(got.scores, want.scores, rtol=scores)
    assert got.labels.tolist() == want.labels.tolist()
    np.testing.assert_allclose(got.xyxy, want.xyxy, atol=pixels)


def half(values: np.ndarray, dtype: str) -> tuple[np.ndarray, np.ndarray]:
    """Round to a half type: as the GPU's memory holds it, and as float32."""
    if dtype == 'float16':
        return values.astype(np.float16), values.astype(np.float16).astype(np.float32)
    bits = (values.view(np.uint32) >> 16).astype(np.uint16)
    return bits, (bits.astype(np.uint32) << 16).view(np.float32)


# Boxes.

CASES = {
    'yolov8': lambda seed: (YOLOV8, {'head': yolov8_head(seed=seed, dense=0.1)[None]}, BOX),
    'yolov8, channels last': lambda seed: (
        replace(YOLOV8, channels_first=False),
        {'head': np.ascontiguousarray(yolov8_head(seed=seed, dense=0.1).T)[None]},
        BOX,
    ),
    'yolox': lambda seed: (YOLOX, {'head': yolox_head(seed=seed)[None]}, BOX_X),
    'yolov5': lambda seed: (YoloV5Head('head', None), {'head': yolov5_head(seed=seed)[None]}, BOX),
    'yolov7 of one class': lambda seed: (
        YoloV5Head('head', 1, objectness_only=True),
        {'head': yolov5_head(seed=seed)[None, :, :6].copy()},
        BOX,
    ),
    'yolov10': lambda seed: (EndToEndHead('head', None), {'head': finished(seed=seed)[None]}, BOX),
    'rtdetr of ultralytics, finished': lambda seed: (
        EndToEndHead('head', None, is_rtdetr=True),
        {'head': finished(seed=seed)[None] / np.array([640] * 4 + [1, 1], np.float32)},
        BOX,
    ),
    'rtdetr': lambda seed: (
        DetrHead('logits', 'boxes', None, sigmoid),
        dict(zip(('logits', 'boxes'), (each[None] for each in queries(80, seed=seed)))),
        BOX,
    ),
    'rfdetr of C classes and none': lambda seed: (
        DetrHead('logits', 'boxes', None, sigmoid_without_last),
        dict(zip(('logits', 'boxes'), (each[None] for each in queries(8, seed=seed)))),
        BOX,
    ),
    'rtdetr of ultralytics, scores': lambda seed: (
        DetrHead('head', '', None, identity),
        {
            'head': np.hstack(
                [
                    queries(7, seed=seed)[1],
                    np.random.default_rng(seed).uniform(0, 1, (300, 7)).astype(np.float32),
                ]
            )[None]
        },
        BOX,
    ),
    'detr': lambda seed: (
        DetrHead('logits', 'boxes', None, softmax_without_last),
        dict(zip(('logits', 'boxes'), (each[None] for each in queries(92, seed=seed)))),
        BOX,
    ),
    'boxes': lambda seed: boxes_case(boxes_and_scores(seed=seed)),
    'boxes_normalised': lambda seed: boxes_case(
        boxes_and_scores(seed=seed, scale=1), normalized=True
    ),
    'ssd': lambda seed: boxes_case(
        boxes_and_scores(seed=seed, scale=1), normalized=True, has_background=True
    ),
    'boxes with scores by class': lambda seed: boxes_case(
        scores_by_class(boxes_and_scores(seed=seed)), classes_first=True
    ),
    'boxes with labels': lambda seed: boxes_case(labeled(seed, np.int64), suppress=False),
    'boxes with labels as numbers': lambda seed: boxes_case(
        labeled(seed, np.float32), suppress=False
    ),
    'efficient_nms': lambda seed: boxes_case(
        labeled(seed, np.int32) | {'count': np.array([[700]], np.int32)}, suppress=False
    ),
    'without a batch': lambda seed: boxes_case(
        {name: value[0] for name, value in labeled(seed, np.int64).items()}, suppress=False
    ),
}


def boxes_case(outputs, **how):
    return BoxesHead(parts(outputs), None, **how), outputs, BOX


def scores_by_class(outputs):
    return outputs | {'scores': np.ascontiguousarray(outputs['scores'].transpose(0, 2, 1))}


def labeled(seed, dtype):
    outputs = boxes_and_scores(classes=1, seed=seed)
    labels = np.random.default_rng(seed).integers(-1, 9, outputs['scores'].shape[:2])
    return {
        'boxes': outputs['boxes'],
        'scores': outputs['scores'][..., 0],
        'labels': labels.astype(dtype),
    }


@pytest.mark.parametrize('seed', range(4))
@pytest.mark.parametrize('name', CASES)
def test_random_outputs_of_every_family_give_the_boxes_of_numpy(name, seed, decode_on_gpu):
    head, outputs, letterbox = CASES[name](seed)
    for score_threshold, most in ((0.25, 300), (0.5, 20), (0.0, 1000)):
        asked = Thresholds(score=score_threshold, iou=0.45, max_detections=most)
        got, counts = decode_on_gpu(head, outputs, letterbox, asked)
        assert_same(got, head(outputs, letterbox, asked), scores=1e-5)
        assert counts[0] == len(got)


@pytest.mark.parametrize('name', CASES)
@pytest.mark.parametrize('dtype', ['float16', 'bfloat16'])
def test_half_outputs_decode_in_float32(name, dtype, decode_on_gpu):
    head, outputs, letterbox = CASES[name](2)
    pairs = {
        key: half(value, dtype) if value.dtype == np.float32 else (value, value)
        for key, value in outputs.items()
    }
    asked = Thresholds(score=0.4, iou=0.5, max_detections=1000)
    if isinstance(head, BoxesHead):
        head = replace(head, parts=parts(outputs))
    got, _ = decode_on_gpu(head, {key: bits for key, (bits, _) in pairs.items()}, letterbox, asked)
    assert_same(
        got, head({key: wide for key, (_, wide) in pairs.items()}, letterbox, asked), scores=1e-5
    )


EVEN = tuple(range(0, 5000, 2))
OWN_SCORES = {index: 0.1 + 0.1 * (index % 5) for index in range(0, 5000, 3)}
CHOICES = {
    'classes': {'classes': EVEN},
    'scores': {'class_scores': OWN_SCORES},
    'agnostic': {'class_agnostic': True},
    'all': {'classes': EVEN, 'class_scores': OWN_SCORES, 'class_agnostic': True},
}


@pytest.mark.parametrize('choice', CHOICES)
@pytest.mark.parametrize('name', CASES)
def test_every_family_chooses_classes_like_numpy(name, choice, decode_on_gpu):
    head, outputs, letterbox = CASES[name](1)
    for score_threshold, most in ((0.25, 1000), (0.5, 20), (0.0, 300)):
        asked = Thresholds(score_threshold, 0.45, most, **CHOICES[choice])
        some = ClassThresholds.of(asked, ())
        got, counts = decode_on_gpu(head, outputs, letterbox, some)
        assert_same(got, head(outputs, letterbox, some), scores=1e-5)
        assert counts[0] == len(got)


@pytest.mark.parametrize('name', CASES)
def test_nothing_is_found_if_all_classes_are_refused(name, decode_on_gpu):
    head, outputs, letterbox = CASES[name](1)
    for agnostic in (False, True):
        refused = Thresholds(0.0, 0.45, 300, (65535,), class_agnostic=agnostic)
        some = ClassThresholds.of(refused, ())
        found, counts = decode_on_gpu(head, outputs, letterbox, some)
        assert (len(found), counts[:2].tolist()) == (0, [0, 0])


@pytest.mark.parametrize('name', CASES)
def test_nothing_above_the_threshold_is_an_empty_result(name, decode_on_gpu):
    head, outputs, letterbox = CASES[name](0)
    found, counts = decode_on_gpu(head, outputs, letterbox, Thresholds(1.01, 0.5, 300))
    assert len(found) == 0
    assert counts[:2].tolist() == [0, 0]


@pytest.mark.parametrize('seed', range(12))
@pytest.mark.parametrize('threshold', [0.25, 0.6])
def test_random_yolov8_heads_give_the_boxes_of_numpy(seed, threshold, decode_on_gpu):
    outputs = {'head': yolov8_head(seed=seed, dense=(0.0005, 0.02, 0.2)[seed % 3])[None]}
    asked = Thresholds(score=threshold, iou=0.45, max_detections=300)
    got, _ = decode_on_gpu(YOLOV8, outputs, BOX, asked)
    assert_same(got, YOLOV8(outputs, BOX, asked), pixels=1e-3)


def test_more_candidates_than_are_sorted_at_once_still_equal_numpy(decode_on_gpu):
    """All 8400 pass; the answer needs several rounds of 2048."""
    rng = np.random.default_rng(5)
    head = yolov8_head(seed=5)
    head[:2] = rng.uniform(300, 340, (2, 8400))  # One heap: nearly all are suppressed.
    head[2:4] = rng.uniform(80, 120, (2, 8400))
    for iou_threshold in (0.1, 0.5, 0.9):
        asked = Thresholds(score=0.001, iou=iou_threshold, max_detections=1000)
        got, counts = decode_on_gpu(YOLOV8, {'head': head[None]}, BOX, asked)
        assert counts[1] > 8000
        assert_same(got, YOLOV8({'head': head[None]}, BOX, asked), pixels=1e-3)


def test_equal_scores_keep_the_earlier_anchor(decode_on_gpu):
    head = np.zeros((1, 6, 5000), np.float32)
    head[0, :4] = np.array([320, 320, 50, 50], np.float32)[:, None]
    head[0, 4] = 0.5
    found, counts = decode_on_gpu(YOLOV8, {'head': head}, BOX, Thresholds(0.5, 0.5, 10))
    assert counts[:2].tolist() == [1, 5000]
    assert found.scores.tolist() == [0.5]


def test_max_detections_keeps_the_best(decode_on_gpu):
    outputs = {'head': yolov8_head(dense=0.2)[None]}
    few, _ = decode_on_gpu(YOLOV8, outputs, BOX, Thresholds(0.25, 0.7, 7))
    many, _ = decode_on_gpu(YOLOV8, outputs, BOX, Thresholds(0.25, 0.7, 300))
    assert len(few) == 7
    assert few.scores.tolist() == many.scores[:7].tolist()


def test_no_more_boxes_than_queries_are_found(decode_on_gpu):
    logits, boxes = queries(80, count=5)
    head, outputs = (
        DetrHead('logits', 'boxes', None),
        {'logits': logits[None], 'boxes': boxes[None]},
    )
    found, counts = decode_on_gpu(head, outputs, BOX, Thresholds(0.0, 0.5, 300))
    assert counts[:2].tolist() == [5, 400]
    assert_same(
        found, head(outputs, BOX, Thresholds(score=0.0, iou=0.5, max_detections=300)), scores=1e-5
    )


def test_boxes_of_a_network_without_nms_do_not_suppress_each_other(decode_on_gpu):
    rows = np.tile(np.array([10, 200, 50, 250, 0.9, 1], np.float32), (4, 1))
    found, _ = decode_on_gpu(
        EndToEndHead('head', None), {'head': rows[None]}, BOX, Thresholds(0.5, 0.0, 300)
    )
    assert len(found) == 4


def test_boxes_of_different_classes_do_not_suppress_each_other(decode_on_gpu):
    head = np.zeros((1, 6, 2), np.float32)
    head[0, :4] = np.array([320, 320, 100, 100], np.float32)[:, None]
    head[0, 4, 0], head[0, 5, 1] = 0.9, 0.8
    found, _ = decode_on_gpu(YOLOV8, {'head': head}, BOX, Thresholds(0.5, 0.1, 10))
    assert found.labels.tolist() == [0, 1]
    assert found.xyxy[0].tolist() == pytest.approx([810, 390, 1110, 690], abs=1e-3)


@pytest.mark.parametrize('name', CASES)
def test_nan_and_inf_are_dropped_and_counted(name, decode_on_gpu):
    head, outputs, letterbox = CASES[name](3)
    key = next(each for each in ('head', 'logits', 'scores') if each in outputs)
    outputs = {**outputs, key: outputs[key].copy()}
    # None of them a label; boxes and scores of YOLO's heads, scores of the others.
    outputs[key].flat[[60, 122, 184]] = np.nan, -np.inf, np.nan
    asked = Thresholds(score=0.2, iou=0.5, max_detections=1000)
    got, counts = decode_on_gpu(head, outputs, letterbox, asked)
    assert counts[2] == 3
    assert np.isfinite(got.xyxy).all()
    assert np.isfinite(got.scores).all()
    assert_same(got, head(outputs, letterbox, asked), scores=1e-5)


@pytest.mark.parametrize('anchors', [1, 31, 33, 1000])
@pytest.mark.parametrize('classes', [1, 2, 9, 200])
def test_any_number_of_anchors_and_classes_works(anchors, classes, decode_on_gpu):
    raw = yolov8_head(anchors, classes, dense=1.0)
    for head, values in ((YOLOV8, raw), (replace(YOLOV8, channels_first=False), raw.T)):
        outputs = {'head': np.ascontiguousarray(values)[None]}
        asked = Thresholds(score=0.25, iou=0.5, max_detections=300)
        got, _ = decode_on_gpu(head, outputs, WHOLE, asked)
        assert_same(got, head(outputs, WHOLE, asked), pixels=1e-3)


# Classes of pixels.


def semantic(shape, *, seed=0, channels_first=True):
    """Smooth regions with noise, as networks give them."""
    rng = np.random.default_rng(seed)
    classes, height, width = shape
    coarse = rng.normal(0, 4, (classes, -(-height // 8), -(-width // 8)))
    cells = coarse.repeat(8, axis=1).repeat(8, axis=2)[:, :height, :width]
    cells = (cells + rng.normal(0, 0.5, shape)).astype(np.float32)
    cells = cells if channels_first else np.ascontiguousarray(cells.transpose(1, 2, 0))
    return SemanticHead('scores', (1, *cells.shape), channels_first, False), {
        'scores': cells[None]
    }


@pytest.mark.parametrize(
    'shape, image_wh, input_hw, resize',
    [
        ((21, 80, 80), (1920, 1080), (640, 640), 'letterbox'),
        ((19, 128, 256), (1918, 1079), (512, 1024), 'stretch'),
        ((2, 64, 64), (33, 47), (64, 64), 'stretch'),
        ((150, 32, 32), (641, 479), (256, 256), 'center_crop'),
        ((300, 16, 16), (160, 120), (64, 64), 'letterbox_topleft'),
        ((5, 64, 64), (64, 64), (64, 64), 'stretch'),
    ],
)
@pytest.mark.parametrize('channels_first', [True, False])
@pytest.mark.parametrize('dtype', ['float32', 'float16', 'bfloat16'])
def test_the_best_class_of_each_pixel_is_that_of_numpy(
    shape, image_wh, input_hw, resize, channels_first, dtype, decode_on_gpu
):
    head, outputs = semantic(shape, channels_first=channels_first)
    given = wide = outputs['scores']
    if dtype != 'float32':
        given, wide = half(given, dtype)
    letterbox = Letterbox.fit(image_wh, input_hw, resize)
    got, counts = decode_on_gpu(head, {'scores': given}, letterbox)
    want = head({'scores': wide}, letterbox)
    assert got.labels.dtype == want.labels.dtype
    # Two scores may be as near to each other as the last digit, by which way it is computed.
    differs = np.nonzero(got.labels != want.labels)
    assert len(differs[0]) <= max(4, 1e-4 * want.labels.size)
    planes = wide[0] if channels_first else wide[0].transpose(2, 0, 1)
    rows, cols = taps(letterbox, planes.shape[1:])
    for y, x in zip(*differs):
        first, second = (
            bilinear(planes[mask.labels[y, x]], rows, cols)[y, x] for mask in (got, want)
        )
        assert first == pytest.approx(second, rel=1e-5)
    assert counts.tolist() == [0, 0, 0, 0]
    assert len(np.unique(got.labels)) > 1


def test_non_finite_scores_are_counted(decode_on_gpu):
    head, outputs = semantic((4, 16, 16))
    outputs['scores'][0, 1, 3, 3] = np.nan
    _, counts = decode_on_gpu(head, outputs, Letterbox.fit((16, 16), (16, 16), 'stretch'))
    assert counts[2] > 0
