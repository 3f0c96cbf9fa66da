"""NanoDet-Plus, NanoDet and PicoDet."""

import numpy as np
import pytest

from trt_ros.decode.choice import open_head
from trt_ros.families.nanodet import NANODET, NANODET_PLUS, PICODET
from trt_ros.vision.letterbox import Letterbox
from trt_ros.vision.thresholds import Thresholds

HW = (96, 160)
#: Rows and columns of the grids, which cover the input: 96 / 64 is 1.5.
GRIDS = {8: (12, 20), 16: (6, 10), 32: (3, 5), 64: (2, 3)}
TWICE = Letterbox.fit((320, 192), HW, 'stretch')
THRESHOLDS = Thresholds(score=0.25, iou=0.5, max_detections=100)
CLASSES, BINS = 3, 8
DETECTORS = {'nanodet_plus': NANODET_PLUS, 'nanodet': NANODET, 'picodet': PICODET}


def strides_of(name):
    return (8, 16, 32) if name == 'nanodet' else (8, 16, 32, 64)


def empty(name, dtype=np.float32, bins=BINS):
    """Make outputs without objects, whose distances are all (bins - 1) / 2 strides."""
    counts = {stride: np.prod(GRIDS[stride]) for stride in strides_of(name)}
    if name == 'picodet':
        return {
            f'{kind}_{stride}': np.zeros((1, count, size), dtype)
            for kind, size in (('scores', CLASSES), ('sides', 4 * bins))
            for stride, count in counts.items()
        }
    return {'output': np.zeros((1, sum(counts.values()), CLASSES + 4 * bins), dtype)}


def place(name, outputs, stride, row, column, scores, bins):
    """Set the scores of a cell, and the bins of its sides: left, top, right, bottom."""
    cell = row * GRIDS[stride][1] + column
    logits = np.full((4, BINS), -100.0)
    logits[np.arange(4), bins] = 100
    if name == 'picodet':
        outputs[f'scores_{stride}'][0, cell] = scores
        outputs[f'sides_{stride}'][0, cell] = logits.ravel()
    else:
        cell += sum(np.prod(GRIDS[each]) for each in GRIDS if each < stride)
        outputs['output'][0, cell] = [*scores, *logits.ravel()]


def described(outputs):
    return '; '.join(f'{name} ({", ".join(map(str, x.shape))})' for name, x in outputs.items())


def decode(network, name, outputs, thresholds=THRESHOLDS, **known):
    return open_head(
        DETECTORS[name], network(described(outputs), hw=HW, class_count=CLASSES, **known)
    )(outputs, TWICE, thresholds)


@pytest.mark.parametrize('dtype', [np.float32, np.float16])
@pytest.mark.parametrize(
    ('name', 'stride'),
    [(name, stride) for name in DETECTORS for stride in strides_of(name)],
)
def test_sides_are_distances_in_strides_from_the_point_of_the_cell(network, name, stride, dtype):
    outputs = empty(name, dtype)
    place(name, outputs, stride, 1, 1, [0, 0.75, 0], [0, 1, 1, 0])
    found = decode(network, name, outputs)
    x = y = stride * (1 if name == 'nanodet_plus' else 1.5)
    expected = np.clip([x, y - stride, x + stride, y], 0, [160, 96] * 2)
    assert found.xyxy.tolist() == [(2 * expected).tolist()]
    assert (found.scores.tolist(), found.labels.tolist()) == ([0.75], [1])


@pytest.mark.parametrize('name', DETECTORS)
def test_a_distance_is_the_mean_bin(network, name):
    outputs = empty(name)
    for values in outputs.values():
        values[..., :CLASSES] = 0
    place(name, outputs, 16, 3, 5, [0.5, 0, 0], [0, 0, 0, 0])
    key = 'sides_16' if name == 'picodet' else 'output'
    cell = 3 * 10 + 5 + (0 if name == 'picodet' else 12 * 20)
    logits = np.full((4, BINS), -np.inf, np.float32)
    # Probabilities 1/4 and 3/4 of bins 1 and 2: 1.75 strides.
    logits[:, 1], logits[:, 2] = 0, np.log(3)
    outputs[key][0, cell, -4 * BINS :] = logits.ravel()
    found = decode(network, name, outputs)
    x, y = (np.array([5, 3]) + (0 if name == 'nanodet_plus' else 0.5)) * 16
    side = 1.75 * 16
    expected = np.clip([x - side, y - side, x + side, y + side], 0, [160, 96] * 2)
    assert found.xyxy[0].tolist() == pytest.approx((2 * expected).tolist(), abs=1e-3)


@pytest.mark.parametrize('name', DETECTORS)
def test_each_class_that_passes_is_a_detection_and_overlaps_are_suppressed(network, name):
    outputs = empty(name)
    place(name, outputs, 8, 4, 4, [0.5, 0, 0.75], [1, 1, 1, 1])
    place(name, outputs, 8, 5, 4, [0.625, 0, 0], [1, 2, 1, 0])  # The same box.
    place(name, outputs, 8, 4, 9, [0.25, 0.125, 0], [1, 1, 1, 1])
    found = decode(network, name, outputs)
    assert found.scores.tolist() == [0.75, 0.625, 0.25]
    assert found.labels.tolist() == [2, 0, 0]


@pytest.mark.parametrize(
    ('channels', 'classes', 'bins'),
    [
        ('112', None, 8),
        ('124', None, 11),
        ('35', None, 8),
        ('35', 3, 8),
        ('71', 3, 17),
        ('?', 3, None),
    ],
)
def test_the_number_of_bins_follows_from_the_classes(network, channels, classes, bins):
    seen = network(f'output (1, 7, {channels})', hw=(16, 16), class_count=classes)
    assert open_head(NANODET_PLUS, seen).reading.symbols.get('D') == bins


def test_outputs_of_the_strides_may_come_in_any_order(network):
    outputs = empty('picodet')
    place('picodet', outputs, 16, 1, 1, [0, 0.75, 0], [0, 1, 1, 0])
    expected = decode(network, 'picodet', outputs)
    found = decode(network, 'picodet', dict(reversed(outputs.items())))
    assert len(found) == 1
    assert found.xyxy.tolist() == expected.xyxy.tolist()
