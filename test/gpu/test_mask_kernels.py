"""Instances are painted as by the NumPy reference."""

import numpy as np
import pytest

from support.box_cases import (
    all_rounded,
    assert_painted,
    assert_same_classes,
    maskformer,
    rfdetr_seg,
    rounded,
)
from support.descriptions import head as open_as
from trt_ros.vision.letterbox import Letterbox
from trt_ros.vision.thresholds import Thresholds

pytestmark = [pytest.mark.gpu, pytest.mark.xdist_group('kernels 2')]

BOX = Letterbox.fit((1917, 1080), (640, 640), 'letterbox')
DTYPES = ['float32', 'float16', 'bfloat16']


def prototypes(count=32, grid=160, *, seed=0) -> np.ndarray:
    """Smooth fields with some noise, (1, M, h, w)."""
    rng = np.random.default_rng(seed)
    coarse = rng.normal(0, 1, (count, grid // 8, grid // 8)).repeat(8, axis=1).repeat(8, axis=2)
    return (coarse + rng.normal(0, 0.2, coarse.shape)).astype(np.float32)[None]


def rows(objects, sizes, *, classes=3, channels=32, anchors=2100, seed=0) -> np.ndarray:
    """(1, 4 + C + M, N), of which `objects` anchors score above 0.3."""
    rng = np.random.default_rng(seed)
    raw = np.zeros((anchors, 4 + classes + channels))
    raw[:, :2] = rng.uniform((80, 160), (560, 480), (anchors, 2))
    raw[:, 2:4] = rng.uniform(*sizes, (anchors, 2))
    high = rng.permutation(anchors)[:objects]
    raw[high, 4 + rng.integers(0, classes, objects)] = rng.uniform(0.3, 1, objects)
    raw[:, 4 + classes :] = rng.normal(0, 1, (anchors, channels))
    return raw.T.astype(np.float32, order='C')[None]


def decode_both(decode_on_gpu, raw, fields, asked, *, letterbox=BOX, dtype='float32', **how):
    described = f'head (1, ?, ?); p (1, {fields.shape[1]}, ?, ?)'
    head = open_as('yolov8_seg', described, end2end=str(how.get('is_decoded', False)))
    (bits, wide), (p_bits, p_wide) = rounded(raw, dtype), rounded(fields, dtype)
    got, counts = decode_on_gpu(head, {'head': bits, 'p': p_bits}, letterbox, asked)
    return got, head({'head': wide, 'p': p_wide}, letterbox, asked), counts


@pytest.mark.parametrize('dtype', DTYPES)
@pytest.mark.parametrize(
    'objects, sizes', [(0, (64, 256)), (1, (64, 256)), (40, (64, 256)), (300, (8, 60))]
)
def test_objects_are_painted_as_by_numpy(objects, sizes, dtype, decode_on_gpu):
    got, want, counts = decode_both(
        decode_on_gpu, rows(objects, sizes), prototypes(), Thresholds(0.25, 0.7, 300), dtype=dtype
    )
    assert counts[1:].tolist() == [objects, 0, 0]
    assert len(got) == 0 if objects == 0 else len(got) > 0
    assert_painted(got, want)


@pytest.mark.parametrize(
    'image_wh, input_hw, resize',
    [
        ((640, 480), (640, 640), 'letterbox'),
        ((641, 479), (640, 640), 'stretch'),
        ((161, 119), (640, 640), 'letterbox'),
        ((40, 30), (640, 640), 'letterbox'),  # Fewer pixels than cells.
        ((7, 500), (640, 640), 'letterbox_topleft'),
        ((800, 600), (640, 640), 'center_crop'),
    ],
)
def test_images_of_any_size_are_painted(image_wh, input_hw, resize, decode_on_gpu):
    got, want, _ = decode_both(
        decode_on_gpu,
        rows(30, (60, 300)),
        prototypes(),
        Thresholds(0.25, 0.7, 300),
        letterbox=Letterbox.fit(image_wh, input_hw, resize),
    )
    assert len(got) >= 1
    assert_painted(got, want)


def test_more_objects_than_threads_are_painted_in_order(decode_on_gpu):
    raw, fields = rows(600, (8, 40), classes=300), prototypes(8)
    raw = np.concatenate([raw[:, :304], raw[:, -8:]], axis=1)
    letterbox = Letterbox.fit((400, 300), (640, 640), 'letterbox')
    got, want, _ = decode_both(
        decode_on_gpu, raw, fields, Thresholds(0.25, 0.9, 1000), letterbox=letterbox
    )
    assert len(got) > 256
    assert got.classes.dtype == np.uint16
    assert_painted(got, want)


@pytest.mark.parametrize('dtype', DTYPES)
def test_boxes_of_a_network_with_nms_are_painted(dtype, decode_on_gpu):
    raw = rows(50, (64, 256))[0].T
    boxes, scores, coefficients = np.split(raw[raw[:, 4:7].max(axis=1) > 0.3], [4, 7], axis=1)
    corners = np.hstack([boxes[:, :2] - boxes[:, 2:] / 2, boxes[:, :2] + boxes[:, 2:] / 2])
    found = np.column_stack([corners, scores.max(axis=1), scores.argmax(axis=1), coefficients])
    found = np.vstack([found, np.zeros((50, found.shape[1]))]).astype(np.float32)
    got, want, _ = decode_both(
        decode_on_gpu,
        found[None],
        prototypes(),
        Thresholds(0.25, 0.7, 30),
        dtype=dtype,
        is_decoded=True,
    )
    assert len(got) == 30
    assert_painted(got, want)


def test_nan_is_outside_of_a_mask_and_counted(decode_on_gpu):
    raw, fields = rows(30, (64, 256)), prototypes()
    best = raw[0, 4:7].max(axis=0).argsort()[::-1]
    raw[0, 20, best[2]], raw[0, 0, best[3]] = np.nan, np.inf
    fields[0, 3, 70:72, 60:90], fields[0, 5, 90, 90] = np.nan, np.inf
    got, want, counts = decode_both(decode_on_gpu, raw, fields, Thresholds(0.25, 0.7, 300))
    assert counts[2] == 2 + 60 + 1
    assert_painted(got, want)


@pytest.mark.parametrize('dtype', DTYPES)
@pytest.mark.parametrize('image_wh', [(1920, 1080), (160, 121), (7, 500)])
def test_masks_of_queries_are_painted_beyond_their_boxes(image_wh, dtype, decode_on_gpu):
    head, outputs, letterbox = rfdetr_seg(0, image_wh)
    bits, wide = all_rounded(outputs, dtype)
    for asked in (Thresholds(0.5), Thresholds(0.9), Thresholds(0.3, max_detections=40)):
        got, counts = decode_on_gpu(head, bits, letterbox, asked)
        want = head(wide, letterbox, asked)
        assert counts[2] > 0  # In the mask of the best query.
        # 9e-5 of the pixels of 1080p differ; rounding of places in planes is the likely cause.
        assert_painted(got, want, scores=1e-5, share=2e-4)


@pytest.mark.parametrize('dtype', DTYPES)
@pytest.mark.parametrize('confidence', [False, True])
@pytest.mark.parametrize('classes', [2, 150, 300])
def test_classes_of_queries_are_those_of_numpy(classes, confidence, dtype, decode_on_gpu):
    head, outputs, letterbox = maskformer(0, (1917, 1080), classes, confidence=confidence)
    outputs['logits'][0, 3, 1], outputs['logits'][0, 4, 1] = np.nan, -np.inf
    bits, wide = all_rounded(outputs, dtype)
    got, counts = decode_on_gpu(head, bits, letterbox)
    assert counts.tolist() == [0, 0, 2, 0]
    assert_same_classes(got, head(wide, letterbox))
