"""Class masks of a grid of scores at image resolution, and their confidence."""

import numpy as np

from trt_ros.results.masks import as_confidence, mask_dtype
from trt_ros.vision.grid import Taps, bilinear
from trt_ros.vision.scores import as_float32, sortable

BLOCK_VALUES = 1 << 16  # Computed at once; fastest of 2^13 to 2^19.


def best_class(cells: np.ndarray, rows: Taps, cols: Taps) -> np.ndarray:
    """
    Compute the class with the highest interpolated (bilinear) score at each pixel of the taps.

    Between four cells, a score is at most the highest and at least the lowest of the four. So a
    class that is best at all four cells is best everywhere between them; elsewhere only classes
    are interpolated whose highest score is at least the lowest of another class: two or three of
    many. If these are most classes (noise), all classes are interpolated everywhere.

    :param cells: (C, h, w) scores, floating point.
    :param rows: taps of the image rows; `cols`: of the columns.
    :returns: (len(rows), len(cols)) class indices, the first among equals; see `mask_dtype`.
    """
    cells = _planes(cells)
    ranks = sortable(cells)
    best = _first_best(ranks)
    at = mixed_groups(best, rows, cols)
    if not len(at) or not (rows.weights.any() or cols.weights.any()):
        return best.take(cols.first, axis=1).take(rows.first, axis=0)
    corners = _corners(at, best.shape, rows, cols)
    if _has_many_contenders(ranks, corners):
        return _best_of_all(cells, rows, cols)
    quad, label = _contenders(ranks, best, at, corners)
    scores = [
        as_float32(cells.reshape(-1).take(label * best.size + corner.take(quad)))
        for corner in corners
    ]
    counts = np.bincount(quad, minlength=len(at))
    numbers = np.full(best.shape, -1, np.intp)
    numbers.flat[at] = np.where(counts > 0, np.arange(len(at)), -1)  # 0: non-finite.
    return _paint(best, rows, cols, numbers, counts, label.astype(best.dtype), scores)


def _planes(cells: np.ndarray) -> np.ndarray:
    """Copy channels-last scores to channels-first, four rows at a time: twice as fast."""
    if cells.flags.c_contiguous:
        return cells
    planes = np.empty(cells.shape, cells.dtype)
    for start in range(0, cells.shape[1], 4):
        planes[:, start : start + 4] = cells[:, start : start + 4]
    return planes


def _first_best(values: np.ndarray) -> np.ndarray:
    """Compute argmax(axis=0) as uint8 or uint16, faster; NaN wins at index 0 and nowhere else."""
    count, *shape = values.shape
    best: np.ndarray = np.zeros(shape, mask_dtype(count))
    highest, wins = values[0].copy(), np.empty(shape, bool)
    flags = wins.view(np.uint8)
    labels = flags if best.itemsize == 1 else np.empty_like(best)
    for label in range(1, count):  # Faster than a masked write.
        np.greater(values[label], highest, out=wins)
        np.multiply(flags, best.dtype.type(label), out=labels)
        np.maximum(labels, best, out=best)
        np.maximum(values[label], highest, out=highest)
    return best


def mixed_groups(best: np.ndarray, rows: Taps, cols: Taps) -> np.ndarray:
    """Find groups of four cells that differ and have pixels between: (Q,) upper-left indices."""
    mixed = np.zeros(best.shape, bool)
    mixed[:-1] = best[:-1] != best[1:]
    across = best[:, :-1] != best[:, 1:]
    mixed[:, :-1] |= across
    mixed[:-1, :-1] |= across[1:]
    for cells, pixels in ((mixed, rows.first), (mixed.T, cols.first)):
        used = np.zeros(len(cells), bool)
        used[pixels] = True
        cells[~used] = False
    return np.flatnonzero(mixed)


def _corners(
    at: np.ndarray, grid_hw: tuple[int, ...], rows: Taps, cols: Taps
) -> tuple[np.ndarray, ...]:
    """Return the four cells of each group, clamped at the edge: upper, lower; left, right."""
    width = grid_hw[1]
    down = np.where(at < rows.second[-1] * width, width, 0)
    right = np.where(at % width < cols.second[-1], 1, 0)
    return at, at + right, at + down, at + down + right


