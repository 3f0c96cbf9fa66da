"""Boxes of cells: which cell is an object, which output belongs to which stride or role."""

import numpy as np
import pytest

from support.box_cases import CASES
from support.descriptions import head as open_as
from trt_ros.errors import TensorMismatchError
from trt_ros.vision.letterbox import Letterbox
from trt_ros.vision.thresholds import Thresholds

HW = (64, 96)
WHOLE = Letterbox.fit((96, 64), HW, 'stretch')


def decode(family, outputs, **limits):
    return open_as(family, outputs, hw=HW)(outputs, WHOLE, Thresholds(score=0.25, **limits))


@pytest.mark.parametrize(
    ('family', 'published'),
    [
        ('yolov5_raw', '10x13 16x30 33x23 30x61 62x45 59x119 116x90 156x198 373x326'),
        ('yolov7_raw', '12x16 19x36 40x28 36x75 76x55 72x146 142x110 192x243 459x401'),
    ],
)
def test_zeros_are_the_published_anchors(family, published):
    outputs = {
        name: np.full((1, 3, size, size, 6), -20, np.float32)
        for name, size in zip('abc', (80, 40, 20))
    }
    for values in outputs.values():
        middle = values.shape[2] // 2
        values[0, :, middle, middle] = [0, 0, 0, 0, 9, 9]
    whole = Letterbox.fit((640, 640), (640, 640), 'stretch')
    found = open_as(family, outputs)(outputs, whole, Thresholds(score=0.5, iou=1.0)).xyxy
    sizes = [f'{width:.0f}x{height:.0f}' for width, height in found[:, 2:] - found[:, :2]]
    assert sizes == published.split()


def test_each_class_that_passes_is_a_detection_unless_its_size_overflows():
    output = np.zeros((1, 126, 6), np.float32)
    output[0, 3] = [0, 0, 1000, 0, 1, 0.9]
    assert len(decode('yolox', {'output': output})) == 0
    output = np.zeros((1, 126, 35), np.float32)
    output[0, 40, :3] = [0.5, 0, 0.75]
    found = decode('nanodet', {'output': output})
    assert (found.scores.tolist(), found.labels.tolist()) == ([0.75, 0.5], [2, 0])


def test_decoded_boxes_are_refused_with_the_parameters_that_decode_them():
    rng, decoded = np.random.default_rng(0), np.zeros((1, 126, 8), np.float32)
    decoded[..., :4] = rng.uniform(10, 60, (126, 4))
    with pytest.raises(TensorMismatchError, match="'output' has decoded boxes") as error:
        decode('yolox', {'output': decoded})
    assert '`decoder` to yolov5' in error.value.remedy
    decoded[0, 6:, :4] = rng.uniform(-3, 3, (120, 4))
    assert len(decode('yolox', {'output': decoded})) == 0


@pytest.mark.parametrize('name', ['yolov5_raw', 'picodet', 'scrfd', 'yunet'])
def test_outputs_of_the_strides_may_come_in_any_order(name):
    head, outputs, letterbox = CASES[name](0)
    turned = dict(reversed(outputs.items()))
    found = open_as(name, turned, hw=letterbox.input_hw)(turned, letterbox, Thresholds())
    expected = head(outputs, letterbox, Thresholds())
    found, expected = (getattr(each, 'detections', each) for each in (found, expected))
    assert np.array_equal(found.xyxy, expected.xyxy) and len(found) > 0


@pytest.mark.parametrize(
    ('channels', 'classes', 'bins'),
    [
        *(('112', None, 8), ('124', None, 11), ('35', None, 8)),
        *(('35', 3, 8), ('71', 3, 17), ('?', 3, None)),
    ],
)
def test_the_number_of_bins_follows_from_the_classes(channels, classes, bins):
    described = f'output (1, 7, {channels})'
    head = open_as('nanodet_plus', described, hw=(16, 16), class_count=classes)
    assert head.reading.symbols.get('D') == bins


def centers(*placed, size=(4, 2)):
    """Return outputs of CenterNet with logits (class, row, column, logit) of one size."""
    shapes = {'hm': 3, 'wh': 2, 'reg': 2}
    outputs = {name: np.zeros((1, count, 16, 24), np.float32) for name, count in shapes.items()}
    outputs['hm'][:] = -9
    outputs['wh'][0] = np.reshape(size, (2, 1, 1))
    outputs['reg'][:] = 0.5
    for label, row, column, logit in placed:
        outputs['hm'][0, label, row, column] = logit
    return outputs


def test_only_the_highest_of_neighboring_cells_of_a_class_or_equal_ones_are_objects():
    found = decode('centernet', centers((0, 5, 7, 2), (0, 6, 8, 3), (0, 7, 10, 2.5), (1, 5, 7, 1)))
    assert found.labels.tolist() == [0, 0, 1]
    assert found.scores == pytest.approx(1 / (1 + np.exp([-3, -2.5, -1])))
    outputs = centers(*((1, 4, column, 2) for column in range(20)))
    assert len(decode('centernet', outputs)) == 20
    assert len(decode('centernet', outputs, max_detections=7)) == 7


@pytest.mark.parametrize(('row', 'column'), [(0, 0), (0, 23), (15, 0), (15, 23)])
def test_peaks_at_the_edges_are_found(row, column):
    assert len(decode('centernet', centers((1, row, column, 2)))) == 1


@pytest.mark.parametrize(
    ('outputs', 'roles'),
    [
        ('a (1, 3, 16, 24); b (1, 2, 16, 24); c (1, 2, 16, 24)', 'a b c'),
        ('b (1, 2, 16, 24); c (1, 2, 16, 24); a (1, 3, 16, 24)', 'a b c'),
        ('reg (1, 2, 16, 24); wh (1, 2, 16, 24); hm (1, 3, 16, 24)', 'hm wh reg'),
        ('off (1, 2, 16, 24); b (1, 2, 16, 24); hm (1, 2, 16, 24)', 'hm b off'),
        ('a (1, 2, 16, 24); b (1, 2, 16, 24)', 'a b'),
        ('b (1, 2, ?, ?); heat (?, 2, ?, ?)', 'heat b'),
    ],
)
def test_roles_of_centernet_follow_from_planes_names_and_order(outputs, roles):
    parts = open_as('centernet', outputs, hw=HW).reading.parts
    assert [part.spec.name for part in parts] == roles.split()


def test_equal_scores_are_ordered_by_cell_and_then_by_class():
    placed = (0, 17), (2, 1), (1, 9), (0, 1)
    found = decode('centernet', centers(*((label, 5, column, 2) for label, column in placed)))
    assert found.labels.tolist() == [0, 2, 1, 0]
    grids = {'cov': np.zeros((1, 3, 4, 6)), 'bbox': np.full((1, 12, 4, 6), 0.1)}
    for label, column in (0, 5), (2, 1), (1, 3), (0, 1):
        grids['cov'][0, label, 2, column] = 0.9
    assert decode('detectnet_v2', grids).labels.tolist() == [0, 2, 1, 0]
