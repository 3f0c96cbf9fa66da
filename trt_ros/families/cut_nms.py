"""NMS on the CPU in place of the NMS operator that the engine builder cut off a network."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, replace
import json
from typing import Any, Literal

import numpy as np

from trt_ros.errors import TensorMismatchError
from trt_ros.families.family import Head, NetworkDescription, image_output
from trt_ros.families.layout import CORNERS, BoxLayout, Out
from trt_ros.families.match import Reading
from trt_ros.results.boxes import Detections
from trt_ros.tensors import CUT_NMS
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

    :param settings: attributes of the operator, the value of `CUT_NMS` in the metadata.
    """

    boxes_name: str
    scores_name: str
    class_count: int | None
    settings: Mapping[str, Any]

    @classmethod
    def of(cls, reading: Reading) -> CutNmsHead:
        """Return the head of a reading of `layout`."""
        boxes, scores = (part.spec.name for part in reading.parts)
        return cls(boxes, scores, reading.class_count, nms_settings(reading.network))

    def __call__(
        self, outputs: Mapping[str, np.ndarray], letterbox: Letterbox, thresholds: Thresholds
    ) -> Detections:
        """Decode the outputs for one image; see `Head`."""
        boxes, scores = (
            image_output(outputs, name) for name in (self.boxes_name, self.scores_name)
        )
        if boxes.shape[1] != 4 or len(boxes) != len(scores):
            raise TensorMismatchError(
                f'Boxes {boxes.shape} and scores {scores.shape} do not match.',
                cause='Expected (1, N, 4) and (1, N, classes).',
            )
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
            values, opposite = scores[rows, labels], boxes[rows].astype(np.float32)
            xyxy = np.hstack(
                [
                    np.minimum(opposite[:, :2], opposite[:, 2:]),
                    np.maximum(opposite[:, :2], opposite[:, 2:]),
                ]
            )
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


def layout(*, is_of_tensorrt: bool = False, **fields: Any) -> BoxLayout:
    """
    Return the layout of a network whose NMS was cut off.

    :param is_of_tensorrt: the operator was a plugin of TensorRT, not that of ONNX.
    """

    def was_cut(network: NetworkDescription) -> str | Literal[False]:
        operator = nms_settings(network).get('operator', '')
        is_other = (operator != 'NonMaxSuppression') != is_of_tensorrt
        return False if is_other or not operator else f'{operator} was cut off'

    outs = (Out('B N V', 'box:4'), Out('B N V', 'scores:C'))
    return BoxLayout(outs, coding=CORNERS, select='each', is_cut=True, guards=(was_cut,), **fields)
