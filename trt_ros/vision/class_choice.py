"""Choice of results by their class."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
import difflib
from typing import Any, TypeVar

import numpy as np

from trt_ros.errors import ParameterError
from trt_ros.vision.decoders.obb import probabilistic_iou
from trt_ros.vision.detections import Detections
from trt_ros.vision.nms import non_max_suppression
from trt_ros.vision.results import Instances, OrientedBoxes, Poses
from trt_ros.vision.thresholds import Thresholds

#: Largest value of the parameter max_detections.
MAX_CANDIDATES = 10000

ResultT = TypeVar('ResultT')


@dataclass(frozen=True)
class ClassChoice:
    """
    The results that are wanted, by class.

    It applies to the result of NMS per class, in which no class influences another: leaving out
    classes or low scores there gives what leaving them out before NMS would.

    :param classes: indices of the wanted classes; empty: all.
    :param min_scores: minimum score by class index, instead of `Thresholds.score`.
    """

    classes: frozenset[int] = frozenset()
    min_scores: Mapping[int, float] = field(default_factory=dict)

    @classmethod
    def of(cls, thresholds: Thresholds, class_names: Sequence[str]) -> ClassChoice:
        """
        Look up the classes of thresholds.

        :param class_names: by index; empty: unknown, then only indices are accepted.
        :raises ParameterError: for an unknown class.
        """
        return cls(
            frozenset(
                index
                for each in thresholds.classes
                for index in _indices(str(each), class_names, 'classes')
            ),
            {
                index: score
                for each, score in thresholds.class_scores.items()
                for index in _indices(str(each), class_names, 'class_score_thresholds')
            },
        )

    def candidates(self, thresholds: Thresholds) -> Thresholds:
        """Return the thresholds for the decoder, which let everything pass that may be wanted."""
        scores = [
            score
            for index, score in self.min_scores.items()
            if not self.classes or index in self.classes
        ]
        return Thresholds(
            min([thresholds.score, *scores]),
            thresholds.iou,
            max(thresholds.max_detections, MAX_CANDIDATES),
        )

    def wanted(self, result: ResultT, thresholds: Thresholds) -> ResultT:
        """
        Return the wanted ones of the candidates, best first.

        :param result: of the decoder; one without boxes stays as it is.
        """
        if not isinstance(result, (Detections, OrientedBoxes, Instances, Poses)):
            return result
        boxes = result.detections if isinstance(result, (Instances, Poses)) else result
        keep = boxes.scores >= self.scores_for(boxes.labels, thresholds.score)
        if self.classes:
            keep &= np.isin(boxes.labels, np.fromiter(self.classes, np.int64, len(self.classes)))
        best = np.flatnonzero(keep)
        if thresholds.class_agnostic:
            best = best[_suppressed(boxes.take(best), thresholds.iou)]
        best = best[: thresholds.max_detections]
        chosen: Any = result if len(best) == len(boxes) else result.take(best)
        return chosen  # type: ignore[no-any-return]

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


def _suppressed(found: Detections | OrientedBoxes, max_iou: float) -> np.ndarray:
    """Return the indices of the boxes that NMS of all classes together leaves."""
    same = np.zeros(len(found), np.int32)
    if isinstance(found, Detections):
        return non_max_suppression(
            found.xyxy,
            found.scores,
            same,
            iou_threshold=max_iou,
            max_detections=MAX_CANDIDATES,
        )
    return non_max_suppression(
        np.hstack([found.cxcywh, found.theta[:, None]]),
        found.scores,
        same,
        iou_threshold=max_iou,
        max_detections=MAX_CANDIDATES,
        overlap=probabilistic_iou,
    )


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