def _has_many_contenders(ranks: np.ndarray, corners: tuple[np.ndarray, ...]) -> bool:
    """Estimate from a sample whether interpolating all classes everywhere is faster."""
    every = max(1, len(corners[0]) // 64)
    sample = [ranks.reshape(len(ranks), -1).take(corner[::every], axis=1) for corner in corners]
    worst, best = np.fmin.reduce(sample), np.fmax.reduce(sample)
    contenders = np.count_nonzero(best >= worst.max(axis=0)) * every
    # A selected class and pixel takes at least four times as long as one of a whole image.
    return bool(4 * contenders > ranks.size)


def _best_of_all(cells: np.ndarray, rows: Taps, cols: Taps) -> np.ndarray:
    highest = bilinear(cells[0], rows, cols)
    best: np.ndarray = np.zeros(highest.shape, mask_dtype(len(cells)))
    for label in range(1, len(cells)):
        score = bilinear(cells[label], rows, cols)
        np.copyto(best, best.dtype.type(label), where=score > highest)
        np.maximum(highest, score, out=highest)
    return best


def _contenders(
    ranks: np.ndarray, best: np.ndarray, at: np.ndarray, corners: tuple[np.ndarray, ...]
) -> tuple[np.ndarray, np.ndarray]:
    """Return the classes that can be best between four cells: indices, ascending, and classes."""
    (count, height, width), size = ranks.shape, best.size
    flat = ranks.reshape(-1)
    # Among the classes that are best at one of the four, the highest minimum.
    planes = (best.reshape(-1).take(corner).astype(np.intp) * size for corner in corners)
    lowest = [np.fmin.reduce([flat.take(each + corner) for corner in corners]) for each in planes]
    certain = np.fmax.reduce(lowest)
    none = ranks.dtype.type(np.inf if ranks.dtype.kind == 'f' else np.iinfo(ranks.dtype).max)
    least = np.full((height, width), none)  # Minimum to contend in any group of the cell.
    least.reshape(-1)[at] = certain
    least[1:] = np.fmin(least[1:], least[:-1])
    least[:, 1:] = np.fmin(least[:, 1:], least[:, :-1])
    cells = np.flatnonzero(least < none)
    near: np.ndarray = ranks.reshape(count, -1)
    if 2 * len(cells) > size:  # Comparing all is faster.
        cells = np.arange(size)
    else:
        near = near.take(cells, axis=1)
    hits = np.flatnonzero(near >= least.reshape(-1).take(cells))
    label = hits // max(1, len(cells))
    cell, rank = cells.take(hits - label * len(cells)), near.reshape(-1).take(hits)
    # Index and bar of the group that begins at each cell, padded in front of the grid: a cell is
    # in the groups that begin at itself, to its left, above it and above left.
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
    Write the classes into the pixels of the image: (len(rows), len(cols)) class indices.

    Between two rows of cells, the scores in a column of pixels lie on straight lines. So only the
    two ends are computed, and the number of pixels before the lines of the two best classes cross.
    If a third line passes above the crossing, each pixel is computed.
    """
    upper = best.take(cols.first, axis=1)
    lower, width = upper.copy(), upper.shape[1]
    edges = np.searchsorted(rows.first, np.arange(len(best) + 1))  # Pixels of each row of cells.
    down = np.arange(len(rows.first)) - edges[rows.first]
    max_count = down.max() + 1
    before = np.zeros(upper.shape, np.uint8 if max_count < 256 else np.uint32)
    base = ((np.arange(len(best)) - rows.origin) / rows.pitch - edges[:-1]).astype(np.float32)
    slope = np.float32(1 / rows.pitch)

    def write(target: np.ndarray, line: np.ndarray, share: np.ndarray, wins: np.ndarray) -> None:
        """Store the number of pixels above a crossing; `wins`: a pixel on it counts as well."""
        passed = share * slope + base.take(line)
        passed = np.where(wins, np.floor(passed) + 1, np.ceil(passed))
        before.reshape(-1)[target] = np.fmax(np.fmin(passed, max_count), 0).astype(before.dtype)

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
            x = cols.runs.T[:, run]  # (k, n): k pixel columns per n.
            target = line * width + x
            contenders = first[part] + np.arange(count)[:, None]
            names, weights = label.take(contenders), cols.weights.take(x)
            corners = [corner.take(contenders) for corner in scores]
            if count == 2:
                # Lead of the second class.
                (high,), (low,) = _ends([corner[1:] - corner[:1] for corner in corners], weights)
                change = names[0] ^ names[1]
                upper.reshape(-1)[target] = names[0] ^ change * (high > 0)
                lower.reshape(-1)[target] = names[0] ^ change * (low > 0)
                with np.errstate(divide='ignore', invalid='ignore'):  # Parallel lines.
                    write(target, line, high / (high - low), high <= 0)
                continue
            high, low = _ends(corners, weights)
            one, other = _first_best(high), _first_best(low)
            upper.reshape(-1)[target] = names[one, np.arange(len(part))]
            lower.reshape(-1)[target] = names[other, np.arange(len(part))]

            # Columns with different ends: (m,), or (count, m).
            column, member = np.nonzero(one != other)
            chosen, lanes = column * len(part) + member, np.arange(len(member))
            x, target = x.reshape(-1)[chosen], target.reshape(-1)[chosen]
            line, names = line[member], names[:, member]
            high, low = (end.reshape(count, -1).take(chosen, axis=1) for end in (high, low))
            one, other = (
                rank.reshape(-1)[chosen].astype(np.intp) * len(lanes) + lanes
                for rank in (one, other)
            )  # Positions in `high` and `low`.
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
    """Interpolate (c, n) corners at (k, n) pixel columns, upper and lower ends: (c, k, n)."""
    upper_left, upper_right, lower_left, lower_right = corners
    high = (upper_right - upper_left)[:, None] * rights
    high += upper_left[:, None]
    low = (lower_right - lower_left)[:, None] * rights
    low += lower_left[:, None]
    return high, low


def _spread(
    upper: np.ndarray, lower: np.ndarray, before: np.ndarray, first: np.ndarray, down: np.ndarray
) -> np.ndarray:
    """Expand rows of cells (h, W) to pixels: `before` of the upper value, then the lower one."""
    change = upper ^ lower
    mask = lower.take(first, axis=0)
    for start in range(0, len(mask), 64):
        block = slice(start, start + 64)
        is_upper = before.take(first[block], axis=0) > down[block, None].astype(before.dtype)
        changes = change.take(first[block], axis=0)
        changes *= is_upper
        mask[block] ^= changes
    return mask


def is_probability(scores: np.ndarray) -> bool:
    """Return whether scores are probabilities; NaN is no evidence, and rounding is allowed for."""
    with np.errstate(invalid='ignore'):
        return not ((scores < 0) | (scores > 1.001)).any()


def mask_confidence(
    cells: np.ndarray,
    labels: np.ndarray,
    rows: Taps,
    cols: Taps,
    *,
    are_probabilities: bool | None = None,
) -> np.ndarray:
    """
    Compute the probability of the class of each pixel, interpolated (bilinear) between cells.

    By default, scores are probabilities where all of them may be, else the logits of a softmax.

    :param cells: (C, h, w) scores, floating point.
    :param labels: (len(rows), len(cols)) class indices, as of best_class().
    :returns: (len(rows), len(cols)) uint8, 0 to 255 for 0 to 1; 0 where scores are not finite.
    """
    scores = _Probabilities(cells, are_probabilities)
    image = bilinear(scores.highest, rows, cols)
    between = np.zeros(scores.highest.shape, bool)
    between.reshape(-1)[mixed_groups(scores.best, rows, cols)] = True
    pixels = np.flatnonzero(between.take(cols.first, axis=1).take(rows.first, axis=0))
    for start in range(0, len(pixels), BLOCK_VALUES):
        block = pixels[start : start + BLOCK_VALUES]
        y, x = np.divmod(block, labels.shape[1])
        label, weights = labels.reshape(-1).take(block), cols.weights.take(x)
        ends = []
        for line in (rows.first.take(y), rows.second.take(y)):
            line *= between.shape[1]
            left = scores.of(label, line + cols.first.take(x))
            right = scores.of(label, line + cols.second.take(x))
            ends.append(left + (right - left) * weights)
        upper, lower = ends
        image.reshape(-1)[block] = upper + (lower - upper) * rows.weights.take(y)
    return as_confidence(image)


class _Probabilities:
    """The probabilities of a grid of scores (C, h, w), computed where they are needed."""

    def __init__(self, cells: np.ndarray, are_probabilities: bool | None) -> None:
        count, height, width = cells.shape
        self._is_final = is_probability(cells) if are_probabilities is None else are_probabilities
        # Channels first or last, whichever needs no copy.
        is_last = cells.transpose(1, 2, 0).flags.c_contiguous
        self._flat = (cells.transpose(1, 2, 0) if is_last else cells).reshape(-1)
        self._class_step: int = 1 if is_last else height * width
        self._cell_step: int = count if is_last else 1
        self._peak, self.highest = np.empty((2, height, width), np.float32)
        self.best = np.empty((height, width), np.intp)
        step = max(1, BLOCK_VALUES // (count * width))
        with np.errstate(invalid='ignore', over='ignore'):
            for start in range(0, height, step):
                block = slice(start, start + step)
                part = as_float32(np.ascontiguousarray(cells[:, block]))
                self.best[block] = part.argmax(axis=0)
                self._peak[block] = peak = part.max(axis=0)
                if not self._is_final:
                    part = np.exp(np.subtract(part, peak))
                    self.highest[block] = 1 / part.sum(axis=0)
        if self._is_final:
            self.highest = self._peak

    def of(self, label: np.ndarray, cell: np.ndarray) -> np.ndarray:
        """Return the probabilities of classes at cells, (n,) each; cells by their flat index."""
        index = label.astype(np.intp) * self._class_step + cell * self._cell_step
        score = as_float32(self._flat.take(index))
        if self._is_final:
            return score
        with np.errstate(invalid='ignore', over='ignore'):
            power = np.exp(score - self._peak.reshape(-1).take(cell))
            return np.asarray(power * self.highest.reshape(-1).take(cell))
