"""Layouts of the outputs of networks: where values lie, and how those of boxes are coded."""

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from functools import cached_property, lru_cache
import re
from typing import Any, Literal

from trt_ros.parameter_field import require_choices

_TERM = re.compile(r'(?:(\d+)\*)?([A-Z])|(\d+)')
#: Unknown sizes by their symbol.
SYMBOLS: Mapping[str, str] = {
    'C': 'classes',
    'D': 'bins',
    'K': 'keypoints',
    'M': 'masks',
    'Q': 'queries',
    'F': 'features',
    'T': 'steps',
}


@lru_cache(maxsize=256)
def linear(size: str) -> tuple[Mapping[str, int], int]:
    """
    Return the factors of the symbols and the constant of a size.

    >>> linear('4*D+C+2')
    ({'D': 4, 'C': 1}, 2)
    """
    factors: dict[str, int] = {}
    constant = 0
    for term in size.split('+'):
        found = _TERM.fullmatch(term)
        assert found, f'{term!r} of {size!r} is no term'
        times, symbol, number = found.groups()
        if symbol:
            factors[symbol] = factors.get(symbol, 0) + int(times or 1)
        else:
            constant += int(number)
    return factors, constant


def sizes_of(axis: str, input_hw: tuple[int, int]) -> list[str]:
    """Return the possible sizes of an axis, linear in the symbols each."""
    for side, size in zip('hw', input_hw):
        if axis.startswith(f'{side}/'):
            return [str(size // int(axis[2:]))]
        axis = axis.replace(f'S*{side}', f'{size}*S')
    return axis.split('|')


def _any_of(sizes: list[str]) -> str:
    return ' or '.join(sizes) if len(sizes) < 3 else f'{sizes[0]} to {sizes[-1]}'


@dataclass(frozen=True)
class Out:
    """
    One output, or one per stride.

    :param axes: 'B' batch, 'N' rows, 'V' values of a row, 'A' anchors of a cell, 'H' and 'W' the
        cells of a grid, 'h' and 'w' any grid of the input's aspect, 'h/4' a quarter of its height,
        'S*w' a multiple of its width, 'S' any number, '18|56' one of several, or linear in the
        symbols.
    :param values: along 'V', in order, 'role:size' each; a size is linear in the symbols. Without
        'V', the role of all. Roles: box, sizes (the second half of a box), scores, background and
        none (scores of no class), objectness, label, extras, count (of valid rows, in a tensor of
        one element), prototypes, masks (a plane per row); others are words for the log.
    :param names: regular expressions, one of which the name of the output matches; (): any name.
    :param per_level: there is one such output per stride, the finest first.
    :param is_float: False: integers; None: both, but labels of floats are named so.
    """

    axes: str
    values: str
    names: tuple[str, ...] = ()
    per_level: bool = False
    is_float: bool | None = True

    @cached_property
    def fields(self) -> dict[str, str]:
        """Sizes by role, in order."""
        return dict(part.split(':') for part in self.values.split())

    @cached_property
    def size(self) -> str:
        """Size of 'V'."""
        return '+'.join(self.fields.values())

    @property
    def has_channels_first(self) -> bool:
        """Whether channels, if there are any, stand before rows and columns."""
        return self.axes.endswith('h w')

    def __str__(self) -> str:
        return self.describe({})

    def describe(self, sizes: Mapping[str, str]) -> str:
        """Return name, shape and type in words; `sizes`: of axes, in words."""
        factors, constant = linear(self.size)
        words = [
            f'{times} * ' * (times > 1) + SYMBOLS.get(name, name)
            for name, times in factors.items()
        ]
        values = ' + '.join([str(constant)] * bool(constant) + words)
        known = {'B': '1', 'V': values, **SYMBOLS}
        known |= {'h': 'rows', 'H': 'rows', 'w': 'columns', 'W': 'columns', **sizes}
        known |= {'S*h': 's * height', 'S*w': 's * width'}
        axes = [known.get(axis, _any_of(axis.split('|'))) for axis in self.axes.split()]
        name = re.sub(r'\(\?i\)|\(\?!.*?\)\)|[^\w|]', '', '|'.join(self.names)).replace('|', '/')
        kind = ' of integers' if self.is_float is False else ''
        return f'{name} ({", ".join(axes)})'.lstrip() + kind + ' per stride' * self.per_level


@dataclass(frozen=True)
class Grid:
    """
    Cells of an input, of one stride.

    :param shape: rows and columns.
    :param strides: pixels per cell, along x and y.
    :param per_cell: anchors per cell.
    :param priors: width and height in pixels of the anchors of a cell.
    """

    shape: tuple[int, int]
    strides: tuple[float, float]
    per_cell: int = 1
    priors: tuple[tuple[float, float], ...] = ()

    @property
    def cells(self) -> int:
        """Number of cells."""
        return self.shape[0] * self.shape[1]

    @property
    def anchors(self) -> int:
        """Number of anchors."""
        return self.cells * self.per_cell


@dataclass(frozen=True)
class Rows:
    """
    Meaning of the rows: anchors of the cells of grids, row by row, the finest grid first.

    :param strides: the sets of strides that networks of the family have.
    :param per_cell: anchors per cell, of all strides or of each.
    :param covers: cells that the input only begins count, too.
    :param priors: per stride, width and height in pixels of the anchors of a cell.
    :param counts: further numbers of rows by which the family is known.
    :param is_required: the layout has no other numbers of rows.
    """

    strides: tuple[tuple[int, ...], ...] = ()
    per_cell: tuple[int, ...] = (1,)
    covers: bool = False
    priors: tuple[tuple[tuple[float, float], ...], ...] = ()
    counts: tuple[int, ...] = ()
    is_required: bool = False

    def grids(self, input_hw: tuple[int, int], strides: tuple[int, ...]) -> tuple[Grid, ...]:
        """Return the grids of an input."""
        per_cell = self.per_cell * len(strides) if len(self.per_cell) == 1 else self.per_cell
        found = []
        for index, stride in enumerate(strides):
            height, width = (
                -(-side // stride) if self.covers else side // stride for side in input_hw
            )
            priors = self.priors[index] if self.priors else ()
            found.append(Grid((height, width), (stride, stride), per_cell[index], priors))
        return tuple(found)

    def strides_of(self, input_hw: tuple[int, int], count: int) -> tuple[int, ...] | None:
        """Return the strides whose grids have `count` anchors; None if no set of strides does."""
        for strides in self.strides:
            if sum(grid.anchors for grid in self.grids(input_hw, strides)) == count:
                return strides
        return None


@dataclass(frozen=True)
class Coding:
    """
    Meaning of the four values of a box.

    :param form: 'corners' x1, y1, x2, y2; 'centers' cx, cy, w, h; 'rotated' the same with an angle
        behind; relative to the anchor at (cell + place) * stride + pixel: 'offsets' of the center,
        and the size; 'sides' distances to left, top, right and bottom.
    :param is_normalized: values are 0 to 1 of the input, not pixels.
    :param is_y_first: y stands before x.
    :param unit: of offsets, sizes and sides: 'stride', 'prior' (size of the anchor) or 'pixel',
        times `gain`.
    :param size: of 'offsets': 'exp' of `size_gain` times the value, 'linear', or 'squared': the
        center is 2 v - 0.5 of the cell and the size (2 v)^2 priors (YOLOv5); or 'tanh', the same
        of the center, and a sigmoid of the size of the input (FastestDet).
    :param clips: boxes are limited to the input before NMS.
    :param has_points: keypoints are coded likewise: relative to the anchor, normalized, y first.
    :param are_points_in_box: relative to the upper-left corner of the box instead, in its size.
    """

    form: Literal['corners', 'centers', 'rotated', 'offsets', 'sides'] = 'centers'
    is_normalized: bool = False
    is_y_first: bool = False
    place: float = 0.0
    pixel: float = 0.0
    unit: Literal['stride', 'prior', 'pixel'] = 'stride'
    gain: float = 1.0
    size: Literal['exp', 'linear', 'squared', 'tanh'] = 'exp'
    size_gain: float = 1.0
    clips: bool = False
    has_points: bool = False
    are_points_in_box: bool = False

    def __post_init__(self) -> None:
        require_choices(self)

    @property
    def is_anchored(self) -> bool:
        """Whether boxes are relative to the anchors of grids."""
        return self.form in ('offsets', 'sides')


CORNERS = Coding('corners')
#: Returns whether a network may be of this layout; words where they are evidence of it.
Guard = Callable[[Any], 'str | bool']


@dataclass(frozen=True)
class Layout:
    """
    Outputs of a network, and the evidence by which `auto` chooses them.

    :param ignores_others: the network may have further outputs.
    :param needs_names: there are as many classes as names of classes.
    :param ignores_names: the number of names is no evidence.
    :param any_rows: `auto` takes numbers of rows that are none of `rows`, too.
    :param assume: values of symbols where the shapes do not decide, the likeliest first.
    :param known: sizes of published networks, by symbol, as weak evidence; None: the classes of
        COCO.
    :param needs_known: `auto` takes no other sizes, unless metadata states them.
    :param is_cut: the builder cut off the NMS operator of the network.
    :param by_name: `auto` never takes it.
    :param input: an input beside the image that `auto` requires.
    :param task: the task in metadata of Ultralytics that `auto` requires.
    :param guards: see `Guard`; one False refuses the layout.
    :param evidence: further guards, for `auto` only.
    """

    outputs: tuple[Out, ...]
    rows: Rows = Rows()
    ignores_others: bool = field(default=False, kw_only=True)
    needs_names: bool = field(default=False, kw_only=True)
    ignores_names: bool = field(default=False, kw_only=True)
    any_rows: bool = field(default=False, kw_only=True)
    assume: Mapping[str, tuple[int, ...]] = field(default_factory=dict, hash=False, kw_only=True)
    known: Mapping[str, tuple[int, ...]] | None = field(default=None, hash=False, kw_only=True)
    needs_known: bool = field(default=False, kw_only=True)
    is_cut: bool = field(default=False, kw_only=True)
    by_name: bool = field(default=False, kw_only=True)
    input: str = field(default='', kw_only=True)
    task: str = field(default='', kw_only=True)
    guards: tuple[Guard, ...] = field(default=(), kw_only=True)
    evidence: tuple[Guard, ...] = field(default=(), kw_only=True)

    def __post_init__(self) -> None:
        require_choices(self)

    @property
    def is_anchored(self) -> bool:
        """Whether rows are relative to the anchors of grids."""
        return False

    @cached_property
    def roles(self) -> dict[str, str]:
        """Sizes by role, of all outputs."""
        return {role: size for out in self.outputs for role, size in out.fields.items()}

    def guarded(self, network: Any, *, auto: bool = False) -> str | Literal[False]:
        """Return the evidence of the guards in words, or False where one refuses the network."""
        opinions = [guard(network) for guard in self.guards]
        if auto:
            opinions += [not self.by_name, *(guard(network) for guard in self.evidence)]
        if auto and self.input:
            has_input = any(spec.name == self.input for spec in network.inputs)
            opinions.append(has_input and f'input {self.input}')
        if auto and self.task:
            is_stated = network.metadata.get('task') == self.task
            opinions.append(is_stated and f'task {self.task} in the metadata')
        texts = [each for each in opinions if isinstance(each, str)]
        return False not in opinions and ', '.join(texts)

    def sizes(self, axis: str, out: Out, input_hw: tuple[int, int]) -> tuple[int, ...]:
        """Return the possible sizes of an axis, of the finest stride; () if any fits."""
        if axis in 'Bhw':
            return (1,) if axis == 'B' else ()
        if axis in 'HWAN':
            sets = [self.rows.grids(input_hw, each) for each in self.rows.strides]
            if self.any_rows:
                return ()
            if axis == 'N' and not out.per_level:
                return tuple(sum(grid.anchors for grid in grids) for grids in sets)
            return tuple(
                (*grid.shape, grid.per_cell, grid.anchors)['HWAN'.index(axis)] for grid, *_ in sets
            )
        terms = map(linear, [out.size] if axis == 'V' else sizes_of(axis, input_hw))
        return tuple(constant for factors, constant in terms if not factors)

    def describe(self, input_hw: tuple[int, int]) -> str:
        """Return the outputs for images of a size, as the documentation writes them."""
        texts = []
        for out in self.outputs:
            axes = [axis for axis in out.axes.split() if axis[0] in 'HWANhw']
            sizes = {axis: self.sizes(axis, out, input_hw) for axis in axes}
            texts.append(
                out.describe({axis: ' or '.join(map(str, n)) for axis, n in sizes.items() if n})
            )
        return ' with '.join(texts)


@dataclass(frozen=True)
class BoxLayout(Layout):
    """
    Outputs of boxes with scores, and their meaning.

    :param activation: of scores and objectness; 'maybe_sigmoid': the scores are logits if any is
        below 0.
    :param select: 'best' class of a row (the first among equals), or 'each' score that passes.
    :param power: the score is this power of its product with the objectness.
    :param class_power: power of the score in that product.
    :param limits_objectness: finite values below 0 count as 0, and those above 1 as 1.
    :param objectness_only: with one class, the objectness alone is the score.
    :param is_peak: a score passes only if none of the 3 x 3 cells around it is higher.
    :param label_offset: the class is the label minus this.
    :param uses_nms: boxes of one class suppress each other.
    :param is_limited: there are at most as many results as rows.
    :param extras: meaning of the further values of a row; keypoints have two or three values,
        'masks' are planes of another output.
    :param regions: returns the regions that a result proposes for another network.
    :param counts_background: see `Head`.
    """

    coding: Coding = Coding()
    activation: Literal['none', 'sigmoid', 'softmax', 'maybe_sigmoid'] = 'none'
    select: Literal['best', 'each'] = 'best'
    power: float = 1.0
    class_power: float = 1.0
    limits_objectness: bool = False
    objectness_only: bool = False
    is_peak: bool = False
    label_offset: int = 0
    uses_nms: bool = True
    is_limited: bool = False
    extras: Literal['', 'keypoints', 'angle', 'coefficients', 'masks'] = ''
    regions: Callable[[Any], Any] | None = None
    counts_background: bool = False

    @property
    def is_anchored(self) -> bool:
        return self.coding.is_anchored


@dataclass(frozen=True)
class PointLayout(Layout):
    """
    Outputs of the keypoints of one object, which the input shows.

    :param form: 'values': x, y and maybe a third value each, `points`; the third one is the score
        of the keypoint, unless `score` is that of all. 'bins': scores of `columns` and of `rows`.
        'heatmaps': one plane of cells each. A `side` of 0.5 and more is class 1, else it is 0.
    :param values: numbers per keypoint of 'values', 3 or 2.
    :param is_normalized: values are 0 to 1 of the input, not pixels.
    :param is_y_first: y stands before x.
    :param region_scale: factor on the regions that the network is trained with.
    :param class_names: names of the classes; (): the object has none.
    """

    form: Literal['values', 'bins', 'heatmaps'] = field(default='values', kw_only=True)
    values: int = field(default=3, kw_only=True)
    is_normalized: bool = field(default=False, kw_only=True)
    is_y_first: bool = field(default=False, kw_only=True)
    region_scale: float = field(default=1.25, kw_only=True)
    class_names: tuple[str, ...] = field(default=(), kw_only=True)
