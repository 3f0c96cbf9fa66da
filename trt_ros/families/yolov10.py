"""YOLOv10, YOLO26 and exports with NMS inside: decoded boxes, one per row."""

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
    corners,
    image_output,
    is_scores,
)
from trt_ros.families.layout import CORNERS, BoxLayout, Out
from trt_ros.families.yolo import ULTRALYTICS, is_finished, is_on_no_grid
from trt_ros.results.boxes import Detections
from trt_ros.vision.letterbox import Letterbox
from trt_ros.vision.nms import to_detections
from trt_ros.vision.scores import passing
from trt_ros.vision.thresholds import Thresholds


@dataclass(frozen=True)
class EndToEndHead(Head[Detections]):
    """
    A decoder of (1, K, 6): x1, y1, x2, y2 in input pixels, score, class index; without NMS.

    Source: the postprocessing in Ultralytics' `Detect` head. Unused rows have score 0.

    :param is_rtdetr: boxes are cx, cy, w, h, 0 to 1 of the input, as in Ultralytics'
        RTDETRDecoder.
    """

    output_name: str
    class_count: int | None
    is_rtdetr: bool = False

    def __call__(
        self, outputs: Mapping[str, np.ndarray], letterbox: Letterbox, thresholds: Thresholds
    ) -> Detections:
        """Decode the outputs for one image; see `Head`."""
        head = image_output(outputs, self.output_name)
        if head.shape[1] != 6:
            raise _mismatch(f'(1, {head.shape[0]}, {head.shape[1]})')
        with np.errstate(invalid='ignore', over='ignore'):  # Drops non-finite values.
            head = head.astype(np.float32)
            scores, labels = head[:, 4], head[:, 5]
            keep = np.flatnonzero(
                passing(scores, thresholds.score, is_padded=True)
                & (labels >= 0)
                & np.isfinite(labels)
            )
            xyxy = head[keep, :4]
            if self.is_rtdetr:
                xyxy = corners(xyxy) * np.array(letterbox.input_hw[::-1] * 2, np.float32)
            return to_detections(
                xyxy,
                scores[keep],
                labels[keep],
                letterbox,
                thresholds,
                uses_nms=False,
            )


def open_head(network: NetworkDescription) -> EndToEndHead:
    """Open the head of an end-to-end detector."""
    spec = network.only_output
    if not is_scores(spec) or spec.shape[2] not in (6, -1):
        raise _mismatch(str(spec))
    # The shape does not show the number of classes.
    return EndToEndHead(spec.name, None)


def _mismatch(seen: str) -> TensorMismatchError:
    return TensorMismatchError(
        f'The output is not decoded boxes: expected (1, boxes, 6), got {seen}.',
        remedy='Export YOLOv10 or YOLO26 with the default settings, or choose another decoder.',
    )


YOLOV10 = Family(
    'yolov10',
    'detect',
    YOLO_PREPROCESS,
    open_head,
    layouts=(
        BoxLayout(
            (Out('B N V', 'box:4 scores:1 label:1'),),
            coding=CORNERS,
            uses_nms=False,
            guards=(is_finished,),
            evidence=(is_on_no_grid,),
        ),
    ),
    **ULTRALYTICS,
)
