"""Conversion of Einsum equations to lower case, the only letters that TensorRT supports."""

import string
from typing import Any

from trt_ros.engine.builder.onnx_check import nodes


def lower_equations(model: Any) -> int:
    """
    Rename the upper-case letters of Einsum equations in place; results stay the same.

    :returns: number of changed equations. Equations of more than 26 letters are not changed.
    """
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
