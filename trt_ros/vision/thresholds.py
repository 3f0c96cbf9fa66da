"""Thresholds of a published result."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from functools import lru_cache
from numbers import Integral, Real
from typing import TYPE_CHECKING, Any

from trt_ros.errors import ParameterError
from trt_ros.parameter_field import mutable_param, refuse_unknown

if TYPE_CHECKING:  # Command lines show their help without NumPy.
    import numpy as np


@dataclass(frozen=True)
class Thresholds:
    """
    The limits that decide which of a network's candidates become results.

    A task without boxes ignores score, IoU and number, unless a call names them, and refuses the
    others. Decoders apply those by class once the classes are looked up, see `ClassThresholds`.

    :param score: minimum score, 0 to 1; NaN and Inf never pass.
    :param iou: IoU above which the lower-scoring of two boxes of one class is suppressed, 0 to 1.
    :param max_detections: maximum number of results per image, best score first.
    :param classes: names or indices of the wanted classes; empty: all.
    :param class_scores: minimum score by name or index of a class, instead of `score`.
    :param class_agnostic: whether boxes also suppress those of other classes.
    :raises ParameterError: when a limit is out of its range.
    """

    score: float = 0.25
    iou: float = 0.45
    max_detections: int = 100
    classes: Sequence[str | int] = ()
    class_scores: Mapping[str | int, float] = field(default_factory=dict, hash=False)
    class_agnostic: bool = False

    def __post_init__(self) -> None:
        if isinstance(self.classes, str):
            raise ParameterError(
                f'classes is the text {self.classes!r}.',
                remedy=f'Write a list of names: [{self.classes!r}].',
            )
        if not isinstance(self.class_scores, Mapping):
            raise ParameterError(
                f'class_scores is {self.class_scores!r}.',
                remedy="Write scores by class, as in {'person': 0.6}.",
            )
        scores = {f'class_scores of {name!r}': each for name, each in self.class_scores.items()}
        for name, value in {'iou': self.iou, **scores, 'score': self.score}.items():
            if not (isinstance(value, Real) and 0 <= float(value) <= 1):
                raise ParameterError(f'{name} is {value!r}.', remedy='Set it to 0 to 1.')
        if not isinstance(self.max_detections, Integral) or self.max_detections < 0:
            raise ParameterError(
                f'max_detections is {self.max_detections!r}.',
                remedy='Set it to a whole number, 0 or more.',
            )

    @property
    def chooses_classes(self) -> bool:
        """Whether a limit depends on the class."""
        return bool(self.classes or self.class_scores or self.class_agnostic)

    def class_table(self) -> tuple[np.ndarray, float]:
        """Return minimum scores by index, (N,), and that of others; infinity refuses a class."""
        import numpy as np

        return np.zeros(0, np.float32), self.score

    def min_scores(self, labels: np.ndarray) -> np.ndarray:
        """Return the minimum score of each label, (N,) float32 for (N,) indices."""
        import numpy as np

        table, others = self.class_table()
        # Not of a Python integer, which the dtype of the labels may not hold.
        known = np.minimum(labels, np.intp(len(table))).astype(np.intp)
        return np.asarray(np.append(table, np.float32(others))[known])


def with_limits(thresholds: Thresholds, limits: Mapping[str, Any]) -> Thresholds:
    """Return thresholds with fields by name, checked; the same object for equal arguments."""
    known = {key: tuple(each) if isinstance(each, list) else each for key, each in limits.items()}
    try:
        return _with_limits(thresholds, **known)
    except TypeError:  # A dict cannot be looked up.
        return _with_limits.__wrapped__(thresholds, **known)


@lru_cache(maxsize=16, typed=True)  # The checks take longer than a small network.
def _with_limits(thresholds: Thresholds, /, **limits: Any) -> Thresholds:
    refuse_unknown(Thresholds, limits)
    return replace(thresholds, **limits)


def parse_class_scores(texts: Sequence[str]) -> dict[str | int, float]:
    """
    Parse minimum scores of classes.

    >>> parse_class_scores(['person:0.6', '2:0.5'])
    {'person': 0.6, '2': 0.5}

    :param texts: 'CLASS:SCORE' each.
    :raises ParameterError: when a score is not a number from 0 to 1, or a class has two.
    """
    scores: dict[str | int, float] = {}
    for text in texts:
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
        if name.strip() in scores:
            raise ParameterError(
                f'class_score_thresholds contains {name.strip()!r} twice.',
                remedy='Give each class one score.',
            )
        scores[name.strip()] = value
    return scores


@dataclass(frozen=True)
class ThresholdOptions:
    """Parameters that select the published objects."""

    score_threshold: float = mutable_param(
        Thresholds.score, 'Minimum score of a published detection.', between=(0.0, 1.0)
    )
    iou_threshold: float = mutable_param(
        Thresholds.iou,
        'IoU above which the lower-scoring of two boxes of one class is suppressed.',
        between=(0.0, 1.0),
    )
    max_detections: int = mutable_param(
        Thresholds.max_detections, 'Maximum number of detections per image.', between=(1, 10000)
    )
    classes: tuple[str, ...] = mutable_param(
        (), 'Names or indices of the published classes; empty publishes all.'
    )
    class_score_thresholds: tuple[str, ...] = mutable_param(
        (),
        "Minimum scores of single classes, instead of score_threshold: 'person:0.6', the class "
        'being a name or an index.',
    )
    class_agnostic_nms: bool = mutable_param(
        False, 'Whether boxes also suppress those of other classes, above iou_threshold.'
    )

    def thresholds(self) -> Thresholds:
        """Return the current thresholds; raises ParameterError if a score by class is invalid."""
        return Thresholds(
            self.score_threshold,
            self.iou_threshold,
            self.max_detections,
            self.classes,
            parse_class_scores(self.class_score_thresholds),
            self.class_agnostic_nms,
        )


DEFAULT_THRESHOLDS = Thresholds()
