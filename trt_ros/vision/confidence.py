"""Confidence of class masks: the score of each pixel's class, from a grid of scores."""

import numpy as np

from trt_ros.results.masks import as_confidence
from trt_ros.vision.class_masks import mixed_groups
from trt_ros.vision.float16 import as_float32
from trt_ros.vision.grid import Taps, bilinear

BLOCK_VALUES = 1 << 16  # A block stays in the cache.


def is_probability(scores: np.ndarray) -> bool:
    """Return whether scores are probabilities; NaN is no evidence, and rounding is allowed for."""
    with np.errstate(invalid='ignore'):
        return not ((scores < 0) | (scores > 1.001)).any()


def mask_confidence(
    cells: np.ndarray,
    labels: np.ndarray,
    rows: Taps,
    cols: Taps,
    *,
    are_probabilities: bool | None = None,
) -> np.ndarray:
    """
    Compute the probability of the class of each pixel, interpolated (bilinear) between cells.

    By default, scores are probabilities where all of them may be, else the logits of a softmax.

    :param cells: (C, h, w) scores, floating point.
    :param labels: (len(rows), len(cols)) class indices, as of best_class().
    :returns: (len(rows), len(cols)) uint8, 0 to 255 for 0 to 1; 0 where scores are not finite.
    """
    scores = _Probabilities(cells, are_probabilities)
    image = bilinear(scores.highest, rows, cols)
    between = np.zeros(scores.highest.shape, bool)
    between.reshape(-1)[mixed_groups(scores.best, rows, cols)] = True
    pixels = np.flatnonzero(between.take(cols.first, axis=1).take(rows.first, axis=0))
    for start in range(0, len(pixels), BLOCK_VALUES):
        block = pixels[start : start + BLOCK_VALUES]
        y, x = np.divmod(block, labels.shape[1])
        label, weights = labels.reshape(-1).take(block), cols.weights.take(x)
        ends = []
        for line in (rows.first.take(y), rows.second.take(y)):
            line *= between.shape[1]
            left = scores.of(label, line + cols.first.take(x))
            right = scores.of(label, line + cols.second.take(x))
            ends.append(left + (right - left) * weights)
        upper, lower = ends
        image.reshape(-1)[block] = upper + (lower - upper) * rows.weights.take(y)
    return as_confidence(image)


class _Probabilities:
    """
    The probabilities of a grid of scores (C, h, w), computed where they are needed.

    :ivar best: (h, w) class with the highest score of each cell; `highest`: its probability.
    """

    def __init__(self, cells: np.ndarray, are_probabilities: bool | None) -> None:
        count, height, width = cells.shape
        self._is_final = is_probability(cells) if are_probabilities is None else are_probabilities
        # Channels first or last, whichever needs no copy.
        is_last = cells.transpose(1, 2, 0).flags.c_contiguous
        self._flat = (cells.transpose(1, 2, 0) if is_last else cells).reshape(-1)
        self._class_step: int = 1 if is_last else height * width
        self._cell_step: int = count if is_last else 1
        self._peak, self.highest = np.empty((2, height, width), np.float32)
        self.best = np.empty((height, width), np.intp)
        step = max(1, BLOCK_VALUES // (count * width))
        with np.errstate(invalid='ignore', over='ignore'):
            for start in range(0, height, step):
                block = slice(start, start + step)
                part = as_float32(np.ascontiguousarray(cells[:, block]))
                self.best[block] = part.argmax(axis=0)
                self._peak[block] = peak = part.max(axis=0)
                if not self._is_final:
                    part = np.exp(np.subtract(part, peak))
                    self.highest[block] = 1 / part.sum(axis=0)
        if self._is_final:
            self.highest = self._peak

    def of(self, label: np.ndarray, cell: np.ndarray) -> np.ndarray:
        """Return the probabilities of classes at cells, (n,) each; cells by their flat index."""
        index = label.astype(np.intp) * self._class_step + cell * self._cell_step
        score = as_float32(self._flat.take(index))
        if self._is_final:
            return score
        with np.errstate(invalid='ignore', over='ignore'):
            power = np.exp(score - self._peak.reshape(-1).take(cell))
            return np.asarray(power * self.highest.reshape(-1).take(cell))
