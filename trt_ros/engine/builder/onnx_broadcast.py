"""Explicit broadcasts in front of concatenations, which TensorRT for RTX fuses wrongly."""

from typing import Any

from trt_ros.engine.builder.onnx_check import nodes

_BINARY = {'Add', 'Sub', 'Mul', 'Div', 'Max', 'Min', 'Pow', 'Mod', 'PRelu'}
_UNARY = {
    *('Abs', 'Cast', 'Clip', 'Cos', 'Elu', 'Erf', 'Exp', 'Gelu', 'Identity', 'LeakyRelu', 'Log'),
    *('Neg', 'Reciprocal', 'Relu', 'Sigmoid', 'Sign', 'Sin', 'Softplus', 'Sqrt', 'Tanh'),
}


def expand_broadcasts(model: Any) -> int:
    """
    Expand operands of one column where the result is concatenated, in place; results are the same.

    tensorrt_rtx 1.5 reads such an operand, (1, 1) beside (1, N), value by value, where it fuses
    the operation and a concatenation into a matrix product: it computes x * x instead of
    x * x[:, :1] (seen on an H100 in policies that turn quaternions to w >= 0;
    test/gpu/test_broadcasts.py). Shapes that are not known stay.

    :returns: number of expanded operands.
    """
    import numpy as np
    import onnx
    from onnx import helper, numpy_helper

    if not any(node.op_type == 'Concat' for node in nodes(model.graph)):
        return 0
    graph = model.graph
    shapes = _shapes(onnx.shape_inference.infer_shapes(model).graph)
    constants = {each.name for each in graph.initializer}
    concatenated = _concatenated(graph)
    count = 0
    for place in range(len(graph.node) - 1, -1, -1):
        node = graph.node[place]
        [output] = node.output if len(node.output) == 1 else ['']
        shape = shapes.get(output, ())
        if node.op_type not in _BINARY or output not in concatenated or not shape:
            continue
        for index, name in enumerate(node.input):
            if name in constants or shapes.get(name, shape)[-1:] != (1,) or shape[-1] == 1:
                continue
            wide = f'{output} operand {index}'
            graph.initializer.append(
                numpy_helper.from_array(np.array(shape, np.int64), f'{wide} shape')
            )
            graph.node.insert(place, helper.make_node('Expand', [name, f'{wide} shape'], [wide]))
            node.input[index] = wide
            count += 1
    return count


def _shapes(graph: Any) -> dict[str, tuple[int, ...]]:
    """Return the shapes that are known and fixed, by name."""
    found = {}
    for value in (*graph.input, *graph.value_info, *graph.output):
        tensor = value.type.tensor_type
        if tensor.HasField('shape'):
            sizes = tuple(each.dim_value for each in tensor.shape.dim)
            if all(sizes):
                found[value.name] = sizes
    return found


def _concatenated(graph: Any) -> set[str]:
    """Return the values that are concatenated, maybe after operations element by element."""
    found: set[str] = set()
    for node in reversed(graph.node):
        is_elementwise = node.op_type in _BINARY | _UNARY
        if node.op_type == 'Concat' or (is_elementwise and not found.isdisjoint(node.output)):
            found.update(node.input)
    return found
