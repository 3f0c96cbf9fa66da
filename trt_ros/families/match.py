"""Unification of layouts with the outputs of a network: which output is what, and how large."""

import ast
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
import re
from typing import Generic, TypeVar

from trt_ros.families.family import Family, NetworkDescription, is_float
from trt_ros.families.layout import Layout, Out, linear, sizes_of
from trt_ros.tensors import TensorSpec
from trt_ros.vision.grid import covers

#: Parts of names that decide between outputs of equal shapes.
WORDS: Mapping[str, tuple[str, ...]] = {
    'box': ('box', 'dets', 'reg', 'off'),
    'scores': ('score', 'conf', 'cls', 'logits', 'hm', 'heat'),
    'background': ('score', 'conf', 'logits'),
    'label': ('class', 'label'),
    'count': ('num',),
    'sizes': ('wh', 'size'),
    'columns': ('x',),
    'rows': ('y',),
}
COCO_CLASSES = 80
MIN_BINS = 2

Symbols = Mapping[str, int]
LayoutT = TypeVar('LayoutT', bound=Layout)
LayoutT_co = TypeVar('LayoutT_co', bound=Layout, covariant=True)


@dataclass(frozen=True)
class BoundOut:
    """An output that a layout reads; `level`: index of its stride; None: of all."""

    out: Out
    spec: TensorSpec
    level: int | None = None


@dataclass(frozen=True)
class Reading(Generic[LayoutT_co]):
    """
    A layout bound to the outputs of a network.

    :param parts: in the order of the layout's outputs.
    :param symbols: sizes that the shapes show, or that were assumed; without dynamic ones.
    :param strides: of the levels; () where the rows are no known grids.
    :param on_grid: whether the number of rows is that of these; None: dynamic, or no grids.
    """

    layout: LayoutT_co
    parts: tuple[BoundOut, ...]
    symbols: Symbols = field(hash=False)
    network: NetworkDescription = field(hash=False, compare=False, repr=False)
    strides: tuple[int, ...] = ()
    on_grid: bool | None = None

    @property
    def class_count(self) -> int | None:
        """Number of classes; None: the network leaves it open."""
        roles = self.layout.roles
        if 'label' in roles or 'scores' not in roles:
            return None
        return self.symbols.get('C') if 'C' in roles['scores'] else int(roles['scores'])

    @property
    def row_count(self) -> int | None:
        """Number of rows of all levels together; None: dynamic, or there are no such rows."""
        sizes = _row_sizes(self.parts, {part.spec.name: part.spec.shape for part in self.parts})
        return min(sizes['N'], default=None) if sizes else None

    @property
    def values_per_keypoint(self) -> int:
        """Values per keypoint: 3, or 2 without visibility."""
        return 3 if '3*K' in self.layout.roles.get('extras', '') else 2

    @property
    def keypoint_count(self) -> int | None:
        """Number of keypoints per object; None: the network leaves it open, or has none."""
        size = self.layout.roles.get('extras', '')
        return int(size) // 2 if size.isdigit() and size != '1' else self.symbols.get('K')

    @property
    def takes_batches(self) -> bool:
        """Whether each output has an axis for the images of a batch."""
        return all('B' in part.out.axes or 'count' in part.out.values for part in self.parts)

    def __str__(self) -> str:
        return ', '.join(str(part.spec) for part in self.parts)


def bind(family: Family, network: NetworkDescription) -> Reading | None:
    """
    Return the likeliest reading of a network of a family; None if no layout fits.

    Named classes of another number refuse a layout.
    """
    if not family.layouts:
        return Reading(Layout(()), (), {}, network)
    best: tuple[tuple[int, ...], Reading] | None = None
    for reading in readings(family, network):
        if not reading.on_grid and _values_are_rows(reading, family, network):
            continue
        evidence = reading.layout.guarded(network)
        reading = replace(reading, symbols=_shown(reading))
        grid = {True: 2, None: 1, False: 0}[reading.on_grid]
        rank = (int(bool(evidence)), grid, int(_is_long(reading)))
        if best is None or rank > best[0]:
            best = rank, reading
    return best and best[1]


def readings(family: Family, network: NetworkDescription) -> Iterator[Reading]:
    """Yield the readings of a network by the layouts of a family, in their order."""
    for layout in family.layouts:
        reading = unify(layout, network)
        if reading and _fits(reading, network) and layout.guarded(network) is not False:
            yield reading


def _fits(reading: Reading, network: NetworkDescription) -> bool:
    """Return whether the names of the classes, and the rows, may be those of a layout."""
    rows, parts = reading.layout.rows, reading.parts
    named, count = network.class_count, reading.class_count
    if named and not reading.layout.ignores_names and count not in (None, named):
        return False
    if reading.on_grid is False and len(parts) == 1 and not _is_long(reading):
        return False
    grids = [dict(zip(part.out.axes.split(), part.spec.shape)) for part in parts]
    return (reading.on_grid is not None or not rows.is_required) and all(
        covers((sizes['h'], sizes['w']), network.input_hw) for sizes in grids if 'h' in sizes
    )


