import numpy as np
import pytest

from support.descriptions import head as open_as
from trt_ros.vision.grid import bilinear, taps
from trt_ros.vision.letterbox import Letterbox
from trt_ros.vision.thresholds import Thresholds

WHOLE = Letterbox.fit((64, 64), (64, 64), 'stretch')


def outputs(*anchors, prototypes, classes=2, count=20):
    """Each (cx, cy, w, h, label, score, coefficients)."""
    prototypes = np.asarray(prototypes, np.float32)[None]
    head = np.zeros((1, 4 + classes + prototypes.shape[1], count), np.float32)
    for index, (*box, label, score, coefficients) in enumerate(anchors):
        head[0, :4, index] = box
        head[0, 4 + label, index] = score
        head[0, 4 + classes :, index] = coefficients
    return {'output0': head, 'output1': prototypes}


def decode(tensors, letterbox=WHOLE, *, is_decoded=False, max_detections=100):
    metadata = {'task': 'segment', 'end2end': str(is_decoded)}
    described = f'output0 (1, ?, ?); output1 (1, {tensors["output1"].shape[1]}, ?, ?)'
    return open_as('yolov8_seg', described, **metadata)(
        tensors, letterbox, Thresholds(score=0.25, iou=0.5, max_detections=max_detections)
    )


def left_half(value=9.0):
    """One prototype: `value` in the left half of 16 × 16 cells, -value in the right."""
    plane = np.full((1, 16, 16), -value)
    plane[:, :, :8] = value
    return plane


def test_mask_is_limited_to_its_box_and_empty_where_that_has_no_pixel():
    found = decode(outputs((30, 20, 20, 10, 1, 0.9, [1.0]), prototypes=left_half()))
    assert found.detections.xyxy.tolist() == [[20, 15, 40, 25]]
    assert found.detections.labels.tolist() == [1]
    assert found.origins_xy.tolist() == [[20, 15]]
    assert found.masks[0].shape == (10, 20)
    # Halfway between the centers of the cells (30 and 34) the probability is a half.
    assert found.masks[0].tolist() == [[True] * 12 + [False] * 8] * 10
    small, of_nan = (30.8, 20, 0.4, 10, 0, 0.5, [1.0]), (30, 50, 20, 10, 0, 0.4, [np.nan])
    found = decode(outputs(small, of_nan, prototypes=left_half()))
    assert [mask.shape for mask in found.masks] == [(10, 0), (10, 20)]
    assert not found.paint(np.ones(2, np.uint8)).any()


@pytest.mark.parametrize('resize', ['stretch', 'letterbox'])
def test_masks_are_the_interpolated_probabilities_in_their_boxes(resize):
    rng = np.random.default_rng(0)
    letterbox = Letterbox.fit((150, 100), (96, 96), resize)
    prototypes = rng.normal(size=(8, 24, 24)).astype(np.float32)
    coefficients = rng.normal(size=(3, 8)).astype(np.float32)
    boxes = [(30.3, 40, 41, 30), (60, 50, 30, 41.7), (80, 70, 50, 50)]
    found = decode(
        outputs(
            *((*box, 0, 0.9 - i / 10, coefficients[i]) for i, box in enumerate(boxes)),
            prototypes=prototypes,
        ),
        letterbox,
    )
    assert len(found) == 3
    rows, cols = taps(letterbox, (24, 24))
    x, y = np.arange(150) + 0.5, (np.arange(100) + 0.5)[:, None]
    for index, plane in enumerate(1 / (1 + np.exp(-np.tensordot(coefficients, prototypes, 1)))):
        x1, y1, x2, y2 = found.detections.xyxy[index]
        is_inside = (x >= x1) & (x < x2) & (y >= y1) & (y < y2)
        mask = found.take(np.array([index])).paint(np.ones(1, np.uint8))
        assert 0 < mask.sum() < is_inside.sum()
        assert np.array_equal(mask, (bilinear(plane, rows, cols) > 0.5) & is_inside)


def test_the_better_of_overlapping_masks_is_on_top():
    full = np.full((1, 16, 16), 9.0)
    found = decode(
        outputs((20, 20, 20, 20, 0, 0.6, [1.0]), (30, 20, 20, 20, 1, 0.8, [1.0]), prototypes=full)
    )
    image = found.paint(np.array([1, 2], np.uint16))
    assert image.dtype == np.uint16
    assert image[20, [9, 10, 19, 20, 30, 39, 40]].tolist() == [0, 2, 2, 1, 1, 1, 0]


def test_end_to_end_rows_hold_coefficients_after_class():
    tensors = outputs(prototypes=left_half())
    tensors['output0'] = np.zeros((1, 9, 7), np.float32)
    tensors['output0'][0, 4] = 20, 15, 40, 25, 0.9, 1, -1.0
    tensors['output0'][0, 6] = 21, 15, 40, 25, 0.7, 1, 1.0  # It overlaps, and is kept.
    found = decode(tensors, is_decoded=True)
    assert found.detections.scores.tolist() == pytest.approx([0.9, 0.7])
    assert found.masks[0].tolist() == [[False] * 12 + [True] * 8] * 10
    assert found.masks[1].sum() == 110


def test_boxes_that_are_suppressed_keep_no_mask():
    found = decode(
        outputs(
            (30, 20, 20, 10, 0, 0.5, [1.0]),
            (30, 20, 21, 10, 0, 0.9, [-1.0]),
            prototypes=left_half(),
        )
    )
    assert len(found) == len(found.detections) == 1
    assert not found.masks[0][:, :12].any()
