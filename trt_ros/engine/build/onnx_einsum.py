"""Conversion of Einsum equations to lower case, the only letters that TensorRT supports."""

from __future__ import annotations

import string
from typing import Any

from trt_ros.engine.build.onnx_check import nodes


def lower_equations(model: Any) -> int:
    """
    Rename the upper-case letters of Einsum equations in place; results stay the same.

    :returns: number of changed equations. Equations of more than 26 letters are not changed.
    """
    changed = 0
    for node in nodes(model.graph):
        for attribute in node.attribute:
            if node.op_type == 'Einsum' and attribute.name == 'equation':
                lower = lower_equation(attribute.s.decode())
                changed += lower != attribute.s.decode()
                attribute.s = lower.encode()
    return changed


def lower_equation(equation: str) -> str:
    """Rename upper-case letters to unused lower-case letters, if there are enough."""
    free = [letter for letter in string.ascii_lowercase if letter not in equation]
    upper = sorted({letter for letter in equation if letter in string.ascii_uppercase})
    if len(upper) > len(free):
        return equation
    return equation.translate({ord(old): new for old, new in zip(upper, free)})
