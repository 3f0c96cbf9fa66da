"""What NMS inside a network did, done after it: the engine builder has cut it off there."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
import json
from typing import Any

import numpy as np

from trt_ros.errors import TensorMismatchError
from trt_ros.tensors import CUT_NMS
from trt_ros.vision.decoders.boxes import BoxOutputs, open_parts
from trt_ros.vision.decoders.family import NetworkDescription, image_output
from trt_ros.vision.detections import Detections
from trt_ros.vision.letterbox import Letterbox
from trt_ros.vision.nms import detections, non_max_suppression
from trt_ros.vision.scores import passing
from trt_ros.vision.thresholds import Thresholds


@dataclass(frozen=True)
class CutNmsHead:
    """
    Reads boxes (1, N, 4), two opposite corners, and scores (1, N, C); suppresses as it was asked.

    The network's own thresholds hold, as they did in it: `iou_threshold` is left, and of the two
    score thresholds the higher one counts. Source: the ONNX operator NonMaxSuppression.

    :param asked: what `CUT_NMS` in the metadata says.
    """

    parts: BoxOutputs
    asked: Mapping[str, Any]

    @property
    def class_count(self) -> int | None:
        return self.parts.class_count

    def __call__(
        self, outputs: Mapping[str, np.ndarray], letterbox: Letterbox, thresholds: Thresholds
    ) -> Detections:
        boxes, scores = (
            image_output(outputs, spec.name) for spec in (self.parts.boxes, self.parts.scores)
        )
        if boxes.shape[1] != 4 or len(boxes) != len(scores):
            raise TensorMismatchError(
                f'{len(boxes)} boxes of {boxes.shape[1]} numbers do not go with scores '
                f'{scores.shape}.',
                cause=f'Expected {self.parts}.',
            )
        asked = self.asked
        with np.errstate(invalid='ignore', over='ignore'):  # What is not finite is dropped.
            scores = scores.astype(np.float32, copy=False)
            passes = passing(scores, thresholds.score)
            if asked['score_threshold'] is not None:
                passes &= scores > np.float32(asked['score_threshold'])
            if asked['background'] >= 0:
                passes[:, asked['background']] = False
            rows, labels = np.nonzero(passes)
            values, some = scores[rows, labels], boxes[rows].astype(np.float32)
            xyxy = np.hstack(
                [np.minimum(some[:, :2], some[:, 2:]), np.maximum(some[:, :2], some[:, 2:])]
            )
            if asked['normalised']:
                xyxy = xyxy * np.array(letterbox.input_hw[::-1] * 2, np.float32)
            # What lies beside the image competes, too, and goes only then: more may be wanted.
            for most in (2 * thresholds.max_detections, len(rows)):
                best = non_max_suppression(
                    xyxy, values, labels, iou_threshold=asked['iou_threshold'], max_detections=most
                )
                chosen = best
                if asked['per_class'] is not None:
                    chosen = chosen[_rank(labels[chosen]) < asked['per_class']]
                chosen = chosen[: asked['in_all']]
                found = detections(
                    xyxy[chosen],
                    values[chosen],
                    labels[chosen],
                    letterbox,
                    iou_threshold=None,
                    max_detections=thresholds.max_detections,
                )
                if len(found) == thresholds.max_detections or len(best) < most:
                    break
            return found


def _rank(labels: np.ndarray) -> np.ndarray:
    """Count how many of the same label stand before each."""
    order = np.argsort(labels, kind='stable')
    _, first, inverse = np.unique(labels[order], return_index=True, return_inverse=True)
    rank = np.empty(len(labels), np.intp)
    rank[order] = np.arange(len(labels)) - first[inverse.ravel()]
    return rank


def asked(network: NetworkDescription) -> Mapping[str, Any]:
    """Give what the NMS was asked that was cut off; nothing where none was."""
    said = network.metadata.get(CUT_NMS)
    return {} if said is None else json.loads(said)


def open_head(network: NetworkDescription) -> CutNmsHead:
    """:raises TensorMismatchError: when the outputs are not boxes and scores."""
    return CutNmsHead(open_parts(network), asked(network))
