"""Where the values between the cells of a grid are above a threshold."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np

from trt_ros.vision.grid import Taps

Box = tuple[int, int, int, int]  # x1, y1, x2, y2 in whole pixels.

AT_ONCE = 32  # Planes: few calls for many small ones, little memory for large ones.


def above(
        planes: Sequence[np.ndarray], threshold: float, rows: Taps, cols: Taps,
        boxes: Sequence[Box]) -> list[np.ndarray]:
    """
    Interpolate (bilinear) planes of cells at the pixels of boxes, and compare with a threshold.

    Between two rows of cells, the values in a column of pixels lie on a straight line: they pass
    the threshold once at most. So all that is computed of such a column is where.

    :param planes: of (h, w) float32 cells, those that `cells_of` says for the box. NaN is below,
        and nothing is interpolated down to it.
    :param rows, cols: of the whole image.
    :param boxes: of each plane the pixels that are asked for; none is empty.
    :returns: (y2 - y1, x2 - x1) bool each.
    """
    begins = np.searchsorted(rows.first, np.arange(rows.second[-1] + 1))
    pixel = np.arange(len(rows.first)) - begins[rows.first]  # From its row of cells on.
    code_type = np.dtype(np.uint8 if pixel.max() < 64 else np.uint32)
    half = 1 << (8 * code_type.itemsize - 1)
    down = pixel[:, None].astype(code_type)
    masks: list[np.ndarray] = []
    for start in range(0, len(planes), AT_ONCE):
        part = slice(start, start + AT_ONCE)
        wides = [_across(plane, cols, box) for plane, box in zip(planes[part], boxes[part])]
        codes = _codes(wides, threshold, rows, begins, boxes[part], code_type)
        end = 0
        for wide, (_, y1, _, y2) in zip(wides, boxes[part]):
            begin, end = end, end + wide.size
            spread = codes[begin:end].reshape(wide.shape).take(
                rows.first[y1:y2] - rows.first[y1], axis=0)
            spread -= down[y1:y2]
            in_place = spread.view(bool) if spread.itemsize == 1 else None
            masks.append(np.greater_equal(spread, code_type.type(half), out=in_place))
    return masks


def _across(plane: np.ndarray, cols: Taps, box: Box) -> np.ndarray:
    """Interpolate a plane's rows at the columns of a box: (h, x2 - x1)."""
    x1, _, x2, _ = box
    left = cols.first[x1]
    wide = plane.take(cols.first[x1:x2] - left, axis=1)
    right = plane.take(cols.second[x1:x2] - left, axis=1)
    right -= wide
    right *= cols.weights[x1:x2]
    wide += right
    return np.asarray(wide)


def _codes(
        wides: Sequence[np.ndarray], threshold: float, rows: Taps, begins: np.ndarray,
        boxes: Sequence[Box], code_type: np.dtype[Any]) -> np.ndarray:
    """
    Say for each row of cells, at each column, which pixels down to the next row are above.

    :param begins: the first pixel of each row of cells.
    :returns: all of `wides` one after the other, unsigned: pixel k is above where code - k is, as
        a signed integer, negative.
    """
    quarter = 1 << (8 * code_type.itemsize - 2)  # Never above; three of them: always.
    values: np.ndarray = np.concatenate([wide.reshape(-1) for wide in wides])
    high = values > threshold
    codes: np.ndarray = high.astype(code_type)
    codes *= code_type.type(2 * quarter)
    codes += code_type.type(quarter)
    # Where the next row of cells is on the other side.
    passes, end = [], 0
    for wide in wides:
        begin, end, width = end, end + wide.size, wide.shape[1]
        passes.append((high[begin:end - width] != high[begin + width:end]).nonzero()[0])
    counts = [len(each) for each in passes]
    sizes, widths = [wide.size for wide in wides], [wide.shape[1] for wide in wides]
    tops = rows.first.take([y1 for _, y1, _, _ in boxes])
    at, width = np.concatenate(passes), np.repeat(widths, counts)
    line = at // width + np.repeat(tops, counts)
    at += np.repeat(np.cumsum(sizes) - sizes, counts)
    upper, lower = values.take(at), values.take(at + width)
    falls = upper > threshold
    # In pixels from the row of cells on; what is not finite is below all of them.
    base = ((np.arange(len(begins)) - rows.origin) / rows.pitch - begins).astype(np.float32)
    passed = (threshold - upper) / (lower - upper) * np.float32(1 / rows.pitch) + base.take(line)
    passed = np.fmin(passed, np.float32(quarter))
    code = np.where(falls, np.ceil(passed), np.floor(passed)).astype(np.int64)
    code += falls * np.int64(2 * quarter - 1)
    codes[at] = code.astype(code_type)
    return codes


def cells_of(rows: Taps, cols: Taps, box: Box) -> tuple[slice, slice]:
    """Say which rows and columns of cells the pixels of a box lie between."""
    x1, y1, x2, y2 = box
    return (slice(int(rows.first[y1]), int(rows.second[y2 - 1]) + 1),
            slice(int(cols.first[x1]), int(cols.second[x2 - 1]) + 1))
