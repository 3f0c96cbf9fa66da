"""Table of tracks, with one array per column."""

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
        """
        Return a copy of some tracks.

        :param rows: indices, or a bool per track.
        """
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
