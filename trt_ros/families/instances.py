"""YOLOv8-seg, YOLO11-seg, YOLO26-seg: boxes with one mask each."""

from typing import Any

from trt_ros.families.family import YOLO_PREPROCESS, Family
from trt_ros.families.layout import CORNERS, BoxLayout, Out
from trt_ros.families.yolo import ULTRALYTICS, YOLO, is_finished, is_on_no_grid, is_raw

PROTOTYPES = Out('B M h w', 'prototypes:M')
#: Source: Bolya et al., YOLACT, 2019, which Ultralytics' `Segment` head follows.
YOLOV8_SEG: Family[Any] = Family(
    'yolov8_seg',
    'segment',
    YOLO_PREPROCESS,
    layouts=(
        BoxLayout(
            (Out('B V N', 'box:4 scores:C extras:M'), PROTOTYPES),
            YOLO,
            extras='coefficients',
            guards=(is_raw,),
        ),
        BoxLayout(
            (Out('B N V', 'box:4 scores:1 label:1 extras:M'), PROTOTYPES),
            coding=CORNERS,
            uses_nms=False,
            extras='coefficients',
            guards=(is_finished,),
            evidence=(is_on_no_grid,),
        ),
    ),
    **ULTRALYTICS,
    networks='YOLO-seg: objects and their masks',
    export='`yolo export model=yolo11n-seg.pt format=onnx`',
)
