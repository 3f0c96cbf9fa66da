"""
Table of tracks, and motion model: a Kalman filter with constant velocity per coordinate.

State and measurement are those of BoT-SORT (Aharon, Orfaig and Bobrovsky 2022,
arXiv:2206.14651), section 3.1, equations 1, 2 and 4: center x, y, width, height and their
velocities, with standard deviations in proportion to the size of the box. The paper adds process
noise once per frame (equation 3); here it is white noise acceleration in continuous time
(Bar-Shalom, Li and Kirubarajan 2001, Estimation with Applications to Tracking and Navigation,
section 6.2.2), so that two steps of half the length add up to the same. All matrices are diagonal
in the coordinates: each coordinate is a filter of two states of its own.
"""

from __future__ import annotations

from collections.abc import Mapping

import numpy as np

Fields = Mapping[str, tuple[type, tuple[int, ...]]]


class TrackTable:
    """
    Columns of numbers, each an array with the tracks along its last axis, where NumPy is fast.

    >>> table = TrackTable({'id': (np.int64, ()), 'box': (np.float64, (4,))}, 10)
    >>> table['box'].shape
    (4, 10)
    """

    def __init__(self, fields: Fields, count: int = 0) -> None:
        self._columns: dict[str, np.ndarray] = {
            name: np.zeros((*shape, count), dtype) for name, (dtype, shape) in fields.items()
        }
        self._count = count

    def __len__(self) -> int:
        return self._count

    def __getitem__(self, name: str) -> np.ndarray:
        """Return a column, which may be changed in place."""
        return self._columns[name]

    def clear(self, name: str, dtype: type, shape: tuple[int, ...]) -> None:
        """Add a column of zeros, or replace the column of that name by one."""
        self._columns[name] = np.zeros((*shape, self._count), dtype)

    def take(self, rows: np.ndarray) -> TrackTable:
        """Return a copy of some tracks, by indices or a bool per track."""
        taken = TrackTable({})
        taken._columns = {name: column[..., rows] for name, column in self._columns.items()}
        taken._count = int(np.count_nonzero(rows)) if rows.dtype == bool else len(rows)
        return taken

    def put(self, rows: np.ndarray, others: TrackTable) -> None:
        """Replace the tracks at the indices `rows`."""
        for name, column in self._columns.items():
            column[..., rows] = others[name]

    def extended(self, others: TrackTable) -> TrackTable:
        """Return a table with these tracks and then `others`."""
        both = TrackTable({})
        both._columns = {
            name: np.concatenate([column, others[name]], axis=-1)
            for name, column in self._columns.items()
        }
        both._count = self._count + len(others)
        return both


FRAMES_PER_SECOND = 30.0  # Rate at which the noise equals that of the paper.
# Standard deviations in proportion to the size. The paper has 0.00625 per frame for the velocity:
# twice as much follows objects that turn, and costs nothing with others.
MEASUREMENT_NOISE, VELOCITY_NOISE = 0.05, 0.0125
INITIAL_POSITION, INITIAL_VELOCITY = 0.1, 0.0625  # As published with the paper.
MIN_SIZE = 1e-3  # Pixels; a predicted box never vanishes.
LEAST_IN_SPACE = 0.3  # Meters; errors of depth do not vanish with the size of an object.

#: Columns of a TrackTable. `mean`: position and velocity per second of cx, cy, w, h in pixels;
#: `covariance`: variance of the position, covariance of the two, and variance of the velocity.
FIELDS: Mapping[str, tuple[type, tuple[int, ...]]] = {
    'mean': (np.float64, (2, 4)),
    'covariance': (np.float64, (3, 4)),
}


def fields_in_space(fields: Fields) -> Fields:
    """Return the columns for boxes of six numbers: center x, y, z and the sizes, in meters."""
    boxes: Fields = {
        name: (dtype, tuple(6 if each == 4 else each for each in shape))
        for name, (dtype, shape) in fields.items()
    }
    return {**boxes, 'camera': (np.int32, ())}  # That detected it last.


def start(tracks: TrackTable, boxes: np.ndarray) -> None:
    """Initialize filters in place from (4, N) cx, cy, w, h in pixels, with velocity 0."""
    mean, covariance, scale = tracks['mean'], tracks['covariance'], _scale(boxes)
    mean[0], mean[1] = boxes, 0.0
    covariance[0] = (INITIAL_POSITION * scale) ** 2
    covariance[1] = 0.0
    covariance[2] = (INITIAL_VELOCITY * FRAMES_PER_SECOND * scale) ** 2


def predict(tracks: TrackTable, seconds: float | np.ndarray) -> None:
    """Advance filters in time by seconds, 0 or more: for all, or (N,)."""
    position, velocity = tracks['mean']
    variance, cross, velocity_variance = tracks['covariance']
    noise = (VELOCITY_NOISE * _scale(position)) ** 2 * (FRAMES_PER_SECOND**3 * seconds)
    position += velocity * seconds
    _keep_size(position)
    gained = seconds * velocity_variance
    variance += seconds * (2 * cross + gained + seconds / 3 * noise)
    cross += gained + seconds / 2 * noise
    velocity_variance += noise


def correct(tracks: TrackTable, boxes: np.ndarray, is_seen: np.ndarray | None = None) -> None:
    """Correct the filters, all or `is_seen`, with observations (4, N) cx, cy, w, h."""
    position, velocity = tracks['mean']
    variance, cross, velocity_variance = tracks['covariance']
    weight = 1 / (variance + (MEASUREMENT_NOISE * _scale(position)) ** 2)
    if is_seen is not None:
        weight *= is_seen
    gain, velocity_gain = variance * weight, cross * weight
    innovation = boxes - position
    position += gain * innovation
    velocity += velocity_gain * innovation
    velocity_variance -= velocity_gain * cross
    rest = 1 - gain
    cross *= rest
    variance *= rest
    _keep_size(position)


def _scale(boxes: np.ndarray) -> np.ndarray:
    """Return what the noise of cx, cy, w, h is proportional to: w, h, w, h."""
    sizes = boxes[2:] if len(boxes) == 4 else np.maximum(boxes[3:], LEAST_IN_SPACE)
    return np.concatenate([sizes, sizes])


def _keep_size(boxes: np.ndarray) -> None:
    sizes = boxes[len(boxes) // 2 :]
    np.maximum(sizes, MIN_SIZE, out=sizes)
