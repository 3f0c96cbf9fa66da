"""
Appearance of tracks: means of the unit vectors of their detections.

The gain of a similar pair and the mean weighted by scores are those of Deep OC-SORT (Maggiolino
et al. 2023, arXiv:2302.11813). Its adaptive weighting of the gain is left out.
"""

import numpy as np

from trt_ros.errors import TensorMismatchError
from trt_ros.tracking.association import Pairs

# Least weight of the mean; gain of a pair with a cosine of 1, where that of an IoU of 1 is 1.
MEAN_WEIGHT, SIMILARITY_GAIN = 0.95, 0.75


class Similarity:
    """
    Cosine similarities of tracks with detections; 0 where one of the two has no appearance.

    :param means: (D, T) float32 of length 1, or zero: none.
    :param units: (N, D) float32 of length 1, or zero: none.
    :param columns: (M,) ascending indices of the detections that are compared.
    """

    def __init__(self, means: np.ndarray, units: np.ndarray, columns: np.ndarray) -> None:
        self._columns = columns
        self._cosines = means.T @ units[columns].T

    def add_to(self, pairs: Pairs, gains: np.ndarray) -> np.ndarray:
        """Return the gains of pairs with those for similarity; all remain positive."""
        at = np.searchsorted(self._columns, pairs.columns)
        # A pair that overlaps remains possible, whatever its appearance.
        cosines = self._cosines[pairs.rows, at]
        return np.asarray(np.maximum(gains + SIMILARITY_GAIN * cosines, 1e-6))

    def pairs(self, rows: np.ndarray, columns: np.ndarray, minimum: float) -> Pairs:
        """Return the pairs of some tracks and detections of at least a similarity above 0."""
        cosines = self._cosines[np.ix_(rows, np.searchsorted(self._columns, columns))]
        at, by = np.nonzero((cosines >= minimum) & (cosines > 0))
        return Pairs(rows[at], columns[by], cosines[at, by])


def check_rows(vectors: np.ndarray, count: int) -> None:
    """Raise TensorMismatchError if `vectors` is not of shape (count, D)."""
    if vectors.ndim != 2 or len(vectors) != count:
        raise TensorMismatchError(
            f'Appearance vectors of shape {vectors.shape} do not belong to {count} detections.',
            cause=f'The tracker takes one row per detection: the shape ({count}, D).',
            remedy='Pass the vectors of exactly these detections, in their order; a row of zeros '
            'where there is none.',
        )


def unit_vectors(vectors: np.ndarray, rows: np.ndarray) -> np.ndarray:
    """Return unit vectors, (N, D) float32; zero but in `rows`, and without a direction."""
    units = np.zeros(vectors.shape, np.float32)
    used = vectors[rows]
    largest = np.abs(used).max(axis=1, initial=0)
    is_usable = np.isfinite(largest) & (largest > 0)
    # Scaled first, because squares of large numbers overflow, and those of small ones vanish.
    scaled = (used[is_usable] / largest[is_usable, None]).astype(np.float32)
    units[rows[is_usable]] = scaled / np.linalg.norm(scaled, axis=1, keepdims=True)
    return units


def update_means(
    means: np.ndarray, match: np.ndarray, units: np.ndarray, trust: np.ndarray
) -> None:
    """
    Add the vectors of their detections to the means of tracks, in place.

    :param means: (D, T) float32 of length 1, or zero: none yet, and the vector becomes the mean.
    :param match: (T,) index of each track's detection; negative: none.
    :param units: (N, D) float32 of length 1, or zero, which changes nothing.
    :param trust: (N,) 0 to 1, weights of the vectors relative to the largest, 1 - MEAN_WEIGHT.
    """
    seen = np.flatnonzero(match >= 0)
    seen = seen[units[match[seen]].any(axis=1)]
    mean, unit = means[:, seen], units[match[seen]].T
    weight = np.where(mean.any(axis=0), (1 - MEAN_WEIGHT) * trust[match[seen]], 1.0)
    mean += weight.astype(np.float32) * (unit - mean)
    means[:, seen] = mean / np.linalg.norm(mean, axis=0)


def score_trust(scores: np.ndarray, high_score: float | np.ndarray) -> np.ndarray:
    """
    Return 0 for detections at the high score to 1 for those with a score of 1, (N,).

    :param high_score: one for all, or (N,); where it is 1 or more, the trust is 1.
    """
    above, room = scores - high_score, np.broadcast_to(1.0 - high_score, scores.shape)
    trust = np.divide(above, room, out=np.ones(scores.shape), where=room > 0)
    return np.asarray(np.clip(trust, 0, 1))
