"""Ranking of the readings of a network, by views of pictures or by annotations and counts."""

from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass, field
from functools import singledispatch
import json
from pathlib import Path
from typing import Any, cast

import numpy as np

from trt_ros.errors import ParameterError, TrtRosError
from trt_ros.regular_file import parsing, read_regular
from trt_ros.results.base import Result
from trt_ros.results.boxes import Objects
from trt_ros.results.classes import Classification
from trt_ros.results.labels import MAX_ANNOTATIONS_NBYTES, check_unique, ids_by_name
from trt_ros.runtime.candidates import Candidate, first_candidates, normalized, resized, sized
from trt_ros.runtime.consistency import (
    VIEWS,
    Seen,
    Support,
    chance,
    condensed,
    confidences,
    support,
)
from trt_ros.runtime.cpu.pipeline import CpuPipeline
from trt_ros.runtime.options import ModelOptions
from trt_ros.runtime.runner import CopyingRunner, Runner
from trt_ros.tensors import Arrays
from trt_ros.vision.frame import Frame
from trt_ros.vision.nms import iou, partners
from trt_ros.vision.thresholds import Thresholds


@dataclass(frozen=True)
class Truth:
    """
    Objects of a picture, or its class.

    :param names: class name per object, or of the picture; () with only a number.
    :param xyxy: (N, 4) boxes in pixels; None: only the number of objects is known.
    """

    count: int
    names: tuple[str, ...] = ()
    xyxy: np.ndarray | None = None


def read_truths(path: Path, pictures: Sequence[Path]) -> list[Truth | None]:
    """Read the objects of pictures from a COCO file, None without any, or raise ParameterError."""
    problem = f'Cannot read {path} as annotations in COCO format.'
    remedy = 'Choose a JSON file with `images`, `categories` and `annotations`.'
    with parsing(problem, remedy):
        found = json.loads(read_regular(path, MAX_ANNOTATIONS_NBYTES))
        names = {each['id']: str(each['name']) for each in found['categories']}
        ids = ids_by_name(found['images'])
        check_unique([each.name for each in pictures if each.name in ids], 'There are')
        shown: dict[Any, list[tuple[str, list[float]]]] = {each: [] for each in ids.values()}
        for each in found['annotations']:
            shown[each['image_id']].append((names[each['category_id']], each['bbox']))
        truths = [_truth(shown[ids[each.name]]) if each.name in ids else None for each in pictures]
    if not any(truths):
        raise ParameterError(
            f'The annotations {path} have none of the pictures.',
            cause=f'They have {", ".join(list(ids)[:3])} and others.',
            remedy='Choose the pictures of the annotations.',
        )
    return truths


def _truth(shown: Sequence[tuple[str, list[float]]]) -> Truth:
    xywh = np.array([box for _, box in shown], np.float64).reshape(-1, 4)
    xyxy = np.hstack([xywh[:, :2], xywh[:, :2] + xywh[:, 2:]])
    return Truth(len(shown), tuple(name for name, _ in shown), xyxy)


@singledispatch
def agreement_with(result: Result, truth: Truth) -> float:
    """
    Return the agreement of a result with the objects of its picture, 0 to 1.

    Of boxes, twice the scores of those that are true over the sum of all scores and the number of
    true boxes; names count where the network has some of them.

    :raises ParameterError: for results of neither objects nor class scores.
    """
    raise ParameterError(
        f'Annotations and counts do not apply to {type(result).__name__}.',
        remedy='Leave them out: the readings are ranked by the results alone.',
    )


@agreement_with.register
def _(result: Objects, truth: Truth) -> float:
    if truth.xyxy is None:
        return 1 - abs(len(result) - truth.count) / max(len(result), truth.count, 1)
    if not len(result) and not truth.count:
        return 1.0
    likeness = iou(result.xyxy[:, None], truth.xyxy)
    if {*truth.names} & {*result.class_names}:
        likeness = likeness * (np.array(result.names)[:, None] == np.array(truth.names, str))
    true = float(result.scores[partners(likeness) >= 0].sum())
    return 2 * true / (float(result.scores.sum()) + truth.count)


@agreement_with.register
def _(result: Classification, truth: Truth) -> float:
    if not truth.names or not result.class_names:
        raise ParameterError(
            'The annotations of a classifier need the names of its classes.',
            remedy='Set labels or labels_path to the names of the annotations.',
        )
    pairs = zip(result.class_names, result.scores.tolist())
    return float(sum(score for name, score in pairs if name in truth.names))


