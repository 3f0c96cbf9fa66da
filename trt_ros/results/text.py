"""Lines of text."""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import Any

import numpy as np

from trt_ros.results.base import WriteArray
from trt_ros.results.boxes import Boxes
from trt_ros.results.classes import MAX_CLASSES, Classification
from trt_ros.results.labels import name_of


@dataclass(eq=False)
class Text(Classification):
    """
    The symbols of a line, whose only class is the text.

    :param scores: (1,) float32, mean score of the symbols, 0 without any.
    :param symbols: (K,) int32, indices of `class_names`.
    """

    symbols: np.ndarray

    @classmethod
    def of_steps(cls, best: np.ndarray, scores: np.ndarray) -> Text:
        """Return the symbols of the (T,) steps of CTC: repeated ones count once, and 0 is none."""
        is_new = np.append(True, best[1:] != best[:-1])[: len(best)] & (best != 0)
        mean = scores[is_new].mean() if is_new.any() else 0.0
        return cls(np.array([mean], np.float32), best[is_new].astype(np.int32))

    @property
    def text(self) -> str:
        """The symbols as one string."""
        return ''.join(name_of(self.class_names, each) for each in self.symbols.tolist())

    @property
    def score(self) -> float:
        """Mean score of the symbols, 0 to 1."""
        return float(self.scores[0])

    @property
    def names(self) -> list[str]:
        """The text."""
        return [self.text]

    def best(
        self, count: int = MAX_CLASSES, *, class_id_format: str = 'name'
    ) -> list[tuple[str, float]]:
        """Return text and score; [] without symbols."""
        return [(self.text, self.score)] if len(self.symbols) else []

    def as_json(self, write_array: WriteArray | None = None) -> dict[str, Any]:
        return {'text': self.text, 'score': round(self.score, 4)}


def read_texts(found: Boxes, min_score: float) -> Boxes:
    """Return the boxes whose regions are text of a score; it is the name of their class."""
    regions = found.region_results or ()
    texts = {
        index: each
        for index, each in enumerate(regions)
        if isinstance(each, Text) and len(each.symbols) and each.score >= min_score
    }
    chosen: Any = found.take(np.fromiter(texts, np.intp, len(texts)))
    read: Boxes = replace(
        chosen,
        scores=np.array([each.score for each in texts.values()], np.float32),
        labels=np.arange(len(texts), dtype=np.int32),
        class_names=tuple(each.text for each in texts.values()),
        region_results=(),
    )
    return read
