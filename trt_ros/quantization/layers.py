"""Number formats, the layers of an ONNX model that can be quantized, and the last ones."""

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
import onnx

from trt_ros.engine.builder.onnx_nodes import (
    HEAVY,
    attribute,
    constants,
    is_quantized,
    last_layers,
    matching_nodes,
    node_key,
    title,
)
from trt_ros.errors import ModelError, ParameterError


@dataclass(frozen=True)
class QuantFormat:
    """A symmetric format: values are multiples of a scale, and zero is zero."""

    name: str
    largest: float
    onnx_type: str

    def scales(self, amax: np.ndarray) -> np.ndarray:
        """
        Return the float32 scale per largest absolute value; 1 / `largest` for zeros.

        Scales are rounded up to 8 bits, which float16 (from 7.6e-6 on) and bfloat16 represent
        exactly, so that lowering the layers to fp16 or bf16 changes no scale.
        """
        scales = np.asarray(np.where(amax > 0, amax, 1.0) / self.largest, np.float32)
        bits = scales.view(np.uint32)
        return np.asarray((bits + 0xFFFF & 0xFFFF0000).astype(np.uint32).view(np.float32))

    def round(self, values: np.ndarray) -> np.ndarray:
        """Round values in units of the scale to the nearest ones of the format, ties to even."""
        clipped = np.clip(values, -self.largest, self.largest)
        if self.name == 'int8':
            return np.asarray(np.rint(clipped))
        step = np.exp2(_exponents(clipped) - 3)
        return np.asarray(np.rint(clipped / step) * step)

    def simulate(self, values: np.ndarray, amax: float | np.ndarray) -> np.ndarray:
        """Return the values after quantizing with a range of -amax to amax and dequantizing."""
        scale = self.scales(np.asarray(amax))
        return np.asarray(self.round(values / scale) * scale)

    def encode(self, values: np.ndarray) -> bytes:
        """Return the bytes of rounded values, in units of the scale."""
        if self.name == 'int8':
            return values.astype(np.int8).tobytes()
        # Sign, 4 bits of exponent with a bias of 7, 3 bits of mantissa; subnormal below 2^-6.
        exponent = _exponents(values)
        mantissa = np.rint(np.abs(values) / np.exp2(exponent - 3)).astype(np.int64)
        bits = np.where(
            mantissa >= 8, (exponent.astype(np.int64) + 7 << 3) + mantissa - 8, mantissa
        )
        encoded: np.ndarray = bits | np.where(np.signbit(values), 0x80, 0)
        return encoded.astype(np.uint8).tobytes()


def _exponents(values: np.ndarray) -> np.ndarray:
    return np.asarray(np.maximum(np.frexp(values)[1] - 1.0, -6.0))


INT8 = QuantFormat('int8', 127.0, 'INT8')
FP8 = QuantFormat('fp8', 448.0, 'FLOAT8E4M3FN')
FORMATS = {each.name: each for each in (INT8, FP8)}


VIEWS = {'Identity'}  # Of weights that several layers share.
FP8_CHANNELS = 16  # Bytes of an aligned access.
FP8_KERNEL_ELEMENTS = 32


@dataclass(frozen=True)
class QuantLayer:
    """
    A convolution or matrix product with constant weights.

    :param name: name of the node; its output where it has none.
    :param output: name of its output.
    :param activation: name of the tensor that it reads.
    :param weight: name of its weights, as the node reads them.
    :param axis: axis of the weights with the output channels.
    """

    name: str
    op: str
    output: str
    activation: str
    weight: str
    axis: int


