from dataclasses import replace
import re

import numpy as np
import pytest

from support.descriptions import head as open_as
from trt_ros.errors import TensorMismatchError
from trt_ros.vision.class_choice import ClassThresholds
from trt_ros.vision.grid import bilinear, taps
from trt_ros.vision.letterbox import Letterbox
from trt_ros.vision.thresholds import Thresholds

GRID = 8
WHOLE = Letterbox.fit((GRID, GRID), (GRID, GRID), 'stretch')


def outputs(*queries, classes=3):
    """Each (label, probability, x1, y1, x2, y2): a mask of one box of cells."""
    logits = np.full((1, len(queries), classes + 1), -30.0)
    logits[:, :, -1] = 0  # "No object".
    masks = np.full((1, len(queries), GRID, GRID), -20.0)
    for index, (label, probability, x1, y1, x2, y2) in enumerate(queries):
        logits[0, index, label] = np.log(probability / (1 - probability))
        masks[0, index, y1:y2, x1:x2] = 20
    return {'logits': logits.astype(np.float32), 'masks': masks.astype(np.float32)}


def head_of(family, tensors, letterbox=WHOLE):
    return open_as(family, tensors, hw=letterbox.input_hw)


def panoptic(tensors, letterbox=WHOLE, score=0.25, max_detections=100):
    thresholds = Thresholds(score=score, iou=0.5, max_detections=max_detections)
    return head_of('maskformer_panoptic', tensors, letterbox)(tensors, letterbox, thresholds)


def scene(classes, *, seen=8, queries=40, no_object=6.0, size=20, cover=12.0, seed=0):
    """Queries whose masks divide the image, and others that are sure of no object."""
    rng = np.random.default_rng(seed)
    logits = rng.normal(size=(1, queries, classes + 1))
    logits[0, np.arange(seen), rng.integers(classes, size=seen)] = 6 + np.log(classes)
    logits[0, seen:, -1] = no_object + np.log(classes)
    points = rng.uniform(0, size, (seen, 2))
    grid = np.stack(np.mgrid[:size, :size], axis=-1)[None]
    distances = np.linalg.norm(grid - points[:, None, None], axis=-1)
    masks = np.full((1, queries, size, size), -4.0) + rng.normal(size=(1, queries, size, size))
    masks[0, :seen] = cover * (distances == distances.min(axis=0)) - 6
    return {'logits': logits.astype(np.float32), 'masks': masks.astype(np.float32)}


def plain_scores(tensors):
    """Sum as in the paper, over all queries and for all classes."""
    powers = np.exp(tensors['logits'][0].astype(np.float64))
    shares = (powers / powers.sum(axis=1, keepdims=True))[:, :-1]
    return np.einsum('qc,qhw->chw', shares, 1 / (1 + np.exp(-tensors['masks'][0].astype(float))))


@pytest.mark.slow
@pytest.mark.parametrize(
    'options',
    [
        {},
        {'no_object': 3.0},  # All queries count.
        {'no_object': 12.0},
        {'cover': 4.0},  # Masks below a half: no class is sure.
        {'cover': 0.5},  # Nothing covers the image: all classes count.
        {'seen': 1},
    ],
)
@pytest.mark.parametrize(('classes', 'resize'), [(5, 'letterbox'), (300, 'stretch')])
def test_left_out_queries_and_classes_do_not_show(classes, options, resize):
    tensors = scene(classes, **options)
    letterbox = Letterbox.fit((65, 47), (80, 80), resize)
    found = head_of('maskformer', tensors, letterbox).with_confidence()(tensors, letterbox)
    rows, cols = taps(letterbox, (20, 20))
    scores = plain_scores(tensors)
    images = np.stack([bilinear(plane, rows, cols) for plane in scores])
    assert found.labels.dtype == (np.uint8 if classes < 256 else np.uint16)
    # A class may win where another is less than the tolerance better.
    chosen = np.take_along_axis(images, found.labels[None].astype(int), axis=0)[0]
    assert (images.max(axis=0) - chosen).max() <= 1 / 255
    np.testing.assert_allclose(found.confidence, 255 * np.minimum(chosen, 1), atol=1.6)


def test_segments_have_score_class_box_and_mask_in_the_pixels_of_the_image():
    letterbox = Letterbox.fit((16, 16), (GRID, GRID), 'stretch')
    found = panoptic(outputs((2, 0.7, 0, 0, 8, 2), (1, 0.9, 4, 4, 8, 8)), letterbox)
    np.testing.assert_allclose(found.detections.scores, [0.9, 0.7], atol=1e-6)
    assert found.detections.labels.tolist() == [1, 2]
    assert found.detections.xyxy.tolist() == [[8, 8, 16, 16], [0, 0, 16, 4]]
    assert [mask.shape for mask in found.masks] == [(8, 8), (4, 16)]
    assert all(mask.all() for mask in found.masks)
    painted = found.paint(np.array([1, 2], np.uint8))
    assert painted[:4].tolist() == [[2] * 16] * 4
    assert painted[4:8].tolist() == [[0] * 16] * 4
    assert painted[8:].tolist() == [[0] * 8 + [1] * 8] * 8


