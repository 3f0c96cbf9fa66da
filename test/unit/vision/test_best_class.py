from __future__ import annotations

from hypothesis import given, settings
from hypothesis import strategies as st
import numpy as np
import pytest

from trt_ros.vision.best_class import best_class
from trt_ros.vision.grid import bilinear, taps
from trt_ros.vision.letterbox import RESIZES, Letterbox

REPEATABLE = settings(max_examples=60, deadline=None, derandomize=True, database=None)


def interpolated(cells, rows, cols):
    return np.stack([bilinear(plane, rows, cols) for plane in cells.astype(np.float32)])


def assert_best(labels, values):
    """Where two scores are equal up to rounding, either may win."""
    won = np.take_along_axis(values, labels[None].astype(np.intp), axis=0)[0]
    assert (won >= values.max(axis=0) - 1e-5 * np.abs(values).max()).all()


@REPEATABLE
@given(image_wh=st.tuples(st.integers(1, 90), st.integers(1, 90)),
       grid_hw=st.tuples(st.integers(1, 12), st.integers(1, 12)),
       resize=st.sampled_from(RESIZES), count=st.integers(2, 9), seed=st.integers(0, 99),
       dtype=st.sampled_from(['float16', 'float32', 'float64']))
def test_it_is_the_best_of_the_interpolated_scores(image_wh, grid_hw, resize, count, seed, dtype):
    rows, cols = taps(Letterbox.fit(image_wh, (48, 48), resize), grid_hw)
    cells = np.random.default_rng(seed).normal(size=(count, *grid_hw)).astype(dtype)
    labels = best_class(cells, rows, cols)
    assert labels.shape == image_wh[::-1] and labels.dtype == np.uint8
    assert_best(labels, interpolated(cells, rows, cols))


def test_few_of_many_classes_are_near_and_the_right_one_wins():
    rng = np.random.default_rng(0)
    cells = rng.normal(size=(300, 20, 20)).astype(np.float32)
    cells[250:253] += 4
    rows, cols = taps(Letterbox.fit((130, 70), (80, 80), 'letterbox'), (20, 20))
    labels = best_class(cells, rows, cols)
    assert labels.dtype == np.uint16 and {250, 251, 252} <= set(labels.flat)
    assert_best(labels, interpolated(cells, rows, cols))


def test_whole_numbers_that_tie_give_the_first():
    cells = np.random.default_rng(0).integers(-3, 3, (6, 9, 9)).astype(np.float32)
    rows, cols = taps(Letterbox.fit((18, 18), (9, 9), 'stretch'), (9, 9))
    assert np.array_equal(best_class(cells, rows, cols),
                          interpolated(cells, rows, cols).argmax(axis=0))


@pytest.mark.parametrize('dtype', ['float16', 'float32'])
def test_halves_compare_as_numbers_below_and_above_zero(dtype):
    cells = np.array([[[-2.0, 3.0]], [[-1.0, 2.0]], [[-0.5, -60000.0]]], dtype)
    rows, cols = taps(Letterbox.fit((2, 1), (2, 2), 'stretch'), (1, 2))
    assert best_class(cells, rows, cols).tolist() == [[2, 0]]


@pytest.mark.parametrize('dtype', ['float16', 'float32'])
@pytest.mark.parametrize('value', [np.nan, np.inf, -np.inf])
def test_what_is_not_finite_spoils_its_surroundings_only(value, dtype):
    rng = np.random.default_rng(0)
    cells = rng.normal(size=(4, 12, 12)).astype(dtype)
    rows, cols = taps(Letterbox.fit((48, 48), (48, 48), 'stretch'), (12, 12))
    expected = best_class(cells, rows, cols)
    cells[:, 5, 5] = value
    with np.errstate(invalid='ignore'):
        labels = best_class(cells, rows, cols)
    labels[16:28, 16:28] = expected[16:28, 16:28]
    assert np.array_equal(labels, expected)
