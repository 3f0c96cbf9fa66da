"""CenterNet."""

import math

import numpy as np
import pytest

from trt_ros.decode.choice import open_head
from trt_ros.families.boxes import CENTERNET
from trt_ros.vision.letterbox import Letterbox
from trt_ros.vision.thresholds import Thresholds

HW, GRID = (64, 96), (16, 24)
TWICE = Letterbox.fit((192, 128), HW, 'stretch')
THRESHOLDS = Thresholds(score=0.25, iou=0.5, max_detections=100)
CLASSES = 3


def empty(dtype=np.float32, *, are_logits=True, has_offsets=True):
    outputs = {
        'hm': np.full((1, CLASSES, *GRID), -9 if are_logits else 0, dtype),
        'wh': np.zeros((1, 2, *GRID), dtype),
        'reg': np.zeros((1, 2, *GRID), dtype),
    }
    return outputs if has_offsets else {name: outputs[name] for name in ('hm', 'wh')}


def place(outputs, label, row, column, value, size=(4, 2), offset=(0.25, 0.75)):
    outputs['hm'][0, label, row, column] = value
    outputs['wh'][0, :, row, column] = size
    if 'reg' in outputs:
        outputs['reg'][0, :, row, column] = offset


def described(outputs):
    return '; '.join(f'{name} ({", ".join(map(str, x.shape))})' for name, x in outputs.items())


def decode(network, outputs, thresholds=THRESHOLDS):
    return open_head(CENTERNET, network(described(outputs), hw=HW))(outputs, TWICE, thresholds)


@pytest.mark.parametrize('dtype', [np.float32, np.float16])
@pytest.mark.parametrize('are_logits', [True, False])
def test_a_peak_is_a_center_with_offset_and_size_in_cells(network, are_logits, dtype):
    outputs = empty(dtype, are_logits=are_logits)
    place(outputs, 2, 5, 7, math.log(3) if are_logits else 0.75)
    found = decode(network, outputs)
    # Center (7.25, 5.75) cells of 4 pixels, twice as large in the image.
    assert found.xyxy.tolist() == [[8 * 5.25, 8 * 4.75, 8 * 9.25, 8 * 6.75]]
    assert found.scores.tolist() == pytest.approx([0.75], abs=1e-3)
    assert found.labels.tolist() == [2]


def test_without_offsets_the_center_is_that_of_the_cell(network):
    outputs = empty(has_offsets=False)
    place(outputs, 0, 5, 7, 2)
    assert decode(network, outputs).xyxy.tolist() == [[8 * 5.5, 8 * 4.5, 8 * 9.5, 8 * 6.5]]


def test_only_the_highest_of_neighboring_cells_of_a_class_is_an_object(network):
    outputs = empty()
    place(outputs, 0, 5, 7, 2)
    place(outputs, 0, 6, 8, 3)
    place(outputs, 0, 7, 10, 2.5)
    place(outputs, 1, 5, 7, 1)
    found = decode(network, outputs)
    assert found.labels.tolist() == [0, 0, 1]
    expected = 1 / (1 + np.exp(-np.array([3, 2.5, 1])))
    assert found.scores == pytest.approx(expected)


@pytest.mark.parametrize(('row', 'column'), [(0, 0), (0, 23), (15, 0), (15, 23)])
def test_peaks_at_the_edges_are_found(network, row, column):
    outputs = empty()
    place(outputs, 1, row, column, 2, offset=(0.5, 0.5))
    assert len(decode(network, outputs)) == 1


def test_equal_neighbors_are_both_peaks_and_the_best_are_kept(network):
    outputs = empty()
    for column in range(20):
        place(outputs, 1, 4, column, 2.0)
    thresholds = Thresholds(score=0.25, iou=0.5, max_detections=7)
    assert len(decode(network, outputs)) == 20
    assert len(decode(network, outputs, thresholds)) == 7


@pytest.mark.parametrize(
    ('outputs', 'roles'),
    [
        ('a (1, 3, 16, 24); b (1, 2, 16, 24); c (1, 2, 16, 24)', 'abc'),
        ('b (1, 2, 16, 24); c (1, 2, 16, 24); a (1, 3, 16, 24)', 'abc'),
        ('reg (1, 2, 16, 24); wh (1, 2, 16, 24); hm (1, 3, 16, 24)', ('hm', 'wh', 'reg')),
        ('off (1, 2, 16, 24); b (1, 2, 16, 24); hm (1, 2, 16, 24)', ('hm', 'b', 'off')),
        ('a (1, 2, 16, 24); b (1, 2, 16, 24)', ('a', 'b', '')),
        ('b (1, 2, ?, ?); heat (?, 2, ?, ?)', ('heat', 'b', '')),
    ],
)
def test_roles_follow_from_planes_names_and_order(network, outputs, roles):
    head = open_head(CENTERNET, network(outputs, hw=HW))
    names = [part.spec.name for part in head.reading.parts]
    assert names == [name for name in roles if name]


def test_equal_scores_are_ordered_by_cell_and_then_by_class(network):
    outputs = empty()
    for label, column in ((0, 17), (2, 1), (1, 9), (0, 1)):
        place(outputs, label, 5, column, 2)
    assert decode(network, outputs).labels.tolist() == [0, 2, 1, 0]
