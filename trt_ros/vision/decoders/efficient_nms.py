"""TensorRT's EfficientNMS plugin, and exporters that give their boxes in its form."""

from __future__ import annotations

from trt_ros.errors import TensorMismatchError
from trt_ros.vision.decoders import cut_nms
from trt_ros.vision.decoders.boxes import BoxesHead, open_parts
from trt_ros.vision.decoders.family import YOLO_PREPROCESS, Family, NetworkDescription


def open_head(network: NetworkDescription) -> BoxesHead | cut_nms.CutNmsHead:
    """
    Read num_dets (1, 1), boxes (1, K, 4) x1, y1, x2, y2 in input pixels, scores (1, K) and
    classes (1, K); what lies behind the first num_dets is rubbish. No NMS is wanted.

    Source: the README of TensorRT's efficientNMSPlugin.
    """
    if cut_nms.asked(network):
        return cut_nms.open_head(network)
    parts = open_parts(network)
    if parts.count is None or parts.labels is None:
        raise TensorMismatchError(
            f'Not EfficientNMS: expected a count, boxes, scores and classes, got {parts}.',
            remedy='Choose the decoder `boxes`, or `boxes_normalised`.',
        )
    return BoxesHead(parts, None, suppress=False)


EFFICIENT_NMS = Family('efficient_nms', 'detect', YOLO_PREPROCESS, open_head)
