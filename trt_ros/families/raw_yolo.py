"""YOLOv5 and YOLOv7 exported without the decoding of their boxes: one output per grid."""

from __future__ import annotations

from typing import Any, NamedTuple

from trt_ros.families.family import YOLO_PREPROCESS, Family
from trt_ros.families.layout import BoxLayout, Coding, Out, Rows
from trt_ros.tensors import TensorSpec

STRIDES = (8, 16, 32)
#: Width and height in pixels of the three anchors per stride, of the released models.
YOLOV5_ANCHORS = (
    ((10, 13), (16, 30), (33, 23)),
    ((30, 61), (62, 45), (59, 119)),
    ((116, 90), (156, 198), (373, 326)),
)
YOLOV7_ANCHORS = (
    ((12, 16), (19, 36), (40, 28)),
    ((36, 75), (76, 55), (72, 146)),
    ((142, 110), (192, 243), (459, 401)),
)


class Grids(NamedTuple):
    """Outputs in the order of `STRIDES`."""

    outputs: tuple[TensorSpec, ...]

    def __str__(self) -> str:
        return ', '.join(map(str, self.outputs))


#: Source: the `Detect` layer of YOLOv5, which YOLOv7 shares; see `YOLOV5` about one class.
def _layout(anchors: tuple[tuple[tuple[int, int], ...], ...], *, is_v7: bool = False) -> BoxLayout:
    return BoxLayout(
        (Out('B A H W V', 'box:4 objectness:1 scores:C', per_level=True),),
        Rows((STRIDES,), (3,), priors=anchors),
        Coding('offsets', unit='prior', size='squared'),
        activation='sigmoid',
        objectness_only=is_v7,
    )


_REMEDY = "Export with decoded boxes (YOLOv7's --grid), or choose another decoder."
YOLOV5_RAW: Family[Any] = Family(
    'yolov5_raw',
    'detect',
    YOLO_PREPROCESS,
    layouts=(_layout(YOLOV5_ANCHORS),),
    exporter='YOLOv5',
    remedy=_REMEDY,
    networks='YOLOv5 and YOLOv7-tiny without decoded boxes',
)
YOLOV7_RAW: Family[Any] = Family(
    'yolov7_raw',
    'detect',
    YOLO_PREPROCESS,
    layouts=(_layout(YOLOV7_ANCHORS, is_v7=True),),
    exporter='none',
    remedy=_REMEDY,
    networks='YOLOv7 without decoded boxes (no `--grid`)',
)
