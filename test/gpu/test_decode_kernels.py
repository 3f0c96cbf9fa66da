"""The decoding kernels find what the NumPy reference finds."""

import numpy as np
import pytest

from support.box_cases import (
    CASES,
    POINT_CASES,
    YOLOV8,
    all_rounded,
    assert_same,
    crowd,
    rounded,
    spoiled,
    yolov8_head,
)
from support.descriptions import head as open_as
from trt_ros.vision.class_choice import ClassThresholds
from trt_ros.vision.grid import bilinear, taps
from trt_ros.vision.letterbox import Letterbox
from trt_ros.vision.thresholds import Thresholds

pytestmark = [pytest.mark.gpu, pytest.mark.xdist_group('kernels 3')]

WHOLE = Letterbox.fit((640, 640), (640, 640), 'stretch')


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
    bits, wide = all_rounded(outputs, dtype)
    asked = Thresholds(score=0.4, iou=0.5, max_detections=1000)
    got, _ = decode_on_gpu(head, bits, letterbox, asked)
    assert_same(got, head(wide, letterbox, asked), scores=1e-5)


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


def test_more_candidates_of_anchors_than_are_sorted_at_once_equal_numpy(decode_on_gpu):
    head, outputs, letterbox = crowd()
    for iou_threshold in (0.1, 0.3, 0.5):
        asked = Thresholds(score=0.25, iou=iou_threshold, max_detections=1000)
        got, counts = decode_on_gpu(head, outputs, letterbox, asked)
        assert counts[1] == 21504
        assert_same(got, head(outputs, letterbox, asked), scores=1e-5)


@pytest.mark.parametrize('name', CASES)
def test_nan_and_inf_are_dropped_and_counted(name, decode_on_gpu):
    head, outputs, letterbox = CASES[name](3)
    outputs = spoiled(outputs, 3)
    asked = Thresholds(score=0.2, iou=0.5, max_detections=1000)
    got, counts = decode_on_gpu(head, outputs, letterbox, asked)
    assert counts[2] > 0
    assert_same(got, head(outputs, letterbox, asked), scores=1e-5)


@pytest.mark.parametrize('anchors', [1, 31, 33, 1000])
@pytest.mark.parametrize('classes', [1, 2, 9, 200])
def test_any_number_of_anchors_and_classes_works(anchors, classes, decode_on_gpu):
    raw = yolov8_head(anchors, classes, dense=1.0)
    by_rows = open_as('yolov8', f'head (1, ?, {4 + classes})')
    for head, values in ((YOLOV8, raw), (by_rows, raw.T)):
        outputs = {'head': np.ascontiguousarray(values)[None]}
        asked = Thresholds(score=0.25, iou=0.5, max_detections=300)
        got, _ = decode_on_gpu(head, outputs, WHOLE, asked)
        assert_same(got, head(outputs, WHOLE, asked), pixels=1e-3)


@pytest.mark.parametrize('seed', range(4))
@pytest.mark.parametrize('name', POINT_CASES)
def test_the_keypoints_of_one_object_are_those_of_numpy(name, seed, decode_on_gpu):
    head, outputs, letterbox = POINT_CASES[name](seed)
    for each in (outputs, spoiled(outputs, seed)):
        for asked in (
            Thresholds(0.9),
            *(ClassThresholds.of(Thresholds(0.0, classes=(index,)), ()) for index in (0, 1)),
        ):
            got, counts = decode_on_gpu(head, each, letterbox, asked)
            want = head(each, letterbox, asked)
            assert (counts[0], counts[2] > 0) == (len(want), each is not outputs)
            if len(want):
                assert_same(got, want, scores=1e-5)


@pytest.mark.parametrize('name', POINT_CASES)
@pytest.mark.parametrize('dtype', ['float16', 'bfloat16'])
def test_keypoints_of_half_outputs_are_decoded_in_float32(name, dtype, decode_on_gpu):
    head, outputs, letterbox = POINT_CASES[name](2)
    bits, wide = all_rounded(outputs, dtype)
    got, _ = decode_on_gpu(head, bits, letterbox)
    assert_same(got, head(wide, letterbox), scores=1e-5)


# Classes of pixels.


def semantic(shape, *, seed=0, channels_first=True):
    """Smooth regions with noise, as networks give them."""
    rng = np.random.default_rng(seed)
    classes, height, width = shape
    coarse = rng.normal(0, 4, (classes, -(-height // 8), -(-width // 8)))
    cells = coarse.repeat(8, axis=1).repeat(8, axis=2)[:, :height, :width]
    cells = (cells + rng.normal(0, 0.5, shape)).astype(np.float32)
    cells = cells if channels_first else np.ascontiguousarray(cells.transpose(1, 2, 0))
    outputs = {'scores': cells[None]}
    return open_as('semantic', outputs, hw=(height, width)), outputs


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
    given, wide = rounded(outputs['scores'], dtype)
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
