"""TensorRT's EfficientNMS plugin, and exporters with the same outputs."""

from typing import Any

from trt_ros.families import cut_nms
from trt_ros.families.boxes import COUNT, finished, labels
from trt_ros.families.family import YOLO_PREPROCESS, Family

#: Rows after the first num_dets are undefined. Source: the README of efficientNMSPlugin.
EFFICIENT_NMS: Family[Any] = Family(
    'efficient_nms',
    'detect',
    YOLO_PREPROCESS,
    layouts=(finished(labels(), COUNT, uses_nms=False), cut_nms.layout(is_of_tensorrt=True)),
    remedy='Set `decoder` to `boxes` or `boxes_normalised`.',
    networks='networks that end in EfficientNMS or BatchedNMS of TensorRT; MMYOLO',
    export='YOLOv7: `export.py --end2end --grid`',
)
