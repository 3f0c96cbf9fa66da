"""Geometry of rotated boxes: their overlap, and their place in the image."""

import numpy as np

from trt_ros.vision.letterbox import Letterbox


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
