"""Networks that end with ONNX's NonMaxSuppression: selected indices, boxes and scores."""

from collections.abc import Mapping
from dataclasses import dataclass, replace
from functools import partial
from typing import Literal

import numpy as np

from trt_ros.errors import TensorMismatchError
from trt_ros.families import cut_nms
from trt_ros.families.family import (
    YOLO_PREPROCESS,
    Family,
    Head,
    NetworkDescription,
    image_output,
)
from trt_ros.families.layout import Layout, Out
from trt_ros.families.match import Reading
from trt_ros.results.boxes import Detections
from trt_ros.vision.letterbox import Letterbox
from trt_ros.vision.nms import choose_boxes
from trt_ros.vision.scores import passing
from trt_ros.vision.thresholds import Thresholds

SHAPE_INPUT, SCALE_INPUT = 'image_shape', 'scale_factor'  # The latter of PaddleDetection.
REMEDY = 'Export all three, or choose another decoder.'


@dataclass(frozen=True)
class OnnxNmsHead(Head[Detections]):
    """
    A decoder of selected indices (K, 3): image, class, box; boxes (1, N, 4); scores (1, C, N).

    Source: the ONNX operator NonMaxSuppression. Like it, the decoder accepts any two opposite
    corners of a box, in input pixels. Unused rows are -1. No further NMS is needed.

    :param rows_first: corners are y, x, as in the operator's specification. Most exporters feed it
        x, y; its selection is the same.
    """

    chosen_name: str
    boxes_name: str
    scores_name: str
    class_count: int | None
    rows_first: bool = False

    takes_batches = False

    def __call__(
        self, outputs: Mapping[str, np.ndarray], letterbox: Letterbox, thresholds: Thresholds
    ) -> Detections:
        """Decode the outputs for one image; see `Head`."""
        boxes, scores = (
            image_output(outputs, self.boxes_name),
            image_output(outputs, self.scores_name),
        )
        chosen = image_output(outputs, self.chosen_name, batched=False)
        if boxes.shape[1] != 4 or scores.shape[1] != len(boxes) or chosen.shape[1] != 3:
            raise TensorMismatchError(
                f'Selected indices {chosen.shape}, boxes {boxes.shape} and scores {scores.shape} '
                'do not match.',
                cause='Expected (K, 3), (1, N, 4) and (1, classes, N).',
            )
        limit = np.array([1, *scores.shape])
        chosen = chosen[((chosen >= 0) & (chosen < limit)).all(axis=1)]
        labels, rows = chosen[:, 1], chosen[:, 2]
        with np.errstate(invalid='ignore', over='ignore'):  # Drops non-finite values.
            values = scores[labels, rows].astype(np.float32)
            keep = np.flatnonzero(passing(values, thresholds.score))
            opposite = boxes[rows[keep]].astype(np.float32)
            opposite = opposite[:, [1, 0, 3, 2]] if self.rows_first else opposite
            xyxy = np.hstack(
                [
                    np.minimum(opposite[:, :2], opposite[:, 2:]),
                    np.maximum(opposite[:, :2], opposite[:, 2:]),
                ]
            )
            return choose_boxes(
                xyxy, values[keep], labels[keep], letterbox, thresholds, uses_nms=False
            )[1]


def _head(reading: Reading, *, rows_first: bool) -> OnnxNmsHead:
    chosen, boxes, scores = (part.spec.name for part in reading.parts)
    return OnnxNmsHead(chosen, boxes, scores, reading.symbols.get('C'), rows_first)


def _is_no_other(network: NetworkDescription) -> Literal[False] | None:
    is_other = any(spec.name in (SHAPE_INPUT, SCALE_INPUT) for spec in network.inputs)
    return False if is_other else None


_SELECTED = Layout(
    (
        Out('S 3', 'selection:3', is_float=False),
        Out('B N V', 'box:4'),
        Out('B V N', 'scores:C'),
    )
)
ONNX_NMS = Family(
    'onnx_nms',
    'detect',
    YOLO_PREPROCESS,
    layouts=(
        replace(_SELECTED, evidence=(_is_no_other,)),
        cut_nms.layout(evidence=(_is_no_other,)),
    ),
    head=partial(_head, rows_first=False),
    remedy=REMEDY,
    networks='networks that end in NonMaxSuppression of ONNX',
    export='any exporter that ends the network with the operator NonMaxSuppression',
)
YOLOV3 = Family(
    'yolov3',
    'detect',
    {
        'resize': 'letterbox',
        'truncate': True,
        'pad_value': 128,
        'channel_order': 'rgb',
        'scale': 1 / 255,
    },
    constants={SHAPE_INPUT: 'hw'},
    layouts=(
        replace(_SELECTED, input=SHAPE_INPUT),
        cut_nms.layout(input=SHAPE_INPUT),
    ),
    head=partial(_head, rows_first=True),
    remedy=REMEDY,
    networks='YOLOv3 and tiny YOLOv3 of the ONNX model zoo',
    export='`yolov3` and `tiny-yolov3` of the ONNX model zoo',
)
