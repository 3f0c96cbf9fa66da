"""Errors for networks whose family is not clear: what is seen, what is near, and what to do."""

from collections.abc import Collection, Mapping, Sequence
from dataclasses import replace
from itertools import combinations
import math
import re
from typing import Any, NamedTuple

import numpy as np

from trt_ros.errors import ParameterError, TensorMismatchError
from trt_ros.families.evidence import Choice, Claim, Families, claim_of, describe, differences
from trt_ros.families.family import Family, NetworkDescription, is_float
from trt_ros.families.layout import Layout, Out, linear
from trt_ros.families.match import bind, unify
from trt_ros.tensors import TensorSpec

OUTPUT_COST, AXIS_COST, DTYPE_COST, NAME_COST, INPUT_COST = 4.0, 2.0, 1.0, 1.0, 1.0
_NO_EVIDENCE: dict[str, Any] = {'input': '', 'task': '', 'evidence': ()}


def advice(network: NetworkDescription, families: Sequence[Family[Any]]) -> str:
    """Return what to do with a known network that no family decodes, a sentence; or ''."""
    return next(
        (
            f'{text} '
            for family in families
            for layout, text in family.near_misses
            if unify(layout, network) and layout.guarded(network) is not False
        ),
        '',
    )


def nearest(network: NetworkDescription, families: Sequence[Family[Any]]) -> list[str]:
    """Describe the outputs of the three families nearest to a network, nearest first."""
    found: dict[str, tuple[float, str]] = {}  # One family of those that read the same.
    for family in families:
        for layout in family.layouts:
            if not _may_be(layout, network):
                continue
            needs = f' and needs the input {layout.input}' if layout.input else ''
            text = layout.describe(network.input_hw) + needs
            found.setdefault(text, (_distance(layout, network), family.name))
    best: dict[str, str] = {}
    for text, (_, name) in sorted(found.items(), key=lambda item: item[1][0]):
        best.setdefault(name, f'{name} reads {text}')
    return list(best.values())[:3]


def _may_be(layout: Layout, network: NetworkDescription) -> bool:
    """Return whether other outputs, or a further input, could make a network one of a layout."""
    ranks = sorted(len(spec.shape) for spec in network.outputs)
    are_known = ranks == sorted(len(out.axes.split()) for out in layout.outputs)  # To guards.
    similar = replace(layout, input='') if are_known else replace(layout, **_NO_EVIDENCE)
    return similar.guarded(network, auto=True) is not False


def _distance(layout: Layout, network: NetworkDescription) -> float:
    from scipy.optimize import linear_sum_assignment  # Imported for errors only.

    outputs, specs = layout.outputs, network.outputs
    levels = len(layout.rows.strides[0]) if layout.rows.strides else 1
    count = sum(levels if out.per_level else 1 for out in outputs)
    missing = max(count - len(specs), 0 if layout.ignores_others else len(specs) - count)
    costs = [[_output_distance(out, spec, layout, network) for spec in specs] for out in outputs]
    matched = np.reshape(costs, (len(outputs), len(specs)))
    matched = matched[linear_sum_assignment(matched)]
    lacks = layout.input and all(spec.name != layout.input for spec in network.inputs)
    return float(matched.sum()) + OUTPUT_COST * missing + INPUT_COST * bool(lacks)


def _output_distance(
    out: Out, spec: TensorSpec, layout: Layout, network: NetworkDescription
) -> float:
    """Compute how far an output is from the expected one; 0: equal."""
    axes = out.axes.split()
    is_named = not out.names or any(re.fullmatch(name, spec.name) for name in out.names)
    cost = NAME_COST * (not is_named) + DTYPE_COST * (out.is_float not in (None, is_float(spec)))
    if len(spec.shape) != len(axes):
        return cost + AXIS_COST * abs(len(spec.shape) - len(axes))
    sizes = dict(zip(axes, spec.shape))
    if min(sizes.get('h', 0), sizes.get('w', 0)) > 0:
        height, width = network.input_hw
        cost += abs(math.log(sizes['h'] * width / (sizes['w'] * height)))
    for axis, size in zip(axes, spec.shape):
        expected = layout.sizes(axis, out, network.input_hw)
        if size > 0 and expected:
            cost += min(abs(math.log(max(other, 1) / size)) for other in expected)
        elif size > 0 and axis == 'V':
            factors, constant = linear(out.size)
            cost += max(math.log((constant + sum(factors.values())) / size), 0.0)
    return cost


