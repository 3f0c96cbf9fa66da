"""NMS nodes of ONNX graphs: ONNX's own, and those of TensorRT and MMDeploy."""

from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass
import json
from pathlib import Path
from typing import Any

import onnx
from onnx import numpy_helper

from trt_ros.engine.builder.onnx_nodes import live_tensors, shape_of, title

#: Removed in TensorRT 11; the last one is a plugin of MMDeploy.
BATCHED = {'BatchedNMS_TRT', 'BatchedNMSDynamic_TRT', 'TRTBatchedNMS'}


class CutRefusal(Exception):
    """The reason why NMS cannot be cut off, a sentence."""


@dataclass(frozen=True)
class Nms:
    """
    An NMS node with its inputs and attributes.

    :param boxes: name of the boxes, (1, N, 4) or (1, N, 1, 4).
    :param scores: name of the scores, (1, N, C), or (1, C, N) if `classes_first`.
    :param iou_threshold: IoU above which the lower-scoring box is suppressed.
    :param score_threshold: minimum score; None if the node has none.
    :param centers: boxes are centers and sizes, not corners.
    :param rows_first: coordinates are y, x, not x, y.
    :param raw_scores: the node applies a sigmoid to the scores.
    :param normalized: coordinates are 0 to 1.
    :param per_class: maximum number of boxes per class; None for no limit.
    :param in_all: maximum number of boxes per image; None for no limit.
    :param background: index of the background class; -1 for none.
    :param values: outputs that contain coordinates or scores.
    """

    node: Any
    boxes: str
    scores: str
    iou_threshold: float
    score_threshold: float | None = None
    classes_first: bool = False
    centers: bool = False
    rows_first: bool = False
    raw_scores: bool = False
    normalized: bool = False
    per_class: int | None = None
    in_all: int | None = None
    background: int = -1
    values: tuple[str, ...] = ()

    @property
    def log_line(self) -> str:
        """Line for the log on the cut and the attributes of the node."""
        limits = [f'IoU {self.iou_threshold:g}']
        if self.score_threshold is not None:
            limits.append(f'scores above {self.score_threshold:g}')
        if self.per_class is not None:
            limits.append(f'at most {self.per_class} per class')
        if self.in_all is not None:
            limits.append(f'at most {self.in_all} per image')
        node = f'{self.node.op_type} (node {title(self.node)})'
        return f'{node} is cut off and runs after the network: {", ".join(limits)}'

    @property
    def metadata(self) -> str:
        """Attributes of the node as JSON, the value of the metadata key `CUT_NMS`."""
        limits = ('iou_threshold', 'score_threshold', 'per_class', 'in_all')
        values = {name: getattr(self, name) for name in (*limits, 'normalized', 'background')}
        return json.dumps({'operator': self.node.op_type, **values}, sort_keys=True)


class NmsGraph:
    """A graph with shapes inferred, and questions about it."""

    def __init__(self, path: Path, model: Any) -> None:
        self.path, self.graph = path, model.graph
        self.producers = {name: node for node in self.graph.node for name in node.output if name}
        self.weights = {one.name: one for one in self.graph.initializer}
        values = (*self.graph.input, *self.graph.output, *self.graph.value_info)
        self.values = {value.name: value for value in values}
        self.live = live_tensors(self.graph)

    def shape(self, name: str) -> tuple[int, ...]:
        """Return the dimensions, -1 if unknown; () if even their number is unknown."""
        return (shape_of(self.values[name]) if name in self.values else None) or ()

    def number(self, name: str, default: float | None) -> float | None:
        """Return the value of a constant such as a threshold; `default` for an empty name."""
        if not name:
            return default
        if name in self.live:
            raise CutRefusal(f'Its input {name} is computed by the network.')
        return float(self._constant(name).ravel()[0])

    def _constant(self, name: str) -> Any:
        from onnx.reference import ReferenceEvaluator

        if name in self.weights:
            return numpy_helper.to_array(self.weights[name], str(self.path.parent))
        node = self.producers[name]
        outputs = ReferenceEvaluator(node).run(
            None, {one: self._constant(one) for one in node.input if one}
        )
        return dict(zip(node.output, outputs))[name]


