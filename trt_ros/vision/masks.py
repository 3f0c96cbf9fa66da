"""Binary masks of interpolated grids, by a threshold."""

from collections.abc import Callable, Sequence
from typing import Any

import numpy as np

from trt_ros.vision.grid import Taps, taps
from trt_ros.vision.letterbox import Letterbox
from trt_ros.vision.scores import as_float32, sigmoid

Box = tuple[int, int, int, int]  # x1, y1, x2, y2 in whole pixels.

BLOCK_PLANES = 128  # Few calls for many small planes, and bounded memory for thousands.
BLOCK_VALUES = 1 << 15  # A block stays in the cache.


def threshold_masks(
    planes: Sequence[np.ndarray],
    mask_threshold: float,
    rows: Taps,
    cols: Taps,
    boxes: Sequence[Box],
    curve: Callable[[np.ndarray], np.ndarray] = np.positive,
) -> list[np.ndarray]:
    """
    Interpolate (bilinear) planes of cells at the pixels of boxes, and compare with a threshold.

    Between four cells on one side of the threshold, all values are on that side. Elsewhere, the
    values in a column of pixels between two rows of cells lie on a straight line, which crosses
    the threshold at most once. So only the position of the crossing is computed per column.

    :param planes: (h, w) float32 cells each, those that `cells_of` returns for the box. NaN is
        below the threshold, and no value is interpolated towards it.
    :param mask_threshold: values above it are in the mask.
    :param rows, cols: taps of the whole image.
    :param boxes: per plane, the pixels of its mask; not empty.
    :param curve: monotonically increasing; curve(cells) is interpolated and compared with
        curve(mask_threshold).
    :returns: (y2 - y1, x2 - x1) bool per plane.
    """
    begins = np.searchsorted(rows.first, np.arange(rows.second[-1] + 1))
    down = np.arange(len(rows.first)) - begins[rows.first]
    code_type = np.dtype(np.uint8 if down.max() < 64 else np.uint32)
    down = down[:, None].astype(code_type)
    half = code_type.type(1 << (8 * code_type.itemsize - 1))
    masks: list[np.ndarray] = []
    for start in range(0, len(planes), BLOCK_PLANES):
        part = slice(start, start + BLOCK_PLANES)
        codes = _codes(planes[part], mask_threshold, rows, cols, boxes[part], curve, code_type)
        for code, (_, y1, _, y2) in zip(codes, boxes[part]):
            spread = code.take(rows.first[y1:y2] - rows.first[y1], axis=0)
            spread -= down[y1:y2]
            in_place = spread.view(bool) if spread.itemsize == 1 else None
            masks.append(np.greater_equal(spread, half, out=in_place))
    return masks


def _codes(
    planes: Sequence[np.ndarray],
    mask_threshold: float,
    rows: Taps,
    cols: Taps,
    boxes: Sequence[Box],
    curve: Callable[[np.ndarray], np.ndarray],
    code_type: np.dtype[Any],
) -> list[np.ndarray]:
    """
    Encode per row of cells and pixel column which pixels down to the next row are in the mask.

    :returns: (h, x2 - x1) per plane, unsigned: pixel k is in the mask where code - k, as a signed
        integer, is negative.
    """
    quarter = 1 << (8 * code_type.itemsize - 2)  # Code for no pixel; three quarters: all pixels.
    x1, y1, x2, _ = np.array(boxes).T
    values, tops = _stacked(planes)
    high = values > mask_threshold
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
    # In pixels from the row of cells.
    lines = np.arange(rows.second[-1] + 1)
    base = (lines - rows.origin) / rows.pitch - np.searchsorted(rows.first, lines)
    base = base.astype(np.float32).take(row + rows.first.take(y1).take(plane))
    first, last = x1.take(plane), x2.take(plane) - 1
    bar = curve(np.array([mask_threshold], np.float32))
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
        sign = falls.astype(np.float32)  # Faster than np.where.
        sign *= -2
        sign += 1
        upper *= sign  # At most 0 now; the line crosses where `lower` is above 0.
        lower *= sign
        lower -= upper
        np.maximum(lower, 0, out=lower)
        with np.errstate(divide='ignore', invalid='ignore'):
            passed = upper / lower
        passed *= np.float32(-1 / rows.pitch)
        passed += base[part]
        np.fmin(passed, quarter, out=passed)  # NaN and infinity, too: no crossing.
        np.maximum(passed, -1, out=passed)
        passed *= sign
        np.floor(passed, out=passed)  # Rounds up where it falls.
        passed *= sign
        code_values = passed.astype(np.int32)
        code_values += falls * np.int32(2 * quarter - 1)
        x += target[part]
        flat[x] = code_values.astype(code_type)
    return codes