def test_queries_of_no_object_or_of_no_mask_and_cells_without_a_finite_one_are_no_segments():
    assert len(panoptic(outputs((0, 0.4, 0, 0, 4, 4)), score=0.0)) == 0
    assert len(panoptic(outputs((0, 0.9, 3, 3, 3, 3)))) == 0
    tensors = outputs((0, 0.9, 0, 0, 8, 4))
    tensors['masks'][0, 0, 0] = np.nan
    found = panoptic(tensors)
    assert found.detections.xyxy.tolist() == [[0, 1, 8, 4]]


@pytest.mark.parametrize('value', [np.nan, np.inf])
def test_queries_with_non_finite_logits_are_left_out(value):
    tensors = outputs((0, 0.9, 0, 0, 8, 8), (1, 0.6, 0, 0, 8, 8))
    tensors['logits'][0, 0, 0] = value
    found = head_of('maskformer', tensors, WHOLE)(tensors, WHOLE)
    assert np.unique(found.labels).tolist() == [1]
    assert panoptic(tensors).detections.labels.tolist() == [1]


@pytest.mark.parametrize('family', ['maskformer', 'maskformer_panoptic'])
@pytest.mark.parametrize(
    ('name', 'shape'), [('logits', (1, 4, 5)), ('logits', (1, 3, 4)), ('masks', (2, 4, 8, 8))]
)
def test_other_shapes_are_refused(family, name, shape):
    tensors = outputs(*[(0, 0.9, 0, 0, 8, 8)] * 4)
    head = open_as(family, 'logits (1, ?, 4); masks (1, ?, ?, ?)', hw=(8, 8))
    tensors[name] = np.zeros(shape, np.float32)
    with pytest.raises(TensorMismatchError, match=re.escape(f'{name} {shape}')):
        head(tensors, WHOLE)


def test_segments_of_other_classes_keep_their_pixels_and_thresholds_limit_them():
    tensors = outputs((0, 0.6, 0, 0, 8, 8), (1, 0.9, 0, 0, 8, 1))
    asked = Thresholds(0.25, max_detections=1, classes=['0'])
    head = head_of('maskformer_panoptic', tensors)
    found = head(tensors, WHOLE, ClassThresholds.of(asked, ()))
    assert found.detections.labels.tolist() == [0]
    assert found.detections.xyxy.tolist() == [[0, 1, 8, 8]]
    assert [mask.all() for mask in found.masks] == [True]
    refused = replace(asked, class_scores={'0': 0.7})
    assert len(head(tensors, WHOLE, ClassThresholds.of(refused, ()))) == 0
    tensors = outputs((0, 0.6, 0, 0, 4, 4), (1, 0.8, 4, 0, 8, 4), (2, 0.7, 0, 4, 4, 8))
    assert panoptic(tensors, score=0.65).detections.labels.tolist() == [1, 2]
    assert panoptic(tensors, max_detections=1).detections.labels.tolist() == [1]


def plain_segments(tensors, letterbox):
    """Divide the pixels as in the paper, each query on its own: masks of whole images."""
    powers = np.exp(tensors['logits'][0] - tensors['logits'][0].max(axis=1, keepdims=True))
    shares = powers / powers.sum(axis=1, keepdims=True)
    scores = shares[:, :-1].max(axis=1)
    found = [q for q in np.argsort(-scores) if scores[q] >= max(shares[q, -1], 0.25)]
    masks = 1 / (1 + np.exp(-tensors['masks'][0][found]))
    rows, cols = taps(letterbox, masks.shape[1:])
    covers = [bilinear(mask, rows, cols) > 0.5 for mask in masks]
    shown = [bilinear(mask * scores[q], rows, cols) for q, mask in zip(found, masks)]
    owners = np.argmax(shown, axis=0)
    return [
        cover & (owners == k)
        for k, cover in enumerate(covers)
        if np.count_nonzero(owners == k) > 0.8 * np.count_nonzero(cover)
        and (cover & (owners == k)).any()
    ]


@pytest.mark.parametrize(
    ('image_wh', 'resize'),
    [((65, 47), 'letterbox'), ((20, 20), 'stretch'), ((160, 90), 'letterbox_topleft')],
)
def test_segments_are_those_of_the_paper_with_many_duplicates(resize, image_wh):
    tensors, rng = scene(5, size=20, seen=8, queries=40), np.random.default_rng(1)
    tensors['masks'][0, :8] += rng.normal(size=(8, 20, 20))  # No value is exactly a half.
    for query in range(8, 32):  # The same objects, less certain, and with other edges.
        tensors['logits'][0, query] = tensors['logits'][0, query % 8] * rng.uniform(0.5, 0.9)
        noise = rng.normal(size=(20, 20)) * rng.choice([0.5, 4.0])
        tensors['masks'][0, query] = tensors['masks'][0, query % 8] + noise
    letterbox = Letterbox.fit(image_wh, (80, 80), resize)
    found = head_of('maskformer_panoptic', tensors, letterbox)(tensors, letterbox)
    expected = plain_segments(tensors, letterbox)
    assert 4 <= len(found) == len(expected)
    for mask, (x, y), exact in zip(found.masks, found.origins_xy.tolist(), expected):
        whole = np.zeros(exact.shape, bool)
        whole[y : y + mask.shape[0], x : x + mask.shape[1]] = mask
        assert np.count_nonzero(whole != exact) <= 1  # Rounding.
