"""Families with outputs similar to those of a network that no decoder recognizes."""

from __future__ import annotations

from collections.abc import Collection
from itertools import combinations, permutations
import math
from typing import NamedTuple

from trt_ros.families.family import NetworkDescription, cells_of_stride, is_float
from trt_ros.families.nanodet import STRIDES_WITH_64
from trt_ros.families.output_layouts import (
    YOLO_STRIDES,
    is_of_yolov7_nms,
    yolov5_rows,
    yolov8_columns,
)
from trt_ros.families.paddle import SCALE_INPUT
from trt_ros.families.yolo_rows import three_anchor_counts
from trt_ros.families.yolov8 import cell_counts
from trt_ros.tensors import TensorSpec

#: Minimum sizes of axes.
MIN_SIZES = {
    '4 + classes': 5,
    '5 + classes': 6,
    '32 + classes': 33,
    '5 + 3 * keypoints': 8,
    '4 + classes + masks': 6,
}
OUTPUT_COST, AXIS_COST, DTYPE_COST = 4.0, 2.0, 1.0
MAX_OUTPUTS = 6  # Compared.

#: Keypoint networks by the channels of a detector of the same shape, with one class.
KEYPOINT_NETWORKS = {
    'yolov5': {
        16: 'YOLOv5-face, 1 class and 5 landmarks',
        21: 'YOLOv7-face, 1 class and 5 landmarks',
        57: 'YOLOv7-pose, 1 class and 17 keypoints',
    },
    'yolov8': {56: 'YOLOv8-pose, 1 class and 17 keypoints'},
}
#: Inputs beside the image that a family needs.
INPUTS = dict.fromkeys(('ppyoloe', 'ppyoloe_plus'), SCALE_INPUT)


def lookalike(family: str, network: NetworkDescription) -> str | None:
    """Name the keypoint network that has the outputs of a detector; None: there is none."""
    find = {'yolov5': yolov5_rows, 'yolov8': yolov8_columns}.get(family)
    found = find(network) if find else None
    if found is None or network.class_count not in (None, 0, 1):
        return None
    return KEYPOINT_NETWORKS[family].get(found.channels)


def advice(network: NetworkDescription) -> str:
    """Return how to export a known network that no family decodes, a sentence; or ''."""
    if is_of_yolov7_nms(network):
        return (
            'Rows of 7 values are those of YOLOv7 exported with --max-wh: export it with --grid, '
            'without --end2end; or of YOLO-NAS with NMS inside: export it without. '
        )
    if are_raw_grids(network.outputs, network.input_hw):
        return (
            'Equal channels at strides 8, 16 and 32 are a YOLO without decoded boxes: export it '
            'with decoded boxes in one output. '
        )
    if are_grids_of_heads(network.outputs, network.input_hw):
        return (
            'Several outputs at each of strides 8, 16 and 32 are a detector without decoded '
            'boxes, such as RTMDet, or YOLO for RKNN: export it with decoded boxes. '
        )
    if are_boxes_with_keypoints(network.outputs):
        return (
            'Boxes (1, N, 5) with keypoints (1, N, points, 3) are RTMO of MMPose, which is not '
            'decoded: use RTMPose on the regions of a detector. '
        )
    return ''


def are_boxes_with_keypoints(outputs: tuple[TensorSpec, ...]) -> bool:
    """Return whether the outputs are (1, N, 5) and (1, N, points, 3)."""
    shapes = sorted((spec.shape for spec in outputs), key=len)
    return (
        [len(shape) for shape in shapes] == [3, 4]
        and shapes[0][1] == shapes[1][1]
        and (shapes[0][2], shapes[1][3]) == (5, 3)
    )


