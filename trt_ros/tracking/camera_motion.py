"""
Motion of the camera between two images, from the boxes alone.

When a camera turns or shakes, all boxes move alike. The displacement that most tracks share, the
smallest of several, is found by voting, as in a generalized Hough transform (Ballard 1981), and
refined by the median.
"""

import numpy as np

MIN_TRACKS = 4  # Fewer tracks may move alike by themselves.
MAX_TRACKS = 64  # More do not vote, to limit the time.
MIN_SHARE = 0.6  # Of the tracks that must share the displacement.
SIGNIFICANCE = 2.0  # Least shift, in standard errors of the median.
#: In median sizes of a box: the largest displacement, and the tolerance of the vote.
MAX_SHIFT, TOLERANCE = 4.0, 0.25
SIZE_RATIO = 1.3  # Largest ratio of the widths, and of the heights, of a track and a detection.


def camera_shift(tracks: np.ndarray, found: np.ndarray) -> np.ndarray:
    """Return the displacement of most tracks, (4, T) to (4, N), in pixels; zeros without."""
    still = np.zeros(2)
    tracks = tracks[:, :: 1 + tracks.shape[1] // MAX_TRACKS]
    if min(tracks.shape[1], found.shape[1]) < MIN_TRACKS:
        return still
    size = float(np.median(np.sqrt(tracks[2] * tracks[3])))
    cell, cells = TOLERANCE * size, int(2 * MAX_SHIFT / TOLERANCE)
    between = found[:2, None, :] - tracks[:2, :, None]
    rows, columns = np.nonzero((np.abs(between) < MAX_SHIFT * size).all(axis=0))
    ratios = np.abs(np.log(found[2:, columns] / tracks[2:, rows])).max(axis=0)
    is_alike = ratios < np.log(SIZE_RATIO)
    rows, columns = rows[is_alike], columns[is_alike]
    shifts = between[:, rows, columns]
    at = np.floor(shifts / cell).astype(int) + cells // 2
    votes = np.zeros((tracks.shape[1], cells, cells), bool)
    votes[rows, at[0], at[1]] = True
    # A shift near the edge of a cell has its votes in the next one, too. Each track has one vote
    # per square: a row of boxes at equal distances has several displacements in it.
    squares = votes[:, :-1, :-1] | votes[:, 1:, :-1] | votes[:, :-1, 1:] | votes[:, 1:, 1:]
    counts = squares.sum(axis=0)
    likely = (np.argwhere(counts == counts.max()) + 1 - cells // 2) * cell
    shift = likely[np.square(likely).sum(axis=1).argmin()]
    distance = np.hypot(*(shifts - shift[:, None]))
    agree = np.flatnonzero(distance < 1.5 * cell)
    agree = agree[np.argsort(distance[agree], kind='stable')]
    agree = agree[np.unique(rows[agree], return_index=True)[1]]  # The nearest of each track.
    if len(agree) < max(MIN_TRACKS, MIN_SHARE * tracks.shape[1]):
        return still
    agreed = np.sort(shifts[:, agree], axis=1)
    count = len(agree)
    shift = agreed[:, count // 2]
    # Half the distance of the quartiles, of the median of so many.
    error = (agreed[:, 3 * count // 4] - agreed[:, count // 4]) / np.sqrt(count)
    return np.asarray(shift if (np.abs(shift) > SIGNIFICANCE * error).any() else still)
