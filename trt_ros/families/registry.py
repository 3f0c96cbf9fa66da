"""Registry of the model families, and the choice of a network's decoder."""

from __future__ import annotations

from difflib import get_close_matches
from typing import Any, TypeVar

from trt_ros.errors import ParameterError
from trt_ros.families.boxes import BOXES, BOXES_NORMALIZED
from trt_ros.families.centernet import CENTERNET
from trt_ros.families.classify import CLASSIFIER, YOLOV8_CLS
from trt_ros.families.depth import DEPTH, YOLO_DEPTH
from trt_ros.families.detectnet import DETECTNET_V2
from trt_ros.families.detr import DETR, RFDETR, RTDETR
from trt_ros.families.detr_masks import RFDETR_SEG
from trt_ros.families.efficient_nms import EFFICIENT_NMS
from trt_ros.families.embedding import EMBEDDING, TENSOR
from trt_ros.families.evidence import claims_of
from trt_ros.families.faces import RETINAFACE, SCRFD, YUNET
from trt_ros.families.family import Family, Head, NetworkDescription
from trt_ros.families.finished_boxes import MMDETECTION, TENSORFLOW
from trt_ros.families.hands import MEDIAPIPE_HAND
from trt_ros.families.heatmap_pose import HEATMAP_POSE
from trt_ros.families.instances import YOLOV8_SEG
from trt_ros.families.lstr import LSTR
from trt_ros.families.maskformer import MASKFORMER, MASKFORMER_PANOPTIC
from trt_ros.families.mismatches import (
    TASKS,
    ambiguous,
    not_recognized,
    of_another_task,
)
from trt_ros.families.movenet import MOVENET
from trt_ros.families.nanodet import NANODET, NANODET_PLUS
from trt_ros.families.obb import YOLOV8_OBB
from trt_ros.families.objectness_rows import YOLOV5_FACE, YOLOV5_SEG, YOLOV7_POSE
from trt_ros.families.onnx_nms import ONNX_NMS, YOLOV3
from trt_ros.families.paddle import PICODET, PPYOLOE, PPYOLOE_PLUS
from trt_ros.families.palms import MEDIAPIPE_PALM
from trt_ros.families.pose import YOLOV8_POSE
from trt_ros.families.raw_yolo import YOLOV5_RAW, YOLOV7_RAW
from trt_ros.families.semantic import SEMANTIC, YOLO_SEMANTIC
from trt_ros.families.simcc import SIMCC
from trt_ros.families.ssd import SSD
from trt_ros.families.ufld import UFLD
from trt_ros.families.ufld_v2 import UFLD_V2_CULANE, UFLD_V2_TUSIMPLE
from trt_ros.families.yolov5 import YOLOV5
from trt_ros.families.yolov8 import YOLOV8
from trt_ros.families.yolov10 import YOLOV10
from trt_ros.families.yolox import YOLOX
from trt_ros.results.boxes import Detections, OrientedBoxes
from trt_ros.results.classes import Classification
from trt_ros.results.depth import Depth
from trt_ros.results.masks import ClassMask, Instances
from trt_ros.results.poses import Poses
from trt_ros.results.tensors import Tensors

#: Families of detectors. A new family is one module and one row.
DETECTORS: tuple[Family[Head[Detections]], ...] = (
    YOLOV8,
    YOLOX,
    YOLOV5,
    YOLOV10,
    YOLOV3,
    RTDETR,
    DETR,
    RFDETR,
    SSD,
    DETECTNET_V2,
    EFFICIENT_NMS,
    ONNX_NMS,
    BOXES,
    BOXES_NORMALIZED,
    MMDETECTION,
    TENSORFLOW,
    YOLOV5_RAW,
    YOLOV7_RAW,
    NANODET_PLUS,
    NANODET,
    PICODET,
    PPYOLOE,
    PPYOLOE_PLUS,
    CENTERNET,
)
#: Families of the other tasks.
SEGMENTERS: tuple[Family[Head[Instances | ClassMask]], ...] = (
    YOLOV8_SEG,
    YOLOV5_SEG,
    RFDETR_SEG,
    YOLO_SEMANTIC,
    SEMANTIC,
    MASKFORMER,
    MASKFORMER_PANOPTIC,
)
POSES: tuple[Family[Head[Poses]], ...] = (
    YOLOV8_POSE,
    YOLOV5_FACE,
    YOLOV7_POSE,
    SCRFD,
    YUNET,
    RETINAFACE,
    HEATMAP_POSE,
    SIMCC,
    MOVENET,
    MEDIAPIPE_PALM,
    MEDIAPIPE_HAND,
    UFLD,
    UFLD_V2_CULANE,
    UFLD_V2_TUSIMPLE,
    LSTR,
)
ORIENTED: tuple[Family[Head[OrientedBoxes]], ...] = (YOLOV8_OBB,)
CLASSIFIERS: tuple[Family[Head[Classification]], ...] = (YOLOV8_CLS, CLASSIFIER)
DEPTHS: tuple[Family[Head[Depth]], ...] = (YOLO_DEPTH, DEPTH)
EMBEDDINGS: tuple[Family[Head[Tensors]], ...] = (EMBEDDING,)
#: Families whose outputs are published undecoded; 'auto' takes TENSOR without an embedding.
TENSORS: tuple[Family[Head[Tensors]], ...] = (*EMBEDDINGS, TENSOR)

#: Families whose results can be drawn.
ALL_FAMILIES: tuple[Family[Head[Any]], ...] = (
    *DETECTORS,
    *SEGMENTERS,
    *POSES,
    *ORIENTED,
    *CLASSIFIERS,
    *DEPTHS,
)

HeadT = TypeVar('HeadT')


def choose_family(
    families: tuple[Family[HeadT], ...],
    name: str,
    network: NetworkDescription,
) -> tuple[Family[HeadT], str]:
    """
    Choose a family by name, or by the description of the network.

    :param families: `DETECTORS`, `SEGMENTERS` or others.
    :param name: name of a family, or 'auto'.
    :returns: the family, and the reason for the choice.
    :raises ParameterError: when there is no family of that name.
    :raises TensorMismatchError: when the network is of another task; for 'auto', when no family or
        more than one matches.
    """
    tasks = {family.task for family in families}
    stated = network.metadata.get('task', '')  # As Ultralytics writes it.
    stated = 'segment' if stated == 'semantic' else stated
    if stated in TASKS and stated not in tasks and 'tensor' not in tasks:
        raise of_another_task(families, network, stated)
    if name == 'auto':
        return _recognize(families, network)
    for family in families:
        if family.name == name:
            return family, 'as configured'
    close = get_close_matches(name, [family.name for family in families], n=3, cutoff=0.5)
    raise ParameterError(
        f'Decoder {name!r} does not exist.',
        remedy=f'Set `decoder` to {" or ".join([*close, "auto"])}. docs/models.md lists the '
        'others.',
    )


def _recognize(
    families: tuple[Family[HeadT], ...], network: NetworkDescription
) -> tuple[Family[HeadT], str]:
    everyone: tuple[Family[Head[Any]], ...] = (*ALL_FAMILIES, *EMBEDDINGS)
    claims = claims_of(families, network, everyone)
    if len(claims) > 1:
        raise ambiguous(families, network, claims, everyone)
    if claims:
        return claims[0].family, claims[0].reason
    for family in families:
        if family.task == 'tensor':
            return family, 'its outputs are published undecoded'
    raise not_recognized(families, network, everyone)
