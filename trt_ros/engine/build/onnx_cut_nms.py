"""
NMS at the end of a network, cut off it where TensorRT cannot run it.

What is left gives the boxes and scores that NMS was given, and says in its metadata what was asked
of it; the decoder does the same after the network.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
import json
from pathlib import Path
from typing import Any

from trt_ros.engine.build.onnx_check import (
    LARGEST_NBYTES,
    NOT_IN_RTX,
    live_tensors,
    metadata_of,
    nodes,
    used,
)
from trt_ros.errors import ModelError
from trt_ros.tensors import CUT_NMS
from trt_ros.trt import Flavour

#: Operators that only show the same numbers in another way.
VIEWS = {'Transpose', 'Reshape', 'Squeeze', 'Unsqueeze', 'Flatten', 'Identity', 'Cast'}
#: Operators that only choose or arrange numbers.
PICKS = VIEWS | {
    'Gather',
    'GatherElements',
    'GatherND',
    'Slice',
    'Split',
    'Concat',
    'TopK',
    'Where',
    'Tile',
    'Expand',
    'Pad',
    'ScatterND',
    'ScatterElements',
    'Shape',
    'Size',
    'ConstantOfShape',
}


class UncuttableError(ModelError):
    """Without its NMS, this network would not tell what it tells with it."""


@dataclass(frozen=True)
class Nms:
    """
    What a node of NMS gets, and what it does with it.

    :param decoder: the family that reads its answer, and so what is left without it.
    :param boxes: (1, N, 4), or (1, N, 1, 4).
    :param scores: (1, N, C); `classes_first`: (1, C, N).
    :param centres: boxes are centres and sizes, not corners; `rows_first`: y, x, not x, y.
    :param values: its outputs that hold coordinates or scores.
    :param per_class: the most boxes it chooses of a class; `in_all`: of an image.
    :param background: a class that is none; -1 where there is no such.
    """

    node: Any
    decoder: str
    boxes: str
    scores: str
    iou_threshold: float
    score_threshold: float | None = None
    classes_first: bool = False
    centres: bool = False
    rows_first: bool = False
    raw_scores: bool = False
    normalised: bool = False
    per_class: int | None = None
    in_all: int | None = None
    background: int = -1
    values: tuple[str, ...] = ()

    @property
    def title(self) -> str:
        return f'{self.node.op_type} (node {self.node.name or self.node.output[0]})'

    @property
    def log_lines(self) -> str:
        asked = [f'IoU {self.iou_threshold:g}']
        if self.score_threshold is not None:
            asked.append(f'scores above {self.score_threshold:g}')
        if self.per_class is not None:
            asked.append(f'at most {self.per_class} a class')
        if self.in_all is not None:
            asked.append(f'at most {self.in_all}')
        return f'{self.title} is cut off the network and done after it, as it says: ' + ', '.join(
            asked
        )

    @property
    def metadata(self) -> str:
        return json.dumps(
            {
                'operator': self.node.op_type,
                'decoder': self.decoder,
                'iou_threshold': self.iou_threshold,
                'score_threshold': self.score_threshold,
                'normalised': self.normalised,
                'per_class': self.per_class,
                'in_all': self.in_all,
                'background': self.background,
            },
            sort_keys=True,
        )


#: Gone from TensorRT 11; the last is MMDeploy's own plugin.
BATCHED = {'BatchedNMS_TRT', 'BatchedNMSDynamic_TRT', 'TRTBatchedNMS'}


def cut_reason(model: Any, flavour: Flavour, plugins: Sequence[str] = ()) -> str:
    """Return why NMS has to be cut off for this TensorRT, '' where it may stay."""
    found = {node.op_type for node in nodes(model.graph)}.intersection(READERS)
    if not found:
        return ''
    if flavour.is_rtx:
        return f'{flavour} cannot build {", ".join(sorted(found))}'
    if 'NonMaxSuppression' in found:
        return 'the size of its answer depends on the image, which no CUDA graph can serve'
    gone = found & (BATCHED if flavour.version >= (11,) else {'TRTBatchedNMS'})
    if gone and not plugins:  # One of them may be MMDeploy's.
        return f'{flavour} has no {", ".join(sorted(gone))}'
    return ''


def releases_that_cut(model: Any) -> str:
    """Name the releases that have NMS cut off this network, '' where it has none."""
    found = {node.op_type for node in nodes(model.graph)}.intersection(READERS)
    if 'NonMaxSuppression' in found:
        return 'tensorrt and tensorrt_rtx'
    if found & BATCHED:
        return 'tensorrt 11 and tensorrt_rtx'
    return 'tensorrt_rtx' if found else ''


def cut_nms(path: Path, model: Any) -> tuple[Any, str]:
    """
    Cut NMS, and what only picks by its answer, off a network.

    :param model: a ModelProto; its weights may lie beside `path`.
    :returns: the ModelProto of two outputs, boxes (1, N, 4) as x1, y1, x2, y2 and scores
        (1, N, C), with `CUT_NMS` in its metadata; and a line for the log.
    :raises UncuttableError: where that would change what the network tells.
    """
    import onnx

    found = [node for node in nodes(model.graph) if node.op_type in READERS]
    if len(found) != 1 or found[0] not in model.graph.node:
        what = ' and '.join(f'{node.op_type} {node.name or node.output[0]}' for node in found)
        raise UncuttableError(
            f'There is no NMS to cut off {path}.'
            if not found
            else f'The NMS of {path} cannot be cut off.',
            cause=f'There is more than one: {what}.'
            if len(found) > 1
            else f'{what} is inside of a loop or a branch.'
            if found
            else '',
            remedy=NOT_IN_RTX[found[0].op_type] if found else 'Leave --cut-nms out.',
        )
    model = onnx.shape_inference.infer_shapes(model)
    graph = _Graph(path, model)
    try:
        nms = READERS[found[0].op_type](graph, found[0])
        graph.refuse_what_others_decide(nms)
        names = graph.add_outputs(nms)
        cut = _extract(model, names)
    except _NotSafe as error:
        raise UncuttableError(
            f'{found[0].op_type} (node {found[0].name or found[0].output[0]}) cannot be cut off '
            f'{path}.',
            cause=str(error),
            remedy=NOT_IN_RTX[found[0].op_type],
        ) from error
    onnx.helper.set_model_props(cut, {**metadata_of(model), CUT_NMS: nms.metadata})
    return cut, nms.log_lines


def write_cut(path: Path, target: Path) -> None:
    """Write the network of `path` without its NMS, weights included; see `cut_nms`."""
    import onnx

    model = onnx.load(str(path))
    is_large = model.ByteSize() > LARGEST_NBYTES
    onnx.save(
        cut_nms(path, model)[0],
        str(target),
        save_as_external_data=is_large,
        location=f'{target.name}.data',
    )


class _NotSafe(Exception):
    """Why it cannot be cut, as a sentence."""


class _Graph:
    """A graph with shapes inferred, and questions about it."""

    def __init__(self, path: Path, model: Any) -> None:
        self.path, self.graph = path, model.graph
        self.makers = {name: node for node in self.graph.node for name in node.output if name}
        self.weights = {one.name: one for one in self.graph.initializer}
        self.values = {
            value.name: value.type.tensor_type
            for value in (*self.graph.input, *self.graph.output, *self.graph.value_info)
        }
        self.live = live_tensors(self.graph)
        self._constants: list[Any] = []

    def shape(self, name: str) -> list[int]:
        """Give the dimensions, -1 where not known; [] where not even their number is."""
        if name not in self.values or not self.values[name].HasField('shape'):
            return []
        return [
            size.dim_value if size.HasField('dim_value') else -1
            for size in self.values[name].shape.dim
        ]

    def number(self, name: str, default: float | None) -> float | None:
        """Compute a constant, such as a threshold."""
        if not name:
            return default
        if name in self.live:
            raise _NotSafe(f'Its {name} is computed by the network.')
        return float(self._constant(name).ravel()[0])

    def _constant(self, name: str) -> Any:
        from onnx import numpy_helper
        from onnx.reference import ReferenceEvaluator

        if name in self.weights:
            return numpy_helper.to_array(self.weights[name], str(self.path.parent))
        node = self.makers[name]
        answers = ReferenceEvaluator(node).run(
            None, {one: self._constant(one) for one in node.input if one}
        )
        return dict(zip(node.output, answers))[name]

    def refuse_what_others_decide(self, nms: Nms) -> None:
        """:raises _NotSafe: where the outputs are not just boxes and scores that it chose."""
        views = set(self._views(nms.boxes)) | set(self._views(nms.scores))
        behind, valued = set(nms.node.output), views | set(nms.values)
        for node in self.graph.node:
            if not behind.intersection(used(node)):
                continue
            title = f'{node.op_type} (node {node.name or node.output[0]})'
            strangers = [
                name for name in used(node) if name in self.live and name not in behind | views
            ]
            if strangers:
                raise _NotSafe(
                    f'Behind it, {title} takes {strangers[0]}, which is neither the '
                    'boxes nor the scores that it gets.'
                )
            has_values = bool(valued.intersection(node.input))
            if node.op_type not in PICKS and (
                has_values or any(attribute.HasField('g') for attribute in node.attribute)
            ):
                raise _NotSafe(f'Behind it, {title} computes with what it chose.')
            behind.update(node.output)
            if has_values and node.op_type not in ('Shape', 'Size'):
                valued.update(node.output[:1] if node.op_type == 'TopK' else node.output)
        others = [value.name for value in self.graph.output if value.name not in behind | views]
        if others:
            raise _NotSafe(f'The network has another output, {others[0]}.')

    def _views(self, name: str) -> Iterator[str]:
        """Give every tensor that is `name` in another arrangement, before and after it."""
        while True:
            root, maker = name, self.makers.get(name)
            if maker is None or maker.op_type not in VIEWS:
                break
            name = maker.input[0]
        same = {root}
        for node in self.graph.node:
            if node.op_type in VIEWS and node.input[0] in same:
                same.update(node.output)
        yield from same

    def add_outputs(self, nms: Nms) -> list[str]:
        """Make the two outputs by further nodes, and give their names."""
        boxes, scores = nms.boxes, nms.scores
        if len(self.shape(boxes)) == 4:
            boxes = self._node('Reshape', boxes, self._integers(0, -1, 4))
        if len(self.shape(scores)) == 4:
            scores = self._node('Reshape', scores, self._integers(0, 0, -1))
        if nms.rows_first:
            boxes = self._node('Gather', boxes, self._integers(1, 0, 3, 2), axis=2)
        if nms.centres:
            centre, size = (
                self._node('Gather', boxes, self._integers(*at), axis=2) for at in ((0, 1), (2, 3))
            )
            half = self._node('Mul', size, self._half(nms.boxes))
            boxes = self._node(
                'Concat', self._node('Sub', centre, half), self._node('Add', centre, half), axis=2
            )
        if nms.classes_first:
            scores = self._node('Transpose', scores, perm=[0, 2, 1])
        if nms.raw_scores:
            scores = self._node('Sigmoid', scores)
        count, classes = self._sizes(nms)
        return [
            self._output('nms_boxes', boxes, nms.boxes, ['batch', count or 'boxes', 4]),
            self._output(
                'nms_scores', scores, nms.scores, ['batch', count or 'boxes', classes or 'classes']
            ),
        ]

    def _sizes(self, nms: Nms) -> tuple[int, int]:
        """Give the numbers of boxes and of classes, 0 where not known."""
        boxes, scores = self.shape(nms.boxes), self.shape(nms.scores)
        known = [
            size
            for size in (*boxes[1:2], *(scores[2:3] if nms.classes_first else scores[1:2]))
            if size > 0
        ]
        classes = (scores[1:2] if nms.classes_first else scores[2:3]) or [0]
        return max(known, default=0), max(classes[0], 0)

    def _output(self, name: str, tensor: str, like: str, shape: list[Any]) -> str:
        import onnx

        name = self._unique(name)
        batch = self.shape(like)[:1]
        shape[0] = 1 if batch == [1] else 'batch'
        self.graph.node.append(onnx.helper.make_node('Identity', [tensor], [name], name))
        self.graph.value_info.append(
            onnx.helper.make_tensor_value_info(name, self._kind(like), shape)
        )
        return name

    def _node(self, op: str, *inputs: str, **attributes: Any) -> str:
        import onnx

        name = self._unique(f'nms_{op.lower()}')
        self.graph.node.append(onnx.helper.make_node(op, inputs, [name], name, **attributes))
        return name

    def _integers(self, *values: int) -> str:
        import numpy as np

        return self._weight(np.array(values, np.int64))

    def _half(self, like: str) -> str:
        import numpy as np
        import onnx

        return self._weight(np.array(0.5, onnx.helper.tensor_dtype_to_np_dtype(self._kind(like))))

    def _kind(self, name: str) -> int:
        import onnx

        kind: int = self.values[name].elem_type if name in self.values else 0
        return kind or onnx.TensorProto.FLOAT

    def _weight(self, values: Any) -> str:
        import onnx

        name = self._unique('nms_constant')
        self.graph.initializer.append(onnx.numpy_helper.from_array(values, name))
        return name

    def _unique(self, name: str) -> str:
        while name in self.makers or name in self.weights:
            name += '_'
        self.makers[name] = None
        return name


def _extract(model: Any, outputs: list[str]) -> Any:
    """Keep what the outputs need."""
    from onnx.utils import Extractor

    weights = {one.name for one in model.graph.initializer}
    inputs = [value.name for value in model.graph.input if value.name not in weights]
    cut = Extractor(model).extract_model(inputs, outputs)
    used = {name for node in nodes(cut.graph) for name in node.input}
    for value in [value for value in cut.graph.input if value.name not in used]:
        cut.graph.input.remove(value)
    del cut.graph.value_info[:]  # It tells of inputs, too, which is not valid.
    return cut


def _of_onnx(graph: _Graph, node: Any) -> Nms:
    """Source: the ONNX operator NonMaxSuppression."""
    boxes, scores, most, most_iou, least = (*node.input, '', '', '')[:5]
    per_class = graph.number(most, 0.0)
    if not per_class:
        raise _NotSafe('It chooses nothing: its max_output_boxes_per_class is 0.')
    _one_image(graph, boxes)
    is_yolov3 = any(value.name == 'image_shape' for value in graph.graph.input)
    return Nms(
        node,
        'yolov3' if is_yolov3 else 'onnx_nms',
        boxes,
        scores,
        graph.number(most_iou, 0.0) or 0.0,
        graph.number(least, None),
        classes_first=True,
        centres=bool(_attributes(node).get('center_point_box', 0)),
        rows_first=is_yolov3,
        per_class=int(per_class),
    )


def _of_efficient(graph: _Graph, node: Any) -> Nms:
    """Source: the README of TensorRT's efficientNMSPlugin."""
    given = _attributes(node)
    boxes, scores = _boxes_and_scores(node)
    if any(node.input[2:]):
        raise _NotSafe('Its boxes are relative to anchors.')
    if given.get('class_agnostic', 0):
        raise _NotSafe('It lets boxes of different classes compete.')
    _one_image(graph, boxes)
    _shared_boxes(graph, boxes)
    background = given.get('background_class', -1)  # YOLOv7 writes a list of one.
    return Nms(
        node,
        'efficient_nms',
        boxes,
        scores,
        float(given.get('iou_threshold', 0.5)),
        float(given.get('score_threshold', 0.25)),
        centres=bool(given.get('box_coding', 0)),
        raw_scores=bool(given.get('score_activation', 0)),
        in_all=int(given.get('max_output_boxes', 100)),
        background=int(background[0] if isinstance(background, list) else background),
        values=tuple(node.output[1:3]),
    )


