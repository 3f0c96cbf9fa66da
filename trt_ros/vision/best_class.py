"""Which class is best between the cells of a grid of scores."""

from __future__ import annotations

from itertools import pairwise

import numpy as np

from trt_ros.vision.grid import Taps, bilinear

BLOCK_PIXELS = 1 << 15  # Computed at once, so that they stay in the cache.


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
    ranks = _ranks(cells)
    best = _best_of_cells(ranks)
    mask = best.take(cols.first, axis=1).take(rows.first, axis=0)
    if rows.weights.any() or cols.weights.any():
        at = _mixed(best, rows, cols)
        if _are_most(ranks, at):
            return _best_of_all(cells, rows, cols)
        quad, label = _contenders(ranks, best, at)
        scores = [cells.reshape(-1).take(label * best.size + corner.take(quad)).astype(np.float32)
                  for corner in _corners(at, best.shape)]
        counts = np.bincount(quad, minlength=len(at))
        numbers = np.full(best.shape, -1, np.int32)
        numbers.flat[at] = np.where(counts > 0, np.arange(len(at)), -1)  # 0: not finite.
        _paint(mask, rows, cols, numbers, counts, label.astype(best.dtype), scores)
    return mask


def _planes(cells: np.ndarray) -> np.ndarray:
    """Bring channels that come last to the front, some rows at a time: twice as fast."""
    if cells.flags.c_contiguous:
        return cells
    planes = np.empty(cells.shape, cells.dtype)
    for start in range(0, cells.shape[1], 4):
        planes[:, start:start + 4] = cells[:, start:start + 4]
    return planes


def _ranks(cells: np.ndarray) -> np.ndarray:
    """Give what sorts as the cells do and compares fast: integers for halves."""
    if cells.dtype != np.float16:
        return cells
    bits = cells.view(np.int16)
    return np.asarray(bits ^ ((bits >> 15) & np.int16(0x7fff)))


def _best_of_cells(ranks: np.ndarray) -> np.ndarray:
    count, *grid = ranks.shape
    best = np.zeros(grid, np.uint8 if count <= 256 else np.uint16)
    highest, wins = ranks[0].copy(), np.empty(grid, bool)
    flags = wins.view(np.uint8)
    labels = flags if best.itemsize == 1 else np.empty_like(best)
    for label in range(1, count):  # Faster than to write where it wins.
        np.greater(ranks[label], highest, out=wins)
        np.multiply(flags, best.dtype.type(label), out=labels)
        np.maximum(labels, best, out=best)
        np.maximum(ranks[label], highest, out=highest)
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


