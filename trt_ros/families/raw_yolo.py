"""YOLOv5 and YOLOv7 exported without the decoding of their boxes: one output per grid."""

from typing import Any

from trt_ros.families.family import YOLO_PREPROCESS, Family
from trt_ros.families.layout import BoxLayout, Coding, Layout, Out, Rows
from trt_ros.families.yolo import YOLO

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


#: Source: the `Detect` layer of YOLOv5, which YOLOv7 shares; see `YOLOV5` about one class.
def _layout(anchors: tuple[tuple[tuple[int, int], ...], ...], *, is_v7: bool = False) -> BoxLayout:
    return BoxLayout(
        (Out('B A H W V', 'box:4 objectness:1 scores:C', per_level=True),),
        Rows((STRIDES,), (3,), priors=anchors),
        Coding('offsets', unit='prior', size='squared'),
        activation='sigmoid',
        objectness_only=is_v7,
    )


def _planes(*axes: str) -> Layout:
    """Return the layout of outputs of the same axes per stride."""
    return Layout(tuple(Out(each, 'values:1', per_level=True) for each in axes), YOLO)


_GRIDS = tuple(
    (
        _planes(axes),
        'Equal channels at strides 8, 16 and 32 are a YOLO without decoded boxes: export it with '
        'decoded boxes in one output.',
    )
    for axes in ('B F H W', 'B H W F')
)
_GRIDS_OF_HEADS = tuple(
    (
        _planes(*axes),
        'Several outputs at each of strides 8, 16 and 32 are a detector without decoded boxes, '
        'such as RTMDet, or YOLO for RKNN: export it with decoded boxes.',
    )
    for axes in (('B F H W', 'B M H W'), ('B F H W', 'B M H W', 'B Q H W'))
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
    export='export with decoded boxes if you can: `yolov5` needs no anchors',
    near_misses=(*_GRIDS, *_GRIDS_OF_HEADS),
)
YOLOV7_RAW: Family[Any] = Family(
    'yolov7_raw',
    'detect',
    YOLO_PREPROCESS,
    layouts=(_layout(YOLOV7_ANCHORS, is_v7=True),),
    exporter='none',
    remedy=_REMEDY,
    networks='YOLOv7 without decoded boxes (no `--grid`)',
    export='export with decoded boxes if you can: `yolov5` needs no anchors',
)
