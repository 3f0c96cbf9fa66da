"""Which class is best between the cells of a grid of scores."""

from __future__ import annotations

import numpy as np

from trt_ros.vision.float16 import as_float32, sortable
from trt_ros.vision.grid import Taps, bilinear

BLOCK_VALUES = 1 << 16  # Computed at once; fastest of 2^13 to 2^19.


def best_class(cells: np.ndarray, rows: Taps, cols: Taps) -> np.ndarray:
    """
    Find at each pixel of the taps the class whose interpolated (bilinear) score is the highest.

    Between four cells, a score is never above the best nor below the worst of the four. So a class
    that is the best at all four is it everywhere between them; elsewhere only those classes are
    interpolated whose best is no worse than the worst of another: two or three of many. Where
    that would be most (noise), all are interpolated everywhere.

    :param cells: (C, h, w) scores, floating point.
    :returns: (len(rows), len(cols)) class indices, of equals the first; uint8, or uint16 where
        there are more than 256 classes.
    """
    cells = _planes(cells)
    ranks = sortable(cells)
    best = _first_best(ranks)
    at = _mixed(best, rows, cols)
    if not len(at) or not (rows.weights.any() or cols.weights.any()):
        return best.take(cols.first, axis=1).take(rows.first, axis=0)
    corners = _corners(at, best.shape, rows, cols)
    if _are_most(ranks, corners):
        return _best_of_all(cells, rows, cols)
    quad, label = _contenders(ranks, best, at, corners)
    scores = [
        as_float32(cells.reshape(-1).take(label * best.size + corner.take(quad)))
        for corner in corners
    ]
    counts = np.bincount(quad, minlength=len(at))
    numbers = np.full(best.shape, -1, np.intp)
    numbers.flat[at] = np.where(counts > 0, np.arange(len(at)), -1)  # 0: not finite.
    return _paint(best, rows, cols, numbers, counts, label.astype(best.dtype), scores)


def _planes(cells: np.ndarray) -> np.ndarray:
    """Bring channels that come last to the front, some rows at a time: twice as fast."""
    if cells.flags.c_contiguous:
        return cells
    planes = np.empty(cells.shape, cells.dtype)
    for start in range(0, cells.shape[1], 4):
        planes[:, start : start + 4] = cells[:, start : start + 4]
    return planes


def _first_best(values: np.ndarray) -> np.ndarray:
    """Do as argmax(axis=0), faster, into uint8 or uint16; but NaN wins at 0, and nowhere else."""
    count, *shape = values.shape
    best = np.zeros(shape, np.uint8 if count <= 256 else np.uint16)
    highest, wins = values[0].copy(), np.empty(shape, bool)
    flags = wins.view(np.uint8)
    labels = flags if best.itemsize == 1 else np.empty_like(best)
    for label in range(1, count):  # Faster than to write where it wins.
        np.greater(values[label], highest, out=wins)
        np.multiply(flags, best.dtype.type(label), out=labels)
        np.maximum(labels, best, out=best)
        np.maximum(values[label], highest, out=highest)
    return best


def _mixed(best: np.ndarray, rows: Taps, cols: Taps) -> np.ndarray:
    """Find four cells that differ and have pixels between them: (Q,), the upper left one."""
    mixed = np.zeros(best.shape, bool)
    mixed[:-1] = best[:-1] != best[1:]
    across = best[:, :-1] != best[:, 1:]
    mixed[:, :-1] |= across
    mixed[:-1, :-1] |= across[1:]
    for cells, pixels in ((mixed, rows.first), (mixed.T, cols.first)):
        seen = np.zeros(len(cells), bool)
        seen[pixels] = True
        cells[~seen] = False
    return np.flatnonzero(mixed)


def _corners(
    at: np.ndarray,
    grid_hw: tuple[int, ...],
    rows: Taps,
    cols: Taps,
) -> tuple[np.ndarray, ...]:
    """Number the four cells, those beyond the edge as those at it: upper left, right, lower."""
    width = grid_hw[1]
    down = np.where(at < rows.second[-1] * width, width, 0)
    right = np.where(at % width < cols.second[-1], 1, 0)
    return at, at + right, at + down, at + down + right


