"""Where the values between the cells of a grid are above a threshold."""

from __future__ import annotations

from collections.abc import Iterator, Sequence

import numpy as np

from trt_ros.vision.grid import Taps

Box = tuple[int, int, int, int]  # x1, y1, x2, y2 in whole pixels.

AT_ONCE = 16  # Planes: few calls for many small ones, little memory for large ones.


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
    begins = np.searchsorted(rows.first, np.arange(rows.second[-1] + 2))
    pixel = np.arange(len(rows.first)) - begins[rows.first]  # From its row of cells on.
    bits = 8 if pixel.max() < 64 else 32
    down = pixel[:, None].astype(f'uint{bits}')
    masks: list[np.ndarray] = []
    for start in range(0, len(planes), AT_ONCE):
        part = slice(start, start + AT_ONCE)
        wides = [_across(plane, cols, box) for plane, box in zip(planes[part], boxes[part])]
        codes = _codes(wides, threshold, rows, begins, [y1 for _, y1, _, _ in boxes[part]], bits)
        for code, (_, y1, _, y2) in zip(codes, boxes[part]):
            spread = code.take(rows.first[y1:y2] - rows.first[y1], axis=0)
            spread -= down[y1:y2]
            masks.append(np.less(spread.view(f'int{bits}'), 0,
                                 out=spread.view(bool) if bits == 8 else None))
    return masks


def _across(plane: np.ndarray, cols: Taps, box: Box) -> np.ndarray:
    """Interpolate a plane's rows at the columns of a box: (h, x2 - x1)."""
    x1, _, x2, _ = box
    wide = np.asarray(plane.take(cols.first[x1:x2] - cols.first[x1], axis=1))
    right = plane.take(cols.second[x1:x2] - cols.first[x1], axis=1)
    right -= wide
    right *= cols.weights[x1:x2]
    wide += right
    return wide


def _codes(
        wides: list[np.ndarray], threshold: float, rows: Taps, begins: np.ndarray,
        tops: list[int], bits: int) -> Iterator[np.ndarray]:
    """
    Say for each row of cells, at each column, which pixels down to the next row are above.

    :param wides: (h, w) each, which begin with the row of cells of the pixel row in `tops`.
    :param begins: the first pixel of each row of cells, and the end.
    :returns: (h, w) unsigned each: pixel k is above where code - k, taken as signed, is negative.
    """
    quarter = 1 << (bits - 2)  # Never above; always: three of them; further to fall, not to rise.
    values = np.concatenate([wide.reshape(-1) for wide in wides])
    high = values > threshold
    codes = high.astype(f'uint{bits}')
    codes *= codes.dtype.type(2 * quarter)
    codes += codes.dtype.type(quarter)
    uppers, lowers, lines, begin = [], [], [], 0
    for wide, top in zip(wides, tops):
        width, end = wide.shape[1], begin + wide.size
        passes = (high[begin:end - width] != high[begin + width:end]).nonzero()[0]
        uppers.append(passes + begin)
        lowers.append(passes + (begin + width))
        lines.append(passes // width + rows.first[top])
        begin = end
    at, line = np.concatenate(uppers), np.concatenate(lines)
    upper, lower = values.take(at), values.take(np.concatenate(lowers))
    falls = upper > threshold
    where = (line + (threshold - upper) / (lower - upper) - rows.origin) / rows.pitch
    change = np.where(falls, np.ceil(where), np.floor(where) + 1) - begins.take(line)
    change = np.fmax(np.fmin(change, (begins[1:] - begins[:-1]).take(line)), 0).astype(np.int64)
    codes[at] = (change + np.where(falls, 2 * quarter - 1, -1)).astype(codes.dtype)
    ends = np.cumsum([wide.size for wide in wides])
    return (codes[end - wide.size:end].reshape(wide.shape) for wide, end in zip(wides, ends))


def cells_of(rows: Taps, cols: Taps, box: Box) -> tuple[slice, slice]:
    """Say which rows and columns of cells the pixels of a box lie between."""
    x1, y1, x2, y2 = box
    return (slice(int(rows.first[y1]), int(rows.second[y2 - 1]) + 1),
            slice(int(cols.first[x1]), int(cols.second[x2 - 1]) + 1))
