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


def overlapping(
    xyxy: np.ndarray, others: np.ndarray, min_iou: float, *, of_smaller: bool = False
) -> Pairs:
    """
    Find the pairs of boxes that overlap; their gain is the IoU.

    :param xyxy: (4, N) float64 x1, y1, x2, y2, with finite values and an area; `others`: (4, M).
        In space (6, N): x1, y1, z1, x2, y2, z2.
    :param min_iou: minimum IoU of a pair; with `of_smaller`, minimum share of the smaller box that
        lies in the other one.
    """
    axes = len(xyxy) // 2
    # Few pairs overlap at all: compare all, in float32 for speed, and compute the IoU of those.
    sides, others_sides = xyxy.astype(np.float32)[..., None], others.astype(np.float32)
    is_overlap = sides[0] <= others_sides[axes]
    is_overlap &= others_sides[0] <= sides[axes]
    for axis in range(1, axes):
        is_overlap &= sides[axis] <= others_sides[axes + axis]
        is_overlap &= others_sides[axis] <= sides[axes + axis]
    # Ten times faster than nonzero() of two dimensions.
    rows, columns = np.divmod(np.flatnonzero(is_overlap), others.shape[1])
    first, second = xyxy.take(rows, axis=1), others.take(columns, axis=1)
    sizes = np.minimum(first[axes:], second[axes:]) - np.maximum(first[:axes], second[:axes])
    shared = _product(np.maximum(sizes, 0))
    areas, others_areas = (_product(each[axes:] - each[:axes]) for each in (first, second))
    ious = shared / (areas + others_areas - shared)
    shares = shared / np.minimum(areas, others_areas) if of_smaller else ious
    is_enough = (shares >= min_iou) & (ious > 0)
    return Pairs(rows[is_enough], columns[is_enough], ious[is_enough])


def _product(sizes: np.ndarray) -> np.ndarray:
    area = sizes[0] * sizes[1]
    return np.asarray(area if len(sizes) == 2 else area * sizes[2])


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
    """Convert (4, N) cx, cy, w, h to x1, y1, x2, y2; in space (6, N)."""
    axes = len(boxes) // 2
    center, half = boxes[:axes], boxes[axes:] / 2
    return np.concatenate([center - half, center + half])