def _stacked(planes: Sequence[np.ndarray]) -> tuple[np.ndarray, np.ndarray]:
    """Stack planes, last row and column repeated; return them and each plane's first row."""
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
    """Find groups of four cells that differ: cell, plane, cell in it and run, (Q,) each."""
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
    group = np.repeat(np.arange(len(at)), counts)
    run = np.arange(len(group)) + np.repeat(first - np.cumsum(counts) + counts, counts)
    return at.take(group), plane.take(group), row.take(group), run


def cells_of(rows: Taps, cols: Taps, box: Box) -> tuple[slice, slice]:
    """Return the rows and columns of cells around the pixels of a box."""
    x1, y1, x2, y2 = box
    return (
        slice(int(rows.first[y1]), int(rows.second[y2 - 1]) + 1),
        slice(int(cols.first[x1]), int(cols.second[x2 - 1]) + 1),
    )


def windows_of(cells: np.ndarray, rows: Taps, cols: Taps) -> np.ndarray:
    """Return pixels, (K, 4) int32, of cells (K, 4) as `bounds`; zeros without any."""
    left, top, right, bottom = np.reshape(cells, (-1, 4)).T
    x1, x2 = np.searchsorted(cols.second, left), np.searchsorted(cols.first, right)
    y1, y2 = np.searchsorted(rows.second, top), np.searchsorted(rows.first, bottom)
    visible = (left < right) & (x1 < x2) & (y1 < y2)
    return np.where(visible, [x1, y1, x2, y2], 0).T.astype(np.int32)


def bounds(mask: np.ndarray) -> Box:
    """Return the box of the true elements of a mask, without an area if there are none."""
    import cv2  # Imported here: networks are opened without it.

    left, top, width, height = cv2.boundingRect(mask.view(np.uint8))
    return left, top, left + width, top + height


def instance_masks(
    prototypes: np.ndarray, coefficients: np.ndarray, letterbox: Letterbox, windows: np.ndarray
) -> list[np.ndarray]:
    """Compute the masks in windows of the image, (N, 4) x1, y1, x2, y2 in whole pixels."""
    rows, cols = taps(letterbox, (prototypes.shape[1], prototypes.shape[2]))
    visible = np.flatnonzero((windows[:, :2] < windows[:, 2:]).all(axis=1))
    boxes: list[Box] = list(map(tuple, windows[visible].tolist()))
    cells = [cells_of(rows, cols, box) for box in boxes]
    # Row by row: products so small that BLAS computes them in this thread.
    by_row = as_float32(np.ascontiguousarray(prototypes.transpose(1, 0, 2)))
    planes = [
        weights @ by_row[lines, :, columns]
        for weights, (lines, columns) in zip(coefficients[visible], cells)
    ]
    masks = dict(zip(visible.tolist(), threshold_masks(planes, 0.0, rows, cols, boxes, sigmoid)))
    return [
        masks[index] if index in masks else np.zeros((y2 - y1, x2 - x1), bool)
        for index, (x1, y1, x2, y2) in enumerate(windows.tolist())
    ]


def whole_masks(
    planes: np.ndarray, letterbox: Letterbox, windows: np.ndarray
) -> tuple[np.ndarray, ...]:
    """Return masks of logits (K, h, w) above 0, not of non-finite ones, in windows."""
    rows, cols = taps(letterbox, (planes.shape[1], planes.shape[2]))
    found = {index: box for index, box in enumerate(map(tuple, windows.tolist())) if any(box)}
    boxes: list[Box] = list(found.values())
    parts = [as_float32(planes[index][cells_of(rows, cols, box)]) for index, box in found.items()]
    with np.errstate(invalid='ignore', over='ignore'):
        masks = dict(zip(found, threshold_masks(parts, 0.0, rows, cols, boxes)))
    empty = np.zeros((0, 0), bool)
    return tuple(masks.get(index, empty) for index in range(len(planes)))
