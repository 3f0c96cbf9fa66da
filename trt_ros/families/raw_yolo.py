"""YOLOv5 and YOLOv7 exported without the decoding of their boxes: one output per grid."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from functools import partial
from itertools import permutations
from typing import NamedTuple

import numpy as np

from trt_ros.errors import TensorMismatchError
from trt_ros.families.family import (
    YOLO_PREPROCESS,
    Family,
    Head,
    NetworkDescription,
    corners,
    image_output,
    is_float,
    sigmoid,
)
from trt_ros.families.layout import BoxLayout, Coding, Out, Rows
from trt_ros.results.boxes import Detections
from trt_ros.tensors import TensorSpec
from trt_ros.vision.letterbox import Letterbox
from trt_ros.vision.nms import to_detections
from trt_ros.vision.thresholds import Thresholds

STRIDES = (8, 16, 32)
#: Width and height in pixels of the three anchors per stride, of the released models.
YOLOV5_ANCHORS = (
    ((10, 13), (16, 30), (33, 23)),
    ((30, 61), (62, 45), (59, 119)),
    ((116, 90), (156, 198), (373, 326)),
)
YOLOV7_ANCHORS = (
    ((12, 16), (19, 36), (40, 28)),
    ((36, 75), (76, 55), (72, 146)),
    ((142, 110), (192, 243), (459, 401)),
)


@dataclass(frozen=True)
class RawYoloHead(Head[Detections]):
    """
    A decoder of three outputs (1, 3, h, w, 5 + C) of logits, one per stride.

    With s the sigmoid of the values of an anchor in cell x, y: the center is
    (2 s - 0.5 + (x, y)) * stride, the size (2 s)^2 * anchor, and the score s of the objectness
    times s of the best class.
    Source: the `Detect` layer of YOLOv5, which YOLOv7 shares.

    :param names: outputs in the order of `STRIDES`.
    :param anchors: per stride, three widths and heights in pixels.
    :param objectness_only: with one class the score is objectness alone, see `YoloV5Head`.
    """

    names: tuple[str, ...]
    class_count: int | None
    anchors: tuple[tuple[tuple[int, int], ...], ...]
    objectness_only: bool = False

    def __call__(
        self, outputs: Mapping[str, np.ndarray], letterbox: Letterbox, thresholds: Thresholds
    ) -> Detections:
        """Decode the outputs for one image; see `Head`."""
        found = [
            self._decode(image_output(outputs, name, 4), stride, anchors, letterbox, thresholds)
            for name, stride, anchors in zip(self.names, STRIDES, self.anchors)
        ]
        boxes, scores, labels = (np.concatenate(parts) for parts in zip(*found))
        return to_detections(
            corners(boxes),
            scores,
            labels,
            letterbox,
            thresholds,
        )

    def _decode(
        self,
        grid: np.ndarray,
        stride: int,
        anchors: tuple[tuple[int, int], ...],
        letterbox: Letterbox,
        thresholds: Thresholds,
    ) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
        """Return (N, 4) centers and sizes in input pixels, (N,) scores and (N,) labels."""
        height, width = letterbox.input_hw
        expected = (3, height // stride, width // stride)
        classes = grid.shape[3] - 5
        if grid.shape[:3] != expected or classes < 1 or self.class_count not in (None, classes):
            raise _mismatch(f'(1, {", ".join(map(str, grid.shape))})')
        with np.errstate(invalid='ignore', over='ignore'):  # Drops non-finite values.
            objectness = grid[..., 4].astype(np.float32)
            passes = (sigmoid(objectness) >= thresholds.score) & np.isfinite(objectness)
            anchor, y, x = np.nonzero(passes)
            logits = grid[anchor, y, x].astype(np.float32)
            values = sigmoid(logits)
            values[:, 5:][~(logits[:, 5:] < np.inf)] = np.nan  # No score; -Inf is the lowest one.
            scores = values[:, 4]
            if not (self.objectness_only and classes == 1):
                scores = scores * values[:, 5:].max(axis=1)
            center = (2 * values[:, :2] - 0.5 + np.stack([x, y], axis=1)) * stride
            size = (2 * values[:, 2:4]) ** 2 * np.array(anchors, np.float32)[anchor]
            keep = scores >= thresholds.score
        boxes = np.hstack([center, size]).astype(np.float32)
        return boxes[keep], scores[keep], values[keep, 5:].argmax(axis=1)


class Grids(NamedTuple):
    """Outputs in the order of `STRIDES`."""

    outputs: tuple[TensorSpec, ...]

    def __str__(self) -> str:
        return ', '.join(map(str, self.outputs))


def find_grids(network: NetworkDescription) -> Grids | None:
    """Find one grid of three anchors per stride; None: these are not the outputs."""
    if len(network.outputs) != len(STRIDES) or 'task' in network.metadata:
        return None
    if not all(len(spec.shape) == 5 and is_float(spec) for spec in network.outputs):
        return None
    channels = {spec.shape[4] for spec in network.outputs}
    if len(channels) > 1 or 0 < min(channels) < 6:
        return None
    if network.class_count and channels.isdisjoint({-1, 5 + network.class_count}):
        return None
    height, width = network.input_hw
    grids = [(1, 3, height // stride, width // stride) for stride in STRIDES]
    for outputs in permutations(network.outputs):  # Dynamic grids fit in their own order.
        if all(
            size in (-1, expected)
            for spec, grid in zip(outputs, grids)
            for size, expected in zip(spec.shape, grid)
        ):
            return Grids(outputs)
    return None


def _open(
    network: NetworkDescription, *, anchors: tuple[tuple[tuple[int, int], ...], ...], is_v7: bool
) -> RawYoloHead:
    found = find_grids(network)
    if found is None:
        raise _mismatch(str(network))
    channels = found.outputs[0].shape[4]
    return RawYoloHead(
        tuple(spec.name for spec in found.outputs),
        channels - 5 if channels > 0 else None,
        anchors,
        is_v7,
    )


def _mismatch(seen: str) -> TensorMismatchError:
    return TensorMismatchError(
        'Not the raw grids of a YOLOv5 or YOLOv7: expected three outputs (1, 3, h, w, 5 + '
        f'classes) at strides 8, 16 and 32, got {seen}.',
        remedy="Export with decoded boxes (YOLOv7's --grid), or choose another decoder.",
    )


def _layout(anchors: tuple[tuple[tuple[int, int], ...], ...], *, is_v7: bool = False) -> BoxLayout:
    return BoxLayout(
        (Out('B A H W V', 'box:4 objectness:1 scores:C', per_level=True),),
        Rows((STRIDES,), (3,), priors=anchors),
        Coding('offsets', unit='prior', size='squared'),
        activation='sigmoid',
        objectness_only=is_v7,
    )


YOLOV5_RAW = Family(
    'yolov5_raw',
    'detect',
    YOLO_PREPROCESS,
    partial(_open, anchors=YOLOV5_ANCHORS, is_v7=False),
    layouts=(_layout(YOLOV5_ANCHORS),),
    exporter='YOLOv5',
)
YOLOV7_RAW = Family(
    'yolov7_raw',
    'detect',
    YOLO_PREPROCESS,
    partial(_open, anchors=YOLOV7_ANCHORS, is_v7=True),
    layouts=(_layout(YOLOV7_ANCHORS, is_v7=True),),
    exporter='none',
)
