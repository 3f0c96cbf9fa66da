"""Separation of the end of a network whose shapes depend on the data, which runs on the CPU."""

from collections.abc import Iterable, Mapping, Sequence
import io
from pathlib import Path
from typing import Any

import onnx

from trt_ros.engine.builder.model_file import DATA_DEPENDENT
from trt_ros.engine.builder.onnx_check import read_onnx
from trt_ros.engine.builder.onnx_cut_nms import UncuttableError, cut_nms
from trt_ros.engine.builder.onnx_nodes import inlined, live_tensors, used, values_of
from trt_ros.errors import ModelError
from trt_ros.regular_file import write_atomically


def split_model(request: Mapping[str, Any], events: Any) -> dict[str, Any]:
    """
    Write the part of a model before what depends on the data, and the rest; in a child process.

    :param request: `path` of the model, and `head` and `tail`, to write to.
    :returns: a line for the log and `operators` of the tail; {} if the network needs no split.
    """
    path = Path(request['path'])
    model = inlined(read_onnx(path)[0])
    graph = model.graph
    live = live_tensors(graph)
    seeds = [
        node
        for node in graph.node
        if node.op_type in DATA_DEPENDENT and live.intersection(node.input)
    ]
    if not seeds:
        return {}
    if all(node.op_type == 'NonMaxSuppression' for node in seeds):
        try:
            cut_nms(path, model)
            return {}  # The decoder runs it.
        except UncuttableError:
            pass
    model = inlined(onnx.load(str(path)))  # With external data, since it is written elsewhere.
    dependent = {name for node in seeds for name in node.output}
    head, tail = _parts(model.graph, dependent, live)
    inside = {name for node in tail for name in node.output}
    values = {
        name: each for name, each in values_of(model).items() if each.type.tensor_type.elem_type
    }
    weights = {each.name for each in model.graph.initializer}
    needed = dict.fromkeys(
        name for node in tail for name in used(node) if name not in inside | weights | {''}
    )
    inputs = [value.name for value in model.graph.input if value.name not in weights]
    outputs = [value.name for value in model.graph.output]
    between = [name for name in needed if name not in inputs]
    kept = [name for name in outputs if name not in inside and name not in between]
    unknown = [name for name in between if name not in values]
    if unknown or not between:
        raise ModelError(
            f'{path} cannot be split before {seeds[0].op_type} ({seeds[0].name}).',
            cause=f'The type of {", ".join(unknown)} is unknown.' if unknown else 'It is first.',
            remedy='Use backend onnxruntime.',
        )
    _save(Path(request['head']), model, head, inputs, [*between, *kept], values)
    last = [name for name in outputs if name in inside]
    _save(Path(request['tail']), model, tail, list(needed), last, values)
    ops = dict.fromkeys(node.op_type for node in seeds)
    return {
        'operators': len(tail),
        'line': f'the shape of outputs depends on the data ({", ".join(ops)}): {len(tail)} of '
        f'{len(graph.node)} operators run on the CPU, behind the engine and without a CUDA graph; '
        f'{len(between)} tensors are copied in between',
    }


def _parts(graph: Any, dependent: set[str], live: set[str]) -> tuple[list[Any], list[Any]]:
    """
    Return the nodes of head and tail.

    Those that compute shapes may be in both, since an engine has no shapes as outputs.

    :param dependent: tensors whose shape depends on the data; receives all computed from them.
    """
    wanted = set[str]()
    for node in graph.node:
        if dependent.intersection(used(node)):
            dependent.update(node.output)
    for node in reversed(graph.node):
        is_shape = wanted.intersection(node.output) and not live.intersection(node.output)
        if is_shape or dependent.intersection(node.output):
            wanted.update((*node.output, *used(node)))
    inside = dependent | wanted - live
    return (
        [node for node in graph.node if not dependent.intersection(node.output)],
        [node for node in graph.node if inside.intersection(node.output)],
    )


def _save(
    path: Path,
    model: Any,
    nodes: Iterable[Any],
    inputs: Sequence[str],
    outputs: Sequence[str],
    values: Mapping[str, Any],
) -> None:
    """Write the part of a model between these tensors; whole, as others may read it."""
    part = onnx.ModelProto()
    part.CopyFrom(model)
    for field in ('node', 'input', 'output', 'initializer', 'value_info'):
        part.graph.ClearField(field)
    part.graph.node.extend(nodes)
    part.graph.input.extend(values[name] for name in inputs)
    part.graph.output.extend(values[name] for name in outputs)
    read = {name for node in part.graph.node for name in used(node)}
    part.graph.initializer.extend(each for each in model.graph.initializer if each.name in read)
    write_atomically(path, io.BytesIO(part.SerializeToString()))