GRAY = 114
#: Scores that differ by less than this part of the best one are tied: with any number of pictures,
#: and in addition with one picture.
MARGIN, MARGIN_OF_ONE = 0.05, 0.15
#: Scores below which the pictures say nothing; of masks, in bits per pixel.
WEAK, WEAK_OF_MASKS = 0.05, 0.01
KEPT = 4  # Tied readings of which further ones are tried.
Watch = Callable[[Iterable[Any]], Iterable[Any]]


@dataclass(eq=False)
class Ranked:
    """
    A reading and what the pictures say about it.

    :param values: evidence per picture, see `consistency`: of objects, the sum of the scores that
        other views of the picture confirm, less what they contradict.
    :param truths: agreement with the truth of the pictures that have one, 0 to 1.
    :param supports: those of objects.
    :param confidences: scores of the results.
    :param problem: why the reading is impossible, or ''.
    :param is_tied: whether the pictures do not tell it from the best one, or that one from others.
    """

    candidate: Candidate
    values: list[float] = field(default_factory=list)
    truths: list[float] = field(default_factory=list)
    supports: list[Support] = field(default_factory=list)
    confidences: list[float] = field(default_factory=list)
    problem: str = ''
    is_tied: bool = False

    @property
    def scores(self) -> np.ndarray:
        """Scores that decide, one per picture: agreement with the truth, if there is any."""
        return np.array(self.truths or self.values)

    @property
    def score(self) -> float:
        """Mean score; -inf for an impossible reading."""
        return -np.inf if self.problem else float(self.scores.mean())

    @property
    def is_weak(self) -> bool:
        """Whether the result does not depend on what the pictures show."""
        is_mask = self.candidate.fitted.decoder.task == 'segment'
        return self.score < (WEAK_OF_MASKS if is_mask and not self.supports else WEAK)

    @property
    def confirmed(self) -> float:
        """Part of the objects that other views of the pictures confirm, 0 to 1."""
        total = [sum(each) for each in zip(*self.supports)] or [0.0, 0.0]
        return total[0] / sum(total) if sum(total) else 0.0

    @property
    def confidence(self) -> float:
        """Mean score of the results; 0 without any."""
        return float(np.mean(self.confidences)) if self.confidences else 0.0


class _Remembering(CopyingRunner):
    """A network that computes the outputs of equal inputs once."""

    def __init__(self, network: Runner) -> None:
        super().__init__(network)
        self._known: dict[bytes, dict[str, np.ndarray]] = {}

    def infer(self, tensors: Arrays) -> dict[str, np.ndarray]:
        key = b''.join(tensors[name].tobytes() for name in sorted(tensors))
        if key not in self._known:
            self._known[key] = super().infer(tensors)
        return self._known[key]

    def forget(self) -> None:
        self._known.clear()


def search(
    network: Runner,
    options: ModelOptions,
    pictures: Sequence[np.ndarray],
    truths: Sequence[Truth | None],
    *,
    score: float,
    watch: Watch = iter,
) -> list[Ranked]:
    """
    Try decoders, normalizations and channel orders, then with the best other resizes and sizes.

    :param options: what they state is not varied.
    :param pictures: (H, W, 3) uint8 BGR.
    :param score: minimum score of objects; weaker ones, from half of it, may confirm others.
    :param watch: shows the progress over pictures.
    :returns: as `ranked`.
    :raises TensorMismatchError: when no decoder fits.
    :raises ParameterError: when the network does not take one image, or the truth does not apply.
    """
    firsts = first_candidates(network, options)
    stage = [*firsts, *(each for one in firsts for each in normalized(network, one, options))]
    for each in [one for one in stage if one.fitted.decoder.task == 'classify']:
        stage += resized(network, each, options)  # A crop may hide what the picture shows.
    known: dict[tuple[Any, ...], Ranked] = {}
    order: list[Ranked] = []
    for further in (resized, sized, None):
        new = {each.key: each for each in stage if each.key not in known}
        found = [Ranked(each) for each in new.values()]
        _run(found, network, pictures, truths, score, watch)
        known |= dict(zip(new, found))
        order = ranked(list(known.values()))
        if further is None or order[0].problem:
            break
        kept = [each.candidate for each in order if each.is_tied or each is order[0]][:KEPT]
        stage = [each for one in kept for each in further(network, one, options)]
    return order


