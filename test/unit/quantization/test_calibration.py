"""Ranges by each method, on distributions whose answers can be told by hand."""

import numpy as np
import pytest

from trt_ros.quantization.calibration import BINS, Histogram
from trt_ros.quantization.layers import FORMATS, INT8
from trt_ros.quantization.options import METHODS


def of(*tensors):
    histogram = Histogram()
    for values in tensors:
        histogram.add(np.asarray(values, np.float32))
    return histogram


CASES = [(FORMATS[to], method) for to, methods in METHODS[''].items() for method in methods]


@pytest.mark.parametrize(('quant_format', 'method'), CASES)
def test_range_never_exceeds_the_largest_value(quant_format, method):
    assert of().amax(method, quant_format) == of(np.zeros(9)).amax(method, quant_format) == 0.0
    values = np.random.default_rng(0).normal(size=20_000)
    amax = of(values).amax(method, quant_format)
    assert 2.0 < amax <= np.abs(values).max() * (1 + 1e-6)


def test_larger_values_later_give_the_same_counts_and_values_that_are_not_finite_none():
    rng = np.random.default_rng(0)
    small, large = rng.random(1000), rng.random(1000) * 50
    grown = of([1.0], small, large)
    assert grown.counts.sum() == 2001
    assert grown.limit == 64.0 and grown.largest == pytest.approx(large.max(), rel=1e-6)
    expected = np.histogram(np.concatenate([[1.0], small, large]), BINS, (0, 64))[0]
    assert np.abs(grown.counts - expected).sum() <= 4  # Rounding at the edges.
    histogram = of([np.nan, np.inf, -2.0, 1.0])
    assert (histogram.largest, histogram.counts.sum()) == (2.0, 2)


def test_one_outlier_widens_max_only():
    values = np.append(np.random.default_rng(0).normal(size=100_000), 100.0)
    ranges = {method: of(values).amax(method, INT8) for method in METHODS['']['int8']}
    assert ranges['max'] == 100.0
    assert 3.0 < ranges['percentile'] < 5.0
    assert ranges['mse'] < 70.0


def test_mse_is_the_best_range_tried():
    values = np.random.default_rng(0).laplace(size=50_000)
    histogram = of(values)

    def error(amax):
        return ((INT8.simulate(values, amax) - values) ** 2).mean()

    best = histogram.amax('mse', INT8)
    assert best < histogram.largest
    assert error(best) <= min(error(best * factor) for factor in (0.8, 1.25, 2.0)) * 1.01
    assert error(best) < error(histogram.largest)
