"""Class scores: the results of classifiers."""

from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Any

import numpy as np

from trt_ros.results.base import Result, WriteArray
from trt_ros.results.labels import name_of

MAX_CLASSES = 5


@dataclass(eq=False)
class Classification(Result):
    """
    The score of each class.

    :param scores: (C,) float32, 0 to 1.
    """

    scores: np.ndarray
    class_names: Sequence[str] = field(default=(), kw_only=True)

    def top(self, count: int) -> np.ndarray:
        """Return the best `count` classes: (K,) int32, best first, the first among equals."""
        return np.argsort(-self.scores, kind='stable')[:count].astype(np.int32)

    @property
    def names(self) -> list[str]:
        """Names of all classes, best first."""
        return [name_of(self.class_names, label) for label in self.top(len(self.scores)).tolist()]

    def as_json(self, write_array: WriteArray | None = None) -> dict[str, Any]:
        """Return the best classes as data for JSON."""
        return {
            'classes': [
                {
                    'label': name_of(self.class_names, label),
                    'class_index': label,
                    'score': round(float(self.scores[label]), 4),
                }
                for label in self.top(MAX_CLASSES).tolist()
            ]
        }
