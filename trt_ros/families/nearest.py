"""Families with outputs similar to those of a network that no decoder recognizes."""

from collections.abc import Sequence
from dataclasses import replace
from itertools import combinations, permutations
import math
import re
from typing import Any

from trt_ros.families.family import Family, NetworkDescription, is_float
from trt_ros.families.layout import Layout, Out, linear
from trt_ros.families.match import unify
from trt_ros.tensors import TensorSpec

OUTPUT_COST, AXIS_COST, DTYPE_COST, NAME_COST, INPUT_COST = 4.0, 2.0, 1.0, 1.0, 1.0
MAX_OUTPUTS = 6  # Compared.
_NO_EVIDENCE: dict[str, Any] = {'input': '', 'task': '', 'evidence': ()}


def advice(network: NetworkDescription, families: Sequence[Family[Any]]) -> str:
    """Return what to do with a known network that no family decodes, a sentence; or ''."""
    return next(
        (
            f'{text} '
            for family in families
            for layout, text in family.near_misses
            if unify(layout, network) and layout.guarded(network) is not False
        ),
        '',
    )


def nearest(
    network: NetworkDescription, families: Sequence[Family[Any]], count: int = 3
) -> tuple[str, ...]:
    """Describe the outputs of the families nearest to a network, nearest first."""
    found: dict[str, tuple[float, str]] = {}  # One family of those that read the same.
    for family in families:
        for layout in family.layouts:
            if not _may_be(layout, network):
                continue
            needs = f' and needs the input {layout.input}' if layout.input else ''
            text = layout.describe(network.input_hw) + needs
            found.setdefault(text, (_distance(layout, network), family.name))
    best: dict[str, str] = {}
    for text, (_, name) in sorted(found.items(), key=lambda item: item[1][0]):
        best.setdefault(name, f'{name} reads {text}')
    return tuple(best.values())[:count]


def _may_be(layout: Layout, network: NetworkDescription) -> bool:
    """Return whether other outputs, or a further input, could make a network one of a layout."""
    ranks = sorted(len(spec.shape) for spec in network.outputs)
    are_known = ranks == sorted(len(out.axes.split()) for out in layout.outputs)  # To guards.
    similar = replace(layout, input='') if are_known else replace(layout, **_NO_EVIDENCE)
    return similar.guarded(network, auto=True) is not False


def _distance(layout: Layout, network: NetworkDescription) -> float:
    outputs, specs = layout.outputs, network.outputs[:MAX_OUTPUTS]
    levels = len(layout.rows.strides[0]) if layout.rows.strides else 1
    outs = [out for out in outputs for _ in range(levels if out.per_level else 1)]
    missing = max(len(outs) - len(specs), 0 if layout.ignores_others else len(specs) - len(outs))
    few = min(len(outputs), len(specs))
    matched = (
        min(
            sum(_output_distance(out, spec, layout, network) for out, spec in zip(some, choice))
            for some in permutations(outputs, few)
            for choice in combinations(specs, few)
        )
        if few
        else 0.0
    )
    lacks = layout.input and all(spec.name != layout.input for spec in network.inputs)
    return matched + OUTPUT_COST * missing + INPUT_COST * bool(lacks)


def _output_distance(
    out: Out, spec: TensorSpec, layout: Layout, network: NetworkDescription
) -> float:
    """Compute how far an output is from the expected one; 0: equal."""
    axes = out.axes.split()
    is_named = not out.names or any(re.fullmatch(name, spec.name) for name in out.names)
    cost = NAME_COST * (not is_named) + DTYPE_COST * (out.is_float not in (None, is_float(spec)))
    if len(spec.shape) != len(axes):
        return cost + AXIS_COST * abs(len(spec.shape) - len(axes))
    sizes = dict(zip(axes, spec.shape))
    if min(sizes.get('h', 0), sizes.get('w', 0)) > 0:
        height, width = network.input_hw
        cost += abs(math.log(sizes['h'] * width / (sizes['w'] * height)))
    for axis, size in zip(axes, spec.shape):
        expected = layout.sizes(axis, out, network.input_hw)
        if size > 0 and expected:
            cost += min(abs(math.log(max(other, 1) / size)) for other in expected)
        elif size > 0 and axis == 'V':
            factors, constant = linear(out.size)
            cost += max(math.log((constant + sum(factors.values())) / size), 0.0)
    return cost
