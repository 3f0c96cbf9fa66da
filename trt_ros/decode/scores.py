"""Selection of the rows and classes whose scores pass a threshold."""

import math
from typing import NamedTuple

import numpy as np

from trt_ros.decode.values import Values
from trt_ros.families.layout import BoxLayout
from trt_ros.families.places import LevelSlices, Places
from trt_ros.vision.float16 import as_float32, highest
from trt_ros.vision.scores import check_range, nonzero, passing, sigmoid, softmax

ROWS_CHECKED = 64


class Scored(NamedTuple):
    """Rows of a level that pass, in order, with their classes; (n,) each."""

    rows: np.ndarray
    labels: np.ndarray
    scores: np.ndarray


def select(
    layout: BoxLayout, values: Values, places: Places, level: LevelSlices, threshold: float
) -> Scored:
    """
    Select by the scores of a level.

    :raises ScoreRangeError: when a score is finite and outside 0 to 1.
    """
    rows, slices = level.rows, level.slices
    if 'count' in places.tensors:
        count = np.ravel(values.view(places.tensors['count'], 1))[0]
        rows = int(np.nan_to_num(count, nan=0).clip(0, rows))  # May be a float.
    scores = values.view(slices['scores'], rows)
    if 'label' in slices:
        labels = values.view(slices['label'], rows)[:, 0]
        return _labeled(scores[:, 0], labels, layout.label_offset, threshold)
    if 'objectness' in slices:
        objectness = values.view(slices['objectness'], rows)[:, 0]
        return _with_objectness(layout, objectness, scores, threshold)
    if layout.activation == 'softmax':
        return _softmax(scores, values.view(slices['none'], rows), threshold)
    if layout.select == 'best' and layout.activation == 'none':
        best = highest(scores.T)
        keep = np.flatnonzero(passing(best, threshold))
        return Scored(keep, scores[keep].astype(np.float32).argmax(axis=1), best[keep])
    if layout.select == 'best':
        return _best_logit(as_float32(scores), threshold)
    return _each(layout, as_float32(scores), level, threshold)


def _labeled(scores: np.ndarray, labels: np.ndarray, offset: int, threshold: float) -> Scored:
    """Select rows of one score and class; -1 fills unused places, beyond int32 is no class."""
    if offset:
        labels = labels.astype(np.float32) - offset
    used = np.flatnonzero((labels >= 0) & (labels < 1 << 31))
    found = as_float32(scores[used])
    keep = passing(found, threshold, is_padded=True)
    return Scored(used[keep], labels[used[keep]], found[keep])


def _with_objectness(
    layout: BoxLayout, objectness: np.ndarray, scores: np.ndarray, threshold: float
) -> Scored:
    """Select the best class of each row, times its objectness."""
    objectness = as_float32(objectness)
    is_alone = layout.objectness_only and scores.shape[1] == 1
    if layout.activation == 'sigmoid':
        is_finite = np.isfinite(objectness)
        objectness = sigmoid(objectness)
        rows = np.flatnonzero((objectness >= threshold) & is_finite)
        logits = as_float32(scores[rows])
        found = _activated(logits)
    else:
        # No score is above its objectness, so most rows are dropped without their classes.
        rows = np.flatnonzero(passing(objectness, 0 if layout.has_root else threshold))
        # Checks a sample of the rows: in YOLOv5-face the values are not scores.
        check_range(scores[:: len(scores) // ROWS_CHECKED + 1])
        found = as_float32(scores[rows])
    best = objectness[rows]
    if not is_alone:
        best = best * check_range(found.max(axis=1))
    best = np.sqrt(best) if layout.has_root else best
    keep = np.flatnonzero(passing(best, threshold))
    return Scored(rows[keep], found[keep].argmax(axis=1), best[keep])


def _activated(logits: np.ndarray) -> np.ndarray:
    """Return the sigmoids of (n, C) logits; NaN of NaN and +Inf, and of a row of -Inf only."""
    scores = sigmoid(logits)
    scores[~(logits < np.inf)] = np.nan
    scores[np.isneginf(logits).all(axis=1)] = np.nan
    return scores


def _best_logit(logits: np.ndarray, threshold: float) -> Scored:
    scores = _activated(logits)
    best = scores.max(axis=1)
    keep = np.flatnonzero(passing(best, threshold))
    return Scored(keep, scores[keep].argmax(axis=1), best[keep])


def _softmax(classes: np.ndarray, none: np.ndarray, threshold: float) -> Scored:
    """Select the best class of each row by softmax over the classes and "no object"."""
    logits = as_float32(np.hstack([classes, none]))
    scores = softmax(logits)[:, :-1]
    labels = scores.argmax(axis=1)
    rows = np.arange(len(scores))
    best = np.where(np.isfinite(logits[rows, labels]), scores[rows, labels], np.nan)
    keep = np.flatnonzero(passing(best, threshold))
    return Scored(keep, labels[keep], best[keep])


def _each(layout: BoxLayout, values: np.ndarray, level: LevelSlices, threshold: float) -> Scored:
    """Select every score that passes, row by row."""
    are_logits = layout.activation == 'sigmoid' or (
        layout.activation == 'maybe_sigmoid' and bool(np.fmin.reduce(values, axis=None) < 0)
    )
    if are_logits:
        limit = _logit(threshold) - 1e-3  # Rounding is left to the comparison below.
        rows, labels = nonzero((values >= limit) & np.isfinite(values))
    else:
        rows, labels = nonzero(passing(values, threshold))
    found = values[rows, labels]
    is_chosen = np.ones(len(rows), bool)
    if layout.is_peak and level.grid is not None:
        is_chosen = _are_peaks(values.reshape(*level.grid.shape, -1), rows, labels)
    if are_logits:
        found = sigmoid(found)
        is_chosen &= found >= threshold
    return Scored(rows[is_chosen], labels[is_chosen], found[is_chosen])


def _are_peaks(planes: np.ndarray, rows: np.ndarray, labels: np.ndarray) -> np.ndarray:
    """
    Return whether cells are as high as their neighbors.

    :param planes: (h, w, C).
    """
    height, width, _ = planes.shape
    y, x = np.divmod(rows, width)
    values = planes[y, x, labels]
    is_peak = np.ones(len(rows), bool)
    for row_step in (-1, 0, 1):
        for column_step in (-1, 0, 1):
            beside = planes[
                np.clip(y + row_step, 0, height - 1),
                np.clip(x + column_step, 0, width - 1),
                labels,
            ]
            is_peak &= ~(beside > values)
    return is_peak


def _logit(score: float) -> float:
    """Return the value whose sigmoid is `score`, 0 to 1."""
    return math.log(score / (1 - score)) if 0 < score < 1 else math.inf * (score - 0.5)
