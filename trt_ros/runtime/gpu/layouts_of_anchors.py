"""Layouts of the outputs of heads whose boxes are relative to the anchors of grids."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from typing import Any

import numpy as np

from trt_ros.families import faces, palms
from trt_ros.families.centernet import CenterNetHead
from trt_ros.families.detectnet import BOX_NORM, OFFSET, DetectNetHead
from trt_ros.families.faces import RetinafaceHead, ScrfdHead, YunetHead
from trt_ros.families.layout import Grid
from trt_ros.families.nanodet import DistributionHead
from trt_ros.families.palms import PalmHead, hand_regions
from trt_ros.families.raw_yolo import STRIDES, RawYoloHead
from trt_ros.families.yolox import YoloxHead
from trt_ros.results.poses import Poses
from trt_ros.runtime.gpu.box_args import AnchorCoding, Level
from trt_ros.runtime.gpu.decode_boxes import GpuBoxes, GpuPoses
from trt_ros.runtime.gpu.head_outputs import HeadOutputs, Layouts


def _grid(outputs: HeadOutputs, stride: int, *, covers: bool, per_cell: int = 1) -> Grid:
    """Return the grid of a stride; with `covers`, with the cells that the input only begins."""
    height, width = (-(-side // stride) if covers else side // stride for side in outputs.input_hw)
    return Grid((height, width), (stride, stride), per_cell)


def _levels_of(
    grids: Sequence[Grid], outputs: HeadOutputs, *parts: tuple[str, str, int, int]
) -> tuple[Level, ...]:
    """
    Return the levels of outputs that hold the rows of all grids.

    :param parts: name of a field of `Level`, output, first value and values per row.
    """
    found, first = [], 0
    for grid in grids:
        slices = {
            role: outputs.slice(output, first * step + start, step)
            for role, output, start, step in parts
        }
        found.append(Level(slices.pop('boxes'), slices.pop('scores'), grid=grid, **slices))
        first += grid.anchors
    return tuple(found)


def _yolox(head: YoloxHead, outputs: HeadOutputs) -> GpuBoxes:
    name = head.output_name
    ((rows, step),) = outputs.rows(name)
    grids = [_grid(outputs, stride, covers=False) for stride in head.strides]
    parts = [(role, name, start, step) for role, start in _YOLOX_PARTS]
    levels = _levels_of(grids, outputs, *parts)
    return GpuBoxes('rows', rows, step - 5, levels, AnchorCoding('offsets'))


_YOLOX_PARTS = (('boxes', 0), ('objectness', 4), ('scores', 5))


def _raw_yolo(head: RawYoloHead, outputs: HeadOutputs) -> GpuBoxes | None:
    levels, rows = [], 0
    for name, stride, priors in zip(head.names, STRIDES, head.anchors):
        _, per_cell, height, width, step = outputs.shapes[name]
        if (height, width) != tuple(side // stride for side in outputs.input_hw) or per_cell != 3:
            return None
        grid = Grid((height, width), (stride, stride), per_cell, priors)
        parts = [outputs.slice(name, start, step) for start in (0, 5, 4)]
        levels.append(Level(parts[0], parts[1], objectness=parts[2], grid=grid))
        rows += per_cell * grid.cells
    classes = step - 5
    if (
        head.class_count not in (None, classes)
        or len({outputs.shapes[n][4] for n in head.names}) > 1
    ):
        return None
    if head.objectness_only and classes == 1:
        levels = [
            Level(each.boxes, each.objectness or each.scores, grid=each.grid) for each in levels
        ]
    coding = AnchorCoding('offsets', unit='prior', size='squared', is_planar=True)
    return GpuBoxes('rows', rows, classes, tuple(levels), coding, activation='sigmoid')


def _distributions(head: DistributionHead, outputs: HeadOutputs) -> GpuBoxes | None:
    grids = [_grid(outputs, stride, covers=True) for stride in head.strides]
    sides, shapes = 4 * head.bin_count, outputs.rows(*head.names)
    if len(head.names) == 1:
        name, (rows, step) = head.names[0], shapes[0]
        classes = step - sides
        levels = _levels_of(
            grids, outputs, ('boxes', name, classes, step), ('scores', name, 0, step)
        )
    else:
        classes, rows = shapes[0][1], sum(grid.cells for grid in grids)
        wanted = [(grid.cells, classes) for grid in grids] + [
            (grid.cells, sides) for grid in grids
        ]
        if shapes != wanted:
            return None
        levels = tuple(
            Level(outputs.slice(boxes, 0, sides), outputs.slice(scores, 0, classes), grid=grid)
            for grid, scores, boxes in zip(grids, head.names, head.names[len(grids) :])
        )
    if classes < 1 or head.class_count not in (None, classes):
        return None
    coding = AnchorCoding('sides', place=head.offset, bins=head.bin_count, clips=True)
    return GpuBoxes('each', rows, classes, levels, coding)


def _per_stride(
    names: Sequence[str], roles: dict[str, int], grids: Sequence[Grid], outputs: HeadOutputs
) -> tuple[Level, ...] | None:
    """Return the levels of outputs by role and stride; None if a shape does not fit."""
    found = []
    for index, grid in enumerate(grids):
        each = dict(zip(roles, names[index :: len(grids)]))
        rows = grid.anchors
        if outputs.rows(*each.values()) != [(rows, size) for size in roles.values()]:
            return None
        slices = {role: outputs.slice(each[role], 0, size) for role, size in roles.items()}
        found.append(Level(slices.pop('boxes'), slices.pop('scores'), grid=grid, **slices))
    return tuple(found)


def _faces(
    levels: tuple[Level, ...] | None, coding: AnchorCoding, landmarks: int, **fields: Any
) -> GpuPoses | None:
    """Return the decoder of one class with landmarks: a warp per row reads all of its values."""
    if levels is None:
        return None
    rows = sum(level.grid.cells * level.grid.per_cell for level in levels if level.grid)
    return GpuPoses('rows', rows, 1, levels, coding, extra_count=2 * landmarks, values=2, **fields)


def _scrfd(head: ScrfdHead, outputs: HeadOutputs) -> GpuPoses | None:
    grids = [_grid(outputs, stride, covers=True, per_cell=2) for stride in faces.STRIDES]
    roles = {'scores': 1, 'boxes': 4, 'extras': 2 * faces.LANDMARKS}
    levels = _per_stride(head.outputs, roles, grids, outputs)
    return _faces(levels, AnchorCoding('sides', has_points=True), faces.LANDMARKS)


def _yunet(head: YunetHead, outputs: HeadOutputs) -> GpuPoses | None:
    grids = [_grid(outputs, stride, covers=True) for stride in faces.STRIDES]
    roles = {'scores': 1, 'objectness': 1, 'boxes': 4, 'extras': 2 * faces.LANDMARKS}
    levels = _per_stride(head.outputs, roles, grids, outputs)
    coding = AnchorCoding('offsets', has_points=True)
    return _faces(levels, coding, faces.LANDMARKS, has_root=True)


def _retinaface(head: RetinafaceHead, outputs: HeadOutputs) -> GpuPoses | None:
    grids = [
        Grid(
            _grid(outputs, stride, covers=True).shape,
            (stride, stride),
            2,
            tuple(zip(sides, sides)),
        )
        for stride, sides in zip(faces.STRIDES, faces.RETINAFACE_PRIORS)
    ]
    boxes, scores, points = head.outputs
    rows, sizes = sum(2 * grid.cells for grid in grids), (4, 2, 2 * faces.LANDMARKS)
    if outputs.rows(boxes, scores, points) != [(rows, size) for size in sizes]:
        return None
    parts = zip(
        ('boxes', 'scores', 'extras'), head.outputs, (0, 1, 0), sizes
    )  # Scores: behind none.
    coding = AnchorCoding(
        'offsets', place=0.5, unit='prior', gain=0.1, size_gain=0.2, has_points=True
    )
    levels = _levels_of(grids, outputs, *parts)
    return _faces(levels, coding, faces.LANDMARKS)


def _palms(head: PalmHead, outputs: HeadOutputs) -> GpuPoses | None:
    grids = [
        _grid(outputs, stride, covers=True, per_cell=per_cell) for stride, per_cell in palms.GRIDS
    ]
    values, logits = head.outputs
    rows = sum(grid.anchors for grid in grids)
    if outputs.rows(values, logits) != [(rows, palms.VALUES), (rows, 1)]:
        return None
    parts = (
        ('boxes', values, 0, palms.VALUES),
        ('extras', values, 4, palms.VALUES),
        ('scores', logits, 0, 1),
    )
    coding = AnchorCoding('offsets', place=0.5, unit='pixel', size='linear', has_points=True)
    levels = _levels_of(grids, outputs, *parts)
    return _faces(levels, coding, palms.LANDMARKS, activation='sigmoid', finish=_with_hands)


def _with_hands(found: Poses) -> Poses:
    return replace(found, regions=hand_regions(found))


def _detectnet(head: DetectNetHead, outputs: HeadOutputs) -> GpuBoxes | None:
    _, classes, rows, columns = outputs.shapes[head.coverage_name]
    if outputs.shapes[head.boxes_name][1:] != (4 * classes, rows, columns):
        return None
    (height, width), cells = outputs.input_hw, rows * columns
    level = Level(
        outputs.slice(head.boxes_name, 0, 1, cells),
        outputs.slice(head.coverage_name, 0, 1, cells),
        grid=Grid((rows, columns), (-(-width // columns), -(-height // rows))),
    )
    coding = AnchorCoding('sides', pixel=OFFSET, unit='pixel', gain=BOX_NORM, class_step=4 * cells)
    return GpuBoxes('each', cells, classes, (level,), coding)


def _centernet(head: CenterNetHead, outputs: HeadOutputs) -> GpuBoxes | None:
    _, classes, rows, columns = outputs.shapes[head.heatmap_name]
    names = [name for name in (head.sizes_name, head.offsets_name) if name]
    if any(outputs.shapes[name][1:] != (2, rows, columns) for name in names):
        return None
    (height, width), cells = outputs.input_hw, rows * columns
    strides = (float(np.float32(width / columns)), float(np.float32(height / rows)))
    level = Level(
        outputs.slice(head.offsets_name, 0, 1, cells) if head.offsets_name else None,
        outputs.slice(head.heatmap_name, 0, 1, cells),
        outputs.slice(head.sizes_name, 0, 1, cells),
        grid=Grid((rows, columns), strides),
    )
    return GpuBoxes(
        'each',
        cells,
        classes,
        (level,),
        AnchorCoding('offsets', place=0.0 if head.offsets_name else 0.5, size='linear'),
        activation='maybe_sigmoid',
        uses_nms=False,
        is_peak=True,
    )


LAYOUTS: Layouts = {
    YoloxHead: _yolox,
    RawYoloHead: _raw_yolo,
    DistributionHead: _distributions,
    ScrfdHead: _scrfd,
    YunetHead: _yunet,
    RetinafaceHead: _retinaface,
    PalmHead: _palms,
    DetectNetHead: _detectnet,
    CenterNetHead: _centernet,
}