class Task(NamedTuple):
    """Kind of networks, and the node that runs them."""

    kind: str
    node: str


TASKS: Mapping[str, Task] = {
    'detect': Task('detection', 'detector'),
    'segment': Task('segmentation', 'segmenter'),
    'pose': Task('keypoint', 'pose'),
    'obb': Task('oriented-box', 'detector'),
    'classify': Task('classification', 'classifier'),
    'depth': Task('depth', 'depth'),
    'image': Task('image', 'enhancer'),
    'embed': Task('embedding', 'tensor'),
    'text': Task('text', 'detector'),
    'tensor': Task('any', 'tensor'),
}

ANY = (
    'The node `tensor` runs any network and publishes its undecoded outputs, which `decoder` '
    'tensor returns in Python and in `trt-ros infer`.'
)

#: Ends a remedy that leaves outputs out.
GUESS = 'This is a guess, as no decoder explains the other outputs. '

VECTORS = ('classify', 'embed')  # Tasks of networks of one vector, which may be anything.


class UnrecognizedError(TensorMismatchError):
    """A network that no decoder recognizes; `choices`: outputs that one recognizes alone."""

    choices: tuple[str, ...] = ()


class UndecidedError(TensorMismatchError):
    """A network that several `decoders` fit, or one of a shape that many networks have."""

    decoders: tuple[str, ...] = ()


def of_another_task(
    families: Families, network: NetworkDescription, task: str
) -> TensorMismatchError:
    """Return the error for a network whose metadata states a task that `families` do not have."""
    return TensorMismatchError(
        f'This is {_a(TASKS[task].kind)} network; {_served(families)}.',
        cause=f"In its metadata, 'task' is {network.metadata['task']!r}.",
        remedy=f'Run the node `{TASKS[task].node}`, or choose {_a(_kinds(families))} network.',
    )


def of_another_node(families: Families, family: Family[Any]) -> ParameterError:
    """Return the error for the name of a family that `families` do not have."""
    kind, node = TASKS[family.task]
    variants = [each.name for each in families if each.name.startswith(f'{family.name}_')]
    return ParameterError(
        f'Decoder {family.name!r} is for {kind} networks; {_served(families)}.',
        remedy=f'Run the node `{node}`, or set `decoder` to {" or ".join([*variants, "auto"])}. '
        'docs/models.md lists the others.',
    )


def ambiguous(choice: Choice, claims: Sequence[Claim]) -> TensorMismatchError:
    """Return the error for a network that several families claim."""
    names = [claim.family.name for claim in claims]
    error = UndecidedError(
        'More than one decoder matches this network.',
        cause=f'Seen: {choice.network}.'
        + ''.join(
            f'\n  {claim.family.name}: {difference}{_preprocessing(claim, claims)}'
            for claim, difference in zip(claims, differences(claims))
        ),
        remedy=f'{_set_decoder(names)}{_about_labels(choice, claims)} docs/models.md describes '
        f'each. {ANY}',
    )
    error.decoders = tuple(names)
    return error


def impossible(choice: Choice, claims: Sequence[Claim]) -> TensorMismatchError:
    """Return the error for a network whose outputs only have the shapes of some families."""
    families = [claim.family for claim in claims]
    others = [
        each
        for each in choice.claims_of_everyone()
        if each.trial.holds and each.family not in families
    ]
    possible = _possible_by_name(choice, {each.family.name for each in (*claims, *others)})
    export = 'Export the network with decoded outputs, as described in docs/models.md. '
    instead = _if_it_is(possible) or export
    if any(family.task in (*VECTORS, 'image') for family in families):
        instead = f'Run the node {_nodes(others)}. ' if others else ''
    seen = [*claims, *others, *possible]
    return TensorMismatchError(
        f'The outputs have the shapes of {_a(_kinds(families))} network, but not its values.',
        cause=f'Seen: {choice.network}.'
        + ''.join(
            f'\n  {each.family.name}: {difference}'
            for each, difference in zip(seen, differences(seen))
        ),
        remedy=f'{instead}{_set_decoder([family.name for family in families])[:-1]} to decode it '
        f'anyway. {ANY}',
    )


