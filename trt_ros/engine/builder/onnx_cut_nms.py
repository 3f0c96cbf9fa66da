"""
Removal of NMS from the end of a network, for TensorRT releases that cannot run it.

The remaining network outputs the boxes and scores that NMS received, and its metadata contains the
attributes of NMS; the decoder then runs the same NMS after the network.
"""

from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any

import numpy as np
import onnx
from onnx.utils import Extractor

from trt_ros.engine.builder import onnx_nodes
from trt_ros.engine.builder.onnx_check import LARGEST_NBYTES, NOT_IN_RTX, metadata_of
from trt_ros.engine.builder.onnx_nms import BATCHED, READERS, CutRefusal, Nms, NmsGraph
from trt_ros.engine.builder.onnx_nodes import nodes, title, used
from trt_ros.errors import ModelError
from trt_ros.tensors import CUT_NMS
from trt_ros.trt import Library

#: Operators that only rearrange or convert the same values.
VIEWS = onnx_nodes.VIEWS | {'Cast'}
#: Operators that only select or arrange values.
PICKS = VIEWS | {
    *('Gather', 'GatherElements', 'GatherND', 'Slice', 'Split', 'Concat', 'TopK', 'Where'),
    *('Tile', 'Expand', 'Pad', 'ScatterND', 'ScatterElements', 'Shape', 'Size'),
    'ConstantOfShape',
}


class UncuttableError(ModelError):
    """A network whose results would change if its NMS were cut off."""


def cut_reason(model: Any, library: Library, plugins: Sequence[str] = ()) -> str:
    """Return why NMS must be cut off for this TensorRT, '' if it may stay."""
    found = {node.op_type for node in nodes(model.graph)}.intersection(READERS)
    if not found:
        return ''
    if library.is_rtx:
        return f'{library} does not support {", ".join(sorted(found))}'
    if 'NonMaxSuppression' in found:
        return 'the size of its NMS output depends on the image, which CUDA graphs do not support'
    removed = found & (BATCHED if library.version >= (11,) else {'TRTBatchedNMS'})
    if removed and not plugins:  # A plugin may be MMDeploy's.
        return f'{library} does not support {", ".join(sorted(removed))}'
    return ''


def cut_nms(path: Path, model: Any) -> tuple[Any, str]:
    """
    Cut NMS and the nodes that only select by its result off a network.

    :param model: a ModelProto; its external data is in the folder of `path`.
    :returns: the ModelProto with two outputs, boxes (1, N, 4) as x1, y1, x2, y2 and scores
        (1, N, C), with `CUT_NMS` in its metadata; and a line for the log.
    :raises UncuttableError: if the results of the network would change.
    """
    found = [node for node in nodes(model.graph) if node.op_type in READERS]
    if len(found) != 1 or found[0] not in model.graph.node:
        raise _not_one(path, found)
    model = onnx.shape_inference.infer_shapes(model)
    graph = _Graph(path, model)
    try:
        nms = READERS[found[0].op_type](graph, found[0])
        graph.refuse_computed_outputs(nms)
        names = graph.add_outputs(nms)
        cut = _extract(model, names)
    except CutRefusal as error:
        raise UncuttableError(
            f'{found[0].op_type} (node {title(found[0])}) cannot be cut off {path}.',
            cause=str(error),
            remedy=NOT_IN_RTX[found[0].op_type],
        ) from error
    onnx.helper.set_model_props(cut, {**metadata_of(model), CUT_NMS: nms.metadata})
    return cut, nms.log_line


def _not_one(path: Path, found: Sequence[Any]) -> UncuttableError:
    """Return the error of a network without NMS, with several, or with one in a subgraph."""
    if not found:
        return UncuttableError(
            f'{path} contains no NMS to cut off.', remedy='Run without --cut-nms.'
        )
    titles = ' and '.join(f'{node.op_type} {title(node)}' for node in found)
    return UncuttableError(
        f'The NMS of {path} cannot be cut off.',
        cause=f'The network contains more than one: {titles}.'
        if len(found) > 1
        else f'{titles} is inside a loop or a branch.',
        remedy=NOT_IN_RTX[found[0].op_type],
    )


def write_cut(path: Path, target: Path) -> None:
    """Write the network of `path` without its NMS, including weights; see `cut_nms`."""
    model = onnx.load(str(path))
    is_large = model.ByteSize() > LARGEST_NBYTES
    cut, _ = cut_nms(path, model)
    onnx.save(cut, str(target), save_as_external_data=is_large, location=f'{target.name}.data')


