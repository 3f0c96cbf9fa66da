"""YOLOv8, YOLOv9, YOLO11 and YOLO12: decoded boxes and class scores, before NMS."""

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
    is_scores,
)
from trt_ros.families.layout import BoxLayout, Out
from trt_ros.families.yolo import ULTRALYTICS, YOLO, is_raw
from trt_ros.results.boxes import Detections
from trt_ros.vision.float16 import highest
from trt_ros.vision.letterbox import Letterbox
from trt_ros.vision.nms import to_detections
from trt_ros.vision.scores import passing
from trt_ros.vision.thresholds import Thresholds

STRIDES = ((8, 16, 32), (4, 8, 16, 32), (8, 16, 32, 64))


@dataclass(frozen=True)
class YoloV8Head(Head[Detections]):
    """
    A decoder of (1, 4 + C, N): cx, cy, w, h in input pixels, then C class scores, 0 to 1.

    The label is the best class (the first among equals). Anchors with a NaN among their scores are
    dropped.

    :param channels_first: False: the output is (1, N, 4 + C).
    """

    output_name: str
    class_count: int | None
    channels_first: bool = True

    def __call__(
        self, outputs: Mapping[str, np.ndarray], letterbox: Letterbox, thresholds: Thresholds
    ) -> Detections:
        """Decode the outputs for one image; see `Head`."""
        head = image_output(outputs, self.output_name)
        head = head if self.channels_first else head.T
        if len(head) < 5 or self.class_count not in (None, len(head) - 4):
            raise _mismatch(f'(1, {head.shape[0]}, {head.shape[1]})')
        with np.errstate(invalid='ignore', over='ignore'):  # Drops non-finite values.
            scores = highest(head[4:])
            keep = np.flatnonzero(passing(scores, thresholds.score))
            head = head[:, keep].astype(np.float32)
            center, half = head[:2], head[2:4] / 2
            return to_detections(
                np.concatenate([center - half, center + half]).T,
                scores[keep],
                head[4:].argmax(axis=0),
                letterbox,
                thresholds,
            )


def open_head(network: NetworkDescription) -> YoloV8Head:
    """Open the head of a YOLOv8."""
    spec = network.only_output
    if not is_scores(spec):
        raise _mismatch(str(spec))
    channels_first = is_channels_first(network)
    channels = spec.shape[1 if channels_first else 2]
    if 0 < channels < 5:
        raise _mismatch(str(spec))
    return YoloV8Head(spec.name, channels - 4 if channels > 0 else None, channels_first)


def cell_counts(network: NetworkDescription) -> list[int]:
    """Return the number of cells of the usual grids, and of those of P2 and P6 models."""
    return [network.anchor_count(strides) for strides in STRIDES]


def is_channels_first(network: NetworkDescription) -> bool:
    """Return whether anchors are the last axis: as long as the grids have cells, or the longer."""
    _, first, second = network.only_output.shape
    counts = cell_counts(network)
    if first in counts or second in counts:
        return second in counts
    if first < 0 or second < 0:
        return second < 0  # Both dynamic: the default of exporters.
    return first <= second


def _mismatch(seen: str) -> TensorMismatchError:
    return TensorMismatchError(
        f'Not a YOLOv8 head: expected (1, 4 + classes, anchors), got {seen}.',
        remedy='Export a detector without NMS, or choose another decoder.',
    )


YOLOV8 = Family(
    'yolov8',
    'detect',
    YOLO_PREPROCESS,
    open_head,
    layouts=tuple(
        BoxLayout((Out(axes, 'box:4 scores:C'),), YOLO, guards=(is_raw,))
        for axes in ('B V N', 'B N V')
    ),
    **ULTRALYTICS,
)
