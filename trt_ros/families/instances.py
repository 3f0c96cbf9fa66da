"""YOLOv8-seg, YOLO11-seg, YOLO26-seg: boxes with one mask each."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

import numpy as np

from trt_ros.errors import TensorMismatchError
from trt_ros.families.family import (
    YOLO_PREPROCESS,
    Family,
    Head,
    NetworkDescription,
    image_output,
    is_float,
    sigmoid,
)
from trt_ros.families.layout import CORNERS, BoxLayout, Out
from trt_ros.families.yolo import ULTRALYTICS, YOLO, is_finished, is_on_no_grid, is_raw
from trt_ros.families.yolo_rows import (
    ObjectnessRows,
    PlainRows,
    choose_rows,
    mismatch,
    rows_of,
)
from trt_ros.results.masks import Instances
from trt_ros.tensors import TensorSpec
from trt_ros.vision.float16 import as_float32
from trt_ros.vision.grid import covers, taps
from trt_ros.vision.letterbox import Letterbox
from trt_ros.vision.masks import Box, cells_of, threshold_masks
from trt_ros.vision.thresholds import Thresholds


@dataclass(frozen=True)
class InstanceHead(Head[Instances]):
    """
    A decoder of boxes followed by M coefficients each, and of (1, M, h, w) mask prototypes.

    A mask is sigmoid(coefficients · prototypes), resized to the image as probabilities (bilinear),
    cropped to its box and compared with 0.5. Source: Bolya et al., YOLACT, 2019, which
    Ultralytics' `Segment` head follows.
    """

    rows: PlainRows | ObjectnessRows
    prototypes_name: str

    @property
    def class_count(self) -> int | None:
        """Number of classes; None: unknown."""
        return self.rows.class_count

    @property
    def finds_instances(self) -> bool:
        """The result is `Instances`."""
        return True

    def __call__(
        self, outputs: Mapping[str, np.ndarray], letterbox: Letterbox, thresholds: Thresholds
    ) -> Instances:
        """
        Decode the outputs into boxes with masks; see `Head`.

        :raises TensorMismatchError: when an output is missing or of another shape.
        """
        prototypes = image_output(outputs, self.prototypes_name, 3)
        if len(prototypes) != self.rows.extra_count:
            raise mismatch(f'{len(prototypes)} prototypes', self.rows.extra_count)
        with np.errstate(invalid='ignore', over='ignore'):  # Drops non-finite values.
            boxes, extras = choose_rows(self.rows, outputs, letterbox, thresholds)
            windows = np.ceil(boxes.xyxy - 0.5).astype(np.int32)  # Pixel centers inside.
            masks = instance_masks(prototypes, extras, letterbox, windows)
        return Instances(boxes, tuple(masks), windows[:, :2], letterbox.image_wh)


def instance_masks(
    prototypes: np.ndarray, coefficients: np.ndarray, letterbox: Letterbox, windows: np.ndarray
) -> list[np.ndarray]:
    """
    Compute the masks in windows of the image, from only the cells that their pixels need.

    :param windows: (N, 4) x1, y1, x2, y2 in whole pixels.
    """
    rows, cols = taps(letterbox, (prototypes.shape[1], prototypes.shape[2]))
    visible = np.flatnonzero((windows[:, :2] < windows[:, 2:]).all(axis=1))
    boxes: list[Box] = list(map(tuple, windows[visible].tolist()))
    cells = [cells_of(rows, cols, box) for box in boxes]
    # Row by row: products so small that BLAS computes them in this thread.
    by_row = as_float32(np.ascontiguousarray(prototypes.transpose(1, 0, 2)))
    planes = [
        weights @ by_row[lines, :, columns]
        for weights, (lines, columns) in zip(coefficients[visible], cells)
    ]
    masks = dict(zip(visible.tolist(), threshold_masks(planes, 0.0, rows, cols, boxes, sigmoid)))
    return [
        masks[index] if index in masks else np.zeros((y2 - y1, x2 - x1), bool)
        for index, (x1, y1, x2, y2) in enumerate(windows.tolist())
    ]


def find_outputs(network: NetworkDescription) -> tuple[TensorSpec, TensorSpec] | None:
    """Find the boxes and the prototypes."""
    outputs = sorted(network.outputs, key=lambda spec: len(spec.shape))
    if [len(spec.shape) for spec in outputs] != [3, 4]:
        return None
    boxes, prototypes = outputs
    _, count, *grid = prototypes.shape
    if count < 1 or not is_float(prototypes) or not covers((grid[0], grid[1]), network.input_hw):
        return None
    return boxes, prototypes


def open_head(network: NetworkDescription) -> InstanceHead:
    """Open the head of an instance segmentation network."""
    outputs = find_outputs(network)
    rows = outputs and rows_of(network, outputs[0], outputs[1].shape[1])
    if not outputs or not rows:
        raise TensorMismatchError(
            'Not a network of boxes with masks: expected (1, 4 + classes + M, anchors) and '
            f'prototypes (1, M, h, w), got {network}.',
            remedy='Export the network with Ultralytics, or choose another decoder.',
        )
    return InstanceHead(rows, outputs[1].name)


PROTOTYPES = Out('B M h w', 'prototypes:M')
YOLOV8_SEG = Family(
    'yolov8_seg',
    'segment',
    YOLO_PREPROCESS,
    open_head,
    layouts=(
        BoxLayout(
            (Out('B V N', 'box:4 scores:C extras:M'), PROTOTYPES),
            YOLO,
            extras='coefficients',
            guards=(is_raw,),
        ),
        BoxLayout(
            (Out('B N V', 'box:4 scores:1 label:1 extras:M'), PROTOTYPES),
            coding=CORNERS,
            uses_nms=False,
            extras='coefficients',
            guards=(is_finished,),
            evidence=(is_on_no_grid,),
        ),
    ),
    **ULTRALYTICS,
)
