"""Confidence of class masks."""

import numpy as np
import pytest

from trt_ros.vision.class_masks import best_class, mask_confidence
from trt_ros.vision.grid import bilinear, taps
from trt_ros.vision.letterbox import Letterbox


def softmax(cells):
    powers = np.exp(cells - cells.max(axis=0))
    return powers / powers.sum(axis=0)


def confidence_of(cells, image_wh, input_hw=(64, 96), resize='letterbox'):
    rows, cols = taps(Letterbox.fit(image_wh, input_hw, resize), cells.shape[1:])
    labels = best_class(cells, rows, cols)
    return labels, mask_confidence(cells, labels, rows, cols), (rows, cols)


def assert_interpolated(labels, confidence, probabilities, axes):
    every = np.stack([bilinear(plane, *axes) for plane in probabilities.astype(np.float32)])
    expected = np.take_along_axis(every, labels[None].astype(np.intp), axis=0)[0]
    assert confidence.dtype == np.uint8
    assert np.abs(confidence - 255 * expected).max() < 0.51


@pytest.mark.parametrize('dtype', [np.float16, np.float32])
@pytest.mark.parametrize('image_wh', [(96, 64), (211, 97), (40, 33)])
def test_confidence_is_the_interpolated_probability_of_the_class(image_wh, dtype):
    rng = np.random.default_rng(0)
    coarse = rng.normal(0, 3, (5, 4, 6)).repeat(4, axis=1).repeat(4, axis=2)
    cells = (coarse + rng.normal(0, 0.5, coarse.shape)).astype(dtype)
    probabilities = softmax(cells.astype(np.float32))
    labels, confidence, axes = confidence_of(cells, image_wh)
    assert len(np.unique(labels)) > 2 and confidence.min() < 160 < confidence.max()
    assert_interpolated(labels, confidence, probabilities, axes)
    labels, confidence, axes = confidence_of(probabilities, image_wh)
    assert_interpolated(labels, confidence, probabilities, axes)


def test_sigmoid_scores_are_probabilities_as_they_are():
    cells = np.full((3, 8, 8), 0.1, np.float32)
    cells[2] = 0.4
    _, confidence, _ = confidence_of(cells, (20, 10), (32, 32), 'stretch')
    assert (confidence == 102).all()


def test_confidence_where_scores_are_not_finite_is_0():
    cells = np.zeros((2, 4, 4), np.float32)
    cells[0] = 9
    cells[:, 3, 3] = np.nan
    _, confidence, _ = confidence_of(cells, (4, 4), (4, 4), 'stretch')
    assert confidence[3, 3] == 0
    assert (confidence.reshape(-1)[:-1] == 255).all()
