"""YOLOv8-pose, YOLO11-pose, YOLO26-pose: boxes with keypoints."""

from typing import Any, Literal

from trt_ros.families.family import YOLO_PREPROCESS, Family, NetworkDescription
from trt_ros.families.layout import CORNERS, BoxLayout, Out
from trt_ros.families.yolo import ULTRALYTICS, YOLO, is_finished, is_on_no_grid, is_raw


def _states_keypoints(network: NetworkDescription) -> Literal[False] | None:
    return None if 'kpt_shape' in network.metadata else False


#: Guards by values per keypoint: without visibility they are told apart by metadata only.
_STATED = {3: (), 2: (_states_keypoints,)}
#: Visibility is 0 to 1. Source: Ultralytics' `Pose` head.
YOLOV8_POSE: Family[Any] = Family(
    'yolov8_pose',
    'pose',
    YOLO_PREPROCESS,
    layouts=(
        *(
            BoxLayout(
                (Out('B V N', f'box:4 scores:C extras:{values}*K'),),
                YOLO,
                extras='keypoints',
                assume={'C': (1,)},
                guards=(is_raw, *_STATED[values]),
                known={'K': (17,)},
            )
            for values in (3, 2)
        ),
        *(
            BoxLayout(
                (Out('B N V', f'box:4 scores:1 label:1 extras:{values}*K'),),
                coding=CORNERS,
                uses_nms=False,
                extras='keypoints',
                guards=(is_finished, *_STATED[values]),
                evidence=(is_on_no_grid,),
                known={'K': (17, 5, 21, 133)},
                needs_known=values == 3,
            )
            for values in (3, 2)
        ),
    ),
    **ULTRALYTICS,
    remedy='Export the network with Ultralytics, set `labels`, or choose another decoder.',
    networks='YOLO-pose: objects and their keypoints',
    export='`yolo export model=yolo11n-pose.pt format=onnx`',
)
