"""Rewrites of ONNX models for TensorRT and the frame path; results stay the same."""

import string
from typing import Any

import numpy as np
import onnx
from onnx import helper, numpy_helper

from trt_ros.engine.builder.onnx_nodes import nodes, rename, shape_of, values_of
from trt_ros.engine.options import BuildOptions
from trt_ros.errors import ParameterError


def lower_equations(model: Any) -> int:
    """Rename upper-case letters of Einsum equations of at most 26; return the count."""
    changed = 0
    for node in nodes(model.graph):
        for attribute in node.attribute:
            if node.op_type == 'Einsum' and attribute.name == 'equation':
                equation = attribute.s.decode(errors='surrogateescape')
                lower = lower_equation(equation)
                changed += lower != equation
                attribute.s = lower.encode(errors='surrogateescape')
    return changed


def lower_equation(equation: str) -> str:
    """
    Rename upper-case letters to unused lower-case letters, if there are enough.

    Without '->', the letters of the output are those that occur once, in the order of ASCII: they
    are named first, as lower-case letters have another order.
    """
    free = [letter for letter in string.ascii_lowercase if letter not in equation]
    upper = sorted({letter for letter in equation if letter in string.ascii_uppercase})
    if len(upper) > len(free):
        return equation
    if upper and '->' not in equation:
        once = sorted(
            each for each in set(equation) & set(string.ascii_letters) if equation.count(each) == 1
        )
        equation += f'->{"..." if "..." in equation else ""}{"".join(once)}'
    return equation.translate({ord(old): new for old, new in zip(upper, free)})


CHANNELS = (1, 3, 4)


def images_as_uint8(model: Any) -> list[str]:
    """Make int32 inputs of the shape of images uint8 in place, with equal results."""
    changed = [value for value in model.graph.input if _is_int32_image(value)]
    for value in changed:
        pixels, floats, integers = value.name, f'{value.name}_float32', f'{value.name}_int32'
        for node in model.graph.node:
            rename(node, {pixels: integers})
        # TensorRT converts uint8 to float only.
        for place, (source, target, kind) in enumerate(
            ((pixels, floats, onnx.TensorProto.FLOAT), (floats, integers, onnx.TensorProto.INT32))
        ):
            cast = onnx.helper.make_node('Cast', [source], [target], target, to=kind)
            model.graph.node.insert(place, cast)
        value.type.tensor_type.elem_type = onnx.TensorProto.UINT8
    return [value.name for value in changed]


def _is_int32_image(value: Any) -> bool:
    sizes = shape_of(value) or ()
    is_image = len(sizes) == 4 and (sizes[1] in CHANNELS or sizes[3] in CHANNELS)
    return is_image and value.type.tensor_type.elem_type == onnx.TensorProto.INT32


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
    if not any(node.op_type == 'Concat' for node in nodes(model.graph)):
        return 0
    graph = model.graph
    known = {name: shape_of(value) for name, value in values_of(model).items()}
    shapes = {name: shape for name, shape in known.items() if shape and min(shape) > 0}
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


def _concatenated(graph: Any) -> set[str]:
    """Return the values that are concatenated, maybe after operations element by element."""
    found: set[str] = set()
    for node in reversed(graph.node):
        is_elementwise = node.op_type in _BINARY | _UNARY
        if node.op_type == 'Concat' or (is_elementwise and not found.isdisjoint(node.output)):
            found.update(node.input)
    return found


def rewrite(model: Any, options: BuildOptions, *, is_rtx: bool = False) -> bool:
    """Write a network in place as TensorRT and frames need it; return whether it changed."""
    found = {
        'upper-case letters in Einsum equations': lower_equations(model),
        'int32 image inputs': images_as_uint8(model),
        'broadcasts': expand_broadcasts(model) if is_rtx else 0,
    }
    rewritten = [what for what, changes in found.items() if changes]
    if rewritten and options.strip_weights:
        raise ParameterError(
            f'strip_weights cannot be combined with {" and ".join(rewritten)}.',
            cause='They are rewritten, but TensorRT reads the ONNX file again at load.',
            remedy='Remove strip_weights, or change them in the model.',
        )
    return bool(rewritten)
