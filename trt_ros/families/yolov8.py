"""YOLOv8, YOLOv9, YOLO11 and YOLO12: decoded boxes and class scores, before NMS."""

from typing import Any

from trt_ros.families.family import (
    YOLO_PREPROCESS,
    Family,
)
from trt_ros.families.layout import BoxLayout, Out
from trt_ros.families.yolo import ULTRALYTICS, YOLO, is_raw

YOLOV8: Family[Any] = Family(
    'yolov8',
    'detect',
    YOLO_PREPROCESS,
    layouts=tuple(
        BoxLayout((Out(axes, 'box:4 scores:C'),), YOLO, guards=(is_raw,))
        for axes in ('B V N', 'B N V')
    ),
    **ULTRALYTICS,
    networks='YOLOv8, 9, 11, 12; also v5, v10 and 26 of the ultralytics package',
    export='`yolo export model=best.pt format=onnx`',
)
