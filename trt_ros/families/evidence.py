"""Evidence for the families that a network may be of: the choice of `decoder: auto`."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import Any

from trt_ros.families.family import Family, NetworkDescription, Opinion
from trt_ros.families.layout import SYMBOLS, BoxLayout, Out, linear
from trt_ros.families.match import COCO_CLASSES, WORDS, BoundOut, Reading, named_symbols, readings
from trt_ros.tensors import CUT_NMS

Families = Sequence[Family[Any]]
ROLES = {
    'label': 'class',
    'none': '"no object"',
    'scores': 'score',
    'sizes': 'box sizes',
    'count': 'number of boxes',
    'prototypes': 'mask prototypes',
}
NO_EVIDENCE = 'no evidence but the shape'
NO_OPINION = Opinion(None)


@dataclass(frozen=True)
class Claim:
    """A reading that `auto` may choose, with its opinions, the strongest kind first."""

    family: Family[Any]
    reading: Reading
    opinions: tuple[Opinion, ...] = ()
    trial: Opinion = NO_OPINION

    @property
    def reason(self) -> str:
        """Contents of the outputs and the evidence, half a sentence for the log."""
        texts = dict.fromkeys(opinion.text for opinion in self.opinions if opinion.holds)
        found = ', '.join(texts)
        found = found or ('a trial run' if self.trial.holds else NO_EVIDENCE)
        return f'{describe(self.reading)}: {found}'

    @property
    def is_impossible(self) -> bool:
        """Whether a trial run is against a reading that its exporter does not state."""
        is_stated = any(each.holds for each in self.opinions[:2])
        return self.trial.holds is False and not is_stated

    @property
    def is_only_shape(self) -> bool:
        """Whether nothing but the shape is for a family of shapes that other networks have."""
        opinions = (*self.opinions, self.trial)
        return bool(self.family.words) and not any(each.holds for each in opinions)

    def beats(self, other: Claim) -> bool:
        """Return whether the first kind of evidence that tells both apart is for this one."""
        for mine, theirs in zip(self.opinions, other.opinions):
            if None not in (mine.holds, theirs.holds) and mine.holds != theirs.holds:
                return bool(mine.holds)
        return False

    def reads_more(self, other: Claim) -> bool:
        """Return whether this reads all outputs that the other one reads, and further ones."""
        mine, theirs = (
            {part.spec.name for part in claim.reading.parts} for claim in (self, other)
        )
        return mine > theirs


@dataclass(frozen=True)
class Choice:
    """A choice of the family of a network among `families`; `everyone`: those of all tasks."""

    families: Families
    network: NetworkDescription
    everyone: Families

    def claims(self, **changes: Any) -> list[Claim]:
        """Return the claims of the families, in order, that no other claim beats."""
        network = replace(self.network, **changes)
        own = {family.name for family in self.families}
        everyone = (*self.families, *(each for each in self.everyone if each.name not in own))
        found = [claim for family in everyone if (claim := claim_of(family, network))]
        judged = [
            Claim(claim.family, claim.reading, _opinions(claim, network, found, everyone))
            for claim in found
        ]
        left = [
            claim
            for claim in judged
            if claim.family.name in own and not any(other.beats(claim) for other in judged)
        ]
        left = [claim for claim in left if not any(other.reads_more(claim) for other in left)]
        # Families whose shapes other networks have are for networks that nothing else fits.
        left = [claim for claim in left if not claim.is_only_shape] or left
        if network.trial is None:
            return left
        return [replace(each, trial=network.trial(each.family, each.reading)) for each in left]

    def possible_claims(self) -> list[Claim]:
        """Return the claims for which the trial run is, else those that it is not against."""
        claims = self.claims()
        allowed = [claim for claim in claims if claim.trial.holds is not False]
        return [claim for claim in allowed if claim.trial.holds] or allowed or claims

    def claims_of_everyone(self, **changes: Any) -> list[Claim]:
        """Return the claims of the families of all tasks, as `claims`."""
        return replace(self, families=self.everyone).claims(**changes)


def claim_of(family: Family[Any], network: NetworkDescription) -> Claim | None:
    """Return the first reading by a layout of a family; None: evidence refuses each."""
    is_stated = _is_exported_by(family, network)
    if is_stated is False and 'task' in network.metadata:
        return None
    for reading in readings(family, network):
        if _is_evident(reading, network, is_stated=bool(is_stated)):
            return Claim(family, reading)
    return None


def _is_exported_by(family: Family[Any], network: NetworkDescription) -> bool | None:
    """Return whether the metadata is of the exporter of a family; None: it has no part in it."""
    if family.exporter == 'any':
        return None
    if 'task' in network.metadata:
        return family.exporter == 'Ultralytics' and network.metadata['task'] == family.task
    return family.exporter == 'YOLOv5' if 'stride' in network.metadata else None


def _is_evident(reading: Reading, network: NetworkDescription, *, is_stated: bool) -> bool:
    layout, named = reading.layout, named_symbols(network)
    guarded = layout.guarded(network, auto=True)
    if guarded is False or layout.is_cut != (CUT_NMS in network.metadata):
        return False
    is_off_grid = layout.rows.strides and reading.on_grid is False and not layout.any_rows
    if is_off_grid and not (is_stated and _has_long_columns(reading)):
        return False
    if not _are_named(reading.parts):
        return False
    is_open = 'K' in layout.roles.get('extras', '') and 'K' not in reading.symbols
    if is_open and not is_stated:
        return False
    if layout.needs_known and not any(
        symbol in named or reading.symbols.get(symbol) in values
        for symbol, values in (layout.known or {}).items()
    ):
        return False
    return bool(guarded) or all(map(_is_complete, reading.parts))


def _has_long_columns(reading: Reading) -> bool:
    """Return whether rows are along the last axis, and more than their values."""
    *_, values, rows = reading.parts[0].spec.shape
    return reading.parts[0].out.axes.endswith('N') and (rows < 0 or rows > values)


def _are_named(parts: Sequence[BoundOut]) -> bool:
    """Return whether boxes and scores of equal shapes have names that tell them apart."""
    parts = [part for part in parts if not part.out.names]
    shapes = [part.spec.shape for part in parts if 'V' in part.out.axes and part.level is None]
    if len(set(shapes)) == len(shapes):
        return True
    words = [
        word in part.spec.name.lower()
        for part in parts
        for role in part.out.fields
        for word in WORDS.get(role, ())
    ]
    return any(words)


def _is_complete(part: BoundOut) -> bool:
    out, sizes = part.out, dict(zip(part.out.axes.split(), part.spec.shape))
    if out.names or 'count' in out.fields:
        return True
    if part.level is not None and min(part.spec.shape[1:]) < 0:
        return False
    fixed = {axis for axis in sizes if axis[0].isdigit()}
    is_fixed = 'label' in out.fields or not linear(out.size)[0]
    fixed |= {'V'} if 'V' in sizes and is_fixed else set()
    return all(sizes[axis] >= 0 for axis in fixed)


def _opinions(
    claim: Claim, network: NetworkDescription, claims: Sequence[Claim], families: Families
) -> tuple[Opinion, ...]:
    family, reading = claim.family, claim.reading
    count = None if reading.layout.ignores_names else reading.class_count
    guarded = reading.layout.guarded(network, auto=True)
    return (
        Opinion(_is_exported_by(family, network), f'metadata of {family.exporter}'),
        Opinion(True if guarded else None, guarded or ''),
        Opinion(True if network.class_count and count else None, network.named_classes),
        _by_names(claim, claims, families),
        _by_grid(reading, network, claims, families),
        _by_known_sizes(reading, network),
        _by_words(claim, claims),
        _by_contents(claim, network),
    )


def _by_names(claim: Claim, claims: Sequence[Claim], families: Families) -> Opinion:
    """Judge by the names that exporters give their outputs."""
    names = [part.spec.name for part in claim.reading.parts]
    own = [part.spec.name for part in claim.reading.parts if part.out.names and not part.level]
    own = own or [name for name in names if name in claim.family.output_names]
    if own:
        return Opinion(True, f'named {", ".join(own)}')
    of_others = {name for family in families for name in family.output_names}
    by_names = any(part.out.names for other in claims for part in other.reading.parts)
    return Opinion(False if by_names or of_others & set(names) else None)


def _by_words(claim: Claim, claims: Sequence[Claim]) -> Opinion:
    """Judge a family of shapes that other networks have by words in the names of the outputs."""
    if not claim.family.words:
        return Opinion(None)
    named = _named(claim)
    if named:
        return Opinion(True, f'named {", ".join(named)}')
    return Opinion(False if any(_named(other) for other in claims) else None)


def _named(claim: Claim) -> list[str]:
    names = [part.spec.name for part in claim.reading.parts]
    return [name for name in names if any(word in name.lower() for word in claim.family.words)]


def _by_contents(claim: Claim, network: NetworkDescription) -> Opinion:
    """Judge a family of shapes that other networks have by types and numbers of classes."""
    family, reading = claim.family, claim.reading
    if 'classes' in reading.layout.roles and family.words:
        return Opinion(True, 'integers')
    if reading.layout.ignores_names and family.words and network.class_count:
        return Opinion(True, 'names of classes')
    is_usual = reading.class_count in family.class_counts
    return Opinion(True if is_usual else None, f'{reading.class_count} classes of published data')


def _by_grid(
    reading: Reading, network: NetworkDescription, claims: Sequence[Claim], families: Families
) -> Opinion:
    """Judge by the number of rows."""
    if _is_on_grid(reading):
        *strides, last = map(str, reading.strides)
        listed = f'strides {", ".join(strides)} and {last}' if strides else f'stride {last}'
        number = '' if reading.row_count is None else f'{reading.row_count} '
        return Opinion(True, f'{number}cells of {listed}')
    if any(_is_on_grid(other.reading) for other in claims):
        return Opinion(False)
    count = reading.row_count
    if count is None:
        return Opinion(None)
    if count in reading.layout.rows.counts:
        return Opinion(True, f'{count} priors')
    is_of_another = any(
        layout.rows.strides_of(network.input_hw, count) or count in layout.rows.counts
        for family in families
        for layout in family.layouts
    )
    return Opinion(False if is_of_another else None)


def _is_on_grid(reading: Reading) -> bool:
    has_rows = reading.row_count is not None or any(part.out.per_level for part in reading.parts)
    return has_rows and bool(reading.on_grid)


def _by_known_sizes(reading: Reading, network: NetworkDescription) -> Opinion:
    """Judge by the numbers of classes and keypoints of published networks."""
    symbols, known = reading.symbols, reading.layout.known
    if known is None:
        known = {'C': (COCO_CLASSES,)} if 'C' in symbols else {}
    if network.class_count or not known:
        return Opinion(None)
    (symbol, values), *_ = known.items()
    size = symbols.get(symbol)
    if size is None and reading.layout.roles.get('extras', '').isdigit():
        size = int(reading.layout.roles['extras']) // 2
    whose = 'of COCO' if symbol == 'C' else 'as in published networks'
    return Opinion(size in values, f'{size} {SYMBOLS[symbol]} {whose}')


def describe(reading: Reading) -> str:
    """Return the outputs of a reading and what they hold."""
    listed = []
    for out, contents in _contents(reading):
        first, *others = [part.spec for part in reading.parts if part.out == out]
        further = f' and {len(others)} more' if others else ''
        listed.append(f'{first}{further} holds {contents}')
    return '; '.join(listed)


def differences(claims: Sequence[Claim]) -> list[str]:
    """Return how each of several readings of a network differs from the others, half a line."""
    shared = set.intersection(*({*claim.opinions} for claim in claims))
    found = []
    for claim in claims:
        texts = ['; '.join(contents for _, contents in _contents(claim.reading))]
        own = [each.text for each in claim.opinions if each.holds and each not in shared]
        texts.append(f' ({", ".join(own)})' if own else '')
        texts.append(f'; {claim.trial.text}' if claim.trial.text else '')
        found.append(''.join(texts))
    return found


def _contents(reading: Reading) -> list[tuple[Out, str]]:
    return [
        (out, ', '.join(_role(role, size, reading) for role, size in out.fields.items()))
        for out in dict.fromkeys(reading.layout.outputs)
    ]


def _role(role: str, size: str, reading: Reading) -> str:
    """Return what a part of a row is, with its size where that is solved."""
    (symbol,) = {*linear(size)[0]} or {''}
    count = f'{reading.symbols[symbol]} ' if symbol in reading.symbols else ''
    if role == 'scores' and symbol:
        return f'{count}class score{"s" * (count != "1 ")}'
    if isinstance(reading.layout, BoxLayout) and role == 'extras':
        return count + reading.layout.extras
    if isinstance(reading.layout, BoxLayout) and role == 'box':
        return _box(reading.layout, f' as {count}bins each' if symbol == 'D' else '')
    return ROLES.get(role, role)


def _box(layout: BoxLayout, bins: str) -> str:
    coding, priors = layout.coding, layout.rows.priors
    if coding.is_anchored:
        sizes = [f'{width}x{height}' for level in priors for width, height in level]
        anchors = f' from anchors of {sizes[0]} to {sizes[-1]}' if sizes else ''
        box = 'box' if anchors else 'box relative to its cell'
        return ('distances to the sides' if coding.form == 'sides' else box) + bins + anchors
    corners = 'y1, x1, y2, x2' if coding.is_y_first else 'x1, y1, x2, y2'
    values = corners if coding.form == 'corners' else 'cx, cy, w, h'
    return f'{values} {"from 0 to 1" if coding.is_normalized else "in pixels"}'
