"""YOLOv5-seg, YOLOv5-face, YOLOv7-pose: boxes with objectness and further values per anchor."""

from typing import Any

from trt_ros.families.family import YOLO_PREPROCESS, Family
from trt_ros.families.instances import PROTOTYPES
from trt_ros.families.layout import BoxLayout, Out
from trt_ros.families.yolo import TRIPLES

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
YOLOV7_POSE: Family[Any] = Family(
    'yolov7_pose',
    'pose',
    YOLO_PREPROCESS,
    layouts=(
        BoxLayout(
            (Out('B N V', 'box:4 objectness:1 scores:1 extras:3*K'),),
            TRIPLES,
            extras='keypoints',
            known={'K': (17, LANDMARKS)},
            needs_known=True,
        ),
    ),
    exporter='YOLOv5',
    output_names=('output', 'output0'),
    networks='YOLOv7-pose, YOLOv7-face',
    export='`export.py` in their repositories, with decoded boxes and without NMS',
)
