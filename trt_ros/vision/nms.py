"""Non-maximum suppression (NMS), and the last steps of box detectors."""

from collections.abc import Callable

import numpy as np

from trt_ros.results.boxes import Detections
from trt_ros.vision.letterbox import Letterbox
from trt_ros.vision.scores import check_range
from trt_ros.vision.thresholds import Thresholds

CHUNK = 128  # Boxes compared at once; fastest of 32 to 512.


def iou(boxes: np.ndarray, others: np.ndarray) -> np.ndarray:
    """
    Compute the intersection over union, in float32.

    :param boxes: (..., 4) x1, y1, x2, y2; `others`: (..., 4) in the same frame. They broadcast:
        (4,) with (N, 4) is one against N, (M, 1, 4) with (N, 4) is M against N.
    :returns: (...) float32, 0 to 1; 0 where both are empty.
    """
    x1, y1, x2, y2 = np.moveaxis(np.asarray(boxes, np.float32), -1, 0)
    u1, v1, u2, v2 = np.moveaxis(np.asarray(others, np.float32), -1, 0)
    zero = np.float32(0)
    width = np.maximum(np.minimum(x2, u2) - np.maximum(x1, u1), zero)
    height = np.maximum(np.minimum(y2, v2) - np.maximum(y1, v1), zero)
    shared = width * height
    union = (x2 - x1) * (y2 - y1) + (u2 - u1) * (v2 - v1) - shared
    return np.asarray(np.divide(shared, union, out=np.zeros_like(shared), where=union > 0))


def non_max_suppression(
    xyxy: np.ndarray,
    scores: np.ndarray,
    labels: np.ndarray,
    *,
    iou_threshold: float,
    max_detections: int,
    overlap: Callable[[np.ndarray, np.ndarray], np.ndarray] = iou,
) -> np.ndarray:
    """
    Select the best boxes by greedy NMS per class.

    Best score first (the earlier box among equal scores), a box is suppressed if its IoU with a
    selected box of its label is above `iou_threshold`. All N boxes are candidates; a limit before
    NMS is not needed, as it ends after `max_detections` boxes.

    :param xyxy: (N, 4) float32, any frame; `scores`: (N,); `labels`: (N,). N may be 0.
    :param overlap: measure of overlap, with the interface of `iou`, such as for rotated boxes.
    :returns: (K,) indices into the N, best first, K <= max_detections.
    """

    def suppressed(by: np.ndarray, boxes: np.ndarray) -> np.ndarray:
        """Return whether each box of `by` suppresses each of `boxes`: (len(by), len(boxes))."""
        overlaps = overlap(xyxy[by, None], xyxy[boxes]) > iou_threshold
        return np.asarray(overlaps & (labels[by, None] == labels[boxes]))

    order = np.argsort(-scores, kind='stable')
    chosen = order[:0]
    for start in range(0, len(order), CHUNK):
        if len(chosen) >= max_detections:
            break
        chunk = order[start : start + CHUNK]
        chunk = chunk[~suppressed(chosen, chunk).any(axis=0)]
        among = np.triu(suppressed(chunk, chunk), k=1)  # Only by better boxes.
        stays = np.ones(len(chunk), bool)
        for index in np.flatnonzero(among.any(axis=1)):
            if stays[index]:
                stays &= ~among[index]
        chosen = np.concatenate([chosen, chunk[stays]])
    return chosen[:max_detections]


def select_best(
    boxes: np.ndarray,
    scores: np.ndarray,
    labels: np.ndarray,
    thresholds: Thresholds,
    *,
    uses_nms: bool = True,
    limit: int | None = None,
    overlap: Callable[[np.ndarray, np.ndarray], np.ndarray] = iou,
) -> np.ndarray:
    """Return (K,) indices of the boxes to keep, best first; parameters as in `choose_boxes`."""
    some = np.arange(len(scores)) if uses_nms else np.argsort(-scores, kind='stable')[:limit]
    if not (uses_nms or thresholds.class_agnostic):
        return some[: thresholds.max_detections]
    labels = np.zeros(len(some), np.int32) if thresholds.class_agnostic else labels[some]
    best = non_max_suppression(
        boxes[some],
        scores[some],
        labels,
        iou_threshold=thresholds.iou,
        max_detections=thresholds.max_detections,
        overlap=overlap,
    )
    return np.asarray(some[best])


def choose_boxes(
    xyxy: np.ndarray,
    scores: np.ndarray,
    labels: np.ndarray,
    letterbox: Letterbox,
    thresholds: Thresholds,
    *,
    uses_nms: bool = True,
    limit: int | None = None,
) -> tuple[np.ndarray, Detections]:
    """
    Select detections among candidates: the last step of every box detector.

    Boxes with a NaN or Inf, boxes outside the image and boxes of classes that are not wanted are
    dropped before NMS. The others are clipped to the image after NMS.

    :param xyxy: (N, 4) float32 in input pixels; `scores`: (N,) float32, at least
        `thresholds.score`; `labels`: (N,). N may be 0.
    :param uses_nms: False: the network needs no NMS, only `thresholds.class_agnostic` asks for it.
    :param limit: maximum number of detections of a network without NMS; None: no limit.
    :returns: (K,) indices of their candidates, and the detections.
    """
    passes = np.isfinite(xyxy).all(axis=1)
    if thresholds.chooses_classes:
        passes &= scores >= thresholds.min_scores(labels)
    finite = np.flatnonzero(passes)
    clipped = letterbox.to_image(xyxy[finite])
    visible = (clipped[:, :2] < clipped[:, 2:]).all(axis=1)
    keep, clipped = finite[visible], clipped[visible]
    scores, labels = scores[keep], labels[keep]
    best = select_best(xyxy[keep], scores, labels, thresholds, uses_nms=uses_nms, limit=limit)
    found = Detections(clipped[best], check_range(scores[best]), labels[best].astype(np.int32))
    return keep[best], found
