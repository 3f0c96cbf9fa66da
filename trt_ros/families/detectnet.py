"""DetectNet_v2 (PeopleNet, TrafficCamNet, DashCamNet ..): one coverage and box grid per class."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

import numpy as np

from trt_ros.errors import TensorMismatchError
from trt_ros.families.family import (
    STRETCH_PREPROCESS,
    Family,
    Head,
    NetworkDescription,
    image_output,
    is_float,
)
from trt_ros.families.layout import BoxLayout, Coding, Out, Rows
from trt_ros.results.boxes import Detections
from trt_ros.tensors import TensorSpec
from trt_ros.vision.letterbox import Letterbox
from trt_ros.vision.nms import to_detections
from trt_ros.vision.scores import passing
from trt_ros.vision.thresholds import Thresholds

BOX_NORM = 35.0  # Divisor of the boxes in TAO; fixed in all its specifications.
OFFSET = 0.5  # From a cell's corner, in pixels: not half a cell.


@dataclass(frozen=True)
class DetectNetHead(Head[Detections]):
    """
    A decoder of coverage (1, C, H, W), 0 to 1, and boxes (1, 4 C, H, W).

    Planes 4 c to 4 c + 3 belong to class c. For the cell in column i and row j of stride s they
    are the distances of the box's left, top, right and bottom from (i s + 0.5, j s + 0.5), each
    divided by 35. Source: the box parser
    in DeepStream's nvdsinfer_customparser. TAO clusters with DBSCAN or NMS; this decoder uses NMS.
    """

    coverage_name: str
    boxes_name: str
    class_count: int | None

    def __call__(
        self, outputs: Mapping[str, np.ndarray], letterbox: Letterbox, thresholds: Thresholds
    ) -> Detections:
        """Decode the outputs for one image; see `Head`."""
        coverage = image_output(outputs, self.coverage_name, 3)
        boxes = image_output(outputs, self.boxes_name, 3)
        classes, rows, columns = coverage.shape
        if boxes.shape != (4 * classes, rows, columns) or not coverage.size:
            raise _mismatch(f'{coverage.shape} and {boxes.shape}')
        height, width = letterbox.input_hw
        stride = np.array([-(-width // columns), -(-height // rows)], np.float32)
        with np.errstate(invalid='ignore', over='ignore'):  # Drops non-finite values.
            coverage = coverage.astype(np.float32, copy=False)
            passes = passing(coverage, thresholds.score).transpose(1, 2, 0)  # Ties: by cell.
            row, column, labels = np.nonzero(passes)
            center = np.stack([column, row], axis=1).astype(np.float32) * stride + OFFSET
            planes = boxes.reshape(classes, 4, rows, columns)
            reach = planes[labels, :, row, column].astype(np.float32) * BOX_NORM
            return to_detections(
                np.hstack([center - reach[:, :2], center + reach[:, 2:]]),
                coverage[labels, row, column],
                labels,
                letterbox,
                thresholds,
            )


def grids(network: NetworkDescription) -> tuple[TensorSpec, TensorSpec] | None:
    """Find coverage and boxes: two grids, one with four times as many planes."""
    found = [
        spec
        for spec in network.outputs
        if len(spec.shape) == 4 and spec.shape[0] in (1, -1) and is_float(spec)
    ]
    if len(found) != 2 or len(network.outputs) != 2:
        return None
    coverage, boxes = sorted(found, key=lambda spec: spec.shape[1])
    if coverage.shape[1] < 1 or boxes.shape[1] != 4 * coverage.shape[1]:
        return None
    return (coverage, boxes) if coverage.shape[2:] == boxes.shape[2:] else None


def open_head(network: NetworkDescription) -> DetectNetHead:
    """Open the head of a DetectNet_v2."""
    parts = grids(network)
    if parts is None:
        raise _mismatch(str(network))
    coverage, boxes = parts
    return DetectNetHead(coverage.name, boxes.name, coverage.shape[1])


def _mismatch(seen: str) -> TensorMismatchError:
    return TensorMismatchError(
        f'Not DetectNet_v2: expected (1, C, H, W) and (1, 4 C, H, W), got {seen}.',
        remedy='Export with `tao model detectnet_v2 export`, or choose another decoder.',
    )


DETECTNET_V2 = Family(
    'detectnet_v2',
    'detect',
    STRETCH_PREPROCESS,
    open_head,
    layouts=(
        BoxLayout(
            (Out('B V H W', 'scores:C'), Out('B V H W', 'box:4*C')),
            Rows(((16,),), covers=True),
            Coding('sides', pixel=OFFSET, unit='pixel', gain=BOX_NORM),
            select='each',
            known={},
        ),
    ),
    exporter='none',
)
