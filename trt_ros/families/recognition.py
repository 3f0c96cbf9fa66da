"""Table of the rules by which `decoder: auto` recognizes a network's family before it runs."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from functools import partial
from typing import Any

from trt_ros.families import (
    centernet,
    depth,
    detectnet,
    detr,
    detr_masks,
    faces,
    finished_boxes,
    hands,
    heatmap_pose,
    lstr,
    maskformer,
    movenet,
    nanodet,
    obb,
    objectness_rows,
    onnx_nms,
    paddle,
    palms,
    pose,
    raw_yolo,
    semantic,
    simcc,
    ufld,
    ufld_v2,
)
from trt_ros.families.boxes import box_outputs
from trt_ros.families.embedding import vectors
from trt_ros.families.family import NetworkDescription
from trt_ros.families.output_layouts import (
    before_cut_nms,
    boxes_without_background,
    decoded_rows,
    distribution_rows,
    has_columns_of_coco,
    has_unknown_scale,
    has_yolov5_metadata,
    is_of_yolov7_nms,
    is_task,
    masked_rows,
    on_a_yolo_grid,
    on_ssd_priors,
    on_stride_16,
    only_vector,
    ssd_boxes,
    yolov5_rows,
    yolov6_rows,
    yolov8_columns,
    yolov8_rows,
    yolox_rows,
)
from trt_ros.families.yolov8 import cell_counts


def _always(network: NetworkDescription, found: object) -> bool:
    return True


@dataclass(frozen=True)
class Rule:
    """
    Evidence that a network belongs to a family: `find` finds outputs, and `when` accepts them.

    A rule claims each network without evidence against it. A network that two families claim is
    ambiguous.

    :param find: returns None, or another false value, where the network has no such outputs.
    :param reason: half a sentence for the log, formatted with `network` and `found`.
    """

    family: str
    find: Callable[[NetworkDescription], Any]
    reason: str
    when: Callable[[NetworkDescription, Any], object] = _always

    def __call__(self, network: NetworkDescription) -> str | None:
        """Return the reason why the network may be of the family; None: this rule has none."""
        found = self.find(network)
        if not found or not self.when(network, found):
            return None
        return self.reason.format(network=network, found=found)


def recognize(family: str, network: NetworkDescription) -> str | None:
    """Return why a network may be of the family, by the first rule that matches; or None."""
    reasons = (rule(network) for rule in RULES if rule.family == family)
    return next((reason for reason in reasons if reason is not None), None)


WITHOUT_OBJECTNESS = '{found.spec} is boxes and class scores without objectness: '
WITH_OBJECTNESS = '{found.spec} is boxes with objectness: '
DECODED_CELLS = '{found.spec} is a decoded box with objectness per cell: '
YOLOX_CELLS = '{found.spec} is the {found.count} cells of strides 8, 16 and 32 with objectness: '
YOLOX_GRIDS = '{found.spec} is the grids of strides 8, 16 and 32 with objectness: '
BINS = '{found} is class scores and {found.bin_count} bins per side at strides '
SEPARATE_BINS = '{found} are class scores and {found.bin_count} bins per side at strides '
FINISHED = "{found} is decoded boxes: Ultralytics' metadata"
SIX = '{found} is x1, y1, x2, y2, score, class: '
QUERIES = "{network.only_output} is one row per query: Ultralytics' metadata"
SIGMOID = '{found.logits}, {found.boxes} by sigmoid, one score per class: '
SOFTMAX = '{found.logits}, {found.boxes} by softmax over the classes and "no object": '
LOGITS = '{found.channels} logits for {network.class_count} classes'
CUT = '{found[outputs]} are the inputs of {found[operator]}, which was cut off'
OF_PADDLE = ' with the input scale_factor, as PaddleDetection exports; '
NORMALIZED = "pixels have ImageNet's mean and standard deviation for PP-YOLO, PP-YOLOE, PicoDet"
NOT_NORMALIZED = 'pixels are 0 to 1 for PP-YOLOE+ and RT-DETR'
CHOSEN = '{found.chosen}, {found.boxes}, {found.scores}'

#: Family, search for its outputs, reason and further condition. The first matching rule of a
#: family counts.
RULES: tuple[Rule, ...] = (
    Rule(
        'yolov8',
        yolov8_columns,
        WITHOUT_OBJECTNESS + "Ultralytics' metadata",
        when=lambda net, found: 'task' in net.metadata and found.count >= 0,
    ),
    Rule(
        'yolov8',
        yolov8_columns,
        WITHOUT_OBJECTNESS + '{found.count} cells of its grids',
        when=lambda net, found: 'task' not in net.metadata and found.count in cell_counts(net),
    ),
    Rule(
        'yolov8',
        yolov8_columns,
        WITHOUT_OBJECTNESS + 'the axis of the anchors is dynamic',
        when=lambda net, found: found.count < 0,
    ),
    Rule(
        'yolov8',
        yolov8_rows,
        WITHOUT_OBJECTNESS + '{found.evidence}',
        when=lambda net, found: found.class_offset == 4,
    ),
    Rule(
        'yolov8',
        yolov8_rows,
        WITHOUT_OBJECTNESS + 'boxes with objectness look the same',
        when=lambda net, found: not found.class_offset,
    ),
    Rule(
        'yolox',
        yolox_rows,
        YOLOX_CELLS + '{found.evidence}',
        when=lambda net, found: found.count >= 0 and found.class_offset == 5,
    ),
    Rule(
        'yolox',
        yolox_rows,
        YOLOX_CELLS + 'boxes without objectness look the same',
        when=lambda net, found: found.count >= 0 and not found.class_offset,
    ),
    Rule(
        'yolox',
        yolox_rows,
        YOLOX_GRIDS + '{found.evidence}',
        when=lambda net, found: found.count < 0 and found.class_offset == 5,
    ),
    Rule(
        'yolox',
        yolox_rows,
        YOLOX_GRIDS + 'boxes without objectness look the same',
        when=lambda net, found: found.count < 0 and not found.class_offset,
    ),
    Rule(
        'yolov5',
        yolov5_rows,
        '{found.spec} is three anchors per cell, with objectness',
        when=lambda net, found: found.count >= 0,
    ),
    Rule('yolov5', yolov6_rows, DECODED_CELLS + '{found.evidence}'),
    Rule(
        'yolov5',
        yolov5_rows,
        WITH_OBJECTNESS + '{found.evidence}',
        when=lambda net, found: found.count < 0 and found.class_offset == 5,
    ),
    Rule(
        'yolov5',
        yolov5_rows,
        WITH_OBJECTNESS + 'boxes without it look the same',
        when=lambda net, found: found.count < 0 and not found.class_offset,
    ),
    Rule(
        'nanodet_plus',
        partial(distribution_rows, strides=nanodet.STRIDES_WITH_64),
        BINS + '8, 16, 32 and 64',
    ),
    Rule('nanodet', partial(distribution_rows, strides=nanodet.STRIDES), BINS + '8, 16 and 32'),
    Rule(
        'nanodet',
        partial(nanodet.find_separate, strides=nanodet.STRIDES),
        SEPARATE_BINS + '8, 16 and 32',
    ),
    Rule(
        'picodet',
        partial(nanodet.find_separate, strides=nanodet.STRIDES_WITH_64),
        SEPARATE_BINS + '8, 16, 32 and 64',
    ),
    Rule(
        'picodet',
        paddle.find_before_nms,
        '{found} are the cells of strides 8, 16, 32 and 64, classes before cells',
        when=paddle.is_of_picodet,
    ),
    *(
        rule
        for family, pixels in (('ppyoloe', NORMALIZED), ('ppyoloe_plus', NOT_NORMALIZED))
        for rule in (
            Rule(
                family,
                before_cut_nms,
                CUT + '; ' + pixels,
                when=lambda net, found: found['decoder'] == 'ppyoloe',
            ),
            Rule(family, paddle.find_finished, '{found}' + OF_PADDLE + pixels),
            Rule(
                family,
                paddle.find_before_nms,
                '{found}' + OF_PADDLE + pixels,
                when=lambda net, found: (
                    paddle.has_scale_input(net) and not paddle.is_of_picodet(net, found)
                ),
            ),
        )
    ),
    Rule(
        'yolov10',
        decoded_rows,
        FINISHED,
        when=lambda net, found: net.metadata.get('end2end') == 'True',
    ),
    Rule(
        'yolov10',
        decoded_rows,
        FINISHED,
        when=lambda net, found: "'nms': True" in net.metadata.get('args', ''),
    ),
    Rule(
        'yolov10',
        decoded_rows,
        SIX + '{found.shape[1]} rows are no grid',
        when=lambda net, found: (
            found.shape[2] == 6 and found.shape[1] > 0 and found.shape[1] not in cell_counts(net)
        ),
    ),
    Rule(
        'yolov10',
        decoded_rows,
        SIX + 'raw boxes look the same',
        when=lambda net, found: found.shape[2] == 6 and found.shape[1] < 0,
    ),
    Rule(
        'rtdetr',
        box_outputs,
        '{found} with the input orig_target_sizes, as its deployed model',
        when=lambda net, found: found.labels is not None and detr.sizes_input(net),
    ),
    Rule(
        'rtdetr', detr.ultralytics_rows, QUERIES, when=lambda net, found: net.is_ultralytics_rtdetr
    ),
    Rule(
        'rtdetr',
        detr.ultralytics_rows,
        QUERIES,
        when=lambda net, found: not net.is_ultralytics_rtdetr,
    ),
    Rule(
        'rtdetr',
        detr.raw_outputs,
        SIGMOID + LOGITS,
        when=lambda net, found: net.class_count and found.channels in (-1, net.class_count),
    ),
    Rule(
        'rtdetr',
        detr.raw_outputs,
        SIGMOID + '80 logits, as for COCO',
        when=lambda net, found: not net.class_count and found.channels == 80,
    ),
    Rule(
        'rtdetr',
        detr.raw_outputs,
        SIGMOID + 'the last logit may or may not be "no object"',
        when=lambda net, found: not net.class_count and found.channels not in (80, 92),
    ),
    Rule(
        'detr',
        detr.raw_outputs,
        SOFTMAX + LOGITS,
        when=lambda net, found: net.class_count and found.channels in (-1, 1 + net.class_count),
    ),
    Rule(
        'detr',
        detr.raw_outputs,
        SOFTMAX + '92 logits, as for COCO',
        when=lambda net, found: not net.class_count and found.channels == 92,
    ),
    Rule(
        'detr',
        detr.raw_outputs,
        SOFTMAX + 'the last logit may or may not be "no object"',
        when=lambda net, found: not net.class_count and found.channels not in (80, 92),
    ),
    Rule('rfdetr', detr.rf_outputs, '{found.logits}, {found.boxes}: named as its exporter does'),
    Rule(
        'ssd',
        ssd_boxes,
        '{found}: {found.class_count} scores are background and the classes',
        when=lambda net, found: net.class_count and found.class_count == 1 + net.class_count,
    ),
    Rule(
        'ssd',
        ssd_boxes,
        '{found} are the {found.boxes.shape[1]} priors of an SSD',
        when=on_ssd_priors,
    ),
    Rule(
        'ssd',
        ssd_boxes,
        '{found} may begin with background',
        when=lambda net, found: (
            not (net.class_count and found.class_count) and not on_ssd_priors(net, found)
        ),
    ),
    Rule(
        'detectnet_v2',
        detectnet.grids,
        '{found[0]}, {found[1]} are grids of stride 16, four box planes per class',
        when=on_stride_16,
    ),
    Rule(
        'centernet',
        centernet.find_planes,
        '{found} are a heatmap of centers and their sizes, of a quarter of the input',
    ),
    Rule(
        'efficient_nms',
        before_cut_nms,
        CUT,
        when=lambda net, found: found['decoder'] == 'efficient_nms',
    ),
    Rule(
        'efficient_nms',
        box_outputs,
        '{found} are a number of boxes and the boxes',
        when=lambda net, found: found.count is not None and found.labels is not None,
    ),
    Rule('onnx_nms', before_cut_nms, CUT, when=lambda net, found: found['decoder'] == 'onnx_nms'),
    Rule(
        'onnx_nms',
        onnx_nms.find_parts,
        CHOSEN + ' are the selection of NonMaxSuppression and its inputs',
        when=lambda net, found: not onnx_nms.has_shape_input(net),
    ),
    Rule('yolov3', before_cut_nms, CUT, when=lambda net, found: found['decoder'] == 'yolov3'),
    Rule(
        'yolov3',
        onnx_nms.find_parts,
        CHOSEN + ' with the input image_shape, as in the ONNX model zoo',
        when=lambda net, found: onnx_nms.has_shape_input(net),
    ),
    Rule(
        'boxes',
        boxes_without_background,
        "{found} have no batch axis, as in torchvision's detectors",
        when=lambda net, found: not found.batched,
    ),
    Rule(
        'boxes',
        boxes_without_background,
        '{found} are the cells of strides 8, 16 and 32',
        when=lambda net, found: found.batched and on_a_yolo_grid(net, found),
    ),
    Rule(
        'boxes', boxes_without_background, '{found} may be in input pixels', when=has_unknown_scale
    ),
    Rule(
        'boxes_normalised',
        boxes_without_background,
        '{found} may be 0 to 1 of the input',
        when=has_unknown_scale,
    ),
    Rule(
        'mmdetection',
        finished_boxes.find_mmdetection,
        '{found} are x1, y1, x2, y2, score and the classes, as MMDeploy exports them',
    ),
    Rule(
        'tensorflow',
        finished_boxes.find_tensorflow,
        "{found} are named as in TensorFlow's object detection API",
    ),
    Rule(
        'yolov5_raw',
        raw_yolo.find_grids,
        '{found} are grids of three anchors each: of YOLOv5 and YOLOv7-tiny, by the metadata',
        when=lambda net, found: has_yolov5_metadata(net),
    ),
    Rule(
        'yolov5_raw',
        raw_yolo.find_grids,
        '{found} are grids of three anchors each: the anchors may be of YOLOv5 or YOLOv7-tiny',
        when=lambda net, found: not has_yolov5_metadata(net),
    ),
    Rule(
        'yolov7_raw',
        raw_yolo.find_grids,
        '{found} are grids of three anchors each: the anchors may be of YOLOv7',
        when=lambda net, found: not has_yolov5_metadata(net),
    ),
    Rule(
        'yolov5_seg',
        objectness_rows.find_masked,
        '{found[0]} is three anchors per cell with objectness and mask coefficients, {found[1]} '
        'the prototypes',
    ),
    Rule(
        'yolov5_face',
        objectness_rows.find_face,
        '{found} is three anchors per cell with five landmarks before the class',
    ),
    Rule(
        'yolov7_pose',
        objectness_rows.find_pose,
        '{found} is three anchors per cell with keypoints after the class',
    ),
    Rule(
        'scrfd',
        faces.find_scrfd,
        '{network.outputs[0]} and the others are scores, boxes and landmarks of two anchors '
        'per cell at three strides',
    ),
    Rule('yunet', faces.find_yunet, "{network.outputs[0]} and the others are named as YuNet's"),
    Rule(
        'retinaface',
        faces.find_retinaface,
        '{network.outputs[0]} and the others are boxes, scores and landmarks of two priors '
        'per cell',
    ),
    Rule(
        'yolov8_seg',
        masked_rows,
        '{found[0]} is boxes with mask coefficients, {found[1]} the prototypes',
        when=lambda net, found: is_task(net, 'segment'),
    ),
    Rule(
        'rfdetr_seg',
        detr_masks.find_masks,
        '{found} is a mask per query: named as the exporter of RF-DETR does',
    ),
    Rule(
        'yolo_semantic',
        semantic.find_layout,
        "{found.spec} is the classes of Ultralytics' semantic segmentation",
        when=lambda net, found: net.metadata.get('task') == 'semantic',
    ),
    Rule(
        'semantic',
        semantic.find_layout,
        '{found.spec} is the class of each cell',
        when=lambda net, found: 'task' not in net.metadata and found.is_classes,
    ),
    Rule(
        'semantic',
        semantic.find_layout,
        '{found.spec} is the scores of each cell',
        when=lambda net, found: (
            'task' not in net.metadata
            and not found.is_classes
            and not (found.channels == 1 and 'depth' in found.spec.name)
            and not heatmap_pose.are_of_a_person(net)
        ),
    ),
    Rule(
        'maskformer',
        maskformer.find_query_outputs,
        '{found[0]}, {found[1]} are one class and one mask per query',
        when=lambda net, found: 'task' not in net.metadata,
    ),
    Rule(
        'maskformer_panoptic',
        maskformer.find_detr_outputs,
        '{found[0]}, {found[1]} are the classes and masks of a DETR',
    ),
    Rule(
        'yolov8_pose',
        pose.find_head,
        '{network.only_output} is boxes with {found.keypoint_count} keypoints',
        when=lambda net, found: is_task(net, 'pose'),
    ),
    Rule(
        'heatmap_pose',
        heatmap_pose.find_heatmaps,
        '{found} is one heatmap per keypoint, by its name',
        when=lambda net, found: heatmap_pose.are_named(found),
    ),
    Rule(
        'heatmap_pose',
        heatmap_pose.find_heatmaps,
        '{found} has as many planes as COCO has keypoints',
        when=lambda net, found: (
            found.shape[1] in heatmap_pose.KEYPOINT_COUNTS and not heatmap_pose.are_named(found)
        ),
    ),
    Rule(
        'mediapipe_palm',
        palms.find_palms,
        '{found[0]} and {found[1]} are boxes with seven landmarks and scores of all anchors',
    ),
    Rule(
        'mediapipe_hand',
        hands.find_hand,
        '{found[0]} and {found[1]} are 21 landmarks of a hand and its score',
    ),
    Rule('movenet', movenet.find_person, '{found} is y, x and score of the keypoints of COCO'),
    Rule(
        'movenet',
        movenet.find_people,
        '{found} is six people with the keypoints of COCO and a box',
    ),
    Rule('simcc', simcc.find_axes, '{found} are the bins of columns and rows'),
    Rule('ufld', ufld.find_columns, '{found} is the columns of lanes at the rows of UFLD'),
    *(
        Rule(
            f'ufld_v2_{name.lower()}',
            partial(ufld_v2.find_lanes, anchors=anchors),
            '{found[0]}, {found[1]} are lanes at the rows and columns of UFLDv2 for ' + name,
        )
        for name, anchors in (('CULane', ufld_v2.CULANE), ('TuSimple', ufld_v2.TUSIMPLE))
    ),
    Rule('lstr', lstr.find_curves, '{found[0]}, {found[1]} are lanes and their curves'),
    Rule(
        'yolov8_obb',
        obb.find_rows,
        '{network.only_output} is boxes with an angle',
        when=lambda net, found: (
            ('task' in net.metadata or net.class_count or not has_columns_of_coco(net))
            and is_task(net, 'obb')
        ),
    ),
    Rule(
        'yolov8_cls',
        vectors,
        "{found[0]} is the class scores of Ultralytics' classifier",
        when=lambda net, found: net.metadata.get('task') == 'classify',
    ),
    Rule(
        'classifier',
        vectors,
        '{found[0]} is one score per class',
        when=lambda net, found: (
            'task' not in net.metadata
            and len(net.outputs) == 1
            and not is_of_yolov7_nms(net)
            and (not net.class_count or found[0].shape[1] in (-1, net.class_count))
        ),
    ),
    Rule(
        'yolo_depth',
        depth.find_output,
        "{found[0]} is Ultralytics' depth",
        when=lambda net, found: net.metadata.get('task') == 'depth',
    ),
    Rule(
        'depth',
        depth.find_output,
        '{found[0]} is one value per cell',
        when=lambda net, found: 'task' not in net.metadata,
    ),
    Rule(
        'embedding',
        only_vector,
        '{found} is one vector',
        when=lambda net, found: len(net.outputs) == 1,
    ),
    Rule(
        'embedding',
        only_vector,
        '{found} is one vector',
        when=lambda net, found: (
            len(net.outputs) > 1 and any(word in found.name for word in ('pool', 'embed'))
        ),
    ),
    Rule(
        'tensor',
        lambda net: not recognize('embedding', net),
        'its outputs are published undecoded',
    ),
)
