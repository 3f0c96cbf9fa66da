"""Non-maximum suppression (NMS), and the last steps of box detectors."""

from collections.abc import Callable

import numpy as np

from trt_ros.results.boxes import Detections
from trt_ros.vision.letterbox import Letterbox
from trt_ros.vision.scores import check_range
from trt_ros.vision.thresholds import Thresholds


def probabilistic_iou(boxes: np.ndarray, others: np.ndarray) -> np.ndarray:
    """
    Compute the probabilistic IoU of rotated boxes.

    It is 1 - the Hellinger distance, with the Bhattacharyya distance of two normal distributions
    whose variances along the boxes' sides are w²/12 and h²/12. Source: Llerena et al., Gaussian
    Bounding Boxes and Probabilistic Intersection-over-Union, arXiv 2106.06072; the NMS of
    Ultralytics uses the same measure.

    :param boxes: (..., 5) cx, cy, w, h, theta in radians; `others` in the same frame; they
        broadcast.
    :returns: (...) float32, 0 to 1; 1 for equal boxes.
    """
    x1, y1, w1, h1, t1 = np.moveaxis(np.asarray(boxes, np.float32), -1, 0)
    x2, y2, w2, h2, t2 = np.moveaxis(np.asarray(others, np.float32), -1, 0)
    a1, b1, c1 = _covariance(w1, h1, t1)
    a2, b2, c2 = _covariance(w2, h2, t2)
    tiny = np.float32(1e-12)
    a, b, c = a1 + a2, b1 + b2, c1 + c2
    area = np.maximum(a * b - c * c, tiny)
    dx, dy = x1 - x2, y1 - y2
    apart = (a * dy * dy + b * dx * dx - 2 * c * dx * dy) / area / 4
    # |covariance| is exactly w²h²/144, without the cancellation.
    own = 4 * np.maximum(w1 * h1 * w2 * h2 / 144, tiny)
    distance = np.maximum(apart + np.log(np.maximum(area / own, 1)) / 2, 0)
    return np.asarray(1 - np.sqrt(-np.expm1(-distance)))


def _covariance(
    width: np.ndarray, height: np.ndarray, theta: np.ndarray
) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    along, across = width * width / 12, height * height / 12
    cos, sin = np.cos(theta), np.sin(theta)
    return (
        along * cos * cos + across * sin * sin,
        along * sin * sin + across * cos * cos,
        (along - across) * cos * sin,
    )


def to_image(boxes: np.ndarray, letterbox: Letterbox) -> np.ndarray:
    """
    Convert (N, 5) cx, cy, w, h, theta from input to image pixels, not clipped.

    Where x and y are scaled differently ('stretch'), a rotated box becomes a parallelogram; the
    result is the box with its center, its side w and its area.
    """
    x_scale, y_scale = letterbox.scale_xy
    image = np.empty_like(boxes)
    image[:, :2] = letterbox.points_to_image(boxes[:, :2])
    width, height, theta = boxes[:, 2:].T
    along_x, along_y = np.cos(theta) / np.float32(x_scale), np.sin(theta) / np.float32(y_scale)
    stretch = np.hypot(along_x, along_y)
    image[:, 2] = width * stretch
    image[:, 3] = height / (stretch * np.float32(x_scale * y_scale))
    image[:, 4] = theta if x_scale == y_scale else np.arctan2(along_y, along_x)
    return image


MIN_IOU = 0.5  # Of boxes of the same object.
CHUNK = 128  # Boxes compared at once; fastest of 32 to 512.


def iou(boxes: np.ndarray, others: np.ndarray) -> np.ndarray:
    """Compute the IoU of (..., 4) corners that broadcast, float32; 0 where both are empty."""
    x1, y1, x2, y2 = np.moveaxis(np.asarray(boxes, np.float32), -1, 0)
    u1, v1, u2, v2 = np.moveaxis(np.asarray(others, np.float32), -1, 0)
    zero = np.float32(0)
    width = np.maximum(np.minimum(x2, u2) - np.maximum(x1, u1), zero)
    height = np.maximum(np.minimum(y2, v2) - np.maximum(y1, v1), zero)
    shared = width * height
    union = (x2 - x1) * (y2 - y1) + (u2 - u1) * (v2 - v1) - shared
    return np.asarray(np.divide(shared, union, out=np.zeros_like(shared), where=union > 0))


def partners(likeness: np.ndarray) -> np.ndarray:
    """
    Assign to each row, the first one first, the free column that is most like it.

    :param likeness: (N, M), such as the IoU of boxes of one class, and 0 of others.
    :returns: (N,) indices of columns; -1 where no free one reaches MIN_IOU.
    """
    found, is_free = np.full(len(likeness), -1), np.ones(likeness.shape[1], bool)
    for row, values in enumerate(likeness):
        left = values * is_free
        if left.max(initial=0) >= MIN_IOU:
            found[row] = left.argmax()
            is_free[found[row]] = False
    return found


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
