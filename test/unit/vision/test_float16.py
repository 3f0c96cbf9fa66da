import numpy as np
import pytest

from trt_ros.vision.scores import as_float32, highest, sortable

ALL = np.arange(1 << 16, dtype=np.uint16).view(np.float16)
FINITE = ALL[np.isfinite(ALL)]


@pytest.mark.parametrize('values', [ALL[:0], FINITE, ALL, FINITE[:99].reshape(3, 33).T])
def test_every_half_becomes_the_same_number(values):
    expected = values.astype(np.float32)
    assert as_float32(values).dtype == np.float32
    assert np.array_equal(as_float32(values), expected, equal_nan=True)
    assert np.array_equal(np.signbit(as_float32(values)), np.signbit(expected))


def test_other_numbers_become_float32_too():
    assert as_float32(np.array([1.5, -2.0])).dtype == np.float32
    singles = np.ones(3, np.float32)
    assert as_float32(singles) is singles
    assert sortable(singles) is singles


def test_integers_sort_as_their_halves():
    finite = np.sort(FINITE)
    ranks = sortable(finite).astype(int)
    assert (np.diff(ranks) >= 0).all()
    assert np.array_equal(
        np.diff(ranks) > 0,
        (finite[1:] != finite[:-1]) | np.signbit(finite[:-1]) & ~np.signbit(finite[1:]),
    )


@pytest.mark.parametrize('special', [None, np.nan, -np.nan, -1.0, -0.0, np.inf, -np.inf])
@pytest.mark.parametrize('dtype', ['float16', 'float32'])
def test_the_highest_score_is_that_of_numpy(special, dtype):
    scores = np.random.default_rng(0).uniform(0, 1, (5, 7)).astype(dtype)
    if special is not None:
        scores[2, 3] = special
        scores[:, 4] = special
    found = highest(scores)
    assert found.dtype == np.float32
    assert np.array_equal(found, scores.max(axis=0).astype(np.float32), equal_nan=True)
