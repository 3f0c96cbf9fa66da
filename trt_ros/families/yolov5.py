"""YOLOv5, YOLOv6 and YOLOv7: decoded boxes, objectness and class scores."""

from dataclasses import replace
from typing import Any, Literal

from trt_ros.families.embedding import is_of_yolov7_nms
from trt_ros.families.family import (
    YOLO_PREPROCESS,
    Family,
    NetworkDescription,
)
from trt_ros.families.layout import BoxLayout, Layout, Out
from trt_ros.families.yolo import TRIPLES, YOLO, of_yolov5

ROWS = BoxLayout((Out('B N V', 'box:4 objectness:1 scores:C'),), TRIPLES)


def _of_yolov6(network: NetworkDescription) -> Literal[False] | None:
    return None if network.only_output.name == 'outputs' else False


def _of_yolov7_nms(network: NetworkDescription) -> Literal[False] | None:
    return None if is_of_yolov7_nms(network) else False


#: Source: `non_max_suppression` of YOLOv5 with multi_label=False, and of YOLOv7, which does not
#: train the score of an only class; YOLOv5 and YOLOv6 (one anchor per cell) do.
YOLOV5: Family[Any] = Family(
    'yolov5',
    'detect',
    YOLO_PREPROCESS,
    layouts=(
        replace(ROWS, guards=(of_yolov5,)),
        replace(ROWS, rows=replace(YOLO, is_required=True), evidence=(_of_yolov6,)),
        replace(ROWS, objectness_only=True),
    ),
    exporter='YOLOv5',
    output_names=('output', 'outputs'),
    networks='YOLOv5, YOLOv6, YOLOv7',
    export='`python export.py --weights best.pt --include onnx` in their repositories',
    near_misses=(
        (
            Layout((Out('N 7', 'rows:1'),), guards=(_of_yolov7_nms,)),
            'Rows of 7 values are those of YOLOv7 exported with --max-wh: export it with --grid, '
            'without --end2end; or of YOLO-NAS with NMS inside: export it without.',
        ),
    ),
)
