"""
Conversion of ONNX models to fp16 and bf16, since TensorRT networks are strongly typed.

Lowered are the nodes between the floating-point inputs and the last convolution or matrix product,
quantized or not. All nodes after it stay float32 (box arithmetic costs nothing and needs the
precision), as do computations on shapes and indices, and sums and powers, which overflow.

Q/DQ nodes keep their int8 or fp8. Those between lowered nodes get scales of the lower precision,
since a Cast between a Q/DQ node and its convolution prevents TensorRT from fusing them. If a scale
cannot be rounded accurately, its Q/DQ node and the nodes it feeds stay float32.

Why not `onnxruntime.transformers.float16`: it converts to fp16 only, clamps weights that overflow,
ignores Q/DQ nodes, and selects nodes by operator and name, not by their position in the network.
"""

from collections.abc import Iterable, Sequence
from pathlib import Path
from typing import Any

import numpy as np
import onnx

from trt_ros.engine.builder.onnx_check import refuse_beyond_protobuf
from trt_ros.engine.builder.onnx_nodes import (
    HEAVY,
    QUANTIZING,
    VIEWS,
    attribute,
    inlined,
    is_quantized,
    matching_nodes,
    node_key,
    rename,
    set_nodes,
    to_quantizing_opset,
    used,
    values_of,
)
from trt_ros.errors import ModelError, ParameterError
from trt_ros.tensors import TensorSpec, as_tensor

# Sums, powers and their inverses: the squares of a layer norm overflow fp16 at 256.
DELICATE = {
    *('Pow', 'Exp', 'Log', 'Sqrt', 'Reciprocal', 'CumSum', 'Softplus', 'Mean', 'ReduceMean'),
    *('ReduceSum', 'ReduceL1', 'ReduceL2', 'ReduceSumSquare', 'ReduceLogSum', 'ReduceLogSumExp'),
    *('LayerNormalization', 'RMSNormalization', 'InstanceNormalization', 'GroupNormalization'),
    *('LpNormalization', 'MeanVarianceNormalization', 'NonMaxSuppression', 'Range', 'If', 'Loop'),
    'Scan',
}
# Inputs that ONNX requires in float32 whatever the other types are.
FIXED_INPUTS = {'Resize': {1, 2}, 'Upsample': {1}, 'Dropout': {1}}


def convert(
    path: Path, precision: str, *, io_dtypes: str, fp32: Sequence[str] = (), model: Any = None
) -> tuple[Any, str]:
    """
    Convert a model file, or `model` in its place, to 'fp16' or 'bf16'; see `lower`.

    :returns: a checked ModelProto that contains its weights, and a line for the log.
    :raises ParameterError: if the model has no float32 to convert.
    :raises ModelError: if it is too large or cannot be converted.
    """
    refuse_beyond_protobuf(
        path, f'convert to {precision}', 'Convert it in advance, and set precision to auto.'
    )
    if model is not None:
        onnx.load_external_data_for_model(model, str(path.parent))
    model, log_line = lower(
        model or onnx.load(str(path)), precision, io_dtypes=io_dtypes, fp32=fp32
    )
    try:
        onnx.checker.check_model(model)
    except onnx.checker.ValidationError as error:
        if 'No Op registered for' not in str(error):  # Operators of plugins are not in ONNX.
            raise ModelError(
                f'{path} cannot be converted to {precision}.',
                cause=str(error),
                remedy='Set precision to auto, or convert the file with nvidia-modelopt before.',
            ) from error
    return model, log_line


def lower(
    model: Any, precision: str, *, io_dtypes: str = 'keep', fp32: Sequence[str] = ()
) -> tuple[Any, str]:
    """
    Convert a ModelProto with loaded weights in place; return it with a line for the log.

    A tensor needed in both types gets two names, its own for float32 and one with a suffix for the
    lower type, and a Cast directly after the node that produces it, which keeps the nodes in
    topological order.

    :param precision: 'fp16' or 'bf16'.
    :param io_dtypes: 'keep' float32 inputs and outputs, or 'lower' them.
    :param fp32: patterns (as of fnmatch) of the layers that stay float32: names of nodes,
        operators or names of outputs.
    :raises ParameterError: if a pattern matches no node, or no layer is left to convert.
    """
    model = inlined(model)
    if is_quantized(model.graph):
        model = to_quantizing_opset(model, precision)
    lowering = _Lowering(model, precision, fp32)
    return lowering.run(lower_io=io_dtypes == 'lower'), lowering.log_line


