"""Detections: the result of a detector for one image."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from trt_ros.vision.thresholds import Thresholds


@dataclass(frozen=True)
class Detections:
    """
    N axis-aligned boxes, best score first; N may be 0.

    :param xyxy: (N, 4) float32, x1, y1, x2, y2 in source-image pixels, clipped to the image.
    :param scores: (N,) float32, 0 to 1.
    :param labels: (N,) int32, class indices.
    """

    xyxy: np.ndarray
    scores: np.ndarray
    labels: np.ndarray

    def __len__(self) -> int:
        return len(self.scores)

    def take(self, indices: np.ndarray) -> Detections:
        """Return some detections, (K,) indices, in their order."""
        return Detections(self.xyxy[indices], self.scores[indices], self.labels[indices])

    def wanted(self, thresholds: Thresholds) -> np.ndarray:
        """Return (K,) indices of the detections of wanted classes, at most `max_detections`."""
        passes = self.scores >= thresholds.min_scores(self.labels)
        return np.flatnonzero(passes)[: thresholds.max_detections]

    @classmethod
    def empty(cls) -> Detections:
        """Return detections with N = 0."""
        return cls(np.zeros((0, 4), np.float32), np.zeros(0, np.float32), np.zeros(0, np.int32))
