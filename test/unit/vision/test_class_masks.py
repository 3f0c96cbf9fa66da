from hypothesis import given
from hypothesis import strategies as st
import numpy as np
import pytest

from support.properties import repeatable
from trt_ros.vision.class_masks import best_class, mask_confidence
from trt_ros.vision.grid import bilinear, taps
from trt_ros.vision.letterbox import RESIZES, Letterbox


def interpolated(cells, rows, cols):
    return np.stack([bilinear(plane, rows, cols) for plane in cells.astype(np.float32)])


def regions(rng, count, grid_hw, noise):
    """Give (C, h, w) scores of regions of about four cells, with noise."""
    labels = rng.integers(0, count, [-(-size // 4) for size in grid_hw])
    labels = labels.repeat(4, axis=0).repeat(4, axis=1)[: grid_hw[0], : grid_hw[1]]
    return 3 * (labels == np.arange(count)[:, None, None]) + noise * rng.normal(
        size=(count, *grid_hw)
    )


def assert_best(labels, values):
    """Where two scores are equal up to rounding, either may win."""
    won = np.take_along_axis(values, labels[None].astype(np.intp), axis=0)[0]
    assert (won >= values.max(axis=0) - 1e-5 * np.abs(values).max()).all()


@repeatable
@given(
    image_wh=st.tuples(st.integers(1, 90), st.integers(1, 90)),
    grid_hw=st.tuples(st.integers(1, 12), st.integers(1, 12)),
    resize=st.sampled_from(RESIZES),
    count=st.integers(2, 20),
    seed=st.integers(0, 99),
    noise=st.sampled_from([0.1, 1.0, 10.0]),
    dtype=st.sampled_from(['float16', 'float32', 'float64']),
)
def test_class_is_argmax_of_interpolated_scores(
    image_wh, grid_hw, resize, count, seed, noise, dtype
):
    rows, cols = taps(Letterbox.fit(image_wh, (48, 48), resize), grid_hw)
    cells = regions(np.random.default_rng(seed), count, grid_hw, noise).astype(dtype)
    labels = best_class(cells, rows, cols)
    assert labels.shape == image_wh[::-1] and labels.dtype == np.uint8
    assert_best(labels, interpolated(cells, rows, cols))


def test_few_of_many_classes_are_near_and_the_right_one_or_the_first_of_equals_wins():
    rng = np.random.default_rng(0)
    cells = rng.normal(size=(300, 20, 20)).astype(np.float32)
    cells[250:253] += 4 + regions(rng, 3, (20, 20), 0)
    rows, cols = taps(Letterbox.fit((130, 70), (80, 80), 'letterbox'), (20, 20))
    labels = best_class(cells, rows, cols)
    assert labels.dtype == np.uint16 and {250, 251, 252} <= set(labels.flat)
    assert_best(labels, interpolated(cells, rows, cols))
    rng = np.random.default_rng(0)
    cells = regions(rng, 9, (9, 9), 0) + rng.integers(0, 2, (9, 9, 9))
    rows, cols = taps(Letterbox.fit((18, 18), (9, 9), 'stretch'), (9, 9))
    assert np.array_equal(
        best_class(cells, rows, cols), interpolated(cells, rows, cols).argmax(axis=0)
    )


@pytest.mark.parametrize('height', [255 * 4, 400 * 4])
def test_many_pixels_may_lie_between_two_rows(height):
    rows, cols = taps(Letterbox.fit((5, height), (8, 8), 'stretch'), (4, 4))
    cells = regions(np.random.default_rng(0), 9, (4, 4), 2)
    assert_best(best_class(cells, rows, cols), interpolated(cells, rows, cols))


@pytest.mark.parametrize('dtype', ['float16', 'float32'])
def test_halves_compare_as_numbers_below_and_above_zero(dtype):
    cells = np.array([[[-2.0, 3.0]], [[-1.0, 2.0]], [[-0.5, -60000.0]]], dtype)
    rows, cols = taps(Letterbox.fit((2, 1), (2, 2), 'stretch'), (1, 2))
    assert best_class(cells, rows, cols).tolist() == [[2, 0]]


@pytest.mark.parametrize('dtype', ['float16', 'float32'])
@pytest.mark.parametrize('value', [np.nan, np.inf, -np.inf])
def test_non_finite_cells_affect_only_their_surroundings(value, dtype):
    cells = regions(np.random.default_rng(0), 9, (12, 12), 0.5).astype(dtype)
    rows, cols = taps(Letterbox.fit((48, 48), (48, 48), 'stretch'), (12, 12))
    expected = best_class(cells, rows, cols)
    cells[:, 5, 5] = value
    with np.errstate(invalid='ignore'):
        labels = best_class(cells, rows, cols)
    labels[16:28, 16:28] = expected[16:28, 16:28]
    assert np.array_equal(labels, expected)


# Confidence.


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
    powers = np.exp(cells.astype(np.float32) - cells.max(axis=0))
    probabilities = powers / powers.sum(axis=0)
    labels, confidence, axes = confidence_of(cells, image_wh)
    assert len(np.unique(labels)) > 2 and confidence.min() < 160 < confidence.max()
    assert_interpolated(labels, confidence, probabilities, axes)
    labels, confidence, axes = confidence_of(probabilities, image_wh)
    assert_interpolated(labels, confidence, probabilities, axes)


def test_confidence_is_a_sigmoid_score_as_it_is_and_0_where_scores_are_not_finite():
    cells = np.full((3, 8, 8), 0.1, np.float32)
    cells[2] = 0.4
    _, confidence, _ = confidence_of(cells, (20, 10), (32, 32), 'stretch')
    assert (confidence == 102).all()
    cells = np.zeros((2, 4, 4), np.float32)
    cells[0] = 9
    cells[:, 3, 3] = np.nan
    _, confidence, _ = confidence_of(cells, (4, 4), (4, 4), 'stretch')
    assert confidence[3, 3] == 0
    assert (confidence.reshape(-1)[:-1] == 255).all()