class _Lowering:
    def __init__(self, model: Any, precision: str, fp32: Sequence[str]) -> None:
        self.model, self.graph, self.precision = model, model.graph, precision
        self.low = onnx.TensorProto.FLOAT16 if precision == 'fp16' else onnx.TensorProto.BFLOAT16
        self.low_dtype = 'float16' if precision == 'fp16' else 'bfloat16'
        self.suffix = f'__{precision}'
        self.excluded = matching_nodes(self.graph, fp32, option='fp32')
        self._constants_to_weights()
        values = values_of(model)
        self.types = {name: value.type.tensor_type.elem_type for name, value in values.items()}
        self.types.update({one.name: one.data_type for one in self.graph.initializer})
        self.weights = {one.name: one for one in self.graph.initializer}
        self.lowered = self._choose()
        self.log_line = self._summary()

    def run(self, *, lower_io: bool) -> Any:
        self._refuse_scales()
        wants_low, wants_full = self._demands()
        if not wants_low:
            raise ParameterError(
                f'precision {self.precision} has no effect: the model has no float32 to convert.',
                cause='No tensor between its inputs and its last convolution or matrix product '
                'is float32' + (', apart from layers excluded by fp32.' if self.excluded else '.'),
                remedy='Set precision to auto.',
            )
        makers: list[Any] = []
        for value in self.graph.input:
            if self.is_float(value.name) and value.name not in self.weights:
                makers += self._cast(value.name, value.name in wants_low, from_low=False)
        self._split_weights(wants_low, wants_full)
        for node in self.graph.node:
            low = node_key(node) in self.lowered
            if low:
                self._rename_low(node)
            makers.append(node)
            for name in node.output:
                own = name.removesuffix(self.suffix) if low else name
                if self.is_float(own):
                    wanted = wants_full if low else wants_low
                    makers += self._cast(own, own in wanted, from_low=low)
        set_nodes(self.graph, makers)
        del self.graph.value_info[:]  # It contains the old types.
        if lower_io:
            self._lower_io()
        return self.model

    def is_float(self, name: str) -> bool:
        return bool(name) and self.types.get(name) == onnx.TensorProto.FLOAT

    def _constants_to_weights(self) -> None:
        kept = []
        for node in self.graph.node:
            value = attribute(node, 'value') if node.op_type == 'Constant' else None
            if value is None:
                kept.append(node)
                continue
            value.name = node.output[0]
            self.graph.initializer.append(value)
        set_nodes(self.graph, kept)

    def _choose(self) -> set[str]:
        live = {
            one.name
            for one in self.graph.input
            if one.name not in self.weights and self.is_float(one.name)
        }
        reachable = set()
        for node in self.graph.node:
            # Also of weights; the tensors between are int8.
            quantizes = node.op_type in QUANTIZING
            if quantizes or live.intersection(node.input):
                reachable.add(node_key(node))
                live.update(name for name in node.output if quantizes or self.is_float(name))
        feeding: set[str] = set()
        read_low: set[str] = set()
        lowered = set()
        for node in reversed(self.graph.node):
            if node.op_type in HEAVY or feeding.intersection(node.output):
                feeding.update(node.input)
                # A Cast between a low DequantizeLinear and its float32 reader prevents fusion.
                fused = node.op_type != 'DequantizeLinear' or read_low.intersection(node.output)
                if (
                    fused
                    and node_key(node) in reachable - self.excluded
                    and self._can_be_low(node)
                ):
                    lowered.add(node_key(node))
                    read_low.update(node.input)
        lowered -= self._fed_by_full_scales(lowered)
        return lowered - self._quantized_exactly(lowered)

    def _quantized_exactly(self, lowered: set[str]) -> set[str]:
        """Return QuantizeLinear nodes of float32 values, mostly weights: no rounding needed."""
        low = {
            name for node in self.graph.node if node_key(node) in lowered for name in node.output
        }
        return {
            node_key(node)
            for node in self.graph.node
            if node.op_type == 'QuantizeLinear' and node.input[0] not in low
        }

    def _fed_by_full_scales(self, lowered: set[str]) -> set[str]:
        """Return heavy nodes fed by a float32 Q/DQ node: a Cast between them prevents fusion."""
        full: set[str] = set()
        for node in self.graph.node:
            if (node_key(node) not in lowered and node.op_type == 'DequantizeLinear') or (
                node.op_type in VIEWS and full.intersection(node.input)
            ):
                full.update(node.output)
        return {
            node_key(node)
            for node in self.graph.node
            if node.op_type in HEAVY | VIEWS and full.intersection(node.input)
        }

    def _summary(self) -> str:
        """Return a log line with the numbers of lowered nodes."""

        def count(found: Iterable[Any]) -> tuple[int, int]:
            keys = [node_key(node) for node in found]
            return sum(key in self.lowered for key in keys), len(keys)

        heavy = count(node for node in self.graph.node if node.op_type in HEAVY)
        scales = count(node for node in self.graph.node if node.op_type in QUANTIZING)
        line = (
            f'{self.precision}: {len(self.lowered)} of {len(self.graph.node)} nodes, '
            f'{heavy[0]} of {heavy[1]} convolutions and matrix products'
        )
        if self.excluded:
            line += f', {len(self.excluded)} excluded'
        return line + (f', {scales[0]} of {scales[1]} Q/DQ nodes' if scales[1] else '')

    def _refuse_scales(self) -> None:
        """Raise ParameterError if scales that lose precision keep the whole network in float32."""
        heavy = [node_key(node) for node in self.graph.node if node.op_type in HEAVY]
        lost = [
            node.input[1]
            for node in self.graph.node
            if node.op_type == 'DequantizeLinear' and not self._rounds_well(node.input[1])
        ]
        if lost and not self.lowered.intersection(heavy):
            raise ParameterError(
                f'precision {self.precision} has no effect: no convolution or matrix product can '
                'be converted.',
                cause=f'{len(lost)} of the scales of Q/DQ nodes, such as {lost[0]}, '
                f'lose precision in {self.precision}.',
                remedy='Set precision to bf16 or auto.',
            )

    def _can_be_low(self, node: Any) -> bool:
        return (
            node.op_type not in DELICATE
            and node.domain in ('', 'ai.onnx')
            and all(name in self.types for name in (*node.input, *node.output) if name)
            and any(map(self.is_float, (*node.input, *node.output)))
            and (node.op_type not in QUANTIZING or self._rounds_well(node.input[1]))
            and not any(
                self._overflows(self.weights[name])
                for name in node.input
                if name in self.weights and self.is_float(name)
            )
        )

    def _overflows(self, weight: Any) -> bool:
        if self.precision == 'bf16':
            return False
        values = onnx.numpy_helper.to_array(weight)
        return bool((np.abs(values[np.isfinite(values)]) > np.finfo(np.float16).max).any())

    def _rounds_well(self, name: str) -> bool:
        """Return whether rounding is accurate: fp16 loses digits below 6e-5, all below 6e-8."""
        if name not in self.weights:
            return False
        scale = onnx.numpy_helper.to_array(self.weights[name]).astype(np.float64)
        if self.precision == 'bf16':
            return bool(np.isfinite(scale).all() and (scale > 1e-37).all())
        with np.errstate(over='ignore'):
            low = scale.astype(np.float16).astype(np.float64)
        return bool((np.abs(low - scale) <= scale * 2**-10).all() and (low > 0).all())

    def _low_inputs(self, node: Any) -> Iterable[int]:
        fixed = FIXED_INPUTS.get(node.op_type, set())
        names = enumerate(node.input)
        return (index for index, name in names if index not in fixed and self.is_float(name))

    def _demands(self) -> tuple[set[str], set[str]]:
        """Return the tensors that are needed in the lower type, and those needed in float32."""
        wants_low: set[str] = set()
        wants_full = {one.name for one in self.graph.output}
        for node in self.graph.node:
            is_lowered, fixed = node_key(node) in self.lowered, FIXED_INPUTS.get(node.op_type, ())
            low = {node.input[index] for index in self._low_inputs(node)} if is_lowered else set()
            wants_low |= low
            full = (name for index, name in enumerate(node.input) if index in fixed)
            wants_full.update(full if low else used(node))
        return wants_low, wants_full

    def _rename_low(self, node: Any) -> None:
        for index in list(self._low_inputs(node)):
            node.input[index] += self.suffix
        for index, name in enumerate(node.output):
            if self.is_float(name):
                node.output[index] += self.suffix
        for each in node.attribute:
            if (node.op_type, each.name) in (
                ('Cast', 'to'),
                ('DequantizeLinear', 'output_dtype'),
            ) and (each.i == onnx.TensorProto.FLOAT):
                each.i = self.low

    def _cast(self, name: str, wanted: bool, *, from_low: bool) -> list[Any]:
        if not wanted:
            return []
        source, target = (name + self.suffix, name) if from_low else (name, name + self.suffix)
        to = onnx.TensorProto.FLOAT if from_low else self.low
        return [self._make_cast(source, target, to)]

    def _split_weights(self, wants_low: set[str], wants_full: set[str]) -> None:
        for weight in list(self.graph.initializer):
            if weight.name in wants_low and self.is_float(weight.name):
                values = onnx.numpy_helper.to_array(weight)
                spec = TensorSpec(weight.name, values.shape, self.low_dtype, 'input')
                low = onnx.TensorProto(
                    name=weight.name + self.suffix,
                    data_type=self.low,
                    dims=weight.dims,
                    raw_data=as_tensor(spec, values).tobytes(),
                )
                if weight.name not in wants_full:
                    self.graph.initializer.remove(weight)
                self.graph.initializer.append(low)

    def _lower_io(self) -> None:
        """Lower inputs and outputs, keeping their names; redundant Casts cost TensorRT nothing."""
        given = [value for value in self.graph.input if value.name not in self.weights]
        lowered = [value for value in (*given, *self.graph.output) if self.is_float(value.name)]
        full = {value.name: f'{value.name}__fp32' for value in lowered}
        for value in lowered:
            value.type.tensor_type.elem_type = self.low
        direct = {value.name + self.suffix for value in given}
        for node in self.graph.node:
            if node.output[0] not in direct:
                rename(node, full)
        before = [
            self._make_cast(value.name, full[value.name], onnx.TensorProto.FLOAT)
            for value in given
            if value.name in full
        ]
        after = [
            self._make_cast(full[value.name], value.name, self.low)
            for value in self.graph.output
            if value.name in full
        ]
        set_nodes(self.graph, (*before, *self.graph.node, *after))

    def _make_cast(self, source: str, target: str, to: int) -> Any:
        return onnx.helper.make_node('Cast', [source], [target], f'{target}__cast', to=to)
