"""Boxes after NMS as MMDetection, TensorFlow and the plugin EfficientNMS write them."""

from typing import Any

from trt_ros.families.boxes import COUNT, finished, labels
from trt_ros.families.family import (
    IMAGENET_PREPROCESS,
    YOLO_PREPROCESS,
    Family,
)
from trt_ros.families.layout import CORNERS, BoxLayout, Coding, Out
from trt_ros.families.onnx_nms import cut_layout

#: Unused rows have a score of 0 or less, or the class -1. Source: MMDeploy, whose exports of
#: MMDetection end in NMS.
MMDETECTION: Family[Any] = Family(
    'mmdetection',
    'detect',
    {
        **IMAGENET_PREPROCESS,
        'resize': 'letterbox_topleft',
        'truncate': False,
        'pad_value': 114,
    },
    layouts=(
        BoxLayout(
            (Out('B N V', 'box:4 scores:1'), Out('B N', 'label:1', is_float=False)),
            coding=CORNERS,
            uses_nms=False,
        ),
    ),
    networks='MMDetection exported by MMDeploy: RTMDet, Faster R-CNN and others',
    export='`tools/deploy.py` of MMDeploy with '
    '`configs/mmdet/detection/detection_onnxruntime_static.py`',
)
#: TensorFlow's class 0 is the background. Source: the object detection API, `postprocess` and its
#: documented outputs.
TENSORFLOW: Family[Any] = Family(
    'tensorflow',
    'detect',
    {'resize': 'stretch', 'channel_order': 'rgb', 'scale': 1.0},
    layouts=tuple(
        BoxLayout(
            (
                Out('B N V', 'box:4', ('detection_boxes',)),
                Out('B N', 'scores:1', ('detection_scores',)),
                Out('B N', 'label:1', ('detection_classes',), is_float=None),
                *count,
            ),
            coding=Coding('corners', is_normalized=True, is_y_first=True),
            label_offset=1,
            uses_nms=False,
            ignores_others=True,
        )
        for count in ((Out('1', 'count:1', ('num_detections',), is_float=None),), ())
    ),
    networks='the object detection API of TensorFlow',
    export='`python -m tf2onnx.convert --saved-model mine --output mine.onnx`',
)


#: Rows after the first num_dets are undefined. Source: the README of efficientNMSPlugin.
EFFICIENT_NMS: Family[Any] = Family(
    'efficient_nms',
    'detect',
    YOLO_PREPROCESS,
    layouts=(finished(labels(), COUNT, uses_nms=False), cut_layout(is_of_tensorrt=True)),
    remedy='Set `decoder` to `boxes` or `boxes_normalised`.',
    networks='networks that end in EfficientNMS or BatchedNMS of TensorRT; MMYOLO',
    export='YOLOv7: `export.py --end2end --grid`',
)
