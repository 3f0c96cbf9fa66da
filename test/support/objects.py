"""Detections of a few objects."""

from collections.abc import Sequence
from typing import Any

import numpy as np

from trt_ros.results.boxes import Detections


def detections(
    *boxes: Sequence[float],
    score: float | Sequence[float] = 0.9,
    label: int | Sequence[int] = 0,
    **more: Any,
) -> Detections:
    """Make detections (x1, y1, x2, y2), of one score and class or of one per box."""
    return Detections(
        np.array(boxes, np.float32).reshape(-1, 4),
        np.full(len(boxes), score, np.float32),
        np.full(len(boxes), label, np.int32),
        **more,
    )
