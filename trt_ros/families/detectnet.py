"""DetectNet_v2 (PeopleNet, TrafficCamNet, DashCamNet ..): one coverage and box grid per class."""

from typing import Any

from trt_ros.families.family import (
    STRETCH_PREPROCESS,
    Family,
    NetworkDescription,
    is_float,
)
from trt_ros.families.layout import BoxLayout, Coding, Out, Rows
from trt_ros.tensors import TensorSpec

BOX_NORM = 35.0  # Divisor of the boxes in TAO; fixed in all its specifications.
OFFSET = 0.5  # From a cell's corner, in pixels: not half a cell.


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


#: One box per class. Source: the box parser in DeepStream's nvdsinfer_customparser. TAO clusters
#: with DBSCAN or NMS; this decoder uses NMS.
DETECTNET_V2: Family[Any] = Family(
    'detectnet_v2',
    'detect',
    STRETCH_PREPROCESS,
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
    networks='PeopleNet, TrafficCamNet, DashCamNet, your own of TAO',
    export='`tao model detectnet_v2 export`',
)
