"""Places of the values of a reading in outputs of known shapes."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import NamedTuple

import numpy as np

from trt_ros.families.layout import BoxLayout, Grid, linear
from trt_ros.families.match import BoundOut, Reading, Symbols, solve

Shapes = Mapping[str, tuple[int, ...]]


class Slice(NamedTuple):
    """
    A strided slice of an output for one image.

    :param start: offset of the first element, in elements.
    :param row: elements from one row to the next.
    :param column: elements from one value of a row to the next.
    :param values: number of values per row.
    """

    output: str
    start: int
    row: int
    column: int
    values: int


@dataclass(frozen=True)
class LevelSlices:
    """Values of all rows, or of those of one stride, by role; all rows have `grid` None."""

    rows: int
    slices: Mapping[str, Slice]
    grid: Grid | None = None


@dataclass(frozen=True)
class Places:
    """
    Places of the values of a reading.

    :param levels: levels whose rows follow each other.
    :param tensors: slices of the values that do not belong to rows, by role.
    :param classes: number of scores per row.
    :param bins: elements per value of a box; 1: the value itself.
    :param is_planar: each anchor of a cell is a plane of all cells; otherwise they are neighbors.
    :param class_step: elements from the box of one class to the next; 0: one for all classes.
    """

    levels: tuple[LevelSlices, ...]
    tensors: Mapping[str, Slice]
    classes: int
    symbols: Symbols
    bins: int = 1
    is_planar: bool = False
    class_step: int = 0

    @property
    def rows(self) -> int:
        """Number of rows of all levels."""
        return sum(level.rows for level in self.levels)

    @property
    def grids(self) -> tuple[Grid, ...]:
        """Grids of the levels; () without."""
        return tuple(level.grid for level in self.levels if level.grid is not None)


@dataclass
class _Placing:
    """Places that are being collected."""

    symbols: Symbols
    slices: dict[int | None, dict[str, Slice]] = field(default_factory=dict)
    rows: dict[int | None, set[int]] = field(default_factory=dict)
    tensors: dict[str, Slice] = field(default_factory=dict)
    cells: tuple[int, int] | None = None
    is_planar: bool = False
    class_step: int = 0

    def add(self, part: BoundOut, shape: Sequence[int]) -> bool:
        """Add the fields of an output; False if its shape does not fit."""
        out, axes = part.out, part.out.axes.split()
        if 'count' in out.fields:
            self.tensors['count'] = Slice(part.spec.name, 0, 0, 0, 1)
            return bool(np.prod(shape) >= 1)
        if len(axes) != len(shape):
            return False
        sizes = dict(zip(axes, shape))
        sizes.pop('B', None)
        if 'prototypes' in out.fields:
            self.tensors['prototypes'] = Slice(part.spec.name, 0, 0, 0, sizes['M'])
            return self.symbols.get('M', sizes['M']) == sizes['M']
        values = sizes.pop('V', None)
        rows = int(np.prod(list(sizes.values()), dtype=np.int64))
        if 'masks' in out.fields:
            self.tensors['masks'] = Slice(part.spec.name, 0, 0, 0, 1)
            rows = sizes['N']
        elif axes[-1] == 'V' or values is None:
            self._add_fields(part, values or 1, 1, rows)
        else:
            self._add_fields(part, 1, rows, rows)
        if part.level is None and 'H' in sizes:
            self.cells = self.cells or (sizes['H'], sizes['W'])
            if self.cells != (sizes['H'], sizes['W']):
                return False
        self.is_planar |= 'A' in sizes
        self.rows.setdefault(part.level, set()).add(rows)
        return True

    def _add_fields(self, part: BoundOut, row: int, column: int, rows: int) -> None:
        start = 0
        for role, text in part.out.fields.items():
            factors, constant = linear(text)
            count = constant + sum(n * self.symbols[name] for name, n in factors.items())
            values = count
            if role == 'box' and 'C' in factors:  # One per class.
                values = count // self.symbols['C']
                self.class_step = values * column
            place = Slice(part.spec.name, start * column, row, column, values)
            self.slices.setdefault(part.level, {})[role] = place
            start += count


def locate(
    reading: Reading[BoxLayout], shapes: Shapes, input_hw: tuple[int, int]
) -> Places | None:
    """
    Return the places of the values in outputs of these shapes; None if the shapes do not fit.

    :param shapes: shapes by name; of a batch of any size.
    :param input_hw: size of the network's images.
    """
    layout = reading.layout
    symbols = _symbols(reading, shapes)
    if symbols is None:
        return None
    placing = _Placing(symbols)
    if not all(placing.add(part, shapes[part.spec.name]) for part in reading.parts):
        return None
    if any(len(rows) > 1 for rows in placing.rows.values()):
        return None
    rows = {level: counts.pop() for level, counts in placing.rows.items()}
    shared = placing.slices.pop(None, {})
    levels: tuple[LevelSlices, ...] | None
    if placing.slices:
        found = [LevelSlices(rows[level], each) for level, each in sorted(placing.slices.items())]
        levels = tuple(found)
    else:
        levels = (LevelSlices(rows[None], shared),)
    if layout.coding.is_anchored:
        levels = _with_grids(levels, _grids(reading, placing, input_hw))
    if levels is None:
        return None
    roles = levels[0].slices
    return Places(
        levels,
        placing.tensors,
        roles['scores'].values,
        symbols,
        symbols.get('D', 1),
        placing.is_planar,
        placing.class_step,
    )


def _symbols(reading: Reading[BoxLayout], shapes: Shapes) -> Symbols | None:
    """Return the symbols of the shapes; None if they contradict each other or the reading."""
    symbols = reading.symbols
    for part in sorted(reading.parts, key=lambda part: len(linear(part.out.size)[0])):
        axes, shape = part.out.axes.split(), shapes[part.spec.name]
        for axis, size in zip(axes, shape):
            if axis == 'V' or axis == 'M':
                text = part.out.size if axis == 'V' else axis
                solved = solve(text, size, symbols, reading.layout.assume)
                if solved is None:
                    return None
                symbols = solved
    return symbols


def _grids(
    reading: Reading[BoxLayout], placing: _Placing, input_hw: tuple[int, int]
) -> tuple[Grid, ...]:
    """Return the grids of the levels; of planes, whatever the stride, the cells of the input."""
    rows = reading.layout.rows
    if placing.cells is None:
        return rows.grids(input_hw, reading.strides)
    steps = [side / cells for side, cells in zip(input_hw, placing.cells)]
    if rows.covers:
        steps = [float(-(-side // cells)) for side, cells in zip(input_hw, placing.cells)]
    x, y = (float(np.float32(step)) for step in reversed(steps))
    return (Grid(placing.cells, (x, y)),)


def _with_grids(
    levels: tuple[LevelSlices, ...], grids: tuple[Grid, ...]
) -> tuple[LevelSlices, ...] | None:
    """Return one level per grid; None if the rows are not their anchors."""
    if len(levels) == len(grids):
        found = tuple(replace(level, grid=grid) for level, grid in zip(levels, grids))
        return (
            found if all(grid.anchors == each.rows for grid, each in zip(grids, found)) else None
        )
    if len(levels) != 1 or sum(grid.anchors for grid in grids) != levels[0].rows:
        return None
    split, first = [], 0
    for grid in grids:
        slices = {
            role: place._replace(start=place.start + first * place.row)
            for role, place in levels[0].slices.items()
        }
        split.append(LevelSlices(grid.anchors, slices, grid))
        first += grid.anchors
    return tuple(split)
