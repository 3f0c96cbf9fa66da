"""TensorRT's EfficientNMS plugin, and exporters with the same outputs."""

from __future__ import annotations

from trt_ros.errors import TensorMismatchError
from trt_ros.families import cut_nms
from trt_ros.families.boxes import COUNT, BoxesHead, finished, labels, open_parts
from trt_ros.families.family import YOLO_PREPROCESS, Family, NetworkDescription


def open_head(network: NetworkDescription) -> BoxesHead | cut_nms.CutNmsHead:
    """
    Open the head of a network that ends with EfficientNMS.

    Its outputs are num_dets (1, 1), boxes (1, K, 4) x1, y1, x2, y2 in input pixels, scores (1, K)
    and classes (1, K); rows after the first num_dets are undefined. They need no NMS.

    Source: the README of TensorRT's efficientNMSPlugin.
    """
    if cut_nms.nms_settings(network):
        return cut_nms.open_head(network)
    parts = open_parts(network)
    if parts.count is None or parts.labels is None:
        raise TensorMismatchError(
            'The outputs are not those of EfficientNMS: expected a count, boxes, scores and '
            f'classes, got {parts}.',
            remedy='Set `decoder` to `boxes` or `boxes_normalised`.',
        )
    return BoxesHead(parts, None, suppress=False)


EFFICIENT_NMS = Family(
    'efficient_nms',
    'detect',
    YOLO_PREPROCESS,
    open_head,
    layouts=(finished(labels(), COUNT, uses_nms=False), cut_nms.layout('efficient_nms')),
)
