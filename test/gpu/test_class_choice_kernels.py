"""Classes are chosen, and suppress each other on request, as by the NumPy reference."""

import numpy as np
import pytest

from support.descriptions import head as open_as
from trt_ros.vision.class_choice import ClassThresholds
from trt_ros.vision.letterbox import Letterbox
from trt_ros.vision.thresholds import Thresholds

pytestmark = [pytest.mark.gpu, pytest.mark.xdist_group('kernels 2')]

WHOLE = Letterbox.fit((640, 640), (640, 640), 'stretch')
YOLOV8 = open_as('yolov8', 'head (1, ?, ?)')


def asked(score=0.25, iou=0.45, most=300, **choice) -> ClassThresholds:
    return ClassThresholds.of(Thresholds(score, iou, most, **choice), ())


def columns(count, classes, *, seed=0, steps=0) -> dict[str, np.ndarray]:
    """Boxes in clusters; with `steps`, many have equal scores."""
    rng = np.random.default_rng(seed)
    center = rng.uniform(40, 600, (60, 2))[rng.integers(0, 60, count)]
    scores = rng.uniform(0, 1, (count, classes)) ** 4
    if steps:
        scores = np.round(scores * steps) / steps
    boxes = [center + rng.normal(0, 8, (count, 2)), rng.uniform(20, 90, (count, 2))]
    return {'head': np.hstack([*boxes, scores]).T.astype(np.float32, order='C')[None]}


def assert_equal(decode_on_gpu, head, outputs, some):
    got, counts = decode_on_gpu(head, outputs, WHOLE, some)
    want = head(outputs, WHOLE, some)
    assert len(got) == len(want)
    np.testing.assert_array_equal(got.scores, want.scores)
    assert got.labels.tolist() == want.labels.tolist()
    np.testing.assert_allclose(got.xyxy, want.xyxy, atol=1e-3)
    return got, counts


@pytest.mark.parametrize('classes', [1, 3, 80, 300])
@pytest.mark.parametrize('agnostic', [False, True])
def test_equal_scores_are_decided_alike(classes, agnostic, decode_on_gpu):
    outputs = columns(4000, classes, steps=8)
    chosen = tuple(range(0, classes, 3))
    some = asked(classes=chosen, class_scores={0: 0.5, 3: 0.125}, class_agnostic=agnostic)
    got, _ = assert_equal(decode_on_gpu, YOLOV8, outputs, some)
    assert len(got) > 0
    assert set(got.labels.tolist()) <= set(chosen)


@pytest.mark.parametrize('count', [12000, 140000])
def test_more_candidates_than_are_sorted_at_once_suppress_other_classes(count, decode_on_gpu):
    outputs = columns(count, 5, seed=3)
    for choice in ({'class_agnostic': True}, {'class_agnostic': True, 'classes': (0, 3)}):
        for most in (50, 5000):
            assert_equal(decode_on_gpu, YOLOV8, outputs, asked(0.001, 0.5, most, **choice))


def test_candidates_after_the_best_are_decided_across_classes(decode_on_gpu):
    """All candidates of one score: nearly all are left after the first 10240."""
    rng = np.random.default_rng(4)
    corner = rng.uniform(0, 560, (2000, 2))
    outputs = {
        'boxes': np.hstack([corner, corner + rng.uniform(10, 90, (2000, 2))])[None],
        'scores': np.ones((1, 2000, 20)),
    }
    outputs = {name: value.astype(np.float32) for name, value in outputs.items()}
    head = open_as('boxes', outputs)
    for choice in ({}, {'classes': tuple(range(1, 20, 2))}):
        some = asked(0.5, 0.5, 1000, class_agnostic=True, **choice)
        got, _ = assert_equal(decode_on_gpu, head, outputs, some)
        assert set(got.labels.tolist()) == {1 if choice else 0}
