"""YOLOv5, YOLOv6 and YOLOv7: decoded boxes, objectness and class scores."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, replace
from typing import Literal

import numpy as np

from trt_ros.errors import TensorMismatchError
from trt_ros.families.family import (
    YOLO_PREPROCESS,
    Family,
    Head,
    NetworkDescription,
    corners,
    image_output,
    is_scores,
)
from trt_ros.families.layout import BoxLayout, Out
from trt_ros.families.yolo import TRIPLES, YOLO, of_yolov5
from trt_ros.families.yolov8 import cell_counts
from trt_ros.results.boxes import Detections
from trt_ros.vision.letterbox import Letterbox
from trt_ros.vision.nms import to_detections
from trt_ros.vision.scores import check_range, passing
from trt_ros.vision.thresholds import Thresholds

ANCHORS_CHECKED = 64


@dataclass(frozen=True)
class YoloV5Head(Head[Detections]):
    """
    A decoder of (1, N, 5 + C): cx, cy, w, h in input pixels, objectness, C class scores.

    Source: YOLOv5's `non_max_suppression` with multi_label=False. The label is the best class
    (the first among equals), the score is objectness times its score. Anchors with a NaN among
    their scores are dropped.

    :param objectness_only: with one class the score is objectness alone. Source: YOLOv7's
        `non_max_suppression`; its training does not train the score of an only class.
    """

    output_name: str
    class_count: int | None
    objectness_only: bool = False

    def __call__(
        self, outputs: Mapping[str, np.ndarray], letterbox: Letterbox, thresholds: Thresholds
    ) -> Detections:
        """Decode the outputs for one image; see `Head`."""
        head = image_output(outputs, self.output_name)
        if head.shape[1] < 6 or self.class_count not in (None, head.shape[1] - 5):
            raise _mismatch(f'(1, {head.shape[0]}, {head.shape[1]})')
        with np.errstate(invalid='ignore', over='ignore'):  # Drops non-finite values.
            # No score is above its objectness, so most anchors are dropped without their classes.
            candidates = np.flatnonzero(passing(head[:, 4].astype(np.float32), thresholds.score))
            # Checks a sample of the anchors: in YOLOv5-face the values are not scores.
            check_range(head[:: len(head) // ANCHORS_CHECKED + 1, 5:])
            head = head[candidates].astype(np.float32)
            scores = head[:, 4]
            if not (self.objectness_only and head.shape[1] == 6):
                scores = scores * head[:, 5:].max(axis=1)
            keep = np.flatnonzero(passing(scores, thresholds.score))
            return to_detections(
                corners(head[keep]),
                scores[keep],
                head[keep, 5:].argmax(axis=1),
                letterbox,
                thresholds,
            )


def open_head(network: NetworkDescription) -> YoloV5Head:
    """Open the head of a YOLOv5, YOLOv6 or YOLOv7."""
    spec = network.only_output
    if not is_scores(spec) or 0 < spec.shape[2] < 6:
        raise _mismatch(str(spec))
    return YoloV5Head(
        spec.name,
        spec.shape[2] - 5 if spec.shape[2] > 0 else None,
        objectness_only='stride' not in network.metadata  # YOLOv5 writes it.
        and spec.shape[1] not in cell_counts(network),  # The objectness of YOLOv6 is 1.
    )


def _mismatch(seen: str) -> TensorMismatchError:
    return TensorMismatchError(
        f'Not a YOLOv5 head: expected (1, anchors, 5 + classes), got {seen}.',
        remedy="Export with YOLOv5's or YOLOv7's export.py, without NMS, or choose another "
        'decoder.',
    )


ROWS = BoxLayout((Out('B N V', 'box:4 objectness:1 scores:C'),), TRIPLES)


def _of_yolov6(network: NetworkDescription) -> Literal[False] | None:
    return None if network.only_output.name == 'outputs' else False


#: With one class, YOLOv5 and YOLOv6 (one anchor per cell) train its score; YOLOv7 does not.
YOLOV5 = Family(
    'yolov5',
    'detect',
    YOLO_PREPROCESS,
    open_head,
    layouts=(
        replace(ROWS, guards=(of_yolov5,)),
        replace(ROWS, rows=replace(YOLO, is_required=True), evidence=(_of_yolov6,)),
        replace(ROWS, objectness_only=True),
    ),
    exporter='YOLOv5',
    output_names=('output', 'outputs'),
)
