"""Where the values between the cells of a grid are above a threshold."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import numpy as np

from trt_ros.vision.grid import Taps

Box = tuple[int, int, int, int]  # x1, y1, x2, y2 in whole pixels.

AT_ONCE = 128  # Planes: few calls for many small ones, and no end of memory for thousands.
BLOCK_VALUES = 1 << 15  # Computed at once, so that they stay in the cache.


def threshold_masks(
    planes: Sequence[np.ndarray],
    threshold: float,
    rows: Taps,
    cols: Taps,
    boxes: Sequence[Box],
    curve: Callable[[np.ndarray], np.ndarray] = np.positive,
) -> list[np.ndarray]:
    """
    Interpolate (bilinear) planes of cells at the pixels of boxes, and compare with a threshold.

    Four cells on the same side of it have nothing on the other side between them. Elsewhere, the
    values in a column of pixels between two rows of cells lie on a straight line: they pass the
    threshold once at most. So all that is computed of such a column is where.

    :param planes: of (h, w) float32 cells, those that `cells_of` says for the box. NaN is below,
        and nothing is interpolated down to it.
    :param rows, cols: of the whole image.
    :param boxes: of each plane the pixels that are asked for; none is empty.
    :param curve: rises all along; it is curve(cells) that is interpolated, and compared with
        curve(threshold).
    :returns: (y2 - y1, x2 - x1) bool each.
    """
    begins = np.searchsorted(rows.first, np.arange(rows.second[-1] + 1))
    down = np.arange(len(rows.first)) - begins[rows.first]
    code_type = np.dtype(np.uint8 if down.max() < 64 else np.uint32)
    down = down[:, None].astype(code_type)
    half = code_type.type(1 << (8 * code_type.itemsize - 1))
    masks: list[np.ndarray] = []
    for start in range(0, len(planes), AT_ONCE):
        part = slice(start, start + AT_ONCE)
        codes = _codes(planes[part], threshold, rows, cols, boxes[part], curve, code_type)
        for code, (_, y1, _, y2) in zip(codes, boxes[part]):
            spread = code.take(rows.first[y1:y2] - rows.first[y1], axis=0)
            spread -= down[y1:y2]
            in_place = spread.view(bool) if spread.itemsize == 1 else None
            masks.append(np.greater_equal(spread, half, out=in_place))
    return masks


def _codes(
    planes: Sequence[np.ndarray],
    threshold: float,
    rows: Taps,
    cols: Taps,
    boxes: Sequence[Box],
    curve: Callable[[np.ndarray], np.ndarray],
    code_type: np.dtype[Any],
) -> list[np.ndarray]:
    """
    Say for each row of cells, at each column, which pixels down to the next one are above.

    :returns: (h, x2 - x1) of each plane, unsigned: pixel k is above where code - k is, as a signed
        integer, negative.
    """
    quarter = 1 << (8 * code_type.itemsize - 2)  # Never above; three of them: always.
    x1, y1, x2, _ = np.array(boxes).T
    values, tops = _stacked(planes)
    high = values > threshold
    narrow = high.astype(code_type)
    narrow *= code_type.type(2 * quarter)
    narrow += code_type.type(quarter)
    heights = np.array([len(plane) for plane in planes])
    ends = np.cumsum(heights * (x2 - x1))
    begins = ends - heights * (x2 - x1)
    flat: np.ndarray = np.empty(ends[-1], code_type)
    codes = [
        flat[begin:end].reshape(len(plane), -1)
        for plane, begin, end in zip(planes, begins.tolist(), ends.tolist())
    ]
    for code, top, (left, _, right, _) in zip(codes, tops.tolist(), boxes):
        narrow[top : top + len(code)].take(
            cols.first[left:right] - cols.first[left], axis=1, out=code, mode='clip'
        )

    at, plane, row, run = _mixed(high, tops, heights, cols, x1, x2)
    target = (begins - x1).take(plane) + row * (x2 - x1).take(plane)
    # In pixels from the row of cells on.
    lines = np.arange(rows.second[-1] + 1)
    base = (lines - rows.origin) / rows.pitch - np.searchsorted(rows.first, lines)
    base = base.astype(np.float32).take(row + rows.first.take(y1).take(plane))
    first, last = x1.take(plane), x2.take(plane) - 1
    bar = curve(np.array([threshold], np.float32))
    step = max(1, BLOCK_VALUES // cols.runs.shape[1])
    for start in range(0, len(at), step):
        part = slice(start, start + step)
        x = np.minimum(np.maximum(cols.runs.T[:, run[part]], first[part]), last[part])
        upper_left, upper_right, lower_left, lower_right = (
            curve(values.reshape(-1).take(at[part] + offset)) - bar
            for offset in (0, 1, values.shape[1], values.shape[1] + 1)
        )
        weights = cols.weights.take(x)
        upper = (upper_right - upper_left) * weights
        upper += upper_left
        lower = (lower_right - lower_left) * weights
        lower += lower_left
        falls = upper > 0
        sign = falls.astype(np.float32)  # Faster than to choose by `falls`.
        sign *= -2
        sign += 1
        upper *= sign  # Not above 0 any more, and passed where `lower` is.
        lower *= sign
        lower -= upper
        np.maximum(lower, 0, out=lower)
        with np.errstate(divide='ignore', invalid='ignore'):
            passed = upper / lower
        passed *= np.float32(-1 / rows.pitch)
        passed += base[part]
        np.fmin(passed, quarter, out=passed)  # NaN and infinity, too: never.
        np.maximum(passed, -1, out=passed)
        passed *= sign
        np.floor(passed, out=passed)  # Upwards where it falls.
        passed *= sign
        code_values = passed.astype(np.int32)
        code_values += falls * np.int32(2 * quarter - 1)
        x += target[part]
        flat[x] = code_values.astype(code_type)
    return codes


def _stacked(planes: Sequence[np.ndarray]) -> tuple[np.ndarray, np.ndarray]:
    """
    Put one plane below the other, the last row and column of each once more.

    :returns: (sum of h + 1, most of w + 1), and where each plane begins.
    """
    tops = np.cumsum([0] + [len(plane) + 1 for plane in planes])
    values = np.zeros((tops[-1], max(plane.shape[1] for plane in planes) + 1), np.float32)
    for plane, top in zip(planes, tops.tolist()):
        height, width = plane.shape
        values[top : top + height, :width] = plane
        values[top : top + height, width] = plane[:, -1]
        values[top + height] = values[top + height - 1]
    return values, tops[:-1]


def _mixed(
    high: np.ndarray,
    tops: np.ndarray,
    heights: np.ndarray,
    cols: Taps,
    x1: np.ndarray,
    x2: np.ndarray,
) -> tuple[np.ndarray, ...]:
    """
    Find four cells that differ, and the runs of a box's pixels between them.

    :param high: of all planes, as they are stacked.
    :returns: (Q,) each: the upper left cell's number, its plane, its row there, a run's number.
    """
    ones, stride = high.reshape(-1).view(np.uint8), high.shape[1]
    pairs = ones[:-1] + ones[1:]
    at = np.flatnonzero(pairs[:-stride] + pairs[stride:] - np.uint8(1) < 3)
    row, cell = np.divmod(at, stride)
    plane = np.repeat(np.arange(len(tops)), heights + 1).take(row)
    row -= tops.take(plane)
    cell += cols.first.take(x1).take(plane)
    begins = np.searchsorted(cols.first.take(cols.runs[:, 0]), np.arange(cell.max(initial=0) + 2))
    run_of = np.searchsorted(cols.runs[:, 0], np.arange(len(cols.first)), side='right') - 1
    first = np.maximum(begins.take(cell), run_of.take(x1).take(plane))
    counts = np.minimum(begins.take(cell + 1), run_of.take(x2 - 1).take(plane) + 1) - first
    counts[(row == heights.take(plane)) | (counts < 0)] = 0
    which = np.repeat(np.arange(len(at)), counts)
    run = np.arange(len(which)) + np.repeat(first - np.cumsum(counts) + counts, counts)
    return at.take(which), plane.take(which), row.take(which), run


def cells_of(rows: Taps, cols: Taps, box: Box) -> tuple[slice, slice]:
    """Say which rows and columns of cells the pixels of a box lie between."""
    x1, y1, x2, y2 = box
    return (
        slice(int(rows.first[y1]), int(rows.second[y2 - 1]) + 1),
        slice(int(cols.first[x1]), int(cols.second[x2 - 1]) + 1),
    )
