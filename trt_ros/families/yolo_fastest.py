"""YOLO-FastestV2 and FastestDet, for CPUs and small GPUs."""

from dataclasses import dataclass
from typing import Any

import numpy as np

from trt_ros.families.family import Family, trained
from trt_ros.families.head import Head
from trt_ros.families.layout import BoxLayout, Coding, Layout, Out, Rows
from trt_ros.families.match import COCO_CLASSES
from trt_ros.results.boxes import Detections
from trt_ros.tensors import Arrays
from trt_ros.vision.letterbox import Letterbox
from trt_ros.vision.nms import choose_boxes
from trt_ros.vision.scores import as_float32, passing
from trt_ros.vision.thresholds import Thresholds

#: The score is objectness^0.6 * class^0.4; both are probabilities. Source: `handle_preds` of
#: FastestDet.
FASTESTDET: Family[Any] = Family(
    'fastestdet',
    'detect',
    trained('stretch', 'bgr'),
    layouts=(
        BoxLayout(
            (Out('B V H W', 'objectness:1 box:4 scores:C'),),
            Rows(((16,),), is_required=True),
            Coding('offsets', size='tanh'),
            power=0.6,
            class_power=2 / 3,
            known={'C': (COCO_CLASSES,)},
            needs_known=True,
        ),
    ),
    networks='FastestDet',
    export='`python test.py --onnx` in its repository',
)


ANCHORS = 3  # Per cell.
#: Widths and heights in pixels, per stride, of the released models.
PRIORS = np.array(
    [
        [(12.64, 19.39), (37.88, 51.48), (55.71, 138.31)],
        [(126.91, 78.23), (131.57, 214.55), (279.92, 258.87)],
    ],
    np.float32,
)


@dataclass(frozen=True)
class FastestV2Head(Head[Detections]):
    """
    A decoder of (1, rows, columns, 15 + C) per grid: boxes, objectness, and classes of the cell.

    All values are activated. A center is 2 v - 0.5 of the cell, a size (2 v)^2 of the anchor, a
    score objectness * class. Source: `handel_preds` of YOLO-FastestV2.
    """

    def decode(self, outputs: Arrays, letterbox: Letterbox, thresholds: Thresholds) -> Detections:
        boxes: list[np.ndarray] = []
        scores: list[np.ndarray] = []
        labels: list[np.ndarray] = []
        for cells, priors in zip(self.arrays(outputs, letterbox.input_hw), PRIORS):
            values = as_float32(cells)
            box, objectness, classes = np.split(values, [4 * ANCHORS, 5 * ANCHORS], axis=2)
            with np.errstate(invalid='ignore', over='ignore'):  # Non-finite scores do not pass.
                every = objectness[..., None] * classes[..., None, :]
            row, column, anchor, label = np.nonzero(passing(every, thresholds.score))
            value = box.reshape(*box.shape[:2], ANCHORS, 4)[row, column, anchor]
            grid_wh = np.array(box.shape[1::-1], np.float32)
            stride = np.array(letterbox.input_hw[::-1], np.float32) / grid_wh
            at = np.stack([column, row], axis=1).astype(np.float32)
            center = (2 * value[:, :2] - np.float32(0.5) + at) * stride
            half = (2 * value[:, 2:]) ** 2 * priors[anchor] / 2
            boxes.append(np.hstack([center - half, center + half]))
            scores.append(every[row, column, anchor, label])
            labels.append(label)
        xyxy, confidences, indices = map(np.concatenate, (boxes, scores, labels))
        return choose_boxes(xyxy, confidences, indices, letterbox, thresholds)[1]


YOLO_FASTEST_V2: Family[Any] = Family(
    'yolo_fastest_v2',
    'detect',
    trained('stretch', 'bgr'),
    layouts=(
        Layout(
            (Out('B H W V', 'box:12 objectness:3 scores:C', per_level=True),), Rows(((16, 32),))
        ),
    ),
    head=FastestV2Head,
    networks='YOLO-FastestV2 with the anchors of the released models',
    export='`python pytorch2onnx.py --data data/coco.data --weights mine.pth` in its repository',
)