def _values_are_rows(reading: Reading, family: Family, network: NetworkDescription) -> bool:
    """Return whether there are as many values as another layout of the family has rows."""
    first = reading.parts[0]
    values = dict(zip(first.out.axes.split(), first.spec.shape)).get('V', -1)
    return any(layout.rows.strides_of(network.input_hw, values) for layout in family.layouts)


def _shown(reading: Reading) -> Symbols:
    """Return the symbols that sizes show, or that sizes of several symbols need to be solved."""
    found = {}
    for part in reading.parts:
        for axis, size in zip(part.out.axes.split(), part.spec.shape):
            letters = linear(part.out.size)[0] if axis == 'V' else [axis]
            if size >= 0 or len(letters) > 1:
                found.update({n: reading.symbols[n] for n in letters if n in reading.symbols})
    return found


def _is_long(reading: Reading) -> bool:
    """Return whether the first output has at least as many rows as values."""
    out, shape = reading.parts[0].out, reading.parts[0].spec.shape
    sizes = dict(zip(out.axes.split(), shape))
    rows, values = sizes.get('N', -1), sizes.get('V', -1)
    return rows < 0 or 0 < values <= rows


def unify(layout: LayoutT, network: NetworkDescription) -> Reading[LayoutT] | None:
    """
    Return the reading of a network in a layout; None if the layout does not fit.

    The number of named classes and the keypoints of the metadata decide what the shapes leave
    open.
    """
    stated = named_symbols(network)
    if layout.needs_names and 'C' not in stated:
        return None
    if 'K' in stated and f'{stated["values"]}*K' not in layout.roles.get('extras', '3*K'):
        return None
    if layout.ignores_names:
        stated.pop('C', None)
    for strides in layout.rows.strides or ((),):
        for parts, symbols in _assign(layout, network, strides, stated):
            reading = _reading(layout, network, parts, symbols, strides)
            if reading is not None:
                return reading
    return None


def named_symbols(network: NetworkDescription) -> dict[str, int]:
    """Return the sizes that names and metadata state: of classes, keypoints and their values."""
    known = {'C': network.class_count} if network.class_count else {}
    try:
        count, values = ast.literal_eval(network.metadata['kpt_shape'])
        known |= {'K': int(count), 'values': int(values)}
    except (KeyError, ValueError, TypeError, SyntaxError):
        pass
    return known


def _reading(
    layout: LayoutT,
    network: NetworkDescription,
    parts: tuple[BoundOut, ...],
    symbols: Symbols,
    strides: tuple[int, ...],
) -> Reading[LayoutT] | None:
    """Check the number of rows, and order the parts as the layout does."""
    rows = layout.rows
    ordered = sorted(parts, key=lambda part: (layout.outputs.index(part.out), part.level or 0))
    sizes = _row_sizes(parts, {part.spec.name: part.spec.shape for part in parts})
    if sizes is None:
        return None
    counts = sizes['N']
    found, on_grid = strides, None
    if counts:
        count = counts.pop()
        if layout.is_anchored:
            if sum(grid.anchors for grid in rows.grids(network.input_hw, strides)) != count:
                return None
        else:
            found = rows.strides_of(network.input_hw, count) or ()
            on_grid = bool(found) if rows.strides else None
            if rows.is_required and not found:
                return None
    if strides and layout.is_anchored:
        shape = rows.grids(network.input_hw, strides)[0].shape
        on_grid = sizes['H'] <= {shape[0]} and sizes['W'] <= {shape[1]}
    letters = set(''.join(layout.roles.values()))
    known = {name: size for name, size in symbols.items() if name in letters}
    return Reading(layout, tuple(ordered), known, network, found, on_grid)


def _row_sizes(
    parts: Sequence[BoundOut], shapes: Mapping[str, tuple[int, ...]]
) -> dict[str, set[int]] | None:
    """Return the sizes of rows and grids of no level, by axis; None if outputs differ."""
    sizes: dict[str, set[int]] = {'N': set(), 'H': set(), 'W': set()}
    for part in parts:
        for axis, size in zip(part.out.axes.split(), shapes[part.spec.name]):
            if axis in sizes and part.level is None and size >= 0:
                sizes[axis].add(size)
    return None if any(len(found) > 1 for found in sizes.values()) else sizes


def _assign(
    layout: Layout, network: NetworkDescription, strides: tuple[int, ...], known: Symbols
) -> Iterator[tuple[tuple[BoundOut, ...], Symbols]]:
    """Assign outputs to those of a layout, in order, but those of several symbols last."""
    specs = network.outputs
    extra = len(specs) - sum(len(strides) if out.per_level else 1 for out in layout.outputs)
    if extra < 0 or (extra and not layout.ignores_others):
        return
    outs: list[tuple[Out, int | None]] = [
        (out, level)
        for out in layout.outputs
        for level in (range(len(strides)) if out.per_level else (None,))
    ]
    outs.sort(key=lambda each: len(linear(each[0].size)[0]) > 1)

    def follow(
        rest: Sequence[tuple[Out, int | None]], free: tuple[TensorSpec, ...], symbols: Symbols
    ) -> Iterator[tuple[tuple[BoundOut, ...], Symbols]]:
        if not rest:
            yield (), symbols
            return
        (out, level), *others = rest
        for spec in _candidates(out, free, layout):
            after = _fit(layout, out, level, spec.shape, symbols, strides, network.input_hw)
            if after is not None:
                left = tuple(each for each in free if each is not spec)
                for parts, end in follow(others, left, after):
                    yield (BoundOut(out, spec, level), *parts), end

    yield from follow(outs, specs, known)


