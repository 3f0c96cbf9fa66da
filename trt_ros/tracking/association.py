"""Overlap of boxes, and one-to-one assignment of tracks to detections."""

from typing import NamedTuple

import numpy as np

from trt_ros.errors import requires

with requires('SciPy', 'Tracking', 'sudo apt install python3-scipy, or pip install scipy.'):
    from scipy.optimize import linear_sum_assignment


class Pairs(NamedTuple):
    """
    Possible pairs of a track and a detection; all others are impossible.

    :ivar rows: (P,) indices of tracks; `columns`: (P,) indices of detections; no pair is there
        twice.
    :ivar gains: (P,) positive numbers.
    """

    rows: np.ndarray
    columns: np.ndarray
    gains: np.ndarray


def overlapping(xyxy: np.ndarray, others: np.ndarray, min_iou: float) -> Pairs:
    """
    Find the pairs of boxes that overlap; their gain is the IoU.

    :param xyxy: (4, N) float64 x1, y1, x2, y2, with finite values and an area; `others`: (4, M).
    :param min_iou: minimum IoU of a pair.
    """
    # Few pairs overlap at all: compare all, in float32 for speed, and compute the IoU of those.
    left, top, right, bottom = xyxy.astype(np.float32)[..., None]
    others_left, others_top, others_right, others_bottom = others.astype(np.float32)
    is_overlap = left <= others_right
    is_overlap &= others_left <= right
    is_overlap &= top <= others_bottom
    is_overlap &= others_top <= bottom
    # Ten times faster than nonzero() of two dimensions.
    rows, columns = np.divmod(np.flatnonzero(is_overlap), others.shape[1])
    first, second = xyxy.take(rows, axis=1), others.take(columns, axis=1)
    sizes = np.minimum(first[2:], second[2:]) - np.maximum(first[:2], second[:2])
    width, height = np.maximum(sizes, 0)
    shared = width * height
    (first_width, first_height), (second_width, second_height) = (
        first[2:] - first[:2],
        second[2:] - second[:2],
    )
    ious = shared / (first_width * first_height + second_width * second_height - shared)
    is_enough = (ious >= min_iou) & (ious > 0)
    return Pairs(rows[is_enough], columns[is_enough], ious[is_enough])


def best_pairs(pairs: Pairs) -> tuple[np.ndarray, np.ndarray]:
    """Return rows and columns, (K,), of the pairs with the largest total gain, each once."""
    rows, columns, gains = pairs
    # A pair without competitors needs no optimization, and in most images most pairs are such.
    has_rival = (np.bincount(rows)[rows] > 1) | (np.bincount(columns)[columns] > 1)
    if not has_rival.any():
        return rows, columns
    some_rows = np.flatnonzero(np.bincount(rows[has_rival]))
    some_columns = np.flatnonzero(np.bincount(columns[has_rival]))
    contested = np.zeros((len(some_rows), len(some_columns)))
    contested[
        np.searchsorted(some_rows, rows[has_rival]),
        np.searchsorted(some_columns, columns[has_rival]),
    ] = gains[has_rival]
    chosen_rows, chosen_columns = linear_sum_assignment(contested, maximize=True)
    is_pair = contested[chosen_rows, chosen_columns] > 0
    return (
        np.concatenate([rows[~has_rival], some_rows[chosen_rows[is_pair]]]),
        np.concatenate([columns[~has_rival], some_columns[chosen_columns[is_pair]]]),
    )


def to_corners(boxes: np.ndarray) -> np.ndarray:
    """Convert (4, N) cx, cy, w, h to x1, y1, x2, y2."""
    center, half = boxes[:2], boxes[2:] / 2
    return np.concatenate([center - half, center + half])
