"""YOLOv10, YOLO26 and exports with NMS inside: decoded boxes, one per row."""

from typing import Any

from trt_ros.families.family import YOLO_PREPROCESS, Family
from trt_ros.families.layout import CORNERS, BoxLayout, Out
from trt_ros.families.yolo import ULTRALYTICS, is_finished, is_on_no_grid

#: Unused rows have score 0. Source: the postprocessing in Ultralytics' `Detect` head.
YOLOV10: Family[Any] = Family(
    'yolov10',
    'detect',
    YOLO_PREPROCESS,
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
    networks='YOLOv10 and YOLO26 without NMS; exports with NMS inside',
    export='`yolo export model=best.pt format=onnx end2end=True` (the default before 8.4)',
)