def _candidates(out: Out, specs: tuple[TensorSpec, ...], layout: Layout) -> list[TensorSpec]:
    """Return the outputs of the right name and type, the ones with a word of the role first."""
    own = WORDS.get(next(iter(out.fields)), ())
    roles = [role for role in layout.roles if role not in out.fields]
    others = [word for role in roles for word in WORDS.get(role, ())]

    def is_named(spec: TensorSpec, words: Sequence[str] = own) -> bool:
        return any(word in spec.name.lower() for word in words)

    found = [
        spec
        for spec in specs
        if is_float(spec) == out.is_float
        or (out.is_float is None and (not is_float(spec) or is_named(spec)))
    ]
    if out.names:
        found = [
            spec
            for spec in found
            if any(re.fullmatch(name, spec.name.split(':')[0]) for name in out.names)
        ]
        return found if len(found) == 1 or out.per_level else []
    return sorted(found, key=lambda spec: (not is_named(spec), is_named(spec, others)))


def fitted(
    reading: Reading, shapes: Mapping[str, tuple[int, ...]], input_hw: tuple[int, int]
) -> Symbols | None:
    """Return the symbols of outputs of these shapes, of any batch; None if they do not fit."""
    symbols: Symbols | None = reading.symbols
    for part in sorted(reading.parts, key=lambda part: len(linear(part.out.size)[0])):
        if symbols is None:
            return None
        if 'count' in part.out.fields:  # One per image.
            continue
        shape, axes = shapes[part.spec.name], part.out.axes.split()
        if len(shape) == len(axes):  # Of any batch, and resolution of heatmaps and bins.
            is_any = [axis == 'B' or axis[1:2] in ('/', '*') for axis in axes]
            shape = tuple(-1 if each else size for each, size in zip(is_any, shape))
        known = (symbols, reading.strides, input_hw)
        symbols = _fit(reading.layout, part.out, part.level, shape, *known)
    return None if _row_sizes(reading.parts, shapes) is None else symbols


def _fit(
    layout: Layout,
    out: Out,
    level: int | None,
    shape: tuple[int, ...],
    symbols: Symbols,
    strides: tuple[int, ...],
    input_hw: tuple[int, int],
) -> Symbols | None:
    """Return the symbols with which an output is the one of a layout; None if it is not."""
    if 'count' in out.fields:
        return symbols if len(shape) < 3 and all(n in (1, -1) for n in shape) else None
    axes = out.axes.split()
    if len(axes) != len(shape):
        return None
    found: Symbols | None = symbols
    for axis, size in zip(axes, shape):
        if found is None:
            return None
        if axis == 'B':
            found = found if size in (1, -1) else None
        elif axis == 'V':
            found = solve(out.size, size, found, layout.assume)
        elif axis in ('h', 'w', 'S') or size < 0:
            continue
        elif axis in 'HWAN':
            if level is None and not (axis in 'HW' and layout.rows.is_required):
                continue
            grid = layout.rows.grids(input_hw, strides)[level or 0]
            expected = (*grid.shape, grid.per_cell, grid.anchors)['HWAN'.index(axis)]
            found = found if size == expected else None
        else:
            choices = sizes_of(axis, input_hw)
            solved = (solve(choice, size, found, layout.assume) for choice in choices)
            found = next((each for each in solved if each is not None), None)
    return found


def solve(
    text: str, size: int, symbols: Symbols, assume: Mapping[str, tuple[int, ...]]
) -> Symbols | None:
    """
    Return the symbols with which an expression is a size; None if there are none.

    Of several solutions with assumed values, the one of the classes of COCO counts, else the
    first. A dynamic size is any.
    """
    factors, constant = linear(text)
    if size < 0:
        return symbols
    rest = (
        size - constant - sum(n * symbols[name] for name, n in factors.items() if name in symbols)
    )
    unknown = [name for name in factors if name not in symbols]
    if not unknown:
        return symbols if rest == 0 else None
    if len(unknown) == 1:
        (name,) = unknown
        value, left = divmod(rest, factors[name])
        fits = not left and value >= (MIN_BINS if name == 'D' else 1)
        return {**symbols, name: value} if fits else None
    assumed = next((name for name in assume if name in unknown), None)
    if assumed is None:
        return None
    guesses = [solve(text, size, {**symbols, assumed: value}, assume) for value in assume[assumed]]
    found = [each for each in guesses if each is not None]
    coco = [each for each in found if each.get('C') == COCO_CLASSES]
    return next(iter(coco or found), None)