def _are_most(ranks: np.ndarray, corners: tuple[np.ndarray, ...]) -> bool:
    """Tell by some of them whether it is faster to interpolate all classes everywhere."""
    every = max(1, len(corners[0]) // 64)
    some = [ranks.reshape(len(ranks), -1).take(corner[::every], axis=1) for corner in corners]
    worst, best = np.fmin.reduce(some), np.fmax.reduce(some)
    contenders = np.count_nonzero(best >= worst.max(axis=0)) * every
    # A class of a chosen pixel takes four times as long as one of all pixels, or longer.
    return bool(4 * contenders > ranks.size)


def _best_of_all(cells: np.ndarray, rows: Taps, cols: Taps) -> np.ndarray:
    highest = bilinear(cells[0], rows, cols)
    best = np.zeros(highest.shape, np.uint8 if len(cells) <= 256 else np.uint16)
    for label in range(1, len(cells)):
        score = bilinear(cells[label], rows, cols)
        np.copyto(best, best.dtype.type(label), where=score > highest)
        np.maximum(highest, score, out=highest)
    return best


def _contenders(
    ranks: np.ndarray,
    best: np.ndarray,
    at: np.ndarray,
    corners: tuple[np.ndarray, ...],
) -> tuple[np.ndarray, np.ndarray]:
    """
    Find which classes can win between four cells.

    :returns: (P,) and (P,), the four cells' number (0 to Q - 1, ascending) and the class.
    """
    (count, height, width), size = ranks.shape, best.size
    flat = ranks.reshape(-1)
    # Of the classes that are best at one of the four, the one whose worst is the highest.
    certain = np.fmax.reduce(
        [
            np.fmin.reduce([flat.take(planes + corner) for corner in corners])
            for planes in (
                best.reshape(-1).take(corner).astype(np.intp) * size for corner in corners
            )
        ]
    )
    none = ranks.dtype.type(np.inf if ranks.dtype.kind == 'f' else np.iinfo(ranks.dtype).max)
    least = np.full((height, width), none)  # That a cell may contend with, in any four it is of.
    least.reshape(-1)[at] = certain
    least[1:] = np.fmin(least[1:], least[:-1])
    least[:, 1:] = np.fmin(least[:, 1:], least[:, :-1])
    cells = np.flatnonzero(least < none)
    near: np.ndarray = ranks.reshape(count, -1)
    if 2 * len(cells) > size:  # It is faster to compare all.
        cells = np.arange(size)
    else:
        near = near.take(cells, axis=1)
    hits = np.flatnonzero(near >= least.reshape(-1).take(cells))
    label = hits // max(1, len(cells))
    cell, rank = cells.take(hits - label * len(cells)), near.reshape(-1).take(hits)
    # Of the four cells that begin at each, which number they have and what it takes; in front of
    # the grid, too, for a cell is one of four that begin at it, at its left, above and above left.
    number, bars = np.zeros(size + width + 1, np.intp), np.full(size + width + 1, none)
    number[at + width + 1], bars[at + width + 1] = np.arange(len(at)), certain
    contends = np.zeros(len(at) * count, bool)
    for offset in (0, 1, width, width + 1):
        four = cell + (width + 1 - offset)
        fits = np.flatnonzero(rank >= bars.take(four))
        contends[number.take(four.take(fits)) * np.intp(count) + label.take(fits)] = True
    found = np.flatnonzero(contends)
    quads = found // count
    return quads, found - quads * count


def _paint(
    best: np.ndarray,
    rows: Taps,
    cols: Taps,
    numbers: np.ndarray,
    counts: np.ndarray,
    label: np.ndarray,
    scores: list[np.ndarray],
) -> np.ndarray:
    """
    Write the classes into the image's pixels.

    Between two rows of cells, the scores in a column of pixels lie on straight lines. So only its
    two ends are computed, and how many pixels come before the lines of the classes that are the
    best there cross. Where a third line passes above that, each pixel is computed.

    :param best: (h, w) the best class of each cell.
    :param numbers: (h, w), the number of the four cells that begin there; -1: not mixed.
    :param counts: (Q,), how many classes contend between them; `label`: (P,) which, one after
        the other; `scores`: (P,) of each corner.
    :returns: (len(rows), len(cols)) class indices.
    """
    upper = best.take(cols.first, axis=1)
    lower, width = upper.copy(), upper.shape[1]
    edges = np.searchsorted(rows.first, np.arange(len(best) + 1))  # The pixels of a row of cells.
    down = np.arange(len(rows.first)) - edges[rows.first]
    most = down.max() + 1
    before = np.zeros(upper.shape, np.uint8 if most < 256 else np.uint32)
    base = ((np.arange(len(best)) - rows.origin) / rows.pitch - edges[:-1]).astype(np.float32)
    slope = np.float32(1 / rows.pitch)

    def write(target: np.ndarray, line: np.ndarray, share: np.ndarray, wins: np.ndarray) -> None:
        """Count pixels up to a share of the way down; one that lies there `wins` or does not."""
        passed = share * slope + base.take(line)
        passed = np.where(wins, np.floor(passed) + 1, np.ceil(passed))
        before.reshape(-1)[target] = np.fmax(np.fmin(passed, most), 0).astype(before.dtype)

    singles = []
    number = numbers.take(cols.first[cols.runs[:, 0]], axis=1)
    at = np.flatnonzero(number >= 0)
    number = number.reshape(-1)[at]
    first, counts = (np.cumsum(counts) - counts).take(number), counts.take(number)
    for count in np.flatnonzero(np.bincount(counts)).tolist():
        members = np.flatnonzero(counts == count)
        step = max(1, BLOCK_VALUES // (count * cols.runs.shape[1]))
        for start in range(0, len(members), step):
            part = members[start : start + step]
            line, run = np.divmod(at[part], len(cols.runs))
            x = cols.runs.T[:, run]  # (k, n): of each n, k columns of pixels.
            target = line * width + x
            contenders = first[part] + np.arange(count)[:, None]
            names, weights = label.take(contenders), cols.weights.take(x)
            corners = [corner.take(contenders) for corner in scores]
            if count == 2:
                # Of the second class, what it is ahead by.
                (high,), (low,) = _ends([corner[1:] - corner[:1] for corner in corners], weights)
                change = names[0] ^ names[1]
                upper.reshape(-1)[target] = names[0] ^ change * (high > 0)
                lower.reshape(-1)[target] = names[0] ^ change * (low > 0)
                with np.errstate(divide='ignore', invalid='ignore'):  # Where they do not cross.
                    write(target, line, high / (high - low), high <= 0)
                continue
            high, low = _ends(corners, weights)
            one, other = _first_best(high), _first_best(low)
            upper.reshape(-1)[target] = names[one, np.arange(len(part))]
            lower.reshape(-1)[target] = names[other, np.arange(len(part))]

            # Of the columns where they differ: (m,), or (count, m).
            column, member = np.nonzero(one != other)
            chosen, lanes = column * len(part) + member, np.arange(len(member))
            x, target = x.reshape(-1)[chosen], target.reshape(-1)[chosen]
            line, names = line[member], names[:, member]
            high, low = (end.reshape(count, -1).take(chosen, axis=1) for end in (high, low))
            one, other = (
                rank.reshape(-1)[chosen] * np.intp(len(lanes)) + lanes for rank in (one, other)
            )  # Where they are in `high` and `low`.
            lead, lag = high.take(one) - high.take(other), low.take(other) - low.take(one)
            share = lead / (lead + lag)
            write(target, line, share, one < other)
            score = (low - high) * share + high
            reached = score >= np.minimum(score.take(one), score.take(other))
            third = np.flatnonzero(np.count_nonzero(reached, axis=0) > 2)
            tops, ends = edges[line[third]], edges[line[third] + 1]
            each = np.repeat(third, ends - tops)
            y = np.arange(len(each)) + np.repeat(ends - np.cumsum(ends - tops), ends - tops)
            high, low = high.take(each, axis=1), low.take(each, axis=1)
            winner = _first_best((low - high) * rows.weights.take(y) + high)
            singles.append((y * width + x.take(each), names[winner, each]))
    mask = _spread(upper, lower, before, rows.first, down)
    for target, labels in singles:
        mask.reshape(-1)[target] = labels
    return mask


def _ends(corners: list[np.ndarray], rights: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    """Interpolate at columns of pixels (k, n) above and below: (c, k, n) of (c, n) corners."""
    upper_left, upper_right, lower_left, lower_right = corners
    high = (upper_right - upper_left)[:, None] * rights
    high += upper_left[:, None]
    low = (lower_right - lower_left)[:, None] * rights
    low += lower_left[:, None]
    return high, low


def _spread(
    upper: np.ndarray, lower: np.ndarray, before: np.ndarray, first: np.ndarray, down: np.ndarray
) -> np.ndarray:
    """
    Take of each row of cells (h, W) the upper value `before` so many pixels, then the lower one.

    :param first: (H,) the row of cells of each pixel; `down`: (H,) which pixel of it that is.
    """
    change = upper ^ lower
    mask = lower.take(first, axis=0)
    for start in range(0, len(mask), 64):
        block = slice(start, start + 64)
        is_upper = before.take(first[block], axis=0) > down[block, None].astype(before.dtype)
        changes = change.take(first[block], axis=0)
        changes *= is_upper
        mask[block] ^= changes
    return mask
