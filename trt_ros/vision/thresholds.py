"""Thresholds of a published result."""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True)
class Thresholds:
    """
    The limits that decide which of a network's candidates become results.

    A task without boxes ignores `iou` and `max_detections`.

    :param score: minimum score, 0 to 1; NaN and Inf never pass.
    :param iou: IoU above which the lower-scoring of two boxes of one class is suppressed, 0 to 1.
    :param max_detections: maximum number of results per image, best score first.
    """

    score: float = 0.25
    iou: float = 0.45
    max_detections: int = 100


DEFAULT_THRESHOLDS = Thresholds()
