"""Choice of detections by their class."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
import difflib

import numpy as np

from trt_ros.errors import ParameterError
from trt_ros.vision.decoders.obb import probabilistic_iou
from trt_ros.vision.detections import Detections
from trt_ros.vision.nms import non_max_suppression
from trt_ros.vision.results import OrientedBoxes
from trt_ros.vision.thresholds import Thresholds

#: Largest value of the parameter max_detections.
MAX_CANDIDATES = 10000


@dataclass(frozen=True)
class ClassChoice:
    """
    The detections that are wanted, by class.

    It applies to the result of NMS per class, in which no class influences another: leaving out
    classes or low scores there gives what leaving them out before NMS would.

    :param classes: indices of the wanted classes; empty: all.
    :param min_scores: minimum score by class index, instead of `Thresholds.score`.
    :param agnostic: whether to suppress boxes across classes, too.
    """

    classes: frozenset[int] = frozenset()
    min_scores: Mapping[int, float] = field(default_factory=dict)
    agnostic: bool = False

    @classmethod
    def of(
        cls,
        classes: Sequence[str],
        score_thresholds: Sequence[str],
        class_names: Sequence[str],
        *,
        agnostic: bool,
    ) -> ClassChoice:
        """
        Read names and indices.

        :param classes: names or indices.
        :param score_thresholds: 'CLASS:SCORE' each, CLASS being a name or an index.
        :param class_names: by index; empty: unknown, then only indices are accepted.
        :raises ParameterError: for an unknown class, or a score that is none.
        """
        chosen = {index for each in classes for index in _indices(each, class_names, 'classes')}
        scores: dict[int, float] = {}
        for text in score_thresholds:
            name, found, score = text.rpartition(':')
            try:
                value = float(score)
            except ValueError:
                value = -1.0
            if not found or not 0 <= value <= 1:
                raise ParameterError(
                    f'class_score_thresholds contains {text!r}.',
                    remedy="Write CLASS:SCORE with a score of 0 to 1, as in 'person:0.6'.",
                )
            for index in _indices(name, class_names, 'class_score_thresholds'):
                scores[index] = value
        return cls(frozenset(chosen), scores, agnostic)

    @property
    def is_trivial(self) -> bool:
        """Whether everything is wanted."""
        return not (self.classes or self.min_scores or self.agnostic)

    def candidates(self, thresholds: Thresholds) -> Thresholds:
        """Return the thresholds for the decoder, which let everything pass that may be wanted."""
        if self.is_trivial:
            return thresholds
        scores = [
            score
            for index, score in self.min_scores.items()
            if not self.classes or index in self.classes
        ]
        return replace(
            thresholds,
            score=min([thresholds.score, *scores]),
            max_detections=max(thresholds.max_detections, MAX_CANDIDATES),
        )

    def wanted(
        self, found: Detections | OrientedBoxes, max_iou: float
    ) -> Detections | OrientedBoxes:
        """
        Return the detections of the wanted classes, whatever their scores.

        :param max_iou: IoU above which a box is suppressed across classes, where that is set.
        """
        if self.classes:
            labels = np.fromiter(self.classes, np.int64, len(self.classes))
            found = found.take(np.flatnonzero(np.isin(found.labels, labels)))
        if not self.agnostic:
            return found
        same = np.zeros(len(found), np.int32)
        if isinstance(found, Detections):
            best = non_max_suppression(
                found.xyxy,
                found.scores,
                same,
                iou_threshold=max_iou,
                max_detections=MAX_CANDIDATES,
            )
        else:
            best = non_max_suppression(
                np.hstack([found.cxcywh, found.theta[:, None]]),
                found.scores,
                same,
                iou_threshold=max_iou,
                max_detections=MAX_CANDIDATES,
                overlap=probabilistic_iou,
            )
        return found.take(best)

    def scores_for(self, labels: np.ndarray, score: float) -> np.ndarray:
        """
        Return the minimum score of each detection.

        :param labels: (N,) class indices.
        :param score: minimum score of the other classes.
        :returns: (N,) float32.
        """
        minimum = np.full(len(labels), score, np.float32)
        for index, value in self.min_scores.items():
            minimum[labels == index] = value
        return minimum


def _indices(text: str, class_names: Sequence[str], parameter: str) -> list[int]:
    """Return the indices of a class that is given by its name or index."""
    text = text.strip()
    found = [index for index, name in enumerate(class_names) if name == text]
    if found:
        return found
    if text.isdecimal() and (not class_names or int(text) < len(class_names)):
        return [int(text)]
    if not class_names:
        remedy = 'The model has no class names: set labels or labels_path, or give indices.'
    else:
        close = difflib.get_close_matches(text, class_names, n=3, cutoff=0.6)
        meant = f'Did you mean {" or ".join(map(repr, close))}? ' if close else ''
        remedy = f'{meant}Choose class names, or indices from 0 to {len(class_names) - 1}.'
    raise ParameterError(f'{parameter} contains the unknown class {text!r}.', remedy=remedy)
