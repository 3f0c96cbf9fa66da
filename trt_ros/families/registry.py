"""Registry of the model families, and the choice of a network's decoder."""

from collections.abc import Iterable
from importlib import import_module
from pkgutil import iter_modules
from typing import Any, TypeVar

from trt_ros import families as package
from trt_ros.errors import ParameterError, meant
from trt_ros.families import mismatches
from trt_ros.families.evidence import Choice
from trt_ros.families.family import Family, NetworkDescription
from trt_ros.families.head import Head
from trt_ros.families.vectors import of_any_shape
from trt_ros.results.arrays import Depth, Picture, Tensors
from trt_ros.results.boxes import Detections, OrientedBoxes
from trt_ros.results.classes import Classification
from trt_ros.results.masks import ClassMask, Instances
from trt_ros.results.poses import Poses
from trt_ros.results.text import Text


def by_name(values: Iterable[Any]) -> dict[str, Family[Any]]:
    """Return the families among values; raise ValueError for two of one name, or another task."""
    found = dict[str, Family[Any]]()
    for each in values:
        if isinstance(each, Family):
            if found.setdefault(each.name, each) is not each:
                raise ValueError(f'Two families are named {each.name}. Rename one of them.')
            if each.task not in mismatches.TASKS:
                raise ValueError(
                    f'The family {each.name} has the task {each.task!r}. Choose one of '
                    f'{", ".join(mismatches.TASKS)}.'
                )
    return found


_MODULES = {each.name for each in iter_modules(package.__path__)} - {'registry'}
_FAMILIES = by_name(
    value
    for name in sorted(_MODULES)
    for value in vars(import_module(f'{package.__name__}.{name}')).values()
)


def _of_task(task: str) -> tuple[Family[Any], ...]:
    return tuple(each for each in _FAMILIES.values() if each.task == task)


DETECTORS: tuple[Family[Head[Detections]], ...] = _of_task('detect')
SEGMENTERS: tuple[Family[Head[Instances | ClassMask]], ...] = _of_task('segment')
POSES: tuple[Family[Head[Poses]], ...] = _of_task('pose')
ORIENTED: tuple[Family[Head[OrientedBoxes]], ...] = _of_task('obb')
CLASSIFIERS: tuple[Family[Head[Classification]], ...] = _of_task('classify')
#: For lines of text, which a detector finds.
TEXTS: tuple[Family[Head[Text]], ...] = _of_task('text')
DEPTHS: tuple[Family[Head[Depth]], ...] = _of_task('depth')
#: Not drawn, and of shapes that masks have, too: of a node of their own.
ENHANCERS: tuple[Family[Head[Picture]], ...] = _of_task('image')
EMBEDDINGS: tuple[Family[Head[Tensors]], ...] = _of_task('embed')
#: Families whose outputs are published undecoded; 'auto' takes the last without an embedding.
TENSORS: tuple[Family[Head[Tensors]], ...] = (*EMBEDDINGS, *_of_task('tensor'))

#: Families whose results can be drawn.
ALL_FAMILIES: tuple[Family[Head[Any]], ...] = (
    *DETECTORS,
    *SEGMENTERS,
    *POSES,
    *ORIENTED,
    *CLASSIFIERS,
    *TEXTS,
    *DEPTHS,
)

HeadT = TypeVar('HeadT')


def choose_family(
    families: tuple[Family[HeadT], ...], name: str, network: NetworkDescription
) -> tuple[Family[HeadT], str]:
    """Choose a family by name or by the network; return it and the reason, or raise."""
    tasks = {family.task for family in families}
    stated = network.metadata.get('task', '')  # As Ultralytics writes it.
    stated = 'segment' if stated == 'semantic' else stated
    if stated in mismatches.TASKS and stated not in tasks and 'tensor' not in tasks:
        raise mismatches.of_another_task(families, network, stated)
    if name == 'auto':
        return _recognize(families, network)
    for family in families:
        if family.name == name:
            return family, 'as configured'
    for other in (*ALL_FAMILIES, *ENHANCERS, *TENSORS):
        if other.name == name:
            raise mismatches.of_another_node(families, other)
    hint = meant(name, [family.name for family in families])
    raise ParameterError(
        f'Decoder {name!r} does not exist.',
        remedy=f'{hint}Set `decoder` to auto, or to one of docs/models.md.',
    )


def _recognize(
    families: tuple[Family[HeadT], ...], network: NetworkDescription
) -> tuple[Family[HeadT], str]:
    everyone: tuple[Family[Head[Any]], ...] = (*ALL_FAMILIES, *EMBEDDINGS)
    choice = Choice(families, network, everyone)
    claims = choice.possible_claims()
    if claims and all(claim.is_impossible for claim in claims) and network.strict:
        raise mismatches.impossible(choice, claims)
    if len(claims) > 1:
        raise mismatches.ambiguous(choice, claims)
    tasks = {family.task for family in families}
    is_open = len(tasks) > 1 and 'tensor' not in tasks  # The task of a node is evidence.
    if claims and claims[0].is_only_shape and is_open and network.strict:
        raise mismatches.only_shape(choice, claims[0])
    if claims and claims[0].is_only_shape and 'tensor' in tasks:
        return of_any_shape(claims[0].family), claims[0].reason  # type: ignore[return-value]
    if claims:
        return claims[0].family, claims[0].reason
    for family in families:
        if family.task == 'tensor':
            return family, 'its outputs are published undecoded'
    raise mismatches.not_recognized(choice)
