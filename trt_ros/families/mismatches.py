"""Errors for networks whose family is not clear: what is seen, what is near, and what to do."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import replace
from itertools import combinations
from typing import TypeVar

from trt_ros.errors import TensorMismatchError
from trt_ros.families.family import Family, NetworkDescription
from trt_ros.families.nearest import advice, lookalike, nearest
from trt_ros.families.recognition import recognize
from trt_ros.families.ufld_v2 import is_curvelanes

#: Kind of network per task.
TASKS: Mapping[str, str] = {
    'detect': 'detection',
    'segment': 'segmentation',
    'pose': 'keypoint',
    'obb': 'oriented-box',
    'classify': 'classification',
    'depth': 'depth',
    'embed': 'embedding',
    'tensor': 'any',
}

#: Node that runs the networks of a task.
NODES: Mapping[str, str] = {
    'detect': 'detector',
    'segment': 'segmenter',
    'pose': 'pose',
    'obb': 'detector',
    'classify': 'classifier',
    'depth': 'depth',
    'embed': 'tensor',
    'tensor': 'tensor',
}

ANY = 'The node `tensor` runs any network and publishes its undecoded outputs.'

VECTORS = ('classify', 'embed')  # Tasks of networks of one vector, which may be anything.

HeadT = TypeVar('HeadT')


class UnrecognizedError(TensorMismatchError):
    """
    A network that no decoder recognizes.

    :param choices: outputs that one decoder recognizes without the others, if the remedy names
        them.
    """

    def __init__(
        self, problem: str, *, choices: Sequence[str], cause: str = '', remedy: str = ''
    ) -> None:
        super().__init__(problem, cause=cause, remedy=remedy)
        self.choices = tuple(choices)


def claims_of(
    families: tuple[Family[HeadT], ...], network: NetworkDescription
) -> list[tuple[Family[HeadT], str]]:
    """Return the families that a network may be of, each with the reason."""
    return [(family, reason) for family in families if (reason := recognize(family.name, network))]


def of_another_task(
    families: tuple[Family[HeadT], ...], network: NetworkDescription, task: str
) -> TensorMismatchError:
    """Return the error for a network whose metadata states a task that `families` do not have."""
    return TensorMismatchError(
        f'This is {_a(TASKS[task])} network; {_served(families)}.',
        cause=f"In its metadata, 'task' is {network.metadata['task']!r}.",
        remedy=f'Run the node `{NODES[task]}`, or choose {_a(_kinds(families))} network.',
    )


def ambiguous(
    families: tuple[Family[HeadT], ...],
    network: NetworkDescription,
    claims: list[tuple[Family[HeadT], str]],
) -> TensorMismatchError:
    """Return the error for a network that several families claim."""
    return TensorMismatchError(
        'More than one decoder matches this network.',
        cause='; '.join(f'{family.name}: {reason}' for family, reason in claims)
        + f'. Seen: {network}.',
        remedy=_set_decoder(tuple(family for family, _ in claims))
        + _about_labels(families, network)
        + _about_keypoints(claims, network)
        + f' docs/models.md describes each. {ANY}',
    )


def perhaps_keypoints(
    family: Family[HeadT], reason: str, network: NetworkDescription
) -> TensorMismatchError | None:
    """Return the error for a detector that may as well be a keypoint network; None: it is none."""
    other = lookalike(family.name, network)
    if other is None:
        return None
    return TensorMismatchError(
        f'The network may be a keypoint network: {other}.',
        cause=f'{family.name}: {reason}; the other network has the same shape.',
        remedy=f'Run the node `{NODES["pose"]}`, or set `labels` or `decoder: {family.name}` '
        'if it is a detector.',
    )


def not_recognized(
    families: tuple[Family[HeadT], ...],
    network: NetworkDescription,
    others: tuple[Family[object], ...],
) -> TensorMismatchError:
    """
    Return the error for a network of no family; it names the node that runs it, if any.

    :param others: the families of all tasks.
    """
    claims = claims_of(others, network)
    if all(family.task == 'embed' for family, _ in claims):  # An embedding has no classes.
        misnamed = _misnamed(families, network)
        if misnamed:
            return misnamed
    if not claims and is_curvelanes(network):
        return TensorMismatchError(
            'UFLDv2 of CurveLanes is not decoded.',
            cause=f'Its ten lanes are curves fitted to rows and columns. Seen: {network}.',
            remedy=f'Use a network of CULane or TuSimple, or decode its outputs yourself. {ANY}',
        )
    if not claims:
        return _unknown(families, network, others)
    kinds = {TASKS[family.task]: reason for family, reason in claims}
    nodes = dict.fromkeys(f'`{NODES[family.task]}`' for family, _ in claims)
    return TensorMismatchError(
        f'This looks like {_a(" or ".join(kinds))} network; {_served(families)}.',
        cause='; '.join(dict.fromkeys(kinds.values())) + f'. Seen: {network}.',
        remedy=f'Run the node {" or ".join(nodes)}. If it is {_a(_kinds(families))} network, '
        'set `decoder` to its family (docs/models.md).',
    )


def _misnamed(
    families: tuple[Family[HeadT], ...], network: NetworkDescription
) -> TensorMismatchError | None:
    """Return the error for a network that only the number of named classes does not fit."""
    claims = claims_of(families, replace(network, class_count=None, has_background=False))
    if not network.class_count or not claims:
        return None
    family, reason = claims[0]
    return TensorMismatchError(
        f'No decoder recognizes this network with {network.class_count} named classes.',
        cause=f'Without the names, it may be {family.name}: {reason}. Seen: {network}.',
        remedy='Set `labels` or `labels_path` to one name per class, in their order, including '
        'the background if the network counts it, or leave them out.',
    )


def _unknown(
    families: tuple[Family[HeadT], ...],
    network: NetworkDescription,
    others: tuple[Family[object], ...],
) -> TensorMismatchError:
    inputs = '; '.join(map(str, network.inputs))
    near = '; '.join(nearest(network, {family.name for family in families}))
    choices: list[str] = []
    guidance = advice(network)
    if not guidance:
        choices = _decodable_parts(families, network)
        choices = choices if len(choices) < 3 else []
        guidance = (
            f'Set outputs to {" or to ".join(choices)}. '
            if choices
            else _choose_an_output(families, network, others)
        )
    return UnrecognizedError(
        'No decoder recognizes this network.',
        choices=choices,
        cause=f'Seen: inputs {inputs}; {network}. Nearest: {near}.',
        remedy=f'{guidance}Export the network as described in docs/models.md, or set `decoder` '
        f'to its family. {ANY}',
    )


def _about_labels(families: tuple[Family[HeadT], ...], network: NetworkDescription) -> str:
    """Return whether names of the classes decide between the families of a network, a sentence."""
    if network.class_count:
        return f' The {network.class_count} named classes do not decide between them.'
    before_classes = (0, 1, 4, 5, 32)  # Values beside the scores of the classes.
    counts = {
        size - before
        for spec in network.outputs
        for size in spec.shape
        for before in before_classes
        if size > before
    }
    decide = any(
        len(claims_of(families, replace(network, class_count=count))) == 1 for count in counts
    )
    return ' The names of the classes (`labels`) may decide, too.' if decide else ''


def _about_keypoints(claims: list[tuple[Family[HeadT], str]], network: NetworkDescription) -> str:
    """Return the keypoint network that a detector may be instead, a sentence; or ''."""
    names = [name for family, _ in claims if (name := lookalike(family.name, network))]
    is_claimed = any(family.task == 'pose' for family, _ in claims)
    if not names or is_claimed:
        return ''
    return f' It may also be {names[0]}, which the node `{NODES["pose"]}` runs.'


def _choose_an_output(
    families: tuple[Family[HeadT], ...],
    network: NetworkDescription,
    others: tuple[Family[object], ...],
) -> str:
    """
    Return the remedy for a network with auxiliary outputs, or ''.

    `runtime.heads` names the outputs that exactly one of `families` decodes alone.
    """
    if len(network.outputs) < 2:
        return ''
    nodes: dict[str, dict[str, None]] = {}
    for spec in network.outputs:
        alone = replace(network, outputs=(spec,), class_count=None)
        claims = [family for family, _ in claims_of(others, alone) if family.task not in VECTORS]
        if claims and len(claims_of(families, alone)) != 1:
            nodes[spec.name] = dict.fromkeys(f'`{NODES[family.task]}`' for family in claims)
    if not nodes:
        return ''
    found = dict.fromkeys(node for each in nodes.values() for node in each)
    return f'Set outputs to {" or ".join(nodes)}, and run the node {" or ".join(found)}. '


def _decodable_parts(
    families: tuple[Family[HeadT], ...], network: NetworkDescription
) -> list[str]:
    """Return the outputs that one family decodes without one other, else pairs; with its name."""
    outputs = network.outputs
    for count in dict.fromkeys((len(outputs) - 1, 2)) if 2 < len(outputs) < 20 else ():
        choices = []
        for some in combinations(outputs, count):
            claims = claims_of(families, replace(network, outputs=some))
            if len(claims) == 1:
                names = ', '.join(spec.name for spec in some)
                choices.append(f'{names} (decoder {claims[0][0].name})')
        if choices:
            return choices
    return []


def _a(noun: str) -> str:
    return f'{"an" if noun[0] in "aeiou" else "a"} {noun}'


def _kinds(families: tuple[Family[HeadT], ...]) -> str:
    return ' or '.join(dict.fromkeys(TASKS[family.task] for family in families))


def _served(families: tuple[Family[HeadT], ...]) -> str:
    if families[0].task == 'detect':
        return f'the detector runs {_kinds(families)} networks'
    return f'expected {_a(_kinds(families))} network'


def _set_decoder(families: tuple[Family[HeadT], ...]) -> str:
    *names, last = (family.name for family in families)
    return f'Set `decoder` to {", ".join(names)}{" or " if names else ""}{last}.'
