"""Thresholds by class, looked up in the names of a network's classes."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field, replace
import math

import numpy as np

from trt_ros.errors import ParameterError, meant
from trt_ros.vision.thresholds import Thresholds

OBJECT_TASKS = ('detect', 'obb', 'pose')  # Tasks whose results are objects with a class and score.

MAX_CLASSES = 1 << 16


@dataclass(frozen=True, eq=False)
class ClassThresholds(Thresholds):
    """
    Thresholds whose classes are looked up; `score` is the lowest of all minimum scores.

    :param table: (N,) float32 minimum score by class index; infinity refuses a class.
    :param others: minimum score of the classes from N on.
    """

    table: np.ndarray = field(default_factory=lambda: np.zeros(0, np.float32))
    others: float = 0.0

    @classmethod
    def of(cls, thresholds: Thresholds, class_names: Sequence[str]) -> ClassThresholds:
        """Look up the classes of thresholds by name or index, or raise ParameterError."""
        chosen = {
            index
            for each in thresholds.classes
            for index in _indices(str(each), class_names, 'classes')
        }
        scores = {
            index: score
            for each, score in thresholds.class_scores.items()
            for index in _indices(str(each), class_names, 'class_score_thresholds')
        }
        others = math.inf if chosen else thresholds.score
        table = np.full(max([*chosen, *scores], default=-1) + 1, others, np.float32)
        table[list(chosen)] = thresholds.score
        for index, score in scores.items():
            if not chosen or index in chosen:
                table[index] = score
        return cls(
            min([others, *table.tolist()]),
            thresholds.iou,
            thresholds.max_detections,
            thresholds.classes,
            thresholds.class_scores,
            thresholds.class_agnostic,
            table,
            others,
        )

    def class_table(self) -> tuple[np.ndarray, float]:
        return self.table, self.others


def no_objects(
    decoder: str, limits: str = 'classes, class_score_thresholds and class_agnostic_nms'
) -> ParameterError:
    """Return the error of limits of objects where a decoder finds none."""
    return ParameterError(
        f'{limits} are for objects, but decoder {decoder} finds none.', remedy='Leave them out.'
    )


class ClassLookup:
    """A lookup of the classes of thresholds that keeps the last one."""

    def __init__(self) -> None:
        self._last: tuple[Thresholds | None, Thresholds] = None, Thresholds()

    def __call__(self, thresholds: Thresholds, class_names: Sequence[str]) -> Thresholds:
        """Return thresholds with classes looked up, as `ClassThresholds.of`, also repeatedly."""
        if isinstance(thresholds, ClassThresholds):
            return thresholds
        last, found = self._last
        if thresholds == last:
            return found
        # Copies: a program may change its list of classes between calls.
        asked = replace(
            thresholds,
            classes=tuple(thresholds.classes),
            class_scores=dict(thresholds.class_scores),
        )
        if asked != last:
            found = ClassThresholds.of(asked, class_names)
            self._last = asked, found
        return found


def _indices(text: str, class_names: Sequence[str], parameter: str) -> list[int]:
    """Return the indices of a class that is given by its name or index."""
    text = text.strip()
    found = [index for index, name in enumerate(class_names) if name == text]
    if found:
        return found
    if text.isdecimal() and int(text) < (len(class_names) or MAX_CLASSES):
        return [int(text)]
    if not class_names:
        remedy = (
            'The model has no class names: set labels or labels_path, or give indices from 0 to '
            f'{MAX_CLASSES - 1}.'
        )
    else:
        remedy = (
            f'{meant(text, class_names)}Choose class names, or indices from 0 to '
            f'{len(class_names) - 1}.'
        )
    raise ParameterError(f'{parameter} contains the unknown class {text!r}.', remedy=remedy)