def _are_most(ranks: np.ndarray, at: np.ndarray) -> bool:
    """Tell by some of them whether it is faster to interpolate all classes everywhere."""
    count, *grid = ranks.shape
    if not len(at):
        return False
    some = at[::max(1, len(at) // 256)]
    corners = [ranks.reshape(count, -1).take(corner, axis=1)
               for corner in _corners(some, tuple(grid))]
    worst, best = np.fmin.reduce(corners), np.fmax.reduce(corners)
    contenders = np.count_nonzero(best >= worst.max(axis=0)) / len(some)
    # A class of a chosen pixel takes four times as long as one of all pixels, or longer.
    return bool(4 * contenders * len(at) > ranks.size)


def _best_of_all(cells: np.ndarray, rows: Taps, cols: Taps) -> np.ndarray:
    highest = bilinear(cells[0], rows, cols)
    best = np.zeros(highest.shape, np.uint8 if len(cells) <= 256 else np.uint16)
    for label in range(1, len(cells)):
        score = bilinear(cells[label], rows, cols)
        np.copyto(best, best.dtype.type(label), where=score > highest)
        np.maximum(highest, score, out=highest)
    return best


def _corners(at: np.ndarray, grid_hw: tuple[int, ...]) -> tuple[np.ndarray, ...]:
    """Number the four cells, those beyond the edge as those at it: upper left, right, lower."""
    height, width = grid_hw
    down = np.where(at < (height - 1) * width, width, 0)
    right = np.where(at % width < width - 1, 1, 0)
    return at, at + right, at + down, at + down + right


def _contenders(
        ranks: np.ndarray, best: np.ndarray, at: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    """
    Find which classes can win between four cells.

    :returns: (P,) and (P,), the four cells' number (0 to Q - 1, ascending) and the class.
    """
    (count, height, width), size = ranks.shape, best.size
    corners = _corners(at, best.shape)
    flat = ranks.reshape(-1)
    # Of the classes that are best at one of the four, the one whose worst is the highest.
    certain = np.fmax.reduce([
        np.fmin.reduce([flat.take(planes + corner) for corner in corners])
        for planes in (best.reshape(-1).take(corner).astype(np.intp) * size
                       for corner in corners)])
    none = ranks.dtype.type(np.inf if ranks.dtype.kind == 'f' else np.iinfo(ranks.dtype).max)
    least = np.full((height, width), none)  # That a cell may contend with, in any four it is of.
    least.flat[at] = certain
    least[1:] = np.fmin(least[1:], least[:-1])
    least[:, 1:] = np.fmin(least[:, 1:], least[:, :-1])
    cells = np.flatnonzero(least < none)
    ranked = ranks.reshape(count, -1).take(cells, axis=1)
    hits = np.flatnonzero(ranked >= least.flat[cells])
    label = hits // len(cells) if len(cells) else hits
    cell, rank = cells.take(hits - label * len(cells)), ranked.reshape(-1).take(hits)
    # Four cells that a cell is one of: a number for each, and one more where there are none.
    number = np.full(size + width + 1, len(at), np.int32)
    number[at + width + 1] = np.arange(len(at))
    bars = np.append(certain, none)
    contends = np.zeros((len(at) + 1) * count, bool)
    for offset in (0, 1, width, width + 1):
        quad = number.take(cell + (width + 1 - offset))
        fits = np.flatnonzero(rank >= bars.take(quad))
        contends[quad.take(fits) * np.intp(count) + label.take(fits)] = True
    found = np.flatnonzero(contends[:len(at) * count])
    quads = found // count
    return quads, found - quads * count


def _blocks(taps: Taps) -> np.ndarray:
    """Cut the pixels into runs between the same two cells: (n, k), a run's last one repeated."""
    first, count = taps.first, len(taps.first)
    begins = np.flatnonzero(np.diff(first, prepend=-1))
    longest = -(-count // int(first[-1] - first[0] + 1))  # But at the edges, which are cut again.
    within = np.arange(count) - np.repeat(begins, np.diff(begins, append=count))
    begins = np.flatnonzero(within % longest == 0)
    ends = np.append(begins[1:], count) - 1
    return np.asarray(np.minimum(begins[:, None] + np.arange(longest), ends[:, None]))


def _paint(
        mask: np.ndarray, rows: Taps, cols: Taps, numbers: np.ndarray, counts: np.ndarray,
        label: np.ndarray, scores: list[np.ndarray]) -> None:
    """
    Interpolate what contends, and write the best into the mask.

    :param numbers: (h, w), the number of the four cells that begin there; -1: not mixed.
    :param counts: (Q,), how many classes contend between them; `label`: (P,) which, one after
        the other; `scores`: (P,) of each corner.
    """
    row_blocks, col_blocks = _blocks(rows), _blocks(cols)
    blocks = numbers.take(rows.first[row_blocks[:, 0]], axis=0).take(
        cols.first[col_blocks[:, 0]], axis=1)
    at = np.flatnonzero(blocks >= 0)
    quad = blocks.reshape(-1).take(at)
    order = np.argsort(-counts[quad], kind='stable')  # So that what has a further one is in front.
    quad, (y, x) = quad[order], np.divmod(at[order], len(col_blocks))
    first = (np.cumsum(counts) - counts).take(quad)
    counts = counts.take(quad)
    # Pixels in front, blocks behind: NumPy is fast along the last axis when it is long.
    down, right = rows.weights[row_blocks].T, cols.weights[col_blocks].T
    pixel_rows, pixel_cols = row_blocks.T * mask.shape[1], col_blocks.T
    step = max(1, BLOCK_PIXELS // (len(down) * len(right)))
    pairs = int(np.searchsorted(-counts, -2))  # From here on it is one against another.
    starts = [*range(0, pairs, step), *range(pairs, len(quad), step), len(quad)]
    for start, end in pairwise(starts):
        part = slice(start, end)
        downs, rights = down[:, None, y[part]], right[:, x[part]]
        if start >= pairs:
            one, other = first[part], first[part] + (counts[part] > 1)
            gain = _interpolate(
                [corner.take(other) - corner.take(one) for corner in scores], downs, rights)
            labels = np.where(gain > 0, label.take(other), label.take(one))
        else:
            labels, highest = np.empty((len(down), *rights.shape), label.dtype), np.zeros(0)
            for rank in range(counts[start]):
                here = int(np.searchsorted(-counts[part], -rank))  # So many have so many.
                contender = first[start:start + here] + rank
                score = _interpolate([corner.take(contender) for corner in scores],
                                     downs[..., :here], rights[:, :here])
                if rank == 0:
                    highest, labels[:] = score, label.take(contender)
                    continue
                np.copyto(labels[..., :here], label.take(contender),
                          where=score > highest[..., :here])
                np.maximum(highest[..., :here], score, out=highest[..., :here])
        mask.reshape(-1)[pixel_rows[:, None, y[part]] + pixel_cols[:, x[part]]] = labels


def _interpolate(corners: list[np.ndarray], downs: np.ndarray, rights: np.ndarray) -> np.ndarray:
    """Give (rows, cols, n) of n corners; `downs`: (rows, 1, n), `rights`: (cols, n) shares."""
    upper_left, upper_right, lower_left, lower_right = corners
    above = (upper_right - upper_left) * rights + upper_left
    below = (lower_right - lower_left) * rights + lower_left
    score = (below - above) * downs
    score += above
    return np.asarray(score)
