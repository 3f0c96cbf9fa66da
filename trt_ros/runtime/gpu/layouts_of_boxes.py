"""Layouts of the outputs of heads whose boxes are decoded by the network."""

from __future__ import annotations

from typing import Any

from trt_ros.families.boxes import BoxesHead
from trt_ros.families.detr import DetrHead, sigmoid_without_last, softmax_without_last
from trt_ros.families.family import sigmoid
from trt_ros.families.finished_boxes import MmdetectionHead, TensorflowHead
from trt_ros.families.instances import InstanceHead
from trt_ros.families.obb import ObbHead
from trt_ros.families.paddle import PaddleHead
from trt_ros.families.pose import PoseHead
from trt_ros.families.yolo_rows import ObjectnessRows, PlainRows
from trt_ros.families.yolov5 import YoloV5Head
from trt_ros.families.yolov8 import YoloV8Head
from trt_ros.families.yolov10 import EndToEndHead
from trt_ros.runtime.gpu.box_args import Level
from trt_ros.runtime.gpu.decode_boxes import GpuBoxes, GpuOrientedBoxes, GpuPoses
from trt_ros.runtime.gpu.decode_masks import GpuInstances
from trt_ros.runtime.gpu.head_outputs import HeadOutputs, Layouts


def _yolov8(head: YoloV8Head, outputs: HeadOutputs) -> GpuBoxes:
    name = head.output_name
    _, first, second = outputs.shapes[name]
    if head.channels_first:
        level = Level(
            outputs.slice(name, 0, 1, second), outputs.slice(name, 4 * second, 1, second)
        )
        return GpuBoxes('columns', second, first - 4, (level,))
    level = Level(outputs.slice(name, 0, second), outputs.slice(name, 4, second))
    return GpuBoxes('rows', first, second - 4, (level,))


def _yolov5(head: YoloV5Head, outputs: HeadOutputs) -> GpuBoxes:
    name = head.output_name
    ((rows, step),) = outputs.rows(name)
    boxes, objectness = outputs.slice(name, 0, step), outputs.slice(name, 4, step)
    if head.objectness_only and step == 6:
        return GpuBoxes('rows', rows, 1, (Level(boxes, objectness),))
    level = Level(boxes, outputs.slice(name, 5, step), objectness=objectness)
    return GpuBoxes('rows', rows, step - 5, (level,))


def _end_to_end(head: EndToEndHead, outputs: HeadOutputs) -> GpuBoxes | None:
    name = head.output_name
    ((rows, step),) = outputs.rows(name)
    if step != 6:
        return None
    return GpuBoxes(
        'each',
        rows,
        1,
        (Level(outputs.slice(name, 0, 6), outputs.slice(name, 4, 6)),),
        'centers' if head.is_rtdetr else 'corners',
        labels=outputs.slice(name, 5, 6),
        uses_nms=False,
        normalized=head.is_rtdetr,
    )


def _detr(head: DetrHead, outputs: HeadOutputs) -> GpuBoxes | None:
    name = head.logits_name
    ((rows, step),) = outputs.rows(name)
    if head.boxes_name and outputs.shapes[head.boxes_name][1:] != (rows, 4):
        return None
    before = 0 if head.boxes_name else 4
    boxes = (
        outputs.slice(head.boxes_name, 0, 4) if head.boxes_name else outputs.slice(name, 0, step)
    )
    is_softmax = head.to_scores is softmax_without_last
    is_sigmoid = head.to_scores in (sigmoid, sigmoid_without_last)
    classes = step - before - (head.to_scores in (softmax_without_last, sigmoid_without_last))
    return GpuBoxes(
        'rows' if is_softmax else 'each',
        rows,
        classes,
        (Level(boxes, outputs.slice(name, before, step)),),
        activation='softmax' if is_softmax else 'sigmoid' if is_sigmoid else 'none',
        uses_nms=False,
        normalized=True,
        limit=rows,
    )


def _boxes(head: BoxesHead, outputs: HeadOutputs) -> GpuBoxes | None:
    parts, shapes = head.parts, outputs.shapes
    *_, rows, columns = shapes[parts.boxes.name]
    rows_axis = parts.batched + head.classes_first
    if columns != 4 or any(
        shapes[spec.name][axis] != rows
        for spec, axis in ((parts.scores, rows_axis), (parts.labels, parts.batched))
        if spec
    ):
        return None
    classes = 1
    if parts.score_axes == 2:
        classes = shapes[parts.scores.name][-2 if head.classes_first else -1]
    steps = (1, rows) if head.classes_first else (classes, 1)
    level = Level(
        outputs.slice(parts.boxes.name, 0, 4), outputs.slice(parts.scores.name, 0, *steps)
    )
    return GpuBoxes(
        'each',
        rows,
        classes,
        (level,),
        'corners',
        labels=outputs.slice(parts.labels.name, 0, 1) if parts.labels else None,
        count=outputs.slice(parts.count.name, 0, 0) if parts.count else None,
        background=int(head.has_background),
        uses_nms=head.suppress,
        normalized=head.normalized,
    )


