"""Nodes of ONNX models by kind and name, and the opset of quantized models."""

from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from fnmatch import fnmatchcase
from pathlib import Path
from typing import Any

import onnx
from onnx import TensorProto
from onnx.helper import get_attribute_value

from trt_ros.errors import ModelError, ParameterError

HEAVY = {'Conv', 'ConvTranspose', 'Gemm', 'MatMul', 'Einsum', 'Attention', 'LSTM', 'GRU', 'RNN'}
# Between the DequantizeLinear of weights and their matrix product.
VIEWS = {'Transpose', 'Reshape', 'Squeeze', 'Unsqueeze', 'Flatten', 'Identity'}
QUANTIZING = {'QuantizeLinear', 'DequantizeLinear'}
_QUANTIZED = {
    **dict.fromkeys(('INT8', 'UINT8'), 'int8'),
    **dict.fromkeys(('INT4', 'UINT4'), 'int4'),
    **{f'FLOAT8{name}': 'fp8' for name in ('E4M3FN', 'E4M3FNUZ', 'E5M2', 'E5M2FNUZ')},
    'FLOAT4E2M1': 'nvfp4',
}
#: Operators of nvidia-modelopt whose results are quantized values as floats.
MODELOPT = {
    'TRT_FP4DynamicQuantize': 'nvfp4',
    'TRT_FP4QDQ': 'nvfp4',
    'TRT_FP8DequantizeLinear': 'fp8',
    'TRT_INT4DequantizeLinear': 'int4',
    'TRT_INT4QDQ': 'int4',
    'TRT_MXFP8DequantizeLinear': 'mxfp8',
}
QUANTIZING_OPSET = 19  # First one with scales of float16 or bfloat16.


def attribute(node: Any, name: str, default: Any = None) -> Any:
    """Return the value of an attribute of a node, or the default."""
    found = (get_attribute_value(each) for each in node.attribute if each.name == name)
    return next(found, default)


def title(node: Any) -> str:
    """Return the name of a node, or that of its first output where it has none."""
    return str(node.name or node.output[0])


def values_of(model: Any) -> dict[str, Any]:
    """Return inputs, outputs, and values between whose types can be inferred, by name."""
    try:
        graph = onnx.shape_inference.infer_shapes(model, data_prop=True).graph
    except (ValueError, onnx.shape_inference.InferenceError):  # Larger than 2 GB; contradictions.
        graph = model.graph
    return {each.name: each for each in (*graph.value_info, *graph.input, *graph.output)}


def shape_of(value: Any) -> tuple[int, ...] | None:
    """Return the dimensions of a ValueInfoProto, -1 if dynamic; None if all are unknown."""
    tensor = value.type.tensor_type
    if not tensor.HasField('shape'):
        return None
    return tuple(size.dim_value if size.HasField('dim_value') else -1 for size in tensor.shape.dim)


def set_nodes(graph: Any, nodes: Iterable[Any]) -> None:
    """Replace the nodes of a graph."""
    kept = list(nodes)
    del graph.node[:]
    graph.node.extend(kept)


def last_layers(graph: Any, is_decoding: Callable[[Any], bool] = lambda node: False) -> list[Any]:
    """
    Return the convolutions and matrix products from which an output is reached without another.

    :param is_decoding: whether one is none of them, but a step of decoding.
    """
    wanted, found = {value.name for value in graph.output}, []
    for node in reversed(graph.node):
        if wanted.intersection(node.output):
            if node.op_type in HEAVY and not is_decoding(node):
                found.append(node)
            else:
                wanted.update(node.input)
    return found[::-1]


def live_tensors(graph: Any) -> set[str]:
    """Return the tensors that depend on the values of the inputs, not only on their shapes."""
    live = {value.name for value in graph.input} - {one.name for one in graph.initializer}
    for node in graph.node:
        if node.op_type not in ('Shape', 'Size') and live.intersection(used(node)):
            live.update(node.output)
    return live


def used(node: Any) -> Iterable[str]:
    """Yield every tensor that a node reads, including from inside its subgraphs."""
    yield from node.input
    for attribute in node.attribute:
        for graph in (attribute.g, *attribute.graphs):
            yield from (value.name for value in graph.output)
            for inner in graph.node:
                yield from used(inner)


def nodes(graph: Any) -> Iterator[Any]:
    """Yield every node, including subgraphs."""
    for node in graph.node:
        yield node
        for attribute in node.attribute:
            for inner in (attribute.g, *attribute.graphs):
                yield from nodes(inner)


def tensors(graph: Any) -> Iterator[Any]:
    """Yield every constant tensor: weights and attributes, including subgraphs."""
    yield from graph.initializer
    for node in graph.node:
        for attribute in node.attribute:
            if attribute.HasField('t'):
                yield attribute.t
            yield from attribute.tensors
            for inner in (attribute.g, *attribute.graphs):
                yield from tensors(inner)


def constants(graph: Any) -> dict[str, Any]:
    """Return the weights and the tensors of Constant nodes by name, including subgraphs."""
    values = {
        node.output[0]: attribute(node, 'value')
        for node in nodes(graph)
        if node.op_type == 'Constant'
    }
    return {each.name: each for each in tensors(graph)} | {
        name: value for name, value in values.items() if value is not None
    }


