"""Places of the values of a reading in outputs of known shapes."""

from collections.abc import Iterator, Mapping
from dataclasses import dataclass, replace
from functools import cached_property
from typing import NamedTuple

import numpy as np

from trt_ros.families.layout import BoxLayout, Grid, linear
from trt_ros.families.match import BoundOut, Reading, Symbols, fitted

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

    def continues_with(self, other: 'LevelSlices') -> bool:
        """Return whether the rows of another level follow those of this one."""
        return other.slices == self.after(self.rows)

    def after(self, rows: int) -> dict[str, Slice]:
        """Return the slices without their first rows."""
        return {
            role: place._replace(start=place.start + rows * place.row)
            for role, place in self.slices.items()
        }


@dataclass(frozen=True)
class Places:
    """
    Places of the values of a reading.

    :param levels: levels whose rows follow each other.
    :param tensors: slices of the values that do not belong to rows, by role.
    :param bins: elements per value of a box; 1: the value itself.
    :param is_planar: each anchor of a cell is a plane of all cells; otherwise they are neighbors.
    :param class_step: elements from the box of one class to the next; 0: one for all classes.
    """

    levels: tuple[LevelSlices, ...]
    tensors: Mapping[str, Slice]
    bins: int = 1
    is_planar: bool = False
    class_step: int = 0

    @property
    def rows(self) -> int:
        """Number of rows of all levels."""
        return sum(level.rows for level in self.levels)

    @cached_property
    def joined(self) -> tuple[tuple[LevelSlices, tuple[Grid, ...]], ...]:
        """Levels with their grids, those that follow each other in their outputs as one."""
        found: list[tuple[LevelSlices, tuple[Grid, ...]]] = []
        for level in self.levels:
            grids: tuple[Grid, ...] = (level.grid,) if level.grid else ()
            if found and found[-1][0].continues_with(level):
                before, others = found.pop()
                level, grids = replace(before, rows=before.rows + level.rows), others + grids
            found.append((level, grids))
        return tuple(found)

    @property
    def classes(self) -> int:
        """Number of scores per row."""
        return self.levels[0].slices['scores'].values


def locate(
    reading: Reading[BoxLayout], shapes: Shapes, input_hw: tuple[int, int]
) -> Places | None:
    """Return the places of values in outputs of these shapes, of any batch; None if not."""
    symbols = fitted(reading, shapes, input_hw)
    if symbols is None:
        return None
    tensors: dict[str, Slice] = {}
    slices: dict[int | None, dict[str, Slice]] = {}
    rows: dict[int | None, int] = {}  # Of all outputs of a level alike.
    plane: tuple[int, int] | None = None
    for part in reading.parts:
        name, axes, role = part.spec.name, part.out.axes.split(), next(iter(part.out.fields))
        sizes = dict(zip(axes, shapes[name]))
        if role in ('count', 'prototypes', 'masks'):
            tensors[role] = Slice(name, 0, 0, 0, sizes.get('M', 1))
            continue
        sizes.pop('B', None)
        values = sizes.pop('V', 1)
        count = int(np.prod(list(sizes.values()), dtype=np.int64))
        row, column = (1, count) if 'V' in axes[:-1] else (values, 1)
        slices.setdefault(part.level, {}).update(_slices(part, symbols, row, column))
        rows[part.level] = count
        if part.level is None and 'H' in sizes:
            plane = sizes['H'], sizes['W']
    levels: tuple[LevelSlices, ...] | None = tuple(
        LevelSlices(rows[level], slices[level])
        for level in sorted(slices, key=lambda level: level or 0)
    )
    if levels and reading.layout.coding.is_anchored:
        levels = _with_grids(levels, _grids(reading, plane, input_hw))
    if not levels:
        return None
    box = levels[0].slices.get('box')
    has_box_per_class = 'C' in reading.layout.roles.get('box', '')
    return Places(
        levels,
        tensors,
        symbols.get('D', 1),
        any('A' in part.out.axes for part in reading.parts),
        box.values * box.column if box and has_box_per_class else 0,
    )


def _slices(
    part: BoundOut, symbols: Symbols, row: int, column: int
) -> Iterator[tuple[str, Slice]]:
    start = 0
    for role, text in part.out.fields.items():
        factors, constant = linear(text)
        count = constant + sum(n * symbols[name] for name, n in factors.items())
        values = count // symbols['C'] if role == 'box' and 'C' in factors else count
        yield role, Slice(part.spec.name, start * column, row, column, values)
        start += count


def _grids(
    reading: Reading[BoxLayout], shape: tuple[int, int] | None, input_hw: tuple[int, int]
) -> tuple[Grid, ...]:
    """Return the grids of the levels; of a plane, whatever the stride, the cells of the input."""
    rows = reading.layout.rows
    if shape is None:
        return rows.grids(input_hw, reading.strides)
    steps = [side / cells for side, cells in zip(input_hw, shape)]
    if rows.covers:
        steps = [float(-(-side // cells)) for side, cells in zip(input_hw, shape)]
    x, y = (float(np.float32(step)) for step in reversed(steps))
    return (Grid(shape, (x, y)),)


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
        split.append(LevelSlices(grid.anchors, levels[0].after(first), grid))
        first += grid.anchors
    return tuple(split)
