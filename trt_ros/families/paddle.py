"""PP-YOLOE, PP-YOLO, PicoDet and other detectors of PaddleDetection, with decoded boxes."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, replace
from typing import Literal

import numpy as np

from trt_ros.errors import TensorMismatchError
from trt_ros.families import cut_nms
from trt_ros.families.boxes import BoxesHead, BoxOutputs
from trt_ros.families.family import (
    IMAGENET_PREPROCESS,
    STRETCH_PREPROCESS,
    Family,
    Head,
    NetworkDescription,
    image_output,
    is_float,
    is_scores,
)
from trt_ros.families.guards import HasInput, by_name_only
from trt_ros.families.layout import CORNERS, BoxLayout, Out, Rows
from trt_ros.families.nanodet import (
    CENTERED_APART,
    STRIDES_WITH_64,
    find_separate,
    open_of_cell_centers,
)
from trt_ros.results.boxes import Detections
from trt_ros.tensors import TensorSpec
from trt_ros.vision.letterbox import Letterbox
from trt_ros.vision.thresholds import Thresholds

#: Factors, height and width, by which the image was resized; boxes are divided by them.
SCALE_INPUT = 'scale_factor'
#: Height and width of the resized image, by which PP-YOLO limits its boxes.
SHAPE_INPUT = 'im_shape'


@dataclass(frozen=True)
class PaddleHead(Head[Detections]):
    """
    A decoder of (K, 6): class, score, x1, y1, x2, y2 in input pixels, after NMS.

    Rows of class -1 are unused. Source: `MultiClassNMS` of PaddleDetection, which all of its
    detectors end in.
    """

    output_name: str
    class_count: int | None = None

    @property
    def takes_batches(self) -> bool:
        """Always False: the boxes of all images are one list."""
        return False

    def __call__(
        self, outputs: Mapping[str, np.ndarray], letterbox: Letterbox, thresholds: Thresholds
    ) -> Detections:
        """Decode the outputs for one image; see `Head`."""
        rows = image_output(outputs, self.output_name, batched=False)
        if rows.shape[1] != 6:
            raise _mismatch(str(rows.shape))
        names = ('boxes', 'scores', 'labels')
        shapes = ((-1, 4), (-1,), (-1,))
        specs = [
            TensorSpec(name, shape, 'float32', 'output') for name, shape in zip(names, shapes)
        ]
        values = dict(zip(names, (rows[:, 2:], rows[:, 1], rows[:, 0])))
        return BoxesHead(BoxOutputs(*specs), None, suppress=False)(values, letterbox, thresholds)


def find_before_nms(network: NetworkDescription) -> BoxOutputs | None:
    """Find boxes (1, N, 4) and scores (1, C, N); None: these are not the only outputs."""
    if len(network.outputs) != 2 or not all(map(is_scores, network.outputs)):
        return None
    for boxes, scores in (network.outputs, network.outputs[::-1]):
        if boxes.shape[2] == 4 and boxes.shape[1] == scores.shape[2] != scores.shape[1]:
            named = network.class_count in (None, 0, scores.shape[1]) or scores.shape[1] < 0
            return BoxOutputs(boxes, scores) if named else None
    return None


def _open(network: NetworkDescription) -> Head[Detections]:
    if cut_nms.nms_settings(network):
        return cut_nms.open_head(network)
    parts = find_before_nms(network)
    if parts is not None:
        classes = parts.scores.shape[1]
        return BoxesHead(parts, classes if classes > 0 else None, classes_first=True)
    boxes = [spec for spec in network.outputs if len(spec.shape) == 2 and spec.shape[1] in (-1, 6)]
    if len(boxes) != 1 or not is_float(boxes[0]):
        raise _mismatch(str(network))
    return PaddleHead(boxes[0].name)


def _open_picodet(network: NetworkDescription) -> Head[Detections]:
    if find_separate(network, STRIDES_WITH_64):
        return open_of_cell_centers(network, strides=STRIDES_WITH_64)
    return _open(network)


def _feed_resized_image(network: NetworkDescription) -> Mapping[str, np.ndarray]:
    """Return the input as an image that was not resized, so that boxes are in input pixels."""
    values = {SCALE_INPUT: (1.0, 1.0), SHAPE_INPUT: network.input_hw}
    return {
        spec.name: np.array([values[spec.name]], np.float32)
        for spec in network.inputs
        if spec.name in values
    }


def _mismatch(seen: str) -> TensorMismatchError:
    return TensorMismatchError(
        'Not a detector of PaddleDetection: expected (K, 6), or boxes (1, N, 4) and scores '
        f'(1, classes, N), or the outputs of each stride of PicoDet, got {seen}.',
        remedy='Export it with tools/export_model.py and paddle2onnx, or choose another decoder.',
    )


def _has_a_size(network: NetworkDescription) -> Literal[False] | None:
    return False if any(-1 in spec.shape for spec in network.outputs) else None


_BEFORE_NMS = BoxLayout(
    (Out('B N V', 'box:4'), Out('B V N', 'scores:C')),
    Rows((STRIDES_WITH_64,), covers=True),
    CORNERS,
    select='each',
)
_FINISHED = BoxLayout(
    (Out('N V', 'label:1 scores:1 box:4'),),
    coding=CORNERS,
    uses_nms=False,
    ignores_others=True,
)
#: Source: `TestReader` in the configurations of PaddleDetection.
PPYOLOE, PPYOLOE_PLUS = (
    Family(
        name,
        'detect',
        preprocess,
        _open,
        _feed_resized_image,
        layouts=(
            replace(_BEFORE_NMS, rows=Rows(), known={}, evidence=(HasInput(SCALE_INPUT),)),
            replace(_FINISHED, evidence=(HasInput(SCALE_INPUT),)),
            cut_nms.layout('ppyoloe'),
        ),
    )
    for name, preprocess in (
        ('ppyoloe', IMAGENET_PREPROCESS),
        ('ppyoloe_plus', STRETCH_PREPROCESS),
    )
)
PICODET = Family(
    'picodet',
    'detect',
    IMAGENET_PREPROCESS,
    _open_picodet,
    _feed_resized_image,
    layouts=(
        CENTERED_APART,
        replace(_BEFORE_NMS, evidence=(_has_a_size,)),
        replace(_FINISHED, evidence=(by_name_only,)),
    ),
    exporter='none',
)
