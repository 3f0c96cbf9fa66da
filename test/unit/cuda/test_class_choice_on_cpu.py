"""The box kernels, compiled for the CPU, choose classes like the NumPy reference."""

import numpy as np
import pytest

from support.descriptions import head as open_as
from trt_ros.vision.class_choice import ClassThresholds
from trt_ros.vision.letterbox import Letterbox
from trt_ros.vision.thresholds import Thresholds

pytestmark = pytest.mark.slow

BOX = Letterbox.fit((1280, 720), (640, 640), 'letterbox')
COUNT, CLASSES = 300, 5
CHOICES = {
    'none': {},
    'classes': {'classes': (0, 3)},
    'scores': {'class_scores': {0: 0.75, 1: 0.125, 7: 0.5}},
    'agnostic': {'class_agnostic': True},
    'all': {'classes': (1, 3, 4), 'class_scores': {3: 0.75}, 'class_agnostic': True},
    'refused': {'classes': (999,), 'class_agnostic': True},
}


def boxes() -> np.ndarray:
    """Centers and sizes (N, 4) of boxes in clusters, in input pixels."""
    rng = np.random.default_rng(0)
    centers = rng.uniform(150, 490, (20, 2))[rng.integers(0, 20, COUNT)]
    return np.hstack([centers + rng.normal(0, 8, (COUNT, 2)), rng.uniform(30, 90, (COUNT, 2))])


def scores(classes=CLASSES) -> np.ndarray:
    """(N, C) in steps of 1/8, so that many are equal; some are not finite."""
    values = np.random.default_rng(1).integers(0, 9, (COUNT, classes)) / 8
    values.flat[[3, 26, 42]] = np.nan, np.inf, -np.inf
    return values


def finite(classes=CLASSES) -> np.ndarray:
    return np.nan_to_num(scores(classes), posinf=1, neginf=0)


def finished() -> np.ndarray:
    """x1, y1, x2, y2, score and class of each box; some are unused."""
    cxcywh, labels = boxes(), np.arange(COUNT) % 9
    corners = [cxcywh[:, :2] - cxcywh[:, 2:] / 2, cxcywh[:, :2] + cxcywh[:, 2:] / 2]
    rows = np.column_stack([*corners, scores(1), labels])
    rows[7, 5], rows[9, 5] = -1, np.nan
    return rows


#: Family and values of its outputs, of one image.
HEADS = {
    'columns': ('yolov8', lambda: {'head': np.hstack([boxes(), finite()]).T}),
    'rows': ('yolov8', lambda: {'head': np.hstack([boxes(), finite()])}),
    'not finite': ('yolov8', lambda: {'head': np.hstack([boxes(), scores()]).T}),
    'labels': ('yolov10', lambda: {'head': finished()}),
    'background': (
        'ssd',
        lambda: {'boxes': finished()[:, :4] / 640, 'scores': scores(CLASSES + 1)},
    ),
    # Their softmax, none of them equal but for rounding.
    'softmax': (
        'detr',
        lambda: {
            'logits': np.random.default_rng(2).normal(0, 3, (COUNT, CLASSES + 1)),
            'boxes': boxes() / 640,
        },
    ),
}


@pytest.mark.parametrize(
    ('name', 'choice'),
    [
        *(('columns', choice) for choice in CHOICES),
        *((name, choice) for name in HEADS if name != 'columns' for choice in ('scores', 'all')),
    ],
)
def test_classes_are_chosen_as_by_numpy(name, choice, kernels):
    family, values = HEADS[name]
    outputs = {
        key: np.ascontiguousarray(value, np.float32)[None] for key, value in values().items()
    }
    head = open_as(family, outputs)
    for most in (1000, 6):
        asked = Thresholds(0.25, 0.45, most, **CHOICES[choice])
        some = ClassThresholds.of(asked, ())
        got, counts = kernels.decode(head, outputs, BOX, some, runs=1)
        want = head(outputs, BOX, some)
        assert counts[0] == len(got) == len(want)
        assert (len(got) == 0) == (choice == 'refused')
        np.testing.assert_allclose(got.scores, want.scores, rtol=1e-6)
        assert got.labels.tolist() == want.labels.tolist()
        np.testing.assert_allclose(got.xyxy, want.xyxy, atol=1e-3)