class _Graph(NmsGraph):
    """A graph from which NMS is cut off."""

    def refuse_computed_outputs(self, nms: Nms) -> None:
        """Raise CutRefusal unless the outputs contain only boxes and scores that NMS selected."""
        views = set(self._views(nms.boxes)) | set(self._views(nms.scores))
        behind, valued = set(nms.node.output), views | set(nms.values)
        for node in self.graph.node:
            if not behind.intersection(used(node)):
                continue
            it = f'{node.op_type} (node {title(node)}) after it'
            foreign = [
                name for name in used(node) if name in self.live and name not in behind | views
            ]
            if foreign:
                raise CutRefusal(
                    f'{it} reads {foreign[0]}, which is neither its boxes nor its scores.'
                )
            has_values = bool(valued.intersection(node.input))
            if node.op_type not in PICKS and (
                has_values or any(attribute.HasField('g') for attribute in node.attribute)
            ):
                raise CutRefusal(f'{it} computes with the boxes or scores it selected.')
            behind.update(node.output)
            if has_values and node.op_type not in ('Shape', 'Size'):
                valued.update(node.output[:1] if node.op_type == 'TopK' else node.output)
        others = [value.name for value in self.graph.output if value.name not in behind | views]
        if others:
            raise CutRefusal(
                f'The network has another output, {others[0]}, that does not depend on it.'
            )

    def _views(self, name: str) -> Iterator[str]:
        """Yield every tensor that is a rearrangement of `name`, before and after it."""
        while True:
            root, producer = name, self.producers.get(name)
            if producer is None or producer.op_type not in VIEWS:
                break
            name = producer.input[0]
        same = {root}
        for node in self.graph.node:
            if node.op_type in VIEWS and node.input[0] in same:
                same.update(node.output)
        yield from same

    def add_outputs(self, nms: Nms) -> list[str]:
        boxes, scores = nms.boxes, nms.scores
        if len(self.shape(boxes)) == 4:
            boxes = self._node('Reshape', boxes, self._add_constant([0, -1, 4]))
        if len(self.shape(scores)) == 4:
            scores = self._node('Reshape', scores, self._add_constant([0, 0, -1]))
        if nms.rows_first:
            boxes = self._node('Gather', boxes, self._add_constant([1, 0, 3, 2]), axis=2)
        if nms.centers:
            center, size = (
                self._node('Gather', boxes, self._add_constant(at), axis=2)
                for at in ([0, 1], [2, 3])
            )
            half = self._node('Mul', size, self._add_constant(0.5, self._kind(nms.boxes)))
            boxes = self._node(
                'Concat', self._node('Sub', center, half), self._node('Add', center, half), axis=2
            )
        if nms.classes_first:
            scores = self._node('Transpose', scores, perm=[0, 2, 1])
        if nms.raw_scores:
            scores = self._node('Sigmoid', scores)
        axes = slice(2, 3), slice(1, 2)  # Of boxes and classes.
        in_scores, in_classes = axes if nms.classes_first else axes[::-1]
        shape = self.shape(nms.scores)
        counts = (0, *self.shape(nms.boxes)[1:2], *shape[in_scores])
        sizes = [max(counts) or 'boxes', max((0, *shape[in_classes])) or 'classes']
        return [
            self._output('nms_boxes', boxes, nms.boxes, [sizes[0], 4]),
            self._output('nms_scores', scores, nms.scores, sizes),
        ]

    def _output(self, name: str, tensor: str, like: str, shape: list[Any]) -> str:
        name = self._unique(name)
        batch = 1 if self.shape(like)[:1] == (1,) else 'batch'
        self.graph.node.append(onnx.helper.make_node('Identity', [tensor], [name], name))
        self.graph.value_info.append(
            onnx.helper.make_tensor_value_info(name, self._kind(like), [batch, *shape])
        )
        return name

    def _node(self, op: str, *inputs: str, **attributes: Any) -> str:
        name = self._unique(f'nms_{op.lower()}')
        self.graph.node.append(onnx.helper.make_node(op, inputs, [name], name, **attributes))
        return name

    def _kind(self, name: str) -> int:
        kind = self.values[name].type.tensor_type.elem_type if name in self.values else 0
        return int(kind or onnx.TensorProto.FLOAT)

    def _add_constant(self, values: Any, kind: int = 7) -> str:
        """Add a constant, int64 by default; return its name."""
        name, array = self._unique('nms_constant'), np.array(values)
        self.graph.initializer.append(
            onnx.helper.make_tensor(name, kind, array.shape, array.ravel())
        )
        return name

    def _unique(self, name: str) -> str:
        while name in self.producers or name in self.weights:
            name += '_'
        self.producers[name] = None
        return name


def _extract(model: Any, outputs: list[str]) -> Any:
    weights = {one.name for one in model.graph.initializer}
    inputs = [value.name for value in model.graph.input if value.name not in weights]
    cut = Extractor(model).extract_model(inputs, outputs)
    used = {name for node in nodes(cut.graph) for name in node.input}
    for value in [value for value in cut.graph.input if value.name not in used]:
        cut.graph.input.remove(value)
    del cut.graph.value_info[:]  # It also contains inputs, which is not valid.
    return cut
