"""Boxes with further values after each box, of YOLO networks for tasks beside detection."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

import numpy as np

from trt_ros.errors import TensorMismatchError
from trt_ros.families.family import NetworkDescription, corners, image_output, is_scores
from trt_ros.families.yolov8 import cell_counts
from trt_ros.results.boxes import Detections
from trt_ros.tensors import TensorSpec
from trt_ros.vision.float16 import highest
from trt_ros.vision.letterbox import Letterbox
from trt_ros.vision.nms import choose_boxes
from trt_ros.vision.scores import check_range, passing
from trt_ros.vision.thresholds import Thresholds


@dataclass(frozen=True)
class Candidates:
    """
    N boxes that pass the score threshold; N may be 0.

    :param boxes: (N, 4) float32 in input pixels, in the network's format.
    :param scores: (N,) float32.
    :param labels: (N,) int32, class indices.
    :param extras: (N, E) float32, further values of each box.
    """

    boxes: np.ndarray
    scores: np.ndarray
    labels: np.ndarray
    extras: np.ndarray


@dataclass(frozen=True)
class PlainRows:
    """
    A decoder of (1, 4 + C + E, N): cx, cy, w, h, C class scores and E extras per anchor.

    :param is_decoded: the network has NMS inside or needs none: (1, N, 6 + E), each x1, y1, x2,
        y2, score, class and the extras; oriented boxes stay cx, cy, w, h.
    """

    output_name: str
    class_count: int | None
    extra_count: int
    is_decoded: bool

    def __call__(self, outputs: Mapping[str, np.ndarray], score_threshold: float) -> Candidates:
        """
        Select the boxes that pass a score threshold.

        :raises TensorMismatchError: when the output is missing or of another shape.
        """
        head, extras = image_output(outputs, self.output_name), self.extra_count
        channels = head.shape[1] if self.is_decoded else head.shape[0]
        classes = 1 if self.is_decoded else channels - 4 - extras
        is_wrong = (
            channels != 6 + extras
            if self.is_decoded
            else (self.class_count not in (None, classes))
        )
        if is_wrong or classes < 1:
            raise mismatch(f'(1, {head.shape[0]}, {head.shape[1]})', extras)
        if self.is_decoded:
            scores = head[:, 4].astype(np.float32)
            valid = np.isfinite(head[:, 5]) & (head[:, 5] >= 0)
        else:
            scores = highest(head[4 : 4 + classes])
            valid = np.True_
        passes = passing(scores, score_threshold, is_padded=self.is_decoded)
        keep = np.flatnonzero(passes & valid)
        if self.is_decoded:
            found = head[keep].astype(np.float32)
            labels, extra_values = found[:, 5], found[:, 6:]
        else:
            columns = head[:, keep].astype(np.float32)
            labels, found = columns[4 : 4 + classes].argmax(axis=0), columns.T
            extra_values = found[:, 4 + classes :]
        return Candidates(found[:, :4], scores[keep], labels.astype(np.int32), extra_values)

    def xyxy(self, found: Candidates) -> np.ndarray:
        """Return axis-aligned boxes as (N, 4) x1, y1, x2, y2 in input pixels."""
        return found.boxes if self.is_decoded else corners(found.boxes)


@dataclass(frozen=True)
class ObjectnessRows:
    """
    A decoder of (1, N, 5 + C + E): cx, cy, w, h in input pixels, objectness, C scores, E extras.

    The score is objectness times the best class score, as in `YoloV5Head`.

    :param class_count: C; None: as many as the output has.
    :param extras_first: the extras come before the class scores.
    """

    output_name: str
    class_count: int | None
    extra_count: int
    extras_first: bool = False
    is_decoded = False

    def __call__(self, outputs: Mapping[str, np.ndarray], score_threshold: float) -> Candidates:
        """
        Select the boxes that pass a score threshold.

        :raises TensorMismatchError: when the output is missing or of another shape.
        """
        head = image_output(outputs, self.output_name)
        classes = head.shape[1] - 5 - self.extra_count
        if classes < 1 or self.class_count not in (None, classes):
            raise objectness_mismatch(f'(1, {head.shape[0]}, {head.shape[1]})', self.extra_count)
        keep = np.flatnonzero(passing(head[:, 4].astype(np.float32), score_threshold))
        head = head[keep].astype(np.float32)
        start = 5 + self.extra_count if self.extras_first else 5
        class_scores = head[:, start : start + classes]
        check_range(class_scores)
        start = 5 if self.extras_first else 5 + classes
        extras = head[:, start : start + self.extra_count]
        scores = head[:, 4] * class_scores.max(axis=1)
        passes = np.flatnonzero(passing(scores, score_threshold))
        return Candidates(
            head[passes, :4],
            scores[passes],
            class_scores[passes].argmax(axis=1).astype(np.int32),
            extras[passes],
        )

    def xyxy(self, found: Candidates) -> np.ndarray:
        """Return boxes as (N, 4) x1, y1, x2, y2 in input pixels."""
        return corners(found.boxes)


def choose_rows(
    rows: PlainRows | ObjectnessRows,
    outputs: Mapping[str, np.ndarray],
    letterbox: Letterbox,
    thresholds: Thresholds,
) -> tuple[Detections, np.ndarray]:
    """
    Decode rows, with NMS unless the network has it inside.

    :returns: the boxes, best first, and their extras (N, E) float32.
    :raises TensorMismatchError: when the output is missing or of another shape.
    """
    found = rows(outputs, thresholds.score)
    best, boxes = choose_boxes(
        rows.xyxy(found),
        found.scores,
        found.labels,
        letterbox,
        thresholds,
        uses_nms=not rows.is_decoded,
    )
    return boxes, found.extras[best]


def three_anchor_counts(network: NetworkDescription) -> list[int]:
    """Return the number of anchors at three per cell, without and with a P6 grid."""
    return [3 * network.anchor_count(strides) for strides in ((8, 16, 32), (8, 16, 32, 64))]


def rows_of(network: NetworkDescription, spec: TensorSpec, extra_count: int) -> PlainRows | None:
    """Find the layout of an output with `extra_count` values after each box; None: it has none."""
    if not is_scores(spec):
        return None
    metadata, (_, first, second) = network.metadata, spec.shape
    grids = cell_counts(network)
    is_decoded = (
        metadata.get('end2end') == 'True'
        or ("'nms': True" in metadata.get('args', ''))
        or (second == 6 + extra_count and first not in (*grids, *three_anchor_counts(network)))
    )
    if is_decoded:
        fits = second in (6 + extra_count, -1)
        return PlainRows(spec.name, None, extra_count, True) if fits else None
    classes = first - 4 - extra_count if first > 0 else network.class_count
    if classes is not None and (classes < 1 or network.class_count not in (None, 0, classes)):
        return None
    if 'task' not in metadata and second not in (-1, *grids):
        return None
    return PlainRows(spec.name, classes, extra_count, False)


def mismatch(seen: str, extra_count: int) -> TensorMismatchError:
    """Return the error for an output without `extra_count` values after each box."""
    return TensorMismatchError(
        f'The output has another layout: expected (1, 4 + classes + {extra_count}, anchors) or '
        f'(1, boxes, {6 + extra_count}), got {seen}.',
        remedy='Export the network with Ultralytics, or choose another decoder.',
    )


def objectness_mismatch(seen: str, extras: int | str) -> TensorMismatchError:
    """Return the error for an output without objectness and further values."""
    return TensorMismatchError(
        f'The output has another layout: expected (1, anchors, 5 + classes + {extras}), got '
        f'{seen}.',
        remedy='Export the network without NMS and with decoded boxes, or choose another decoder.',
    )