class QuantNetwork:
    """
    A float32 model of which layers are chosen to be quantized.

    :param to: format that TensorRT must have kernels for.
    :ivar model: ModelProto with its weights.
    :ivar layers: layers that may be quantized, in topological order.
    :ivar head: outputs of the last layers before the results: they stay in float.
    :ivar left_out: reason per convolution or matrix product that stays in float.
    :raises ModelError: if the model is quantized already.
    """

    def __init__(self, model: Any, keep: Sequence[str] = (), to: str = 'int8') -> None:
        self.model = model
        if is_quantized(model.graph):
            raise ModelError(
                'The model is quantized already.',
                cause='It contains QuantizeLinear or DequantizeLinear.',
                remedy='Quantize the float32 model that it was made from.',
            )
        self.weights = _constants(model.graph)
        kept = matching_nodes(model.graph, keep, option='keep')
        head = last_layers(model.graph, lambda node: _is_dfl(node, self.weights))
        self.head = [node.output[0] for node in head]
        self.layers: list[QuantLayer] = []
        self.left_out: dict[str, str] = {}
        in_head = {node_key(node) for node in head}
        for node in model.graph.node:
            if node.op_type not in HEAVY:
                continue
            found = self._layer(node)
            if isinstance(found, QuantLayer):
                if node_key(node) in kept:
                    found = 'kept by --keep'
                elif node_key(node) in in_head or _is_dfl(node, self.weights):
                    found = 'last layer before the results'
                else:
                    found = self._lack_of_kernel(node, to) or found
            if isinstance(found, QuantLayer):
                self.layers.append(found)
            else:
                self.left_out[title(node)] = found
        if not self.layers:
            raise ParameterError(
                'The model has no layer to quantize.',
                cause='; '.join(f'{name}: {why}' for name, why in self.left_out.items())
                or 'It has no convolutions or matrix products.',
                remedy='Quantize a float32 model with several convolutions or matrix products.',
            )

    def _layer(self, node: Any) -> QuantLayer | str:
        """Return the layer of a node, or why it cannot be quantized."""
        if node.op_type not in ('Conv', 'ConvTranspose', 'Gemm', 'MatMul'):
            return f'{node.op_type} is not quantized'
        weight = self.weights.get(node.input[1])
        if weight is None:
            return 'its weights are not constant'
        if node.input[0] in self.weights:
            return 'its input is constant'
        values = weight()
        if values.dtype != np.float32:
            return f'its weights are {values.dtype}, not float32'
        if not np.isfinite(values).all():
            return 'its weights are not finite'
        axis = _axis(node, values)
        if axis is None:
            return 'weights of this shape are not quantized'
        reads, weights = node.input[:2]
        return QuantLayer(title(node), node.op_type, node.output[0], reads, weights, axis)

    def _lack_of_kernel(self, node: Any, to: str) -> str:
        """
        Return why TensorRT has no kernel of a format for a layer, '' where it has.

        For fp8, its release notes exclude grouped convolutions and kernels of more than 32
        elements, and its library has kernels for aligned channels only. nvidia-modelopt leaves the
        same layers out, and those of 16 channels, which are slower than in fp16.
        """
        if to == 'int4' and node.op_type != 'MatMul':
            return f'{node.op_type} is not rounded to int4'
        if to != 'fp8':
            return ''
        weight = self.weights[node.input[1]]()
        if node.op_type == 'ConvTranspose':
            return 'fp8 has no transposed convolutions'
        if node.op_type == 'Conv':
            if attribute(node, 'group', 1) != 1:
                return 'fp8 has no grouped convolutions'
            if np.prod(weight.shape[2:]) > FP8_KERNEL_ELEMENTS:
                return f'fp8 has no kernels of more than {FP8_KERNEL_ELEMENTS} elements'
        channels = weight.shape[:2]
        if min(channels) <= FP8_CHANNELS or any(count % FP8_CHANNELS for count in channels):
            return (
                f'fp8 needs multiples of {FP8_CHANNELS} channels, at least {2 * FP8_CHANNELS}, '
                f'not {channels[0]} and {channels[1]}'
            )
        return ''


def _axis(node: Any, weight: np.ndarray) -> int | None:
    """Return the axis of the output channels; None for weights that are not quantized."""
    if node.op_type == 'Conv':
        return 0
    if node.op_type == 'ConvTranspose':
        return 1 if attribute(node, 'group', 1) == 1 else None
    if node.op_type == 'Gemm':
        return None if attribute(node, 'transA') else 1 - attribute(node, 'transB', 0)
    return 1 if weight.ndim == 2 else None


def _constants(graph: Any) -> dict[str, Callable[[], np.ndarray]]:
    """Return a reader per constant tensor: weights, Constant nodes and views of them."""

    def reader(tensor: Any) -> Callable[[], np.ndarray]:
        return lambda: np.asarray(onnx.numpy_helper.to_array(tensor))

    found = {name: reader(tensor) for name, tensor in constants(graph).items()}
    for node in graph.node:
        if node.op_type in VIEWS and node.input[0] in found:
            found[node.output[0]] = found[node.input[0]]
    return found


def _is_dfl(node: Any, weights: dict[str, Callable[[], np.ndarray]]) -> bool:
    """Return whether a convolution computes the mean of a distribution over box sides."""
    weight = weights.get(node.input[1]) if node.op_type == 'Conv' else None
    if weight is None:
        return False
    values = weight()
    return values.shape[0] == 1 and np.array_equal(values.ravel(), np.arange(values.size))
