"""YOLOv8-OBB, YOLO11-OBB, YOLO26-OBB: rotated boxes."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Literal

import numpy as np

from trt_ros.errors import TensorMismatchError
from trt_ros.families.family import YOLO_PREPROCESS, Family, Head, NetworkDescription
from trt_ros.families.layout import BoxLayout, Coding, Out
from trt_ros.families.yolo import ULTRALYTICS, YOLO, is_finished, is_on_no_grid, is_raw
from trt_ros.families.yolo_rows import PlainRows, rows_of
from trt_ros.results.boxes import OrientedBoxes, hull
from trt_ros.vision.letterbox import Letterbox
from trt_ros.vision.nms import select_best
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
    width: np.ndarray,
    height: np.ndarray,
    theta: np.ndarray,
) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    along, across = width * width / 12, height * height / 12
    cos, sin = np.cos(theta), np.sin(theta)
    return (
        along * cos * cos + across * sin * sin,
        along * sin * sin + across * cos * cos,
        (along - across) * cos * sin,
    )


@dataclass(frozen=True)
class ObbHead(Head[OrientedBoxes]):
    """
    A decoder of boxes (cx, cy, w, h), each followed by the angle of w in radians.

    Source: Ultralytics' `OBB` head. NMS is greedy, by probabilistic IoU; in Ultralytics' own NMS
    suppressed boxes suppress others, too. Boxes outside the image are dropped.
    """

    rows: PlainRows

    @property
    def class_count(self) -> int | None:
        """Number of classes; None: unknown."""
        return self.rows.class_count

    def __call__(
        self, outputs: Mapping[str, np.ndarray], letterbox: Letterbox, thresholds: Thresholds
    ) -> OrientedBoxes:
        """
        Decode the outputs into rotated boxes; see `Head`.

        :raises TensorMismatchError: when the output is missing or of another shape.
        """
        with np.errstate(invalid='ignore', over='ignore'):  # Drops non-finite values.
            found = self.rows(outputs, thresholds.score)
            boxes = np.hstack([found.boxes, found.extras])
            usable = np.isfinite(boxes).all(axis=1) & (boxes[:, 2:4] > 0).all(axis=1)
            image_boxes = to_image(boxes, letterbox)
            low, high = hull(image_boxes)
            usable &= ((high > 0) & (low < np.array(letterbox.image_wh))).all(axis=1)
            if thresholds.chooses_classes:
                usable &= found.scores >= thresholds.min_scores(found.labels)
            keep = np.flatnonzero(usable)
            boxes, scores, labels = boxes[keep], found.scores[keep], found.labels[keep]
            best = select_best(
                boxes,
                scores,
                labels,
                thresholds,
                uses_nms=not self.rows.is_decoded,
                overlap=probabilistic_iou,
            )
        boxes = image_boxes[keep[best]]
        return OrientedBoxes(boxes[:, :4], boxes[:, 4], check_range(scores[best]), labels[best])


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


def find_rows(network: NetworkDescription) -> PlainRows | None:
    """Find the boxes with one extra value, the angle."""
    return rows_of(network, network.only_output, 1) if len(network.outputs) == 1 else None


def open_head(network: NetworkDescription) -> ObbHead:
    """Open the head of a network of rotated boxes."""
    rows = find_rows(network)
    if rows is None:
        raise TensorMismatchError(
            'Not a network of rotated boxes: expected (1, 4 + classes + 1, anchors), got '
            f'{network}.',
            remedy='Export the network with Ultralytics, or choose another decoder.',
        )
    return ObbHead(rows)


def _is_not_of_coco(network: NetworkDescription) -> Literal[False] | None:
    """Refuse unnamed columns that are likelier a box with 80 classes, or 17 keypoints."""
    is_named = 'task' in network.metadata or network.class_count
    return None if is_named or network.only_output.shape[1] not in (84, 56) else False


YOLOV8_OBB = Family(
    'yolov8_obb',
    'obb',
    YOLO_PREPROCESS,
    open_head,
    layouts=(
        BoxLayout(
            (Out('B V N', 'box:4 scores:C extras:1'),),
            YOLO,
            Coding('rotated'),
            extras='angle',
            guards=(is_raw,),
            evidence=(_is_not_of_coco,),
            known={},
        ),
        BoxLayout(
            (Out('B N V', 'box:4 scores:1 label:1 extras:1'),),
            coding=Coding('rotated'),
            uses_nms=False,
            extras='angle',
            guards=(is_finished,),
            evidence=(is_on_no_grid,),
            known={},
        ),
    ),
    **ULTRALYTICS,
)
