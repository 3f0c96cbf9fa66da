"""Choice of the GPU decoder for the head of a decoder."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import Any

from trt_ros.runtime.gpu.decode import GpuDecoder, OutputSlice
from trt_ros.runtime.gpu.decode_boxes import GpuBoxes, GpuOrientedBoxes, GpuPoses
from trt_ros.runtime.gpu.decode_classes import GpuClasses
from trt_ros.runtime.gpu.decode_dense import GpuArgmax, GpuDense, GpuDepth, GpuMasks
from trt_ros.runtime.gpu.decode_masks import GpuInstances
from trt_ros.runtime.gpu.tensorrt_context import Shape
from trt_ros.tensors import TensorSpec
from trt_ros.vision.decoders.boxes import BoxesHead
from trt_ros.vision.decoders.classify import ClassifyHead
from trt_ros.vision.decoders.depth import DepthHead
from trt_ros.vision.decoders.detr import DetrHead, sigmoid_without_last, softmax_without_last
from trt_ros.vision.decoders.family import sigmoid
from trt_ros.vision.decoders.instances import InstanceHead
from trt_ros.vision.decoders.obb import ObbHead
from trt_ros.vision.decoders.pose import PoseHead
from trt_ros.vision.decoders.registry import Decoder
from trt_ros.vision.decoders.semantic import MaskHeads, SemanticHead
from trt_ros.vision.decoders.yolo_rows import ObjectnessRows, Rows
from trt_ros.vision.decoders.yolov5 import YoloV5Head
from trt_ros.vision.decoders.yolov8 import YoloV8Head
from trt_ros.vision.decoders.yolov10 import EndToEndHead
from trt_ros.vision.decoders.yolox import YoloxHead, grid

Slice = Callable[..., OutputSlice]  # (output, start, row, column) with the output's dtype.


def gpu_decoder(
    decoder: Decoder[Any],
    outputs: Sequence[TensorSpec],
    shapes: Mapping[str, Shape],
    input_hw: tuple[int, int],
) -> GpuDecoder | None:
    """
    Return the GPU decoder that equals `decoder`; None where only the CPU can decode.

    Inconsistent shapes are left to the CPU decoder too, which reports the error.

    :param shapes: shapes of the outputs for the present inputs.
    :param input_hw: size of the network's images.
    """
    head, dtypes = decoder.head, {spec.name: spec.dtype for spec in outputs}

    def part(output: str, start: int, row: int, column: int = 1) -> OutputSlice:
        return OutputSlice(output, dtypes[output], start, row, column)

    found: GpuBoxes | GpuDense | GpuMasks | GpuClasses | None = None
    if isinstance(head, YoloV8Head):
        found = _yolov8(head, shapes, part)
    elif isinstance(head, (YoloxHead, YoloV5Head)):
        found = _with_objectness(head, shapes, part, input_hw)
    elif isinstance(head, EndToEndHead):
        found = _end_to_end(head, shapes, part)
    elif isinstance(head, DetrHead):
        found = _detr(head, shapes, part)
    elif isinstance(head, BoxesHead):
        found = _boxes(head, shapes, part)
    else:
        found = _of_other_tasks(head, shapes, part, input_hw)
    return found if found is not None and found.is_supported else None


def _of_other_tasks(
    head: object, shapes: Mapping[str, Shape], part: Slice, input_hw: tuple[int, int]
) -> GpuBoxes | GpuDense | GpuMasks | GpuClasses | None:
    """Return the GPU decoder of a head that finds something else than boxes."""
    if isinstance(head, (PoseHead, ObbHead)):
        return _extras(head, shapes, part)
    if isinstance(head, InstanceHead):
        return _instances(head, shapes, part, input_hw)
    if isinstance(head, ClassifyHead):
        return _classes(head, shapes, part)
    if isinstance(head, (SemanticHead, DepthHead)):
        return _dense(head, shapes, part)
    if isinstance(head, MaskHeads):
        return _masks(head, shapes, part)
    return None


def _yolov8(head: YoloV8Head, shapes: Mapping[str, Shape], part: Slice) -> GpuBoxes:
    name = head.output_name
    _, first, second = shapes[name]
    if head.channels_first:
        boxes, scores = part(name, 0, 1, second), part(name, 4 * second, 1, second)
        return GpuBoxes('columns', second, first - 4, boxes, scores)
    return GpuBoxes('rows', first, second - 4, part(name, 0, second), part(name, 4, second))


def _with_objectness(
    head: YoloxHead | YoloV5Head,
    shapes: Mapping[str, Shape],
    part: Slice,
    input_hw: tuple[int, int],
) -> GpuBoxes | None:
    name = head.output_name
    _, rows, step = shapes[name]
    strides = head.strides if isinstance(head, YoloxHead) else ()
    if strides and rows != len(grid(input_hw, strides)):
        return None
    objectness = part(name, 4, step)
    is_only = isinstance(head, YoloV5Head) and head.objectness_only and step == 6
    return GpuBoxes(
        'rows',
        rows,
        step - 5,
        part(name, 0, step),
        objectness if is_only else part(name, 5, step),
        'grid' if strides else 'centers',
        None if is_only else objectness,
        strides=strides,
    )


def _end_to_end(head: EndToEndHead, shapes: Mapping[str, Shape], part: Slice) -> GpuBoxes | None:
    name = head.output_name
    if shapes[name][2] != 6:
        return None
    return GpuBoxes(
        'each',
        shapes[name][1],
        1,
        part(name, 0, 6),
        part(name, 4, 6),
        'centers' if head.is_rtdetr else 'corners',
        labels=part(name, 5, 6),
        uses_nms=False,
        normalized=head.is_rtdetr,
    )


def _semantic(head: SemanticHead, shapes: Mapping[str, Shape], part: Slice) -> GpuArgmax | None:
    if head.is_classes:
        return None
    _, *size = shapes[head.output_name]
    classes, rows, columns = size if head.channels_first else (size[2], *size[:2])
    cells = part(head.output_name, 0, 0)
    return GpuArgmax(cells, classes, (rows, columns), head.channels_first, head.confidence)


def _masks(head: MaskHeads, shapes: Mapping[str, Shape], part: Slice) -> GpuMasks | None:
    found = {each.output_name: _semantic(each, shapes, part) for each in head.heads}
    masks = {name: mask for name, mask in found.items() if mask is not None}
    return GpuMasks(masks) if len(masks) == len(found) else None


def _extras(head: PoseHead | ObbHead, shapes: Mapping[str, Shape], part: Slice) -> GpuBoxes | None:
    if isinstance(head, PoseHead):
        return _rows(head.rows, shapes, part, GpuPoses, values=head.values)
    return _rows(head.rows, shapes, part, GpuOrientedBoxes, form='rotated')


def _rows(
    rows: Rows | ObjectnessRows,
    shapes: Mapping[str, Shape],
    part: Slice,
    kind: type[GpuBoxes],
    **fields: Any,
) -> GpuBoxes | None:
    if isinstance(rows, ObjectnessRows):
        return None
    name, extras = rows.output_name, rows.extra_count
    _, first, second = shapes[name]
    if rows.is_decoded:
        if second != 6 + extras:
            return None
        return kind(
            'each',
            first,
            1,
            part(name, 0, second),
            part(name, 4, second),
            labels=part(name, 5, second),
            uses_nms=False,
            extras=part(name, 6, second),
            extra_count=extras,
            **{'form': 'corners', **fields},
        )
    classes = first - 4 - extras
    if classes < 1 or rows.class_count not in (None, classes):
        return None
    return kind(
        'columns',
        second,
        classes,
        part(name, 0, 1, second),
        part(name, 4 * second, 1, second),
        extras=part(name, (4 + classes) * second, 1, second),
        extra_count=extras,
        **fields,
    )


def _instances(
    head: InstanceHead, shapes: Mapping[str, Shape], part: Slice, input_hw: tuple[int, int]
) -> GpuBoxes | None:
    name = head.prototypes_name
    _, count, rows, columns = shapes[name]
    if count != head.rows.extra_count:
        return None
    return _rows(
        head.rows,
        shapes,
        part,
        GpuInstances,
        prototypes=part(name, 0, 0),
        grid_hw=(rows, columns),
        input_hw=input_hw,
    )


def _classes(head: ClassifyHead, shapes: Mapping[str, Shape], part: Slice) -> GpuClasses | None:
    _, count, *ones = shapes[head.output_name]
    if head.class_count not in (None, count) or any(size != 1 for size in ones):
        return None
    return GpuClasses(part(head.output_name, 0, 0), count)


def _dense(
    head: SemanticHead | DepthHead, shapes: Mapping[str, Shape], part: Slice
) -> GpuDense | None:
    if isinstance(head, DepthHead):
        return _depth(head, shapes, part)
    return _semantic(head, shapes, part)


def _depth(head: DepthHead, shapes: Mapping[str, Shape], part: Slice) -> GpuDepth | None:
    _, *size = shapes[head.output_name]
    if len(size) == 3:
        channels = size.pop(0 if head.channels_first else 2)
        if channels != 1:
            return None
    rows, columns = size
    return GpuDepth(part(head.output_name, 0, 0), 1, (rows, columns), True)


def _detr(head: DetrHead, shapes: Mapping[str, Shape], part: Slice) -> GpuBoxes | None:
    name = head.logits_name
    _, rows, step = shapes[name]
    if head.boxes_name and shapes[head.boxes_name][1:] != (rows, 4):
        return None
    before = 0 if head.boxes_name else 4
    boxes = part(head.boxes_name, 0, 4) if head.boxes_name else part(name, 0, step)
    is_softmax = head.to_scores is softmax_without_last
    is_sigmoid = head.to_scores in (sigmoid, sigmoid_without_last)
    classes = step - before - (head.to_scores in (softmax_without_last, sigmoid_without_last))
    return GpuBoxes(
        'rows' if is_softmax else 'each',
        rows,
        classes,
        boxes,
        part(name, before, step),
        activation='softmax' if is_softmax else 'sigmoid' if is_sigmoid else 'none',
        uses_nms=False,
        normalized=True,
        limit=rows,
    )


def _boxes(head: BoxesHead, shapes: Mapping[str, Shape], part: Slice) -> GpuBoxes | None:
    parts = head.parts
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
    return GpuBoxes(
        'each',
        rows,
        classes,
        part(parts.boxes.name, 0, 4),
        part(parts.scores.name, 0, *((1, rows) if head.classes_first else (classes, 1))),
        'corners',
        labels=part(parts.labels.name, 0, 1) if parts.labels else None,
        count=part(parts.count.name, 0, 0) if parts.count else None,
        background=int(head.has_background),
        uses_nms=head.suppress,
        normalized=head.normalized,
    )
