"""Scores: 0 to 1, compared with a threshold."""

from __future__ import annotations

import numpy as np

from trt_ros.errors import ScoreRangeError

ROUNDING = 1e-3  # float16 steps by this much just above 1.


def passing(scores: np.ndarray, score_threshold: float, *, is_padded: bool = False) -> np.ndarray:
    """
    Compare scores with the threshold; NaN and Inf never pass.

    :param scores: float32 of any shape, maybe empty.
    :param is_padded: unused places may hold any number below 0.
    :returns: bool, of the same shape.
    :raises ScoreRangeError: when one of them is finite and outside 0 to 1.
    """
    check_range(scores, is_padded=is_padded)
    return np.asarray((scores >= score_threshold) & np.isfinite(scores))


def check_range(scores: np.ndarray, *, is_padded: bool = False) -> np.ndarray:
    """
    Check that finite scores are 0 to 1, up to rounding.

    :returns: the scores, as they are.
    :raises ScoreRangeError: when one of them is not.
    """
    lowest, highest = -np.inf if is_padded else -ROUNDING, 1 + ROUNDING
    if not scores.size or (scores.min() >= lowest and scores.max() <= highest):
        return scores
    finite = scores[np.isfinite(scores)]
    wrong = finite[(finite < lowest) | (finite > highest)]
    if wrong.size:
        raise ScoreRangeError(float(wrong[np.abs(wrong).argmax()]))
    return scores
