"""Values of rows, and the choice of rows and classes whose scores pass a threshold."""

import math
from typing import NamedTuple

import numpy as np

from trt_ros.families.layout import BoxLayout
from trt_ros.families.match import Reading
from trt_ros.families.places import LevelSlices, Places, Slice
from trt_ros.tensors import Arrays
from trt_ros.vision.scores import (
    as_float32,
    check_range,
    highest,
    nonzero,
    passing,
    sigmoid,
    softmax,
)


class Values:
    """The outputs of one image as a reading sees them; `outputs`: arrays by name, batch size 1."""

    def __init__(self, outputs: Arrays, reading: Reading) -> None:
        self._reading = reading
        self._arrays = {
            part.spec.name: np.ascontiguousarray(outputs[part.spec.name]) for part in reading.parts
        }

    def view(self, place: Slice, rows: int) -> np.ndarray:
        """Return a view of a slice: (rows, values), of the dtype of the output."""
        array = self._arrays[place.output]
        if not rows:
            return np.zeros((0, place.values), array.dtype)
        size = array.itemsize
        strides = (place.row * size, place.column * size)
        return np.ndarray((rows, place.values), array.dtype, array, place.start * size, strides)

    def gather(
        self, place: Slice, rows: np.ndarray, labels: np.ndarray | None = None, class_step: int = 0
    ) -> np.ndarray:
        """Return a slice of some rows, (n, values) float32; `class_step`: between classes."""
        first = place.start + rows * place.row
        if labels is not None:
            first = first + labels * class_step
        index = first[:, None] + np.arange(place.values) * place.column
        return as_float32(self._arrays[place.output].reshape(-1)[index])

    def tensor(self, role: str) -> np.ndarray:
        """Return an output that is not divided into rows, without its batch axis."""
        part = next(part for part in self._reading.parts if role in part.out.fields)
        array = self._arrays[part.spec.name]
        return np.asarray(array[0] if 'B' in part.out.axes.split() else array)


ROWS_CHECKED = 64


class Scored(NamedTuple):
    """Rows of a level that pass, in order, with their classes; (n,) each."""

    rows: np.ndarray
    labels: np.ndarray
    scores: np.ndarray


def select(
    layout: BoxLayout, values: Values, places: Places, level: LevelSlices, threshold: float
) -> Scored:
    """Select by the scores of a level; raise ScoreRangeError for finite ones outside 0 to 1."""
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
    if layout.select == 'best':
        if layout.activation != 'none':
            scores = _activated(as_float32(scores))
        best = highest(scores.T)
        keep = np.flatnonzero(passing(best, threshold))
        return Scored(keep, scores[keep].astype(np.float32).argmax(axis=1), best[keep])
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
        if layout.limits_objectness:
            limited = np.clip(objectness, 0, 1)
            objectness = np.where(np.isfinite(objectness), limited, objectness)
        rows = np.flatnonzero(passing(objectness, threshold if layout.power == 1 else 0))
        # Checks a sample of the rows: in YOLOv5-face the values are not scores.
        check_range(scores[:: len(scores) // ROWS_CHECKED + 1])
        found = as_float32(scores[rows])
    best = objectness[rows]
    if not is_alone:
        highest_each = check_range(found.max(axis=1))
        if layout.class_power != 1:
            highest_each = highest_each ** np.float32(layout.class_power)
        best = best * highest_each
    if layout.power != 1:
        best = np.sqrt(best) if layout.power == 0.5 else best ** np.float32(layout.power)
    keep = np.flatnonzero(passing(best, threshold))
    return Scored(rows[keep], found[keep].argmax(axis=1), best[keep])


def _activated(logits: np.ndarray) -> np.ndarray:
    scores = sigmoid(logits)
    scores[~(logits < np.inf)] = np.nan
    scores[np.isneginf(logits).all(axis=1)] = np.nan
    return scores


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
    """Return whether cells are as high as their neighbors; `planes`: (h, w, C)."""
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
    return math.log(score / (1 - score)) if 0 < score < 1 else math.inf * (score - 0.5)
