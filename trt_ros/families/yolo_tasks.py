"""YOLO networks of other tasks: boxes with masks, keypoints, angles or landmarks."""

from collections.abc import Mapping
from dataclasses import replace
from typing import Any

from trt_ros.families.family import YOLO_PREPROCESS, Family, NetworkDescription
from trt_ros.families.layout import BoxLayout, Coding, Guard, Out
from trt_ros.families.yolo import FINISHED, RAW, TRIPLES, ULTRALYTICS, is_finished, is_raw

PROTOTYPES = Out('B M h w', 'prototypes:M')
#: Source: Bolya et al., YOLACT, 2019, which Ultralytics' `Segment` head follows.
YOLOV8_SEG: Family[Any] = Family(
    'yolov8_seg',
    'segment',
    YOLO_PREPROCESS,
    layouts=(
        replace(
            RAW,
            outputs=(Out('B V N', 'box:4 scores:C extras:M'), PROTOTYPES),
            extras='coefficients',
        ),
        replace(
            FINISHED,
            outputs=(Out('B N V', 'box:4 scores:1 label:1 extras:M'), PROTOTYPES),
            extras='coefficients',
        ),
    ),
    **ULTRALYTICS,
    networks='YOLO-seg: objects and their masks',
    export='`yolo export model=yolo11n-seg.pt format=onnx`',
)


#: Guards by values per keypoint: without visibility they are told apart by metadata only.
_STATED: dict[int, tuple[Guard, ...]] = {
    3: (),
    2: (lambda network: 'kpt_shape' in network.metadata,),
}
#: Visibility is 0 to 1. Source: Ultralytics' `Pose` head.
YOLOV8_POSE: Family[Any] = Family(
    'yolov8_pose',
    'pose',
    YOLO_PREPROCESS,
    layouts=(
        *(
            replace(
                RAW,
                outputs=(Out('B V N', f'box:4 scores:C extras:{values}*K'),),
                extras='keypoints',
                assume={'C': (1,)},
                guards=(is_raw, *_STATED[values]),
                known={'K': (17,)},
            )
            for values in (3, 2)
        ),
        *(
            replace(
                FINISHED,
                outputs=(Out('B N V', f'box:4 scores:1 label:1 extras:{values}*K'),),
                extras='keypoints',
                guards=(is_finished, *_STATED[values]),
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


def _is_not_of_coco(network: NetworkDescription) -> bool:
    """Return whether columns are no likelier a box with 80 classes, or 17 keypoints."""
    is_named = 'task' in network.metadata or bool(network.class_count)
    return is_named or network.only_output.shape[1] not in (84, 56)


_ROTATED: Mapping[str, Any] = {'coding': Coding('rotated'), 'extras': 'angle', 'known': {}}

#: The angle is that of w, in radians. Source: Ultralytics' `OBB` head.
YOLOV8_OBB: Family[Any] = Family(
    'yolov8_obb',
    'obb',
    YOLO_PREPROCESS,
    layouts=(
        replace(
            RAW,
            outputs=(Out('B V N', 'box:4 scores:C extras:1'),),
            evidence=(_is_not_of_coco,),
            **_ROTATED,
        ),
        replace(FINISHED, outputs=(Out('B N V', 'box:4 scores:1 label:1 extras:1'),), **_ROTATED),
    ),
    **ULTRALYTICS,
    networks='YOLO-OBB of ultralytics: rotated boxes',
    export='`yolo export model=yolo11n-obb.pt format=onnx`',
)


LANDMARKS = 5  # Eyes, nose and corners of the mouth.


YOLOV5_SEG: Family[Any] = Family(
    'yolov5_seg',
    'segment',
    YOLO_PREPROCESS,
    layouts=(
        BoxLayout(
            (Out('B N V', 'box:4 objectness:1 scores:C extras:M'), PROTOTYPES),
            TRIPLES,
            extras='coefficients',
        ),
    ),
    exporter='YOLOv5',
    output_names=('output0',),
    networks='YOLOv5-seg, YOLOv7-seg: objects and their masks',
    export='`python export.py --weights yolov5s-seg.pt --include onnx` in its repository',
)
YOLOV5_FACE: Family[Any] = Family(
    'yolov5_face',
    'pose',
    YOLO_PREPROCESS,
    layouts=(
        BoxLayout(
            (Out('B N V', f'box:4 objectness:1 extras:{2 * LANDMARKS} scores:1'),),
            TRIPLES,
            extras='keypoints',
            known={'K': (LANDMARKS,)},
        ),
    ),
    exporter='YOLOv5',
    output_names=('output', 'output0'),
    networks='YOLOv5-face: faces and five landmarks',
    export='`export.py` in their repositories, with decoded boxes and without NMS',
)
YOLOV7_POSE: Family[Any] = replace(
    YOLOV5_FACE,
    name='yolov7_pose',
    layouts=(
        BoxLayout(
            (Out('B N V', 'box:4 objectness:1 scores:1 extras:3*K'),),
            TRIPLES,
            extras='keypoints',
            known={'K': (17, LANDMARKS)},
            needs_known=True,
        ),
    ),
    networks='YOLOv7-pose, YOLOv7-face',
)
