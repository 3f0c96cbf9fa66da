"""Layouts of the outputs of heads that find pixels or classes of an image."""

from __future__ import annotations

from trt_ros.families.classify import ClassifyHead
from trt_ros.families.depth import DepthHead
from trt_ros.families.semantic import MaskHeads, SemanticHead
from trt_ros.runtime.gpu.decode_classes import GpuClasses
from trt_ros.runtime.gpu.decode_dense import GpuArgmax, GpuDepth, GpuMasks
from trt_ros.runtime.gpu.head_outputs import HeadOutputs, Layouts


def _semantic(head: SemanticHead, outputs: HeadOutputs) -> GpuArgmax | None:
    if head.is_classes:
        return None
    _, *size = outputs.shapes[head.output_name]
    classes, rows, columns = size if head.channels_first else (size[2], *size[:2])
    cells = outputs.slice(head.output_name, 0, 0)
    return GpuArgmax(cells, classes, (rows, columns), head.channels_first, head.confidence)


def _masks(head: MaskHeads, outputs: HeadOutputs) -> GpuMasks | None:
    found = {each.output_name: _semantic(each, outputs) for each in head.heads}
    masks = {name: mask for name, mask in found.items() if mask is not None}
    return GpuMasks(masks) if len(masks) == len(found) else None


def _depth(head: DepthHead, outputs: HeadOutputs) -> GpuDepth | None:
    _, *size = outputs.shapes[head.output_name]
    if len(size) == 3:
        channels = size.pop(0 if head.channels_first else 2)
        if channels != 1:
            return None
    rows, columns = size
    return GpuDepth(outputs.slice(head.output_name, 0, 0), 1, (rows, columns), True)


def _classes(head: ClassifyHead, outputs: HeadOutputs) -> GpuClasses | None:
    _, count, *ones = outputs.shapes[head.output_name]
    if head.class_count not in (None, count) or any(size != 1 for size in ones):
        return None
    return GpuClasses(outputs.slice(head.output_name, 0, 0), count)


LAYOUTS: Layouts = {
    SemanticHead: _semantic,
    MaskHeads: _masks,
    DepthHead: _depth,
    ClassifyHead: _classes,
}