def _of_onnx(graph: NmsGraph, node: Any) -> Nms:
    """Read the ONNX operator NonMaxSuppression."""
    boxes, scores, max_boxes, max_iou, min_score = (*node.input, '', '', '')[:5]
    per_class = graph.number(max_boxes, 0.0)
    if not per_class:
        raise CutRefusal('It selects nothing: its max_output_boxes_per_class is 0.')
    _one_image(graph, boxes)
    return Nms(
        node,
        boxes,
        scores,
        graph.number(max_iou, 0.0) or 0.0,
        graph.number(min_score, None),
        classes_first=True,
        centers=bool(_attributes(node).get('center_point_box', 0)),
        # As YOLOv3 of the model zoo, whose boxes are in pixels of an image of that shape.
        rows_first=any(value.name == 'image_shape' for value in graph.graph.input),
        # torchvision sets the largest int64.
        per_class=int(per_class) if per_class < 2**31 else None,
    )


def _of_efficient(graph: NmsGraph, node: Any) -> Nms:
    """Read EfficientNMS_TRT. Source: the README of TensorRT's efficientNMSPlugin."""
    attributes = _attributes(node)
    boxes, scores = _boxes_and_scores(graph, node)
    if any(node.input[2:]):
        raise CutRefusal('Its boxes are relative to anchors.')
    if attributes.get('class_agnostic', 0):
        raise CutRefusal('It is class-agnostic: boxes of different classes suppress each other.')
    background = attributes.get('background_class', -1)  # YOLOv7 writes a list of one.
    return Nms(
        node,
        boxes,
        scores,
        float(attributes.get('iou_threshold', 0.5)),
        float(attributes.get('score_threshold', 0.25)),
        centers=bool(attributes.get('box_coding', 0)),
        raw_scores=bool(attributes.get('score_activation', 0)),
        in_all=int(attributes.get('max_output_boxes', 100)),
        background=int(background[0] if isinstance(background, list) else background),
        values=tuple(node.output[1:3]),
    )


def _of_batched(graph: NmsGraph, node: Any) -> Nms:
    """Read BatchedNMS_TRT (see its README), or MMDeploy's variant with names in snake case."""
    attributes = {
        name.replace('_', '').lower(): value for name, value in _attributes(node).items()
    }
    boxes, scores = _boxes_and_scores(graph, node)
    # Outputs: TensorRT count, boxes, scores, classes; MMDeploy boxes with scores, classes.
    values = node.output[:1] if node.op_type == 'TRTBatchedNMS' else node.output[1:3]
    return Nms(
        node,
        boxes,
        scores,
        float(attributes.get('iouthreshold', 0.5)),
        float(attributes.get('scorethreshold', 0.0)),
        in_all=int(attributes.get('keeptopk', 100)),
        normalized=bool(attributes.get('isnormalized', 1)),
        background=int(attributes.get('backgroundlabelid', -1)),
        values=tuple(values),
    )


def _boxes_and_scores(graph: NmsGraph, node: Any) -> tuple[str, str]:
    if len(node.input) < 2:
        raise CutRefusal('It lacks boxes or scores.')
    boxes, scores = node.input[:2]
    _one_image(graph, boxes)
    shape = graph.shape(boxes)
    if len(shape) == 4 and shape[2] != 1:
        raise CutRefusal('Each class has its own boxes.')
    return boxes, scores


def _attributes(node: Any) -> Mapping[str, Any]:
    return {one.name: onnx.helper.get_attribute_value(one) for one in node.attribute}


def _one_image(graph: NmsGraph, boxes: str) -> None:
    batch: Iterable[int] = graph.shape(boxes)[:1]
    if any(size > 1 for size in batch):
        raise CutRefusal('It processes several images per run.')


READERS: Mapping[str, Callable[[NmsGraph, Any], Nms]] = {
    'NonMaxSuppression': _of_onnx,
    'EfficientNMS_TRT': _of_efficient,
    **dict.fromkeys(BATCHED, _of_batched),
}
