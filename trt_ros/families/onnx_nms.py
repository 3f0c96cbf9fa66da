"""Networks that end with ONNX's NonMaxSuppression: selected indices, boxes and scores."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, replace
from typing import NamedTuple

import numpy as np

from trt_ros.errors import TensorMismatchError
from trt_ros.families import cut_nms
from trt_ros.families.family import (
    YOLO_PREPROCESS,
    Family,
    Head,
    NetworkDescription,
    image_output,
    is_float,
    is_scores,
)
from trt_ros.families.guards import HasInput, lacks_inputs
from trt_ros.families.layout import Layout, Out
from trt_ros.results.boxes import Detections
from trt_ros.tensors import TensorSpec
from trt_ros.vision.letterbox import Letterbox
from trt_ros.vision.nms import to_detections
from trt_ros.vision.scores import passing
from trt_ros.vision.thresholds import Thresholds

SHAPE_INPUT = 'image_shape'


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

    @property
    def takes_batches(self) -> bool:
        """Always False: the selected indices of all images are one list."""
        return False

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
            return to_detections(
                xyxy,
                values[keep],
                labels[keep],
                letterbox,
                thresholds,
                uses_nms=False,
            )


class NmsOutputs(NamedTuple):
    """The selected indices of NonMaxSuppression, and its inputs."""

    chosen: TensorSpec
    boxes: TensorSpec
    scores: TensorSpec


def find_parts(network: NetworkDescription) -> NmsOutputs | None:
    """Find the selected indices, the boxes and the scores; None: these are not the outputs."""
    chosen = [
        spec
        for spec in network.outputs
        if not is_float(spec) and len(spec.shape) == 2 and spec.shape[1] == 3
    ]
    heads = [spec for spec in network.outputs if is_scores(spec)]
    boxes = [spec for spec in heads if spec.shape[2] == 4]
    if len(boxes) > 1:  # Four coordinates, or four classes.
        boxes = [spec for spec in boxes if 'box' in spec.name]
    if len(network.outputs) != 3 or len(chosen) != 1 or len(heads) != 2 or len(boxes) != 1:
        return None
    scores = heads[1 - heads.index(boxes[0])]
    return NmsOutputs(chosen[0], boxes[0], scores)


def _open(network: NetworkDescription, *, rows_first: bool) -> Head:
    cut = cut_nms.open_cut(network)
    if cut is not None:
        return cut
    parts = find_parts(network)
    if parts is None:
        raise TensorMismatchError(
            'The outputs are not those of NonMaxSuppression: expected integers (K, 3), boxes '
            '(1, N, 4) and scores (1, classes, N).',
            cause=f'Seen: {network}.',
            remedy='Export all three, or choose another decoder.',
        )
    classes = parts.scores.shape[1]
    return OnnxNmsHead(
        parts.chosen.name,
        parts.boxes.name,
        parts.scores.name,
        classes if classes > 0 else None,
        rows_first,
    )


def _feed_input_shape(network: NetworkDescription) -> Mapping[str, np.ndarray]:
    """Return the input size as image size, so that boxes are in input pixels."""
    for spec in network.inputs:
        if spec.name == SHAPE_INPUT and spec.dtype != 'bfloat16':
            return {SHAPE_INPUT: np.array([network.input_hw], spec.dtype)}
    return {}


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
    lambda network: _open(network, rows_first=False),
    layouts=(
        replace(_SELECTED, evidence=(lacks_inputs(SHAPE_INPUT),)),
        cut_nms.layout('onnx_nms'),
    ),
    networks='networks that end in NonMaxSuppression of ONNX',
)
YOLOV3 = Family(
    'yolov3',
    'detect',
    {'resize': 'letterbox', 'pad_value': 128, 'channel_order': 'rgb', 'scale': 1 / 255},
    lambda network: _open(network, rows_first=True),
    _feed_input_shape,
    layouts=(replace(_SELECTED, evidence=(HasInput(SHAPE_INPUT),)), cut_nms.layout('yolov3')),
    networks='YOLOv3 and tiny YOLOv3 of the ONNX model zoo',
)
