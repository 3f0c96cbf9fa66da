"""Arithmetic of a network, counted from the shapes of its ONNX model."""

import math
from typing import Any

from trt_ros.engine.builder.onnx_nodes import attribute, shape_of, values_of

Shape = tuple[int, ...]

#: Larger weights are no shapes: their values are not needed.
LARGEST_SHAPE = 1024

COUNTED = ('Conv', 'ConvTranspose', 'Gemm', 'MatMul')
#: Operators with products of their own that are not counted, and those with subgraphs.
NOT_COUNTED = {
    *('Attention', 'ConvInteger', 'DeformConv', 'Einsum', 'FusedConv', 'FusedGemm'),
    *('FusedMatMul', 'GRU', 'GroupQueryAttention', 'If', 'LSTM', 'Loop', 'MatMulInteger'),
    *('MatMulNBits', 'MultiHeadAttention', 'NhwcConv', 'QGemm', 'QLinearConv', 'QLinearMatMul'),
    *('RNN', 'Scan'),
}


def flop_of(model: Any) -> int | None:
    """
    Count the floating-point operations of one run of a ModelProto, with a dynamic batch of one.

    Those of convolutions and matrix products (Conv, ConvTranspose, Gemm, MatMul); a multiplication
    and an addition count as two.

    :returns: None where it has none, or where a part of it is not known: other operators with
        products, subgraphs, functions, tensors of unknown shape.
    """
    if model.functions or NOT_COUNTED.intersection(node.op_type for node in model.graph.node):
        return None
    shapes, flop = shapes_of(model), 0
    for node in model.graph.node:
        if node.op_type not in COUNTED:
            continue
        operands = [shapes.get(name) for name in (*node.input[:2], node.output[0])]
        first, second, output = operands
        if not (first and second and output):  # Unknown, or a scalar, which is invalid.
            return None
        flop += 2 * _products(node, first, second, output)
    return flop or None


def shapes_of(model: Any) -> dict[str, Shape]:
    """Return the shapes of the tensors of a ModelProto, with a dynamic batch of one."""
    shapes: dict[str, Shape] = {one.name: tuple(one.dims) for one in model.graph.initializer}
    for name, value in values_of(_with_batch(model)).items():
        shape = shape_of(value)
        if shape is not None and -1 not in shape:
            shapes[name] = shape
    return shapes


def _with_batch(model: Any) -> Any:
    """Return a copy without the values of weights, whose inputs have a batch size of one."""
    copy = type(model)()
    copy.CopyFrom(model)
    for tensor in copy.graph.initializer:
        if math.prod(tensor.dims) > LARGEST_SHAPE:
            for field in ('raw_data', 'float_data', 'int32_data', 'int64_data', 'double_data'):
                tensor.ClearField(field)
    is_dynamic = False
    for value in copy.graph.input:
        dims = value.type.tensor_type.shape.dim
        if dims and not dims[0].HasField('dim_value'):
            dims[0].dim_value, is_dynamic = 1, True
    if is_dynamic:
        for values in (copy.graph.output, copy.graph.value_info):
            for value in values:  # Shapes of another batch size would contradict this one.
                value.type.tensor_type.ClearField('shape')
    return copy


def _products(node: Any, first: Shape, second: Shape, output: Shape) -> int:
    if node.op_type == 'Conv':  # Weight: outputs, inputs of the group, kernel.
        return math.prod(output) * math.prod(second[1:])
    if node.op_type == 'ConvTranspose':  # Weight: inputs, outputs of the group, kernel.
        return math.prod(first) * math.prod(second[1:])
    return math.prod(output) * (first[0] if attribute(node, 'transA') else first[-1])