def _possible_by_name(choice: Choice, known: Collection[str]) -> list[Claim]:
    """Return readings that `auto` does not choose, and for which a trial run is."""
    network = choice.network
    found = [
        Claim(family, reading, trial=network.trial(family, reading))
        for family in choice.families
        if family.name not in known and network.trial and (reading := bind(family, network))
    ]
    return [claim for claim in found if claim.trial.holds]


def _if_it_is(claims: Sequence[Claim]) -> str:
    names = [claim.family.name for claim in claims]
    return f'{_set_decoder(names)[:-1]} if that is what the network is. ' if names else ''


def only_shape(choice: Choice, claim: Claim) -> TensorMismatchError:
    """Return the error for a network that has the shape of a family, which many others have."""
    others = [each for each in choice.claims_of_everyone() if each.family != claim.family]
    claims = [claim, *others]
    named = claim.family.task in ('segment', 'classify', 'detect')
    error = UndecidedError(
        f'The network may be {_a(TASKS[claim.family.task].kind)} network, but '
        'nothing but the shape of its outputs says so.',
        cause=f'Seen: {choice.network}. It may be'
        + ''.join(
            f'\n  {each.family.name}, in the node `{TASKS[each.family.task].node}`: {difference}'
            for each, difference in zip(claims, differences(claims))
        )
        + '\n  something else, such as keypoints, boxes or an image that is not decoded',
        remedy=f'Set `decoder` to {claim.family.name}'
        + (', or `labels` to the names of its classes' * named)
        + f', if it is one; `strict` to false takes any network by its shape. {ANY}',
    )
    error.decoders = tuple(each.family.name for each in claims)
    return error


def _preprocessing(claim: Claim, claims: Sequence[Claim]) -> str:
    """Return the preprocessing in which families that read the same outputs differ; or ''."""
    same = [other for other in claims if describe(other.reading) == describe(claim.reading)]
    own = claim.family.preprocess
    differing = {
        key: f'{key} {_number(own[key])}' if key in own else f'no {key}'
        for other in same
        for key in (*own, *other.family.preprocess)
        if own.get(key) != other.family.preprocess.get(key)
    }
    return f', trained with {", ".join(differing.values())}' if differing else ''


def _number(value: Any) -> Any:
    return f'{value:.6g}' if isinstance(value, float) else value


def not_recognized(choice: Choice) -> TensorMismatchError:
    """Return the error for a network of no family; it names the node that runs it, if any."""
    families, network = choice.families, choice.network
    claims = [
        claim
        for claim in choice.claims_of_everyone()
        if not (claim.is_only_shape and claim.family.task == 'detect' and network.strict)
    ]
    misnamed = None if advice(network, choice.everyone) else _misnamed(choice, claims)
    if misnamed:
        return misnamed
    if not claims:
        return _unknown(choice)
    kinds = {TASKS[claim.family.task].kind: claim.reason for claim in claims}
    names = [family.name for family in families if claim_of(family, network)]
    return TensorMismatchError(
        f'This looks like {_a(" or ".join(kinds))} network; {_served(families)}.',
        cause='; '.join(dict.fromkeys(kinds.values())) + f'. Seen: {network}.',
        remedy=f'Run the node {_nodes(claims)}. If it is {_a(_kinds(families))} network, '
        f'set `decoder` to {" or ".join(names) or "its family"} (docs/models.md).',
    )


def _misnamed(choice: Choice, others: Sequence[Claim]) -> TensorMismatchError | None:
    """Return the error for a network that only the number of named classes does not fit."""
    count, claims = choice.network.class_count, choice.claims(class_count=None)
    if not count or not claims:
        return None
    others = [claim for claim in others if claim.family.task != 'embed']  # Of no classes.
    kinds = dict.fromkeys(TASKS[claim.family.task].kind for claim in others)
    instead = ''
    if kinds:
        instead = f' If it is {_a(" or ".join(kinds))} network, run the node {_nodes(others)}.'
    return TensorMismatchError(
        f'No decoder recognizes this network with {choice.network.named_classes}.',
        cause='Without the names, it may be '
        + '; or '.join(f'{claim.family.name}: {claim.reason}' for claim in claims)
        + f'. Seen: {choice.network}.',
        remedy='Set `labels` or `labels_path` to one name per class, in their order, including '
        f'the background if the network counts it.{instead}',
    )