def _mmdetection(head: MmdetectionHead, outputs: HeadOutputs) -> GpuBoxes | None:
    name = head.boxes_name
    ((rows, step),) = outputs.rows(name)
    if step != 5 or outputs.shapes[head.labels_name][-1] != rows:
        return None
    level = Level(outputs.slice(name, 0, 5), outputs.slice(name, 4, 5))
    labels = outputs.slice(head.labels_name, 0, 1)
    return GpuBoxes('each', rows, 1, (level,), 'corners', labels, uses_nms=False)


def _tensorflow(head: TensorflowHead, outputs: HeadOutputs) -> GpuBoxes | None:
    boxes, scores, labels, count = head.names
    ((rows, step),) = outputs.rows(boxes)
    if step != 4 or any(outputs.shapes[name][-1] != rows for name in (scores, labels)):
        return None
    return GpuBoxes(
        'each',
        rows,
        1,
        (Level(outputs.slice(boxes, 0, 4), outputs.slice(scores, 0, 1)),),
        'corners',
        labels=outputs.slice(labels, 0, 1),
        count=outputs.slice(count, 0, 0) if count else None,
        label_offset=1,
        uses_nms=False,
        normalized=True,
        is_y_first=True,
    )


def _paddle(head: PaddleHead, outputs: HeadOutputs) -> GpuBoxes | None:
    name = head.output_name
    ((rows, step),) = outputs.rows(name)
    if step != 6:
        return None
    level = Level(outputs.slice(name, 2, 6), outputs.slice(name, 1, 6))
    labels = outputs.slice(name, 0, 6)
    return GpuBoxes('each', rows, 1, (level,), 'corners', labels, uses_nms=False)


def _poses(head: PoseHead, outputs: HeadOutputs) -> GpuBoxes | None:
    return _rows(head.rows, outputs, GpuPoses, values=head.values)


def _oriented(head: ObbHead, outputs: HeadOutputs) -> GpuBoxes | None:
    return _rows(head.rows, outputs, GpuOrientedBoxes, form='rotated')


def _instances(head: InstanceHead, outputs: HeadOutputs) -> GpuBoxes | None:
    name = head.prototypes_name
    _, count, rows, columns = outputs.shapes[name]
    if count != head.rows.extra_count:
        return None
    return _rows(
        head.rows,
        outputs,
        GpuInstances,
        prototypes=outputs.slice(name, 0, 0),
        grid_hw=(rows, columns),
        input_hw=outputs.input_hw,
    )


def _rows(
    rows: PlainRows | ObjectnessRows, outputs: HeadOutputs, kind: type[GpuBoxes], **fields: Any
) -> GpuBoxes | None:
    """Return the decoder of boxes with extras: of a kind, with further fields."""
    name, extras = rows.output_name, rows.extra_count
    _, first, second = outputs.shapes[name]
    fields['extra_count'] = extras
    if isinstance(rows, ObjectnessRows):
        classes = second - 5 - extras
        before, behind = (5 + extras, 5) if rows.extras_first else (5, 5 + classes)
        level = Level(
            outputs.slice(name, 0, second),
            outputs.slice(name, before, second),
            objectness=outputs.slice(name, 4, second),
            extras=outputs.slice(name, behind, second),
        )
        fits = classes > 0 and rows.class_count in (None, classes)
        return kind('rows', first, classes, (level,), **fields) if fits else None
    if rows.is_decoded:
        if second != 6 + extras:
            return None
        parts = [outputs.slice(name, start, second) for start in (0, 4, 6)]
        level = Level(parts[0], parts[1], extras=parts[2])
        fields = {'form': 'corners', **fields, 'labels': outputs.slice(name, 5, second)}
        return kind('each', first, 1, (level,), uses_nms=False, **fields)
    classes = first - 4 - extras
    if classes < 1 or rows.class_count not in (None, classes):
        return None
    starts = (0, 4 * second, (4 + classes) * second)
    parts = [outputs.slice(name, start, 1, second) for start in starts]
    return kind(
        'columns', second, classes, (Level(parts[0], parts[1], extras=parts[2]),), **fields
    )


LAYOUTS: Layouts = {
    YoloV8Head: _yolov8,
    YoloV5Head: _yolov5,
    EndToEndHead: _end_to_end,
    DetrHead: _detr,
    BoxesHead: _boxes,
    MmdetectionHead: _mmdetection,
    TensorflowHead: _tensorflow,
    PaddleHead: _paddle,
    PoseHead: _poses,
    ObbHead: _oriented,
    InstanceHead: _instances,
}
