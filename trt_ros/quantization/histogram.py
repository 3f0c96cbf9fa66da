"""Ranges of activations, from histograms of their absolute values."""

from __future__ import annotations

import numpy as np

from trt_ros.quantization.formats import QuantFormat

BINS = 4096
PERCENTILE = 99.99
MSE_CANDIDATES = 64
LEVELS = 128  # Of int8 without signs.


class Histogram:
    """
    Absolute values of a tensor over many runs, in bins of equal width from 0.

    If a larger value comes, pairs of bins are merged until it fits.

    :ivar limit: upper edge of the last bin.
    :ivar largest: largest finite value.
    """

    def __init__(self) -> None:
        self.counts = np.zeros(BINS, np.int64)
        self.limit = self.largest = 0.0

    def copy(self) -> Histogram:
        """Return an independent copy."""
        found = Histogram()
        found.counts, found.limit, found.largest = self.counts.copy(), self.limit, self.largest
        return found

    def add(self, values: np.ndarray) -> None:
        """Add the finite values of a tensor of any shape."""
        magnitudes = np.abs(values.ravel())
        largest = float(magnitudes.max(initial=0.0))
        if not np.isfinite(largest):
            magnitudes = magnitudes[np.isfinite(magnitudes)]
            largest = float(magnitudes.max(initial=0.0))
        self.largest = max(self.largest, largest)
        if not self.limit:
            if not largest:
                return
            self.limit = largest
        while self.limit < largest:
            half = self.counts.reshape(-1, 2).sum(axis=1)
            self.counts = np.concatenate([half, np.zeros_like(half)])
            self.limit *= 2
        indices = np.minimum((magnitudes * (BINS / self.limit)).astype(np.int64), BINS - 1)
        self.counts += np.bincount(indices, minlength=BINS)

    def amax(self, method: str, quant_format: QuantFormat) -> float:
        """
        Return the upper end of the range to quantize.

        :param method: 'max': the largest value; 'percentile': PERCENTILE of the values lie below;
            'mse': smallest mean squared error; 'entropy': smallest Kullback-Leibler divergence
            (Migacz, 8-bit inference with TensorRT, GTC 2017).
        """
        if method == 'max' or not self.largest:
            return self.largest
        if method == 'percentile':
            return self._percentile()
        return self._mse(quant_format) if method == 'mse' else self._entropy()

    @property
    def _centers(self) -> np.ndarray:
        return (np.arange(BINS) + 0.5) * (self.limit / BINS)

    def _percentile(self) -> float:
        below = np.cumsum(self.counts)
        index = int(np.searchsorted(below, below[-1] * (PERCENTILE / 100)))
        return min((index + 1) * self.limit / BINS, self.largest)

    def _mse(self, quant_format: QuantFormat) -> float:
        used = np.flatnonzero(self.counts)
        counts, centers = self.counts[used], self._centers[used]
        candidates = self.largest * np.geomspace(1, 1 / 32, MSE_CANDIDATES)
        errors = [
            float(counts @ (quant_format.simulate(centers, each) - centers) ** 2)
            for each in candidates
        ]
        return float(candidates[int(np.argmin(errors))])

    def _entropy(self) -> float:
        counts = self.counts.astype(np.float64)
        counts[0] = 0.0  # Zeros (of ReLU, mostly) are exact in any range.
        last = int(np.ceil(self.largest / self.limit * BINS))
        ends = np.arange(min(LEVELS, last), last + 1, max(1, last // 256))
        best = int(ends[int(np.argmin([_divergence(counts, int(end)) for end in ends]))])
        return min(best * self.limit / BINS, self.largest)


def _divergence(counts: np.ndarray, end: int) -> float:
    """Return the divergence of `counts` from its first `end` bins in LEVELS levels."""
    reference = counts[:end].copy()
    filled = reference > 0
    reference[-1] += counts[end:].sum()  # Saturated.
    level = np.arange(end) * LEVELS // end
    sums = np.bincount(level, np.where(filled, counts[:end], 0.0), LEVELS)
    members = np.bincount(level, filled, LEVELS)
    quantized = np.where(filled, (sums / np.maximum(members, 1))[level], 0.0)
    total = quantized.sum()
    if not total or not reference.sum():
        return float('inf')
    p, q = reference / reference.sum(), quantized / total
    both = (p > 0) & (q > 0)
    # Values that saturate into an empty bin have no counterpart.
    lost = p[(p > 0) & (q == 0)].sum()
    return float((p[both] * np.log(p[both] / q[both])).sum() + lost * np.log(1e9))