def are_raw_grids(outputs: tuple[TensorSpec, ...], input_hw: tuple[int, int]) -> bool:
    """Return whether the outputs are planes (1, C, h, w) or (1, h, w, C) of three strides."""
    if len(outputs) != len(YOLO_STRIDES) or any(len(spec.shape) != 4 for spec in outputs):
        return False
    for rows, channels in ((slice(2, 4), 1), (slice(1, 3), 3)):
        grids = {tuple(side // stride for side in input_hw) for stride in YOLO_STRIDES}
        sizes = {spec.shape[rows] for spec in outputs}
        if sizes == grids and len({spec.shape[channels] for spec in outputs}) == 1:
            return True
    return False


def are_grids_of_heads(outputs: tuple[TensorSpec, ...], input_hw: tuple[int, int]) -> bool:
    """Return whether each of three strides, or more, has several planes (1, C, h, w)."""
    grids = [spec.shape[2:] for spec in outputs if len(spec.shape) == 4]
    expected = {tuple(side // stride for side in input_hw) for stride in YOLO_STRIDES}
    return (
        len(grids) == len(outputs)
        and expected <= set(grids)
        and all(grids.count(grid) > 1 for grid in grids)
    )


class Expected(NamedTuple):
    """
    One output that a family decodes.

    :param axes: per axis a size, several possible sizes, or a name for any size.
    """

    axes: tuple[int | tuple[int, ...] | str, ...]
    name: str = ''
    is_float: bool = True

    def __str__(self) -> str:
        axes = ', '.join(
            ' or '.join(map(str, axis)) if isinstance(axis, tuple) else str(axis)
            for axis in self.axes
        )
        return f'{self.name} ({axes})'.lstrip() + ('' if self.is_float else ' of integers')

    def distance(self, spec: TensorSpec) -> float:
        """Compute how far an output is from the expected one; 0: equal."""
        cost = DTYPE_COST * (self.is_float != is_float(spec))
        if len(spec.shape) != len(self.axes):
            return cost + AXIS_COST * abs(len(spec.shape) - len(self.axes))
        return cost + sum(
            _axis_distance(axis, size) for axis, size in zip(self.axes, spec.shape) if size > 0
        )


def _axis_distance(axis: int | tuple[int, ...] | str, size: int) -> float:
    if isinstance(axis, str):
        return max(math.log(MIN_SIZES.get(axis, 1) / size), 0.0)
    sizes = axis if isinstance(axis, tuple) else (axis,)
    return min(abs(math.log(max(other, 1) / size)) for other in sizes)


def layouts(network: NetworkDescription) -> dict[str, tuple[Expected, ...]]:
    """Return the outputs that each family decodes, for images of this network's size."""
    height, width = network.input_hw
    cells, grid = tuple(cell_counts(network)), (-(-height // 16), -(-width // 16))
    boxes, scores = Expected((1, 'N', 4)), Expected((1, 'N', 'classes'))
    queries = Expected((1, 'N', 4), 'pred_boxes')
    triples, ids = tuple(three_anchor_counts(network)), Expected((1, 'N'), is_float=False)
    prototypes = Expected((1, 'masks', height // 4, width // 4))
    with_64 = sum(len(cells_of_stride(network.input_hw, stride)) for stride in STRIDES_WITH_64)
    raw = tuple(
        Expected((1, 3, height // stride, width // stride, '5 + classes'))
        for stride in YOLO_STRIDES
    )
    return {
        'yolov8': (Expected((1, '4 + classes', cells)),),
        'yolox': (Expected((1, network.anchor_count(YOLO_STRIDES), '5 + classes')),),
        'yolov5': (Expected((1, triples, '5 + classes')),),
        'yolov10': (Expected((1, 'N', 6)),),
        'rtdetr': (Expected((1, 'N', 'classes'), 'logits'), queries),
        'detr': (Expected((1, 'N', 'classes + 1'), 'logits'), queries),
        'rfdetr': (Expected((1, 'N', 4), 'dets'), Expected((1, 'N', 'classes'), 'labels')),
        'ssd': (boxes, Expected((1, 'N', '1 + classes'))),
        'detectnet_v2': (Expected((1, 'C', *grid)), Expected((1, '4 * C', *grid))),
        'efficient_nms': (
            Expected((1, 1), is_float=False),
            boxes,
            Expected((1, 'N')),
            ids,
        ),
        'onnx_nms': (Expected(('K', 3), is_float=False), boxes, Expected((1, 'classes', 'N'))),
        'boxes': (boxes, scores),
        'mmdetection': (Expected((1, 'N', 5)), ids),
        'tensorflow': (
            Expected((1, 'N', 4), 'detection_boxes'),
            Expected((1, 'N'), 'detection_scores'),
            Expected((1, 'N'), 'detection_classes'),
        ),
        'yolov5_raw': raw,
        'yolov7_raw': raw,
        'nanodet_plus': (Expected((1, with_64, '32 + classes')),),
        'nanodet': (Expected((1, network.anchor_count(YOLO_STRIDES), '32 + classes')),),
        'picodet': (scores, Expected((1, 'N', 32))),
        'ppyoloe': (Expected(('K', 6)), Expected((1,), is_float=False)),
        'ppyoloe_plus': (boxes, Expected((1, 'classes', 'N'))),
        'centernet': tuple(
            Expected((1, planes, height // 4, width // 4)) for planes in ('classes', 2, 2)
        ),
        'yolov8_seg': (
            Expected((1, '4 + classes + masks', cells)),
            prototypes,
        ),
        'yolov5_seg': (Expected((1, triples, '5 + classes + masks')), prototypes),
        'rfdetr_seg': (
            Expected((1, 'N', 4), 'dets'),
            Expected((1, 'N', 'classes'), 'labels'),
            Expected((1, 'N', 'rows', 'columns'), 'masks'),
        ),
        'semantic': (Expected((1, 'classes', 'rows', 'columns')),),
        'maskformer': (
            Expected((1, 'queries', 'classes + 1')),
            Expected((1, 'queries', 'rows', 'columns')),
        ),
        'maskformer_panoptic': (
            Expected((1, 'N', 'classes + 1'), 'logits'),
            queries,
            Expected((1, 'N', 'rows', 'columns'), 'pred_masks'),
        ),
        'yolov8_pose': (Expected((1, '5 + 3 * keypoints', cells)),),
        'yolov5_face': (Expected((1, triples, 16)),),
        'yolov7_pose': (Expected((1, triples, '6 + 3 * keypoints')),),
        'scrfd': tuple(Expected(('N', size)) for size in (1, 4, 10)),
        'yunet': tuple(Expected((1, 'N', size)) for size in (1, 1, 4, 10)),
        'retinaface': tuple(Expected((1, 'N', size)) for size in (4, 2, 10)),
        'heatmap_pose': (Expected((1, 'keypoints', height // 4, width // 4)),),
        'simcc': (
            Expected((1, 'keypoints', 2 * width)),
            Expected((1, 'keypoints', 2 * height)),
        ),
        'movenet': (Expected((1, 1, 17, 3)),),
        'mediapipe_palm': (Expected((1, 'N', 18)), Expected((1, 'N', 1))),
        'mediapipe_hand': (Expected((1, 63)), Expected((1, 1)), Expected((1, 1))),
        'ufld': (Expected((1, 'columns + 1', (56, 18), 'lanes')),),
        **{
            f'ufld_v2_{name}': tuple(
                Expected((1, cells, anchors, 4))
                for cells in ('cells', 2)
                for anchors in (rows, columns)
            )
            for name, rows, columns in (('culane', 72, 81), ('tusimple', 56, 41))
        },
        'lstr': (
            Expected((1, 'queries', (2, 3)), 'pred_logits'),
            Expected((1, 'queries', 8), 'pred_curves'),
        ),
        'yolov8_obb': (Expected((1, '5 + classes', cells)),),
        'classifier': (Expected((1, 'classes')),),
        'depth': (Expected((1, 1, 'rows', 'columns')),),
        'embedding': (Expected((1, 'D')),),
    }


def nearest(
    network: NetworkDescription, families: Collection[str], count: int = 3
) -> tuple[str, ...]:
    """Describe the outputs of the families nearest to a network, nearest first."""
    distances = {
        name: _distance(expected, network.outputs[:MAX_OUTPUTS])
        for name, expected in layouts(network).items()
        if name in families
    }
    names = sorted(distances, key=distances.__getitem__)[:count]
    return tuple(
        f'{name} reads {" with ".join(map(str, layouts(network)[name]))}'
        + (f' and needs the input {INPUTS[name]}' if name in INPUTS else '')
        for name in names
    )


def _distance(expected: tuple[Expected, ...], specs: tuple[TensorSpec, ...]) -> float:
    few, many = sorted((len(expected), len(specs)))
    arrangements = permutations(expected, few)
    choices = list(combinations(specs, few))
    matched = (
        min(
            sum(output.distance(spec) for output, spec in zip(arrangement, choice))
            for arrangement in arrangements
            for choice in choices
        )
        if few
        else 0.0
    )
    return matched + OUTPUT_COST * (many - few)
