"""YOLOv8-seg, YOLO11-seg, YOLO26-seg: boxes with a mask each."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
import math

import numpy as np

from trt_ros.errors import TensorMismatchError
from trt_ros.tensors import TensorSpec
from trt_ros.vision.family import YOLO_PREPROCESS, Family, Network, is_float, single
from trt_ros.vision.grid import bilinear, covers, taps
from trt_ros.vision.letterbox import Letterbox
from trt_ros.vision.nms import choose_boxes
from trt_ros.vision.results import Instances
from trt_ros.vision.yolo_rows import Rows, mismatch, rows_of


@dataclass(frozen=True)
class InstanceHead:
    """
    Reads boxes with M coefficients behind each, and (1, M, h, w) prototypes of masks.

    A mask is sigmoid(coefficients · prototypes), brought to the image's pixels as probabilities
    (bilinear), cut off where its box ends, above 0.5. Source: Bolya et al., YOLACT, 2019, which
    Ultralytics' `Segment` head follows.
    """

    rows: Rows
    prototypes_name: str

    @property
    def class_count(self) -> int | None:
        return self.rows.class_count

    def __call__(
            self, outputs: Mapping[str, np.ndarray], letterbox: Letterbox, *,
            score_threshold: float, iou_threshold: float, max_detections: int) -> Instances:
        """
        Turn outputs into masks; the parameters are those of `Head`.

        :raises TensorMismatchError: when an output is missing or of another shape.
        """
        prototypes = single(outputs, self.prototypes_name, 3)
        if len(prototypes) != self.rows.extra_count:
            raise mismatch(f'{len(prototypes)} prototypes', self.rows.extra_count)
        with np.errstate(invalid='ignore', over='ignore'):  # What is not finite is dropped.
            found = self.rows(outputs, score_threshold)
            best, boxes = choose_boxes(
                self.rows.xyxy(found), found.scores, found.labels, letterbox,
                iou_threshold=None if self.rows.is_finished else iou_threshold,
                max_detections=max_detections)
            masks, origins = [], np.zeros((len(boxes), 2), np.int32)
            for index, (xyxy, weights) in enumerate(zip(boxes.xyxy, found.extras[best])):
                x1, y1, x2, y2 = (math.ceil(edge - 0.5) for edge in xyxy.tolist())
                origins[index] = x1, y1
                masks.append(_mask(prototypes, weights, letterbox, slice(y1, y2), slice(x1, x2)))
        return Instances(boxes, tuple(masks), origins, letterbox.image_wh)


def _mask(
        prototypes: np.ndarray, weights: np.ndarray, letterbox: Letterbox, pixel_rows: slice,
        pixel_cols: slice) -> np.ndarray:
    """Compute one mask, of no more cells than its pixels need."""
    rows, cols = taps(letterbox, (prototypes.shape[1], prototypes.shape[2]))
    rows, cols = rows[pixel_rows], cols[pixel_cols]
    if not len(rows.first) or not len(cols.first):
        return np.zeros((len(rows.first), len(cols.first)), bool)
    top, left = int(rows.first[0]), int(cols.first[0])
    cells = prototypes[:, top:rows.second[-1] + 1, left:cols.second[-1] + 1]
    logits = weights @ cells.reshape(len(cells), -1).astype(np.float32, copy=False)
    probabilities = (1 / (1 + np.exp(-logits))).reshape(cells.shape[1:])
    return bilinear(probabilities, rows.shifted(top), cols.shifted(left)) > 0.5


def _outputs(network: Network) -> tuple[TensorSpec, TensorSpec] | None:
    """Find the boxes and the prototypes."""
    outputs = sorted(network.outputs, key=lambda spec: len(spec.shape))
    if [len(spec.shape) for spec in outputs] != [3, 4]:
        return None
    boxes, prototypes = outputs
    _, count, *grid = prototypes.shape
    if count < 1 or not is_float(prototypes) or not covers((grid[0], grid[1]), network.input_hw):
        return None
    return boxes, prototypes


def recognises(network: Network) -> str | None:
    if network.metadata.get('task', 'segment') != 'segment':
        return None
    outputs = _outputs(network)
    if outputs is None or rows_of(network, outputs[0], outputs[1].shape[1]) is None:
        return None
    return f'{outputs[0]} is boxes with mask coefficients, {outputs[1]} the prototypes'


def open_head(network: Network) -> InstanceHead:
    outputs = _outputs(network)
    rows = outputs and rows_of(network, outputs[0], outputs[1].shape[1])
    if not outputs or not rows:
        raise TensorMismatchError(
            'Not a network of boxes with masks: expected (1, 4 + classes + M, anchors) and '
            f'prototypes (1, M, h, w), got {network}.',
            remedy='Export it with Ultralytics, or choose another decoder.')
    return InstanceHead(rows, outputs[1].name)


YOLOV8_SEG = Family('yolov8_seg', 'segment', YOLO_PREPROCESS, recognises, open_head)
