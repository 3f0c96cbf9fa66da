"""How `decoder: auto` tells whose a network is, before it runs: a table, a row a rule."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any

from trt_ros.tensors import CUT_NMS, TensorSpec
from trt_ros.vision.decoders import (
    cut_nms,
    depth,
    detectnet,
    detr,
    instances,
    obb,
    onnx_nms,
    pose,
    semantic,
)
from trt_ros.vision.decoders.boxes import BoxOutputs, box_outputs
from trt_ros.vision.decoders.embedding import vectors
from trt_ros.vision.decoders.family import NetworkDescription, is_scores
from trt_ros.vision.decoders.yolo_rows import rows_of
from trt_ros.vision.decoders.yolov8 import cell_counts, is_channels_first

YOLO_STRIDES = (8, 16, 32)
P6_STRIDES = (8, 16, 32, 64)
# SSD300 with MobileNet (Caffe and PyTorch, TensorFlow) and with VGG, SSD512 with VGG.
SSD_PRIORS = (3000, 1917, 8732, 24564)


def always(network: NetworkDescription, seen: object) -> bool:
    return True


@dataclass(frozen=True)
class Rule:
    """
    What a network may be one of a family by: it has what `find` finds, and `when` holds of that.

    It claims what no evidence speaks against; a network that two families claim is ambiguous.

    :param find: gives None, or another nothing, where the network has no such outputs.
    :param why: half a sentence for the log, in which `seen` is what was found.
    """

    family: str
    find: Callable[[NetworkDescription], Any]
    why: str
    when: Callable[[NetworkDescription, Any], object] = always

    def __call__(self, network: NetworkDescription) -> str | None:
        """Say why this may be one of the family; None: it is not, by this rule."""
        seen = self.find(network)
        if not seen or not self.when(network, seen):
            return None
        return self.why.format(network=network, seen=seen)


def recognise(family: str, network: NetworkDescription) -> str | None:
    """Say why this may be one of the family, by the first rule that holds; None: it is not."""
    reasons = (rule(network) for rule in RULES if rule.family == family)
    return next((why for why in reasons if why is not None), None)


# One output: an anchor a column or row, or a finished box a row.


@dataclass(frozen=True)
class Anchors:
    """
    The only output: (1, channels, count), or (1, count, channels) with rows; -1 where dynamic.

    :param before: how many channels of the rows stand before the classes, 4 or 5 (there is
        objectness), as `BEFORE_CLASSES` says by `evidence`; 0: nothing tells.
    """

    spec: TensorSpec
    count: int
    channels: int
    before: int = 0
    evidence: str = ''


#: What tells (1, N, 4 + C) from (1, N, 5 + C), boxes without and with objectness: the first that
#: holds of the network and its channels. `output0` is what Ultralytics' exporter writes, and
#: `output` YOLOX's.
BEFORE_CLASSES: tuple[tuple[int, Callable[[NetworkDescription, int], object], str], ...] = (
    (4, lambda net, channels: 'task' in net.metadata, "its metadata is Ultralytics'"),
    (
        4,
        lambda net, channels: net.class_count and channels == 4 + net.class_count,
        '{channels} is 4 and {network.class_count} classes',
    ),
    (
        5,
        lambda net, channels: net.class_count and channels == 5 + net.class_count,
        '{channels} is 5 and {network.class_count} classes',
    ),
    (4, lambda net, channels: net.only_output.name == 'output0', "its name is Ultralytics'"),
    (5, lambda net, channels: net.only_output.name == 'output', "its name is YOLOX's"),
    (4, lambda net, channels: channels == 84, '84 is 4 and the 80 classes of COCO'),
    (5, lambda net, channels: channels == 85, '85 is 5 and the 80 classes of COCO'),
)


def rows(network: NetworkDescription) -> Anchors | None:
    spec = scores(network)
    if spec is None:
        return None
    _, count, channels = spec.shape
    for before, when, evidence in BEFORE_CLASSES:
        if when(network, channels):
            return Anchors(
                spec, count, channels, before, evidence.format(network=network, channels=channels)
            )
    return Anchors(spec, count, channels)


def scores(network: NetworkDescription) -> TensorSpec | None:
    if len(network.outputs) != 1 or not is_scores(network.only_output):
        return None
    return network.only_output


def yolov8_columns(network: NetworkDescription) -> Anchors | None:
    if not _may_be_yolov8(network) or not is_channels_first(network):
        return None
    _, channels, count = network.only_output.shape
    named = network.class_count if 'task' in network.metadata else None
    if 0 < channels < 5 or (named and channels not in (-1, 4 + named)):  # More than boxes.
        return None
    return Anchors(network.only_output, count, channels)


def yolov8_rows(network: NetworkDescription) -> Anchors | None:
    seen = rows(network)
    if seen is None or not _may_be_yolov8(network) or is_channels_first(network):
        return None
    fits = seen.count in (-1, *cell_counts(network)) and not 0 < seen.channels < 5
    return seen if fits else None


def _may_be_yolov8(network: NetworkDescription) -> bool:
    """Boxes after NMS, and RT-DETR's, come a row each."""
    return (
        scores(network) is not None
        and is_task(network, 'detect')
        and (network.metadata.get('end2end') != 'True' and not network.is_ultralytics_rtdetr)
    )