def _unknown(choice: Choice) -> TensorMismatchError:
    network = choice.network
    inputs = '; '.join(map(str, network.inputs))
    near = '; '.join(nearest(network, choice.families))
    parts: list[str] = []
    guidance = advice(network, choice.everyone)
    if not guidance:
        parts = _decodable_parts(choice)
        parts = parts if len(parts) < 3 else []
        guidance = (
            f'Set outputs to {" or to ".join(parts)}. {GUESS}'
            if parts
            else _if_it_is(_possible_by_name(choice, ())) or _choose_an_output(choice)
        )
    error = UnrecognizedError(
        'No decoder recognizes this network.',
        cause=f'Seen: inputs {inputs}; {network}. Nearest: {near}.',
        remedy=f'{guidance}Export the network as described in docs/models.md, or set `decoder` '
        f'to its family. {ANY}',
    )
    error.choices = tuple(parts)
    return error


def _about_labels(choice: Choice, claims: Sequence[Claim]) -> str:
    """Return whether names of the classes decide between the families of a network, a sentence."""
    if choice.network.class_count:
        return f' The {choice.network.named_classes} cannot decide between them.'
    counts = {claim.reading.class_count for claim in claims} - {None}
    decide = any(len(choice.claims(class_count=count)) == 1 for count in counts)
    return ' The names of the classes (`labels`) may decide, too.' if decide else ''


def _choose_an_output(choice: Choice) -> str:
    """Return the remedy for a network with auxiliary outputs, as `runtime.heads` names them."""
    if len(choice.network.outputs) < 2:
        return ''
    nodes: dict[str, dict[str, None]] = {}
    are_equal = len({spec.shape for spec in choice.network.outputs}) == 1
    for spec in choice.network.outputs:
        alone: dict[str, Any] = {'outputs': (spec,), 'class_count': None}
        claims = choice.claims_of_everyone(**alone)
        tasks = [claim.family.task for claim in claims if are_equal or not claim.is_only_shape]
        tasks = [task for task in tasks if task not in VECTORS]
        if tasks and len(choice.claims(**alone)) != 1:
            nodes[spec.name] = dict.fromkeys(f'`{TASKS[task].node}`' for task in tasks)
    if not nodes:
        return ''
    found = dict.fromkeys(node for each in nodes.values() for node in each)
    return f'Set outputs to {" or ".join(nodes)}, and run the node {" or ".join(found)}. {GUESS}'


def _decodable_parts(choice: Choice) -> list[str]:
    """Return the outputs that one family decodes without one other, else pairs; with its name."""
    outputs = choice.network.outputs
    for count in dict.fromkeys((len(outputs) - 1, 2)) if 2 < len(outputs) < 20 else ():
        parts = []
        for some in combinations(outputs, count):
            claims = choice.claims(outputs=some)
            if len(claims) == 1 and not claims[0].is_only_shape:
                names = ', '.join(spec.name for spec in some)
                parts.append(f'{names} (decoder {claims[0].family.name})')
        if parts:
            return parts
    return []


def _a(noun: str) -> str:
    return f'{"an" if noun[0] in "aeiou" else "a"} {noun}'


def _nodes(claims: Sequence[Claim]) -> str:
    return ' or '.join(dict.fromkeys(f'`{TASKS[claim.family.task].node}`' for claim in claims))


def _kinds(families: Families) -> str:
    return ' or '.join(dict.fromkeys(TASKS[family.task].kind for family in families))


def _served(families: Families) -> str:
    if families[0].task == 'detect':
        return f'the detector runs {_kinds(families)} networks'
    return f'expected {_a(_kinds(families))} network'


def _set_decoder(families: Sequence[str]) -> str:
    *names, last = families
    return f'Set `decoder` to {", ".join(names)}{" or " if names else ""}{last}.'
