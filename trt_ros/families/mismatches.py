"""Errors for networks whose family is not clear: what is seen, what is near, and what to do."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import replace
from itertools import combinations
from typing import NamedTuple

from trt_ros.errors import TensorMismatchError
from trt_ros.families.evidence import Claim, Families, claim_of, claims_of, describe
from trt_ros.families.family import NetworkDescription
from trt_ros.families.nearest import advice, nearest


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
    'embed': Task('embedding', 'tensor'),
    'tensor': Task('any', 'tensor'),
}

ANY = 'The node `tensor` runs any network and publishes its undecoded outputs.'

VECTORS = ('classify', 'embed')  # Tasks of networks of one vector, which may be anything.


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


def of_another_task(
    families: Families, network: NetworkDescription, task: str
) -> TensorMismatchError:
    """Return the error for a network whose metadata states a task that `families` do not have."""
    return TensorMismatchError(
        f'This is {_a(TASKS[task].kind)} network; {_served(families)}.',
        cause=f"In its metadata, 'task' is {network.metadata['task']!r}.",
        remedy=f'Run the node `{TASKS[task].node}`, or choose {_a(_kinds(families))} network.',
    )


def ambiguous(
    families: Families,
    network: NetworkDescription,
    claims: Sequence[Claim],
    everyone: Families,
) -> TensorMismatchError:
    """Return the error for a network that several families claim."""
    return TensorMismatchError(
        'More than one decoder matches this network.',
        cause=f'Seen: {network}.'
        + ''.join(
            f'\n  {claim.family.name}: {claim.reason}{_preprocessing(claim, claims)}'
            for claim in claims
        ),
        remedy=_set_decoder([claim.family.name for claim in claims])
        + _about_labels(families, network, everyone, claims)
        + f' docs/models.md describes each. {ANY}',
    )


def _preprocessing(claim: Claim, claims: Sequence[Claim]) -> str:
    """Return the preprocessing in which families that read the same outputs differ; or ''."""
    same = [other for other in claims if describe(other.reading) == describe(claim.reading)]
    own = claim.family.preprocess
    differing = {
        key: f'{key} {own[key]}' if key in own else f'no {key}'
        for other in same
        for key in (*own, *other.family.preprocess)
        if own.get(key) != other.family.preprocess.get(key)
    }
    return f', trained with {", ".join(differing.values())}' if differing else ''


def not_recognized(
    families: Families,
    network: NetworkDescription,
    everyone: Families,
) -> TensorMismatchError:
    """
    Return the error for a network of no family; it names the node that runs it, if any.

    :param everyone: the families of all tasks.
    """
    claims = claims_of(everyone, network, everyone)
    misnamed = _misnamed(families, network, everyone, claims)
    if misnamed:
        return misnamed
    if not claims:
        return _unknown(families, network, everyone)
    kinds = {TASKS[claim.family.task].kind: claim.reason for claim in claims}
    names = [family.name for family in families if claim_of(family, network)]
    return TensorMismatchError(
        f'This looks like {_a(" or ".join(kinds))} network; {_served(families)}.',
        cause='; '.join(dict.fromkeys(kinds.values())) + f'. Seen: {network}.',
        remedy=f'Run the node {_nodes(claims)}. If it is {_a(_kinds(families))} network, '
        f'set `decoder` to {" or ".join(names) or "its family"} (docs/models.md).',
    )


def _misnamed(
    families: Families, network: NetworkDescription, everyone: Families, others: Sequence[Claim]
) -> TensorMismatchError | None:
    """Return the error for a network that only the number of named classes does not fit."""
    unnamed = replace(network, class_count=None, has_background=False)
    claims = claims_of(families, unnamed, everyone)
    if not network.class_count or not claims:
        return None
    others = [claim for claim in others if claim.family.task != 'embed']  # Of no classes.
    kinds = dict.fromkeys(TASKS[claim.family.task].kind for claim in others)
    instead = ''
    if kinds:
        instead = f' If it is {_a(" or ".join(kinds))} network, run the node {_nodes(others)}.'
    return TensorMismatchError(
        f'No decoder recognizes this network with {network.class_count} named classes.',
        cause='Without the names, it may be '
        + '; or '.join(f'{claim.family.name}: {claim.reason}' for claim in claims)
        + f'. Seen: {network}.',
        remedy='Set `labels` or `labels_path` to one name per class, in their order, including '
        f'the background if the network counts it, or leave them out.{instead}',
    )


def _unknown(
    families: Families,
    network: NetworkDescription,
    everyone: Families,
) -> TensorMismatchError:
    inputs = '; '.join(map(str, network.inputs))
    near = '; '.join(nearest(network, families))
    choices: list[str] = []
    guidance = advice(network, everyone)
    if not guidance:
        choices = _decodable_parts(families, network, everyone)
        choices = choices if len(choices) < 3 else []
        guidance = (
            f'Set outputs to {" or to ".join(choices)}. '
            if choices
            else _choose_an_output(families, network, everyone)
        )
    return UnrecognizedError(
        'No decoder recognizes this network.',
        choices=choices,
        cause=f'Seen: inputs {inputs}; {network}. Nearest: {near}.',
        remedy=f'{guidance}Export the network as described in docs/models.md, or set `decoder` '
        f'to its family. {ANY}',
    )


def _about_labels(
    families: Families, network: NetworkDescription, everyone: Families, claims: Sequence[Claim]
) -> str:
    """Return whether names of the classes decide between the families of a network, a sentence."""
    if network.class_count:
        return f' The {network.class_count} named classes do not decide between them.'
    counts = {claim.reading.class_count for claim in claims} - {None}
    decide = any(
        len(claims_of(families, replace(network, class_count=count), everyone)) == 1
        for count in counts
    )
    return ' The names of the classes (`labels`) may decide, too.' if decide else ''


def _choose_an_output(
    families: Families,
    network: NetworkDescription,
    everyone: Families,
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
        tasks = [claim.family.task for claim in claims_of(everyone, alone, everyone)]
        tasks = [task for task in tasks if task not in VECTORS]
        if tasks and len(claims_of(families, alone, everyone)) != 1:
            nodes[spec.name] = dict.fromkeys(f'`{TASKS[task].node}`' for task in tasks)
    if not nodes:
        return ''
    found = dict.fromkeys(node for each in nodes.values() for node in each)
    return f'Set outputs to {" or ".join(nodes)}, and run the node {" or ".join(found)}. '


def _decodable_parts(
    families: Families, network: NetworkDescription, everyone: Families
) -> list[str]:
    """Return the outputs that one family decodes without one other, else pairs; with its name."""
    outputs = network.outputs
    for count in dict.fromkeys((len(outputs) - 1, 2)) if 2 < len(outputs) < 20 else ():
        choices = []
        for some in combinations(outputs, count):
            claims = claims_of(families, replace(network, outputs=some), everyone)
            if len(claims) == 1:
                names = ', '.join(spec.name for spec in some)
                choices.append(f'{names} (decoder {claims[0].family.name})')
        if choices:
            return choices
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
