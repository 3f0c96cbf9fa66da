"""Of boxes that overlap, the best one."""

from __future__ import annotations

import numpy as np

from trt_ros.vision.detections import Detections
from trt_ros.vision.letterbox import Letterbox


def iou(box: np.ndarray, boxes: np.ndarray) -> np.ndarray:
    """
    Intersection over union of one box with many.

    :param box: (4,) float32 x1, y1, x2, y2; `boxes`: (N, 4) in the same frame; N may be 0.
    :returns: (N,) float32, 0 to 1; 0 where both are empty.
    """
    low = np.maximum(box[:2], boxes[:, :2])
    high = np.minimum(box[2:], boxes[:, 2:])
    width, height = np.maximum(high - low, np.float32(0)).T
    shared = width * height
    union = _area(box[None]) + _area(boxes) - shared
    return np.asarray(
        np.divide(shared, union, out=np.zeros_like(shared), where=union > 0), np.float32)


def non_max_suppression(
        xyxy: np.ndarray, scores: np.ndarray, labels: np.ndarray, *, iou_threshold: float,
        max_detections: int) -> np.ndarray:
    """
    Choose the best boxes, greedily and class by class.

    Best score first (of equal scores the earlier box), each box goes whose IoU with an already
    chosen box of its own label is above `iou_threshold`. All N take part.

    :param xyxy: (N, 4) float32, any frame; `scores`: (N,); `labels`: (N,). N may be 0.
    :returns: (K,) indices into the N, best first, K <= max_detections.
    """
    waiting = np.argsort(-scores, kind='stable')
    chosen: list[int] = []
    while waiting.size and len(chosen) < max_detections:
        best, waiting = waiting[0], waiting[1:]
        chosen.append(best)
        overlaps = iou(xyxy[best], xyxy[waiting]) > iou_threshold
        waiting = waiting[~overlaps | (labels[waiting] != labels[best])]
    return np.array(chosen, np.intp)


def detections(
        xyxy: np.ndarray, scores: np.ndarray, labels: np.ndarray, letterbox: Letterbox, *,
        iou_threshold: float, max_detections: int) -> Detections:
    """
    Turn candidates into detections: the last step of every box detector.

    Boxes with a NaN or Inf, and those of which nothing lies inside the image, go first. The
    others compete as they are and are clipped to the image at the end.

    :param xyxy: (N, 4) float32 in input pixels; `scores`: (N,) float32; `labels`: (N,).
        N may be 0.
    """
    finite = np.flatnonzero(np.isfinite(xyxy).all(axis=1))
    clipped = letterbox.to_image(xyxy[finite])
    visible = (clipped[:, :2] < clipped[:, 2:]).all(axis=1)
    keep, clipped = finite[visible], clipped[visible]
    scores, labels = scores[keep], labels[keep]
    best = non_max_suppression(
        xyxy[keep], scores, labels, iou_threshold=iou_threshold, max_detections=max_detections)
    return Detections(clipped[best], scores[best], labels[best].astype(np.int32))


def _area(xyxy: np.ndarray) -> np.ndarray:
    return np.asarray((xyxy[:, 2] - xyxy[:, 0]) * (xyxy[:, 3] - xyxy[:, 1]))