def yolov5_rows(network: NetworkDescription) -> Anchors | None:
    seen = rows(network)
    if seen is None or 'task' in network.metadata:  # The ultralytics package has no objectness.
        return None
    return (
        seen
        if seen.count in (-1, *three_a_cell(network)) and not (0 < seen.channels < 6)
        else None
    )


def three_a_cell(network: NetworkDescription) -> list[int]:
    return [3 * network.anchor_count(strides) for strides in (YOLO_STRIDES, P6_STRIDES)]


def yolox_rows(network: NetworkDescription) -> Anchors | None:
    seen = rows(network)
    if seen is None or 0 < seen.channels < 6:
        return None
    if seen.count < 0 and has_yolov5_metadata(network):
        return None
    return seen if seen.count in (-1, network.anchor_count(YOLO_STRIDES)) else None


def finished_rows(network: NetworkDescription) -> TensorSpec | None:
    spec = scores(network)
    if spec is None or not is_task(network, 'detect') or network.is_ultralytics_rtdetr:
        return None
    if spec.shape[1] in three_a_cell(network) or has_yolov5_metadata(network):
        return None  # YOLOv5 and YOLOv7 of one class have six numbers, too.
    return spec if spec.shape[2] in (6, -1) else None


def has_yolov5_metadata(network: NetworkDescription) -> bool:
    """Tell what YOLOv5's exporter writes: less than the ultralytics package's; others nothing."""
    return 'stride' in network.metadata and 'task' not in network.metadata


def is_task(network: NetworkDescription, task: str) -> bool:
    """Tell whether the metadata, which is Ultralytics' then, names this task, or none."""
    return network.metadata.get('task', task) == task


# Boxes and scores as outputs of their own.


def plain_boxes(network: NetworkDescription) -> BoxOutputs | None:
    """Find boxes and scores of which nothing says that they are another family's."""
    parts = box_outputs(network)
    if parts is None or parts.count is not None or CUT_NMS in network.metadata:
        return None
    if any(word in parts.scores.name for word in ('logits', 'label')):  # RF-DETR's are labels.
        return None
    if any(detr.SIZES_INPUT in spec.name for spec in network.inputs):
        return None
    return parts


def ssd_boxes(network: NetworkDescription) -> BoxOutputs | None:
    parts = plain_boxes(network)
    if parts is None or not parts.batched or parts.score_axes != 2:
        return None
    return None if on_a_yolo_grid(network, parts) else parts


def boxes_without_background(network: NetworkDescription) -> BoxOutputs | None:
    parts = plain_boxes(network)
    if parts is None or None in (network.class_count, parts.class_count):
        return parts
    return parts if network.class_count == parts.class_count else None


def on_a_yolo_grid(network: NetworkDescription, parts: BoxOutputs) -> bool:
    """Tell whether there is a box a cell: then they are in pixels, and none is background."""
    return parts.score_axes == 2 and parts.boxes.shape[-2] == network.anchor_count(YOLO_STRIDES)


def on_ssd_priors(network: NetworkDescription, parts: BoxOutputs) -> bool:
    """Tell whether there is a box a prior of a known SSD, and no names speak against it."""
    return (
        parts.score_axes == 2 and parts.boxes.shape[-2] in SSD_PRIORS and not network.class_count
    )


