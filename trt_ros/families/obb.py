"""YOLOv8-OBB, YOLO11-OBB, YOLO26-OBB: rotated boxes."""

from typing import Any, Literal

from trt_ros.families.family import YOLO_PREPROCESS, Family, NetworkDescription
from trt_ros.families.layout import BoxLayout, Coding, Out
from trt_ros.families.yolo import ULTRALYTICS, YOLO, is_finished, is_on_no_grid, is_raw


def _is_not_of_coco(network: NetworkDescription) -> Literal[False] | None:
    """Refuse unnamed columns that are likelier a box with 80 classes, or 17 keypoints."""
    is_named = 'task' in network.metadata or network.class_count
    return None if is_named or network.only_output.shape[1] not in (84, 56) else False


#: The angle is that of w, in radians. Source: Ultralytics' `OBB` head.
YOLOV8_OBB: Family[Any] = Family(
    'yolov8_obb',
    'obb',
    YOLO_PREPROCESS,
    layouts=(
        BoxLayout(
            (Out('B V N', 'box:4 scores:C extras:1'),),
            YOLO,
            Coding('rotated'),
            extras='angle',
            guards=(is_raw,),
            evidence=(_is_not_of_coco,),
            known={},
        ),
        BoxLayout(
            (Out('B N V', 'box:4 scores:1 label:1 extras:1'),),
            coding=Coding('rotated'),
            uses_nms=False,
            extras='angle',
            guards=(is_finished,),
            evidence=(is_on_no_grid,),
            known={},
        ),
    ),
    **ULTRALYTICS,
    networks='YOLO-OBB of ultralytics: rotated boxes',
    export='`yolo export model=yolo11n-obb.pt format=onnx`',
)
