"""Watch over results that look impossible, frame after frame."""

from functools import singledispatch
from typing import Any

import numpy as np

from trt_ros.results.arrays import Depth
from trt_ros.results.boxes import Objects
from trt_ros.results.classes import Classification
from trt_ros.results.labels import begins_with_background
from trt_ros.results.masks import ClassMask, ClassMasks

EVERY = 20  # One of so many results is examined.
FRAMES = 100  # So many frames in a row have the same problem before it is reported.
MIN_OBJECTS = 5  # Fewer are equal by chance.
STEP = 8  # Every eighth row and column of masks and depth is examined.


class ResultWatch:
    """A watch over the results of a pipeline; a sample of them takes next to no time."""

    def __init__(self) -> None:
        self._count = self._examined = 0
        self._problem = ''

    def add(self, result: Any) -> None:
        """Count a result, and examine some."""
        self._count += 1
        if self._count % EVERY == 0:
            problem = why_impossible(result)
            self._examined = self._examined + 1 if problem == self._problem else 1
            self._problem = problem

    @property
    def problem(self) -> str:
        """Problem of the results of the last 100 frames or more; '' for none."""
        frames = self._examined * EVERY
        if not self._problem or frames < FRAMES:
            return ''
        return f'{self._problem} in the last {frames} frames'


@singledispatch
def why_impossible(result: Any) -> str:
    """Return the reason why a result cannot be right, a few words; '' for none."""
    return ''


@why_impossible.register
def _of_objects(result: Objects) -> str:
    scores, boxes = result.scores, result.xyxy
    if len(scores) < MIN_OBJECTS:
        return ''
    if scores[0] == scores[-1]:  # Best and worst.
        return 'equal scores of all objects'
    are_equal = abs(boxes[0] - boxes[-1]).max() < 1 and np.ptp(boxes, axis=0).max() < 1
    return 'equal boxes of all objects' if are_equal else ''


@why_impossible.register
def _of_mask(result: ClassMask) -> str:
    label = int(result.labels[0, 0])
    # Class 0 may be the background.
    may_be_empty = result.is_binary or not result.class_names
    may_be_empty |= begins_with_background(result.class_names)
    if not _is_constant(result.labels[::STEP, ::STEP]) or (label == 0 and may_be_empty):
        return ''
    return f'class {label} in every pixel'


@why_impossible.register
def _of_masks(result: ClassMasks) -> str:
    problems = {name: why_impossible(mask) for name, mask in result.items()}
    return ', '.join(f'{problem} of {name}' for name, problem in problems.items() if problem)


@why_impossible.register
def _of_depth(result: Depth) -> str:
    is_constant = _is_constant(np.nan_to_num(result.values[::STEP, ::STEP]))
    return 'equal depth of all pixels' if is_constant else ''


@why_impossible.register
def _of_scores(result: Classification) -> str:
    scores = result.scores
    are_equal = len(scores) > 1 and scores[0] == scores[-1] and np.ptp(scores) == 0
    return 'equal scores of all classes' if are_equal else ''


def _is_constant(values: np.ndarray) -> bool:
    return bool(values[0, 0] == values[-1, -1] and (values == values[0, 0]).all())