def either_way(network: NetworkDescription, parts: BoxOutputs) -> bool:
    """Tell whether nothing says if coordinates are pixels or 0 to 1 of the input."""
    return parts.batched and not (on_a_yolo_grid(network, parts) or on_ssd_priors(network, parts))


def on_stride_16(network: NetworkDescription, parts: tuple[TensorSpec, TensorSpec]) -> bool:
    return all(
        cells in (-1, -(-pixels // 16))
        for cells, pixels in zip(parts[0].shape[2:], network.input_hw)
    )


def before_cut_nms(network: NetworkDescription) -> Mapping[str, Any]:
    """Give what the NMS was asked that was cut off, with the outputs; nothing where none was."""
    asked = cut_nms.asked(network)
    return asked and {**asked, 'outputs': ', '.join(map(str, network.outputs))}


# Other tasks.


def masked_rows(network: NetworkDescription) -> tuple[TensorSpec, TensorSpec] | None:
    parts = instances.find_outputs(network)
    return parts if parts and rows_of(network, parts[0], parts[1].shape[1]) else None


def only_vector(network: NetworkDescription) -> TensorSpec | None:
    found = vectors(network)
    return found[0] if len(found) == 1 and 'task' not in network.metadata else None


WITHOUT_OBJECTNESS = '{seen.spec} is boxes and class scores without objectness: '
WITH_OBJECTNESS = '{seen.spec} is boxes with objectness: '
YOLOX_CELLS = '{seen.spec} is the {seen.count} cells of strides 8, 16 and 32 with objectness: '
YOLOX_GRIDS = '{seen.spec} is the grids of strides 8, 16 and 32 with objectness: '
FINISHED = "{seen} is finished boxes: Ultralytics' metadata"
SIX = '{seen} is x1, y1, x2, y2, score, class: '
QUERIES = "{network.only_output} is a row a query: Ultralytics' metadata"
SIGMOID = '{seen.logits}, {seen.boxes} by sigmoid, a score a class: '
SOFTMAX = '{seen.logits}, {seen.boxes} by softmax over the classes and "no object": '
LOGITS = '{seen.channels} logits for {network.class_count} classes'
CUT = '{seen[outputs]} are what {seen[operator]} got, before it was cut off'
CHOSEN = '{seen.chosen}, {seen.boxes}, {seen.scores}'

#: Family, what is found, why it may be that one, and what must hold. Of a family's rules the first
#: counts.
RULES: tuple[Rule, ...] = (
    Rule(
        'yolov8',
        yolov8_columns,
        WITHOUT_OBJECTNESS + "Ultralytics' metadata",
        when=lambda net, seen: 'task' in net.metadata and seen.count >= 0,
    ),
    Rule(
        'yolov8',
        yolov8_columns,
        WITHOUT_OBJECTNESS + '{seen.count} cells of its grids',
        when=lambda net, seen: 'task' not in net.metadata and seen.count in cell_counts(net),
    ),
    Rule(
        'yolov8',
        yolov8_columns,
        WITHOUT_OBJECTNESS + 'the axis of the anchors is dynamic',
        when=lambda net, seen: seen.count < 0,
    ),
    Rule(
        'yolov8',
        yolov8_rows,
        WITHOUT_OBJECTNESS + '{seen.evidence}',
        when=lambda net, seen: seen.before == 4,
    ),
    Rule(
        'yolov8',
        yolov8_rows,
        WITHOUT_OBJECTNESS + 'nothing tells them from boxes with objectness',
        when=lambda net, seen: not seen.before,
    ),
    Rule(
        'yolox',
        yolox_rows,
        YOLOX_CELLS + '{seen.evidence}',
        when=lambda net, seen: seen.count >= 0 and seen.before == 5,
    ),
    Rule(
        'yolox',
        yolox_rows,
        YOLOX_CELLS + 'nothing tells them from boxes without objectness',
        when=lambda net, seen: seen.count >= 0 and not seen.before,
    ),
    Rule(
        'yolox',
        yolox_rows,
        YOLOX_GRIDS + '{seen.evidence}',
        when=lambda net, seen: seen.count < 0 and seen.before == 5,
    ),
    Rule(
        'yolox',
        yolox_rows,
        YOLOX_GRIDS + 'nothing tells them from boxes without objectness',
        when=lambda net, seen: seen.count < 0 and not seen.before,
    ),
    Rule(
        'yolov5',
        yolov5_rows,
        '{seen.spec} is three anchors a cell, with objectness',
        when=lambda net, seen: seen.count >= 0,
    ),
    Rule(
        'yolov5',
        yolov5_rows,
        WITH_OBJECTNESS + '{seen.evidence}',
        when=lambda net, seen: seen.count < 0 and seen.before == 5,
    ),
    Rule(
        'yolov5',
        yolov5_rows,
        WITH_OBJECTNESS + 'nothing tells them from boxes without it',
        when=lambda net, seen: seen.count < 0 and not seen.before,
    ),
    Rule(
        'yolov10',
        finished_rows,
        FINISHED,
        when=lambda net, seen: net.metadata.get('end2end') == 'True',
    ),
    Rule(
        'yolov10',
        finished_rows,
        FINISHED,
        when=lambda net, seen: "'nms': True" in net.metadata.get('args', ''),
    ),
    Rule(
        'yolov10',
        finished_rows,
        SIX + '{seen.shape[1]} rows are no grid',
        when=lambda net, seen: (
            seen.shape[2] == 6 and seen.shape[1] > 0 and seen.shape[1] not in cell_counts(net)
        ),
    ),
    Rule(
        'yolov10',
        finished_rows,
        SIX + 'nothing tells them from raw boxes',
        when=lambda net, seen: seen.shape[2] == 6 and seen.shape[1] < 0,
    ),
    Rule(
        'rtdetr',
        box_outputs,
        '{seen} with the input orig_target_sizes, as its deployed model',
        when=lambda net, seen: seen.labels is not None and detr.sizes_input(net),
    ),
    Rule(
        'rtdetr', detr.ultralytics_rows, QUERIES, when=lambda net, seen: net.is_ultralytics_rtdetr
    ),
    Rule(
        'rtdetr',
        detr.ultralytics_rows,
        QUERIES,
        when=lambda net, seen: not net.is_ultralytics_rtdetr,
    ),
    Rule(
        'rtdetr',
        detr.raw_outputs,
        SIGMOID + LOGITS,
        when=lambda net, seen: net.class_count and seen.channels in (-1, net.class_count),
    ),
    Rule(
        'rtdetr',
        detr.raw_outputs,
        SIGMOID + '80 logits, as for COCO',
        when=lambda net, seen: not net.class_count and seen.channels == 80,
    ),
    Rule(
        'rtdetr',
        detr.raw_outputs,
        SIGMOID + 'nothing tells whether the last logit is "no object"',
        when=lambda net, seen: not net.class_count and seen.channels not in (80, 92),
    ),
    Rule(
        'detr',
        detr.raw_outputs,
        SOFTMAX + LOGITS,
        when=lambda net, seen: net.class_count and seen.channels in (-1, 1 + net.class_count),
    ),
    Rule(
        'detr',
        detr.raw_outputs,
        SOFTMAX + '92 logits, as for COCO',
        when=lambda net, seen: not net.class_count and seen.channels == 92,
    ),
    Rule(
        'detr',
        detr.raw_outputs,
        SOFTMAX + 'nothing tells whether the last logit is "no object"',
        when=lambda net, seen: not net.class_count and seen.channels not in (80, 92),
    ),
    Rule('rfdetr', detr.rf_outputs, '{seen.logits}, {seen.boxes}: named as its exporter does'),
    Rule(
        'ssd',
        ssd_boxes,
        '{seen}: {seen.class_count} scores are background and the classes',
        when=lambda net, seen: net.class_count and seen.class_count == 1 + net.class_count,
    ),
    Rule(
        'ssd',
        ssd_boxes,
        '{seen} are the {seen.boxes.shape[1]} priors of an SSD',
        when=on_ssd_priors,
    ),
    Rule(
        'ssd',
        ssd_boxes,
        '{seen} may begin with background',
        when=lambda net, seen: (
            not (net.class_count and seen.class_count) and not on_ssd_priors(net, seen)
        ),
    ),
    Rule(
        'detectnet_v2',
        detectnet.grids,
        '{seen[0]}, {seen[1]} are grids of stride 16, four box planes a class',
        when=on_stride_16,
    ),
    Rule(
        'efficient_nms',
        before_cut_nms,
        CUT,
        when=lambda net, seen: seen['decoder'] == 'efficient_nms',
    ),
    Rule(
        'efficient_nms',
        box_outputs,
        '{seen} are a count and that many boxes',
        when=lambda net, seen: seen.count is not None and seen.labels is not None,
    ),
    Rule('onnx_nms', before_cut_nms, CUT, when=lambda net, seen: seen['decoder'] == 'onnx_nms'),
    Rule(
        'onnx_nms',
        onnx_nms.find_parts,
        CHOSEN + ' are what NonMaxSuppression chose, and from what',
        when=lambda net, seen: not onnx_nms.has_shape_input(net),
    ),
    Rule('yolov3', before_cut_nms, CUT, when=lambda net, seen: seen['decoder'] == 'yolov3'),
    Rule(
        'yolov3',
        onnx_nms.find_parts,
        CHOSEN + ' with the input image_shape, as in the ONNX model zoo',
        when=lambda net, seen: onnx_nms.has_shape_input(net),
    ),
    Rule(
        'boxes',
        boxes_without_background,
        "{seen} have no batch, as torchvision's detectors",
        when=lambda net, seen: not seen.batched,
    ),
    Rule(
        'boxes',
        boxes_without_background,
        '{seen} are the cells of strides 8, 16 and 32',
        when=lambda net, seen: seen.batched and on_a_yolo_grid(net, seen),
    ),
    Rule('boxes', boxes_without_background, '{seen} may be in input pixels', when=either_way),
    Rule(
        'boxes_normalised',
        boxes_without_background,
        '{seen} may be 0 to 1 of the input',
        when=either_way,
    ),
    Rule(
        'yolov8_seg',
        masked_rows,
        '{seen[0]} is boxes with mask coefficients, {seen[1]} the prototypes',
        when=lambda net, seen: is_task(net, 'segment'),
    ),
    Rule(
        'yolo_semantic',
        semantic.find_layout,
        "{seen.spec} is the classes of Ultralytics' semantic segmentation",
        when=lambda net, seen: net.metadata.get('task') == 'semantic',
    ),
    Rule(
        'semantic',
        semantic.find_layout,
        '{seen.spec} is the class of each cell',
        when=lambda net, seen: 'task' not in net.metadata and seen.is_classes,
    ),
    Rule(
        'semantic',
        semantic.find_layout,
        '{seen.spec} is the scores of each cell',
        when=lambda net, seen: (
            'task' not in net.metadata
            and not seen.is_classes
            and not (seen.channels == 1 and 'depth' in seen.spec.name)
        ),
    ),
    Rule(
        'yolov8_pose',
        pose.find_head,
        '{network.only_output} is boxes with {seen.keypoint_count} keypoints',
        when=lambda net, seen: is_task(net, 'pose'),
    ),
    Rule(
        'yolov8_obb',
        obb.find_rows,
        '{network.only_output} is boxes with an angle',
        when=lambda net, seen: is_task(net, 'obb'),
    ),
    Rule(
        'yolov8_cls',
        vectors,
        "{seen[0]} is the class scores of Ultralytics' classifier",
        when=lambda net, seen: net.metadata.get('task') == 'classify',
    ),
    Rule(
        'classifier',
        vectors,
        '{seen[0]} is one score a class',
        when=lambda net, seen: (
            'task' not in net.metadata
            and len(net.outputs) == 1
            and (not net.class_count or seen[0].shape[1] in (-1, net.class_count))
        ),
    ),
    Rule(
        'yolo_depth',
        depth.find_output,
        "{seen[0]} is Ultralytics' depth",
        when=lambda net, seen: net.metadata.get('task') == 'depth',
    ),
    Rule(
        'depth',
        depth.find_output,
        '{seen[0]} is one value a cell',
        when=lambda net, seen: 'task' not in net.metadata,
    ),
    Rule(
        'embedding',
        only_vector,
        '{seen} is one vector',
        when=lambda net, seen: len(net.outputs) == 1,
    ),
    Rule(
        'embedding',
        only_vector,
        '{seen} is one vector',
        when=lambda net, seen: (
            len(net.outputs) > 1 and any(word in seen.name for word in ('pool', 'embed'))
        ),
    ),
    Rule(
        'tensor',
        lambda net: not recognise('embedding', net),
        'its outputs are published as they are',
    ),
)
