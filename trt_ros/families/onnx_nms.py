"""NMS of ONNX: at the end of a network, or cut off it by the engine builder."""

from collections.abc import Mapping
from dataclasses import dataclass, replace
from functools import cached_property, partial
import json
from typing import Any

import numpy as np

from trt_ros.families.family import YOLO_PREPROCESS, Family, NetworkDescription, trained
from trt_ros.families.head import Head
from trt_ros.families.layout import CORNERS, BoxLayout, Layout, Out
from trt_ros.results.boxes import Detections
from trt_ros.tensors import CUT_NMS, Arrays
from trt_ros.vision.letterbox import Letterbox
from trt_ros.vision.nms import choose_boxes, non_max_suppression
from trt_ros.vision.scores import passing
from trt_ros.vision.thresholds import Thresholds


@dataclass(frozen=True)
class CutNmsHead(Head[Detections]):
    """
    A decoder of boxes (1, N, 4), two opposite corners each, and scores (1, N, C), with NMS.

    The attributes of the operator that was cut off apply: its IoU threshold replaces
    `thresholds.iou`, and the higher one of the two score thresholds counts. Source: the ONNX
    operator NonMaxSuppression.
    """

    @cached_property
    def settings(self) -> Mapping[str, Any]:
        """Attributes of the operator."""
        return nms_settings(self.reading.network)

    def decode(self, outputs: Arrays, letterbox: Letterbox, thresholds: Thresholds) -> Detections:
        boxes, scores = self.arrays(outputs, letterbox.input_hw)
        settings = self.settings
        with np.errstate(invalid='ignore', over='ignore'):  # Drops non-finite values.
            scores = scores.astype(np.float32, copy=False)
            passes = passing(scores, thresholds.score)
            if settings['score_threshold'] is not None:
                passes &= scores > np.float32(settings['score_threshold'])
            if settings['background'] >= 0:
                passes[:, settings['background']] = False
            if thresholds.chooses_classes:
                passes &= scores >= thresholds.min_scores(np.arange(scores.shape[1]))
            rows, labels = np.nonzero(passes)
            values, xyxy = scores[rows, labels], _corners(boxes[rows])
            if settings['normalized']:
                xyxy = xyxy * np.array(letterbox.input_hw[::-1] * 2, np.float32)
            # Boxes outside the image take part in NMS and are dropped after it, so the first
            # `limit` boxes may be too few.
            for limit in (2 * thresholds.max_detections, len(rows)):
                best = non_max_suppression(
                    xyxy,
                    values,
                    np.zeros_like(labels) if thresholds.class_agnostic else labels,
                    iou_threshold=settings['iou_threshold'],
                    max_detections=limit,
                )
                chosen = best
                if settings['per_class'] is not None:
                    chosen = chosen[_rank(labels[chosen]) < settings['per_class']]
                chosen = chosen[: settings['in_all']]
                _, found = choose_boxes(
                    xyxy[chosen],
                    values[chosen],
                    labels[chosen],
                    letterbox,
                    replace(thresholds, class_agnostic=False),
                    uses_nms=False,
                )
                if len(found) == thresholds.max_detections or len(best) < limit:
                    break
            return found


def _corners(boxes: np.ndarray) -> np.ndarray:
    """Return the corners of boxes that are two opposite ones each: (N, 4) float32."""
    pairs = boxes.astype(np.float32).reshape(-1, 2, 2)
    return np.hstack([pairs.min(axis=1), pairs.max(axis=1)])


def _rank(labels: np.ndarray) -> np.ndarray:
    """Count the earlier boxes of the same label: (N,) of (N,) labels."""
    order = np.argsort(labels, kind='stable')
    _, first, inverse = np.unique(labels[order], return_index=True, return_inverse=True)
    rank = np.empty(len(labels), np.intp)
    rank[order] = np.arange(len(labels)) - first[inverse.ravel()]
    return rank


def nms_settings(network: NetworkDescription) -> Mapping[str, Any]:
    """Return the attributes of the NMS operator that was cut off; empty: none was."""
    text = network.metadata.get(CUT_NMS)
    return {} if text is None else json.loads(text)


def cut_layout(*, is_of_tensorrt: bool = False, **fields: Any) -> BoxLayout:
    """
    Return the layout of a network whose NMS was cut off.

    :param is_of_tensorrt: the operator was a plugin of TensorRT, not that of ONNX.
    """

    def was_cut(network: NetworkDescription) -> str | bool:
        operator = nms_settings(network).get('operator', '')
        is_it = operator and (operator != 'NonMaxSuppression') == is_of_tensorrt
        return bool(is_it) and f'{operator} was cut off'

    outs = (Out('B N V', 'box:4'), Out('B N V', 'scores:C'))
    return BoxLayout(outs, coding=CORNERS, select='each', is_cut=True, guards=(was_cut,), **fields)


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

    rows_first: bool = False

    def decode(self, outputs: Arrays, letterbox: Letterbox, thresholds: Thresholds) -> Detections:
        chosen, boxes, scores = self.arrays(outputs, letterbox.input_hw)
        limit = np.array([1, *scores.shape])
        chosen = chosen[((chosen >= 0) & (chosen < limit)).all(axis=1)]
        labels, rows = chosen[:, 1], chosen[:, 2]
        with np.errstate(invalid='ignore', over='ignore'):  # Drops non-finite values.
            values = scores[labels, rows].astype(np.float32)
            keep = np.flatnonzero(passing(values, thresholds.score))
            xyxy = _corners(boxes[rows[keep]])
            xyxy = xyxy[:, [1, 0, 3, 2]] if self.rows_first else xyxy
            return choose_boxes(
                xyxy, values[keep], labels[keep], letterbox, thresholds, uses_nms=False
            )[1]


def _is_no_other(network: NetworkDescription) -> bool:
    return all(spec.name not in (SHAPE_INPUT, SCALE_INPUT) for spec in network.inputs)


_SELECTED = Layout(
    (Out('S 3', 'selection:3', is_float=False), Out('B N V', 'box:4'), Out('B V N', 'scores:C'))
)
ONNX_NMS = Family(
    'onnx_nms',
    'detect',
    YOLO_PREPROCESS,
    exporter='any',
    layouts=(replace(_SELECTED, evidence=(_is_no_other,)), cut_layout(evidence=(_is_no_other,))),
    head=OnnxNmsHead,
    remedy=REMEDY,
    networks='networks that end in NonMaxSuppression of ONNX',
    export='any exporter that ends the network with the operator NonMaxSuppression',
)
YOLOV3 = Family(
    'yolov3',
    'detect',
    trained('letterbox', truncate=True, pad_value=128),
    constants={SHAPE_INPUT: 'hw'},
    exporter='any',
    layouts=(replace(_SELECTED, input=SHAPE_INPUT), cut_layout(input=SHAPE_INPUT)),
    head=partial(OnnxNmsHead, rows_first=True),
    remedy=REMEDY,
    networks='YOLOv3 and tiny YOLOv3 of the ONNX model zoo',
    export='`yolov3` and `tiny-yolov3` of the ONNX model zoo',
)