def _run(
    found: Sequence[Ranked],
    network: Runner,
    pictures: Sequence[np.ndarray],
    truths: Sequence[Truth | None],
    score: float,
    watch: Watch,
) -> None:
    """Run readings on pictures and on views of them, and add what these say."""
    if not found:
        return
    remembering, gray = _Remembering(network), np.full_like(pictures[0], GRAY)
    judges = [_Judge(each, remembering, score, gray) for each in found]
    for pixels, truth in watch(list(zip(pictures, truths))):
        remembering.forget()
        for each in judges:
            each.see(pixels, truth)
    for each in judges:
        each.end()


class _Judge:
    """Judge of a reading, whose results must differ from that of `gray`, which shows nothing."""

    def __init__(self, found: Ranked, network: Runner, score: float, gray: np.ndarray) -> None:
        self._found, self._score = found, score
        self._thresholds = Thresholds(score / 2)
        self._pipeline: CpuPipeline[Any] = CpuPipeline(network, found.candidate.fitted)
        self._nothing = self._seen([gray])
        self._wholes: list[Seen] = []

    def see(self, pixels: np.ndarray, truth: Truth | None) -> None:
        seen = self._seen([pixels, *(view.pixels(pixels) for view in VIEWS)])
        if not seen:
            return
        whole, result = seen[0], cast(Any, seen[0].result)
        supports = [support(whole, each, view) for each, view in zip(seen[1:], VIEWS)]
        self._found.values.append(float(np.mean([each.net for each in supports])))
        if isinstance(result, Objects):
            self._found.supports += supports
            result = result[result.scores >= self._score]
        self._found.confidences += confidences(result).tolist()
        if truth is not None:
            self._found.truths.append(agreement_with(result, truth))
        self._wholes.append(whole._replace(result=condensed(whole.result)))

    def end(self) -> None:
        """Subtract from the values what other pictures seem to confirm."""
        for index, whole in enumerate(self._wholes):
            others = [*self._nothing, *self._wholes[:index], *self._wholes[index + 1 :]]
            self._found.values[index] -= chance(whole, others)

    def _seen(self, pictures: Sequence[np.ndarray]) -> list[Seen]:
        """Return the results of pictures; [] for an impossible reading."""
        if self._found.problem:
            return []
        try:
            with np.errstate(all='ignore'):  # Of values that the network is not trained with.
                return [
                    Seen(self._pipeline.infer(frame, self._thresholds), frame.wh, self._score)
                    for frame in map(Frame.from_pixels, pictures)
                ]
        except TrtRosError as error:
            self._found.problem = error.problem
            return []


def ranked(found: Sequence[Ranked]) -> list[Ranked]:
    """
    Return readings, the best first, then those that the pictures do not tell from it.

    Of almost equal scores, the nearest to the family's training is first; impossible readings are
    last. Scores of different tasks cannot be compared: the best of each is tied, and follows.
    """
    order = sorted(found, key=lambda each: -each.score)
    bests = {each.candidate.fitted.decoder.task: each for each in reversed(order)}
    for each in order:
        best = bests[each.candidate.fitted.decoder.task]
        is_tied = best.is_weak or _is_tied(best.scores, each.scores)
        each.is_tied = not each.problem and is_tied
    if sum(each.is_tied for each in order) == 1:
        order[0].is_tied = False
    order.sort(key=lambda each: not each.is_tied)
    best = order[0]
    near = [
        each
        for each in order
        if each.candidate.fitted.decoder.task == best.candidate.fitted.decoder.task
        and best.score - each.score <= _margin(best.scores)
    ]
    likely = min(near, key=lambda each: each.candidate.changes)
    bests.pop(likely.candidate.fitted.decoder.task)
    first = [likely, *bests.values()] if likely.is_tied else [likely]
    return [*first, *(each for each in order if each not in first)]


def _margin(best: np.ndarray) -> float:
    return (MARGIN + MARGIN_OF_ONE / len(best)) * abs(float(best.mean()))


def _is_tied(best: np.ndarray, other: np.ndarray) -> bool:
    """Return whether scores of the same pictures do not differ for certain."""
    differences, count, margin = best - other, len(best), _margin(best)
    if count > 1:  # About the quantile of Student's distribution at 95 %.
        error = float(differences.std(ddof=1)) / np.sqrt(count)
        margin = max(margin, (2 + 1 / (count - 1)) * error)
    return bool(differences.mean() <= min(margin, abs(float(best.mean())) / 2))
