"""YOLO detectors, with decoded boxes or one undecoded output per grid."""

from collections.abc import Mapping
from dataclasses import replace
from typing import Any

from trt_ros.families.family import YOLO_PREPROCESS, Family, NetworkDescription, trained
from trt_ros.families.layout import CORNERS, BoxLayout, Coding, Layout, Out, Rows
from trt_ros.families.vectors import is_of_yolov7_nms

#: One anchor per cell, without and with the strides of P2 and P6 models.
YOLO = Rows(((8, 16, 32), (4, 8, 16, 32), (8, 16, 32, 64)))
#: Who writes the networks of Ultralytics.
ULTRALYTICS: Mapping[str, Any] = {'exporter': 'Ultralytics', 'output_names': ('output0',)}
#: Three anchors per cell.
TRIPLES = Rows(((8, 16, 32), (8, 16, 32, 64)), per_cell=(3,))


def has_nms(network: NetworkDescription) -> bool:
    """Return whether metadata of Ultralytics says that boxes are decoded and chosen."""
    metadata = network.metadata
    return metadata.get('end2end') == 'True' or "'nms': True" in metadata.get('args', '')


def is_rtdetr(network: NetworkDescription) -> bool:
    """
    Return whether the metadata is that of an RT-DETR exported by Ultralytics.

    Newer metadata names the last layer, older metadata only the network's source file.
    """
    text = network.metadata.get('head', '') + network.metadata.get('description', '')
    return 'task' in network.metadata and 'rtdetr' in text.lower()


def is_raw(network: NetworkDescription) -> bool:
    """Return whether boxes may be those before NMS."""
    return not (has_nms(network) or is_rtdetr(network))


def is_finished(network: NetworkDescription) -> str | bool:
    """Return whether boxes may be those after NMS."""
    if has_nms(network):
        return 'NMS in the metadata'
    return not (is_rtdetr(network) or is_yolov5(network))


def is_yolov5(network: NetworkDescription) -> bool:
    """Return whether YOLOv5's exporter wrote the metadata, which is less than Ultralytics' is."""
    return 'stride' in network.metadata and 'task' not in network.metadata


def is_on_no_grid(network: NetworkDescription) -> bool:
    """Return whether boxes may be after NMS: as many as a grid has anchors are before it."""
    counts = network.outputs[0].shape[1:2]
    is_grid = any(rows.strides_of(network.input_hw, n) for rows in (YOLO, TRIPLES) for n in counts)
    return not is_grid or has_nms(network)


#: Boxes of Ultralytics before and after NMS; of the latter, unused rows have score 0. Source: the
#: postprocessing in its `Detect` head.
RAW = BoxLayout((Out('B V N', 'box:4 scores:C'),), YOLO, guards=(is_raw,))
FINISHED = BoxLayout(
    (Out('B N V', 'box:4 scores:1 label:1'),),
    coding=CORNERS,
    uses_nms=False,
    guards=(is_finished,),
    evidence=(is_on_no_grid,),
)
YOLOV10: Family[Any] = Family(
    'yolov10',
    'detect',
    YOLO_PREPROCESS,
    layouts=(FINISHED,),
    **ULTRALYTICS,
    networks='YOLOv10 and YOLO26 without NMS; exports with NMS inside',
    export='`yolo export model=best.pt format=onnx end2end=True` (the default before 8.4)',
)


ROWS = BoxLayout((Out('B N V', 'box:4 objectness:1 scores:C'),), TRIPLES)


#: Source: `non_max_suppression` of YOLOv5 with multi_label=False, and of YOLOv7, which does not
#: train the score of an only class; YOLOv5 and YOLOv6 (one anchor per cell) do.
YOLOV5: Family[Any] = Family(
    'yolov5',
    'detect',
    YOLO_PREPROCESS,
    layouts=(
        replace(ROWS, guards=(is_yolov5,)),
        replace(
            ROWS,
            rows=replace(YOLO, is_required=True),
            evidence=(lambda network: network.only_output.name == 'outputs',),  # Of YOLOv6.
        ),
        replace(ROWS, objectness_only=True),
    ),
    exporter='YOLOv5',
    output_names=('output', 'outputs'),
    networks='YOLOv5, YOLOv6, YOLOv7',
    export='`python export.py --weights best.pt --include onnx` in their repositories',
    near_misses=(
        (
            Layout((Out('N 7', 'rows:1'),), guards=(is_of_yolov7_nms,)),
            'Rows of 7 values are those of YOLOv7 exported with --max-wh: export it with --grid, '
            'without --end2end; or of YOLO-NAS with NMS inside: export it without.',
        ),
    ),
)


YOLOV8: Family[Any] = Family(
    'yolov8',
    'detect',
    YOLO_PREPROCESS,
    layouts=(RAW, replace(RAW, outputs=(Out('B N V', 'box:4 scores:C'),))),
    **ULTRALYTICS,
    networks='YOLOv8, 9, 11, 12; also v5, v10 and 26 of the ultralytics package',
    export='`yolo export model=best.pt format=onnx`',
)


#: Scores are 0 to 1. Source: `decode_outputs` of YOLOX's head.
YOLOX: Family[Any] = Family(
    'yolox',
    'detect',
    trained('letterbox_topleft', 'bgr', 1.0, pad_value=114),
    layouts=(
        BoxLayout(
            (Out('B N V', 'box:4 objectness:1 scores:C'),), Rows(((8, 16, 32),)), Coding('offsets')
        ),
    ),
    output_names=('output',),
    remedy="Export with YOLOX's tools/export_onnx.py without --decode_in_inference; or set "
    '`decoder` to yolov5, and for YOLOX also `resize` to letterbox_topleft, `channel_order` to '
    'bgr and `scale` to 1.0.',
    networks='YOLOX',
    export='`python tools/export_onnx.py -n yolox-s -c best.pth --output-name yolox.onnx`',
)


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
YOLOV7_RAW: Family[Any] = replace(
    YOLOV5_RAW,
    name='yolov7_raw',
    layouts=(_layout(YOLOV7_ANCHORS, is_v7=True),),
    exporter='none',
    networks='YOLOv7 without decoded boxes (no `--grid`)',
    near_misses=(),
)