def _of_batched(graph: _Graph, node: Any) -> Nms:
    """Source: the README of TensorRT's batchedNMSPlugin; MMDeploy's own goes by snake case."""
    given = {name.replace('_', '').lower(): value for name, value in _attributes(node).items()}
    boxes, scores = _boxes_and_scores(node)
    _one_image(graph, boxes)
    _shared_boxes(graph, boxes)
    # TensorRT's gives a count, boxes, scores, classes; MMDeploy's boxes with scores, classes.
    values = node.output[:1] if node.op_type == 'TRTBatchedNMS' else node.output[1:3]
    return Nms(
        node,
        'efficient_nms',
        boxes,
        scores,
        float(given.get('iouthreshold', 0.5)),
        float(given.get('scorethreshold', 0.0)),
        in_all=int(given.get('keeptopk', 100)),
        normalised=bool(given.get('isnormalized', 1)),
        background=int(given.get('backgroundlabelid', -1)),
        values=tuple(values),
    )


def _boxes_and_scores(node: Any) -> tuple[str, str]:
    if len(node.input) < 2:
        raise _NotSafe('It lacks boxes or scores.')
    return node.input[0], node.input[1]


def _attributes(node: Any) -> Mapping[str, Any]:
    import onnx

    return {one.name: onnx.helper.get_attribute_value(one) for one in node.attribute}


def _one_image(graph: _Graph, boxes: str) -> None:
    batch: Iterable[int] = graph.shape(boxes)[:1]
    if any(size > 1 for size in batch):
        raise _NotSafe('It takes several images at a time.')


def _shared_boxes(graph: _Graph, boxes: str) -> None:
    shape = graph.shape(boxes)
    if len(shape) == 4 and shape[2] != 1:
        raise _NotSafe('Each class has boxes of its own.')


READERS: Mapping[str, Callable[[_Graph, Any], Nms]] = {
    'NonMaxSuppression': _of_onnx,
    'EfficientNMS_TRT': _of_efficient,
    **dict.fromkeys(BATCHED, _of_batched),
}