def inlined(model: Any) -> Any:
    """Return a model without functions: with their nodes in the graph."""
    from onnx import inliner  # Absent in old releases.

    return inliner.inline_local_functions(model) if model.functions else model


def is_quantized(graph: Any) -> bool:
    """Return whether a graph has Q/DQ nodes, including in subgraphs."""
    return any(node.op_type in QUANTIZING for node in nodes(graph))


def layers_by_precision(graph: Any) -> dict[str, list[str]]:
    """Return the keys of layers with dequantized inputs, by their kind, as 'int8 convolutions'."""
    types = {number: name for name, number in TensorProto.DataType.items()}
    kinds = {name: each.data_type for name, each in constants(graph).items()}
    read, found = dict[str, str](), dict[str, list[str]]()
    for node in nodes(graph):
        if not (node.input and node.output):
            continue
        if node.op_type in MODELOPT:
            read |= dict.fromkeys(node.output[:1], MODELOPT[node.op_type])
        elif node.op_type == 'QuantizeLinear':
            kinds[node.output[0]] = _quantized_type(node, kinds)
        elif node.op_type == 'DequantizeLinear':
            known = _QUANTIZED.get(types.get(kinds.get(node.input[0], 0), ''), '')
            read[node.output[0]] = read.get(node.input[0]) or known
        elif node.op_type in {*VIEWS, 'Cast'} and node.input[0] in read:
            read[node.output[0]] = read[node.input[0]]
        elif node.op_type in HEAVY or node.op_type == 'Gather':
            layers = 'convolutions' if 'Conv' in node.op_type else 'matrix products'
            layers = 'lookups' if node.op_type == 'Gather' else layers
            kinds_read = {read[name] for name in node.input if read.get(name)}
            if not all(map(read.get, node.input[:2])):
                kinds_read.discard('int8')  # It is dequantized, and computed in float.
            for kind in sorted(kinds_read):
                found.setdefault(f'{kind} {layers}', []).append(node_key(node))
    return found


def _quantized_type(node: Any, types: Mapping[str, int]) -> int:
    """Return the type that a QuantizeLinear writes; 0 if that of its zero point is unknown."""
    zero = node.input[2] if len(node.input) > 2 else ''
    given: int = attribute(node, 'output_dtype', 0) or TensorProto.UINT8
    return types.get(zero, 0) if zero else given


def refuse_uint8(path: Path, graph: Any) -> None:
    """Raise ModelError for quantization to uint8, which TensorRT's parser takes for int8."""
    types = {name: each.data_type for name, each in constants(graph).items()}
    found = [
        title(node)
        for node in nodes(graph)
        if node.op_type == 'QuantizeLinear' and _quantized_type(node, types) == TensorProto.UINT8
    ]
    if found:
        raise ModelError(
            f'{path} quantizes to uint8, which TensorRT does not support.',
            cause=f'{len(found)} QuantizeLinear have a zero point of uint8 or none: '
            f'{", ".join(found[:3])}.',
            remedy='Quantize activations and weights to int8, with int8 zero points of 0.',
        )


def to_quantizing_opset(model: Any, precision: str) -> Any:
    """Return a model in an opset whose Q/DQ nodes have fp8 and low scales, or ModelError."""
    opset = next((one for one in model.opset_import if one.domain in ('', 'ai.onnx')), None)
    if opset is None or opset.version >= QUANTIZING_OPSET:
        return model
    try:
        return onnx.version_converter.convert_version(model, QUANTIZING_OPSET)
    except Exception as error:  # Its own exceptions, or RuntimeError from C++.
        raise ModelError(
            f'A quantized model of opset {opset.version} cannot be converted to {precision}.',
            cause=f'Q/DQ nodes in {precision} require opset {QUANTIZING_OPSET}: {error}',
            remedy=f'Export it with opset {QUANTIZING_OPSET} or newer, or set precision to auto.',
        ) from error


def matching_nodes(graph: Any, patterns: Sequence[str], *, option: str) -> set[str]:
    """Return the keys of the nodes that fnmatch patterns match, or raise ParameterError."""
    found: set[str] = set()
    for pattern in patterns:
        keys = {
            node_key(node)
            for node in graph.node
            if any(fnmatchcase(text, pattern) for text in (node.name, node.op_type, *node.output))
        }
        if not keys:
            raise ParameterError(
                f'{option} {pattern!r} matches no node, operator or output of the model.',
                remedy='Use a name or operator of the model, as shown by `trt-ros verify --layers`'
                ' or Netron.',
            )
        found |= keys
    return found


def node_key(node: Any) -> str:
    """Return a unique key of a node: node names may be empty, tensor names are unique."""
    return ' '.join(node.output)


def rename(node: Any, names: dict[str, str]) -> None:
    """Rename tensors that a node reads or writes, including inside its subgraphs."""
    for index, name in enumerate(node.input):
        node.input[index] = names.get(name, name)
    for index, name in enumerate(node.output):
        node.output[index] = names.get(name, name)
    for attribute in node.attribute:
        for graph in (attribute.g, *attribute.graphs):
            for inner in graph.node:
                rename(inner, names)
