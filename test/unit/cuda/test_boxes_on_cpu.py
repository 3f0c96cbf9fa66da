"""The kernels of boxes and keypoints, compiled for the CPU, find what the NumPy heads find."""

import numpy as np
import pytest

from support.box_cases import (
    CASES,
    POINT_CASES,
    assert_painted,
    assert_same,
    assert_same_classes,
    crowd,
    maskformer,
    rfdetr_seg,
    spoiled,
)
from support.descriptions import head as open_as
from trt_ros.decode.choice import Decoder
from trt_ros.results.masks import Instances
from trt_ros.vision.class_choice import ClassThresholds
from trt_ros.vision.letterbox import Preprocess
from trt_ros.vision.regions import Tiles
from trt_ros.vision.thresholds import Thresholds

pytestmark = pytest.mark.slow

# Cases of few candidates: simulated threads are slow.
FEW = ('yolov10', 'rtdetr', 'boxes with labels', 'nanodet of 11 bins')


def nightly_but(some, names):
    return [
        pytest.param(each, marks=() if each in some else pytest.mark.nightly) for each in names
    ]


@pytest.mark.parametrize('name', CASES)
def test_random_outputs_of_every_family_give_the_boxes_of_numpy(name, kernels):
    head, outputs, letterbox = CASES[name](0)
    asked = Thresholds(score=0.7, iou=0.45, max_detections=100)
    got, counts = kernels.decode(head, outputs, letterbox, asked, runs=1)
    assert_same(got, head(outputs, letterbox, asked), scores=1e-5)
    assert counts[0] == len(got)


@pytest.mark.parametrize(
    'name', nightly_but([*CASES][::3], (each for each in CASES if not each.startswith('yolov8')))
)
def test_values_that_are_not_finite_are_dropped_before_the_activation(name, kernels):
    head, outputs, letterbox = CASES[name](1)
    outputs = spoiled(outputs, 1)
    asked = ClassThresholds.of(
        Thresholds(0.6, 0.45, 300, class_scores={0: 0.8}, class_agnostic=True), ()
    )
    got, counts = kernels.decode(head, outputs, letterbox, asked)
    assert_same(got, head(outputs, letterbox, asked), scores=1e-5)
    assert counts[2] > 0


@pytest.mark.parametrize(
    'name', nightly_but(FEW, (each for each in CASES if not each.startswith(('ufld', 'lstr'))))
)
def test_tiles_of_every_family_give_the_boxes_of_numpy(name, kernels):
    cases = [CASES[name](seed) for seed in range(4)]
    head, first, letterbox = cases[0]
    asked = Thresholds(score=0.5, iou=0.3, max_detections=150)
    if not head.takes_batches or isinstance(head(first, letterbox, asked), Instances):
        pytest.skip('has no tiles')
    outputs = {key: np.concatenate([case[1][key] for case in cases]) for key in first}
    tiles = Tiles(Preprocess(letterbox.input_hw), 2, 2)
    whole = tiles.preprocess.letterbox((1901, 1103))
    got, counts = kernels.decode(head, outputs, whole, asked, tiles)
    want = Decoder(name, '', 'detect', {}, head, tiles=tiles)(outputs, whole, asked)
    assert_same(got, want, scores=1e-5)
    assert counts[0] == len(got)
    assert len(got) < counts[1]


def test_rotated_boxes_of_tiles_give_those_of_numpy(kernels):
    rng = np.random.default_rng(3)
    head = open_as('yolov8_obb', 'head (1, ?, ?)')
    values = np.concatenate(
        [
            rng.uniform(100, 540, (4, 2, 50)),
            rng.uniform(20, 200, (4, 2, 50)),
            rng.uniform(0, 1, (4, 3, 50)),
            rng.uniform(-0.7, 2.3, (4, 1, 50)),
        ],
        axis=1,
    )
    outputs, tiles = {'head': values.astype(np.float32)}, Tiles(Preprocess((640, 640)), 2, 2, 0.5)
    whole, asked = tiles.preprocess.letterbox((1500, 900)), Thresholds(0.5, 0.2)
    got, counts = kernels.decode(head, outputs, whole, asked, tiles)
    want = Decoder('', '', 'obb', {}, head, tiles=tiles)(outputs, whole, asked)
    assert_same(got, want, scores=1e-5)
    np.testing.assert_allclose(got.cxcywh, want.cxcywh, rtol=1e-5)
    np.testing.assert_allclose(got.theta, want.theta, atol=1e-5)
    assert 20 < len(got) < counts[1]


@pytest.mark.nightly
def test_more_candidates_of_anchors_than_are_sorted_at_once_equal_numpy(kernels):
    head, outputs, letterbox = crowd()
    asked = Thresholds(score=0.25, iou=0.3, max_detections=1000)
    got, counts = kernels.decode(head, outputs, letterbox, asked)
    assert counts[1] == 21504
    assert_same(got, head(outputs, letterbox, asked), scores=1e-5)


@pytest.mark.parametrize('name', POINT_CASES)
@pytest.mark.parametrize('seed', range(3))
def test_the_keypoints_of_one_object_equal_numpy(name, seed, kernels):
    head, outputs, letterbox = POINT_CASES[name](seed)
    asked = Thresholds(score=0.9)
    for each in (outputs, spoiled(outputs, seed)):
        got, counts = kernels.decode(head, each, letterbox, asked)
        assert_same(got, head(each, letterbox, asked), scores=1e-5)
        assert (counts[0], counts[2] > 0) == (1, each is not outputs)


@pytest.mark.parametrize('name', POINT_CASES)
def test_the_only_object_is_chosen_by_its_class(name, kernels):
    head, outputs, letterbox = POINT_CASES[name](0)
    for index in (0, 1):
        for most, score in ((100, 0.0), (100, 1.0), (0, 0.0)):
            some = ClassThresholds.of(Thresholds(score, max_detections=most, classes=(index,)), ())
            got, _ = kernels.decode(head, outputs, letterbox, some)
            assert len(got) == len(head(outputs, letterbox, some))


@pytest.mark.parametrize('most', [3, 300])
def test_masks_of_queries_are_painted_as_by_numpy(most, kernels):
    head, outputs, letterbox = rfdetr_seg(0)
    asked = Thresholds(0.5, max_detections=most)
    got, counts = kernels.decode(head, outputs, letterbox, asked)
    assert counts[2] == 30
    assert_painted(got, head(outputs, letterbox, asked), scores=1e-6)


@pytest.mark.parametrize('classes', [2, 70, 300])
def test_classes_of_queries_are_those_of_numpy(classes, kernels):
    head, outputs, letterbox = maskformer(0, classes=classes)
    outputs['logits'][0, 3, 1], outputs['logits'][0, 4, 1] = np.nan, -np.inf
    got, counts = kernels.decode(head, outputs, letterbox, Thresholds())
    assert counts.tolist() == [0, 0, 2, 0]
    assert_same_classes(got, head(outputs, letterbox))
    assert len(np.unique(got.labels)) > 1
