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
    """The score of each class, (C,) float32 from 0 to 1."""

    scores: np.ndarray
    class_names: Sequence[str] = field(default=(), kw_only=True)

    def top(self, count: int) -> np.ndarray:
        """Return the best `count` classes: (K,) int32, best first, the first among equals."""
        order = -self.scores
        some: np.ndarray = np.arange(len(order))
        if count < len(order):  # Sorting all takes long.
            is_one = order <= np.partition(order, count - 1)[count - 1]
            some = np.flatnonzero(is_one) if is_one.any() else some  # None beside NaN.
        return some[np.argsort(order[some], kind='stable')[:count]].astype(np.int32)

    @property
    def names(self) -> list[str]:
        """Names of all classes, best first."""
        return [name_of(self.class_names, label) for label in self.top(len(self.scores)).tolist()]

    def best(
        self, count: int = MAX_CLASSES, *, class_id_format: str = 'name'
    ) -> list[tuple[str, float]]:
        """Return name, or number for class_id_format 'index', and score of the best classes."""
        names, best = self.class_names if class_id_format == 'name' else (), self.top(count)
        scores = self.scores[best].tolist()
        return [(name_of(names, label), each) for label, each in zip(best.tolist(), scores)]

    def as_json(self, write_array: WriteArray | None = None) -> dict[str, Any]:
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
