"""Q/DQ nodes around the layers of a model, where TensorRT fuses them."""

from collections.abc import Iterator, Mapping, Sequence
from typing import Any

import numpy as np

from trt_ros.quantization.formats import QuantFormat
from trt_ros.quantization.layers import QuantLayer, QuantNetwork


def with_qdq(
    network: QuantNetwork,
    layers: Sequence[QuantLayer],
    amax: Mapping[str, float],
    quant_format: QuantFormat,
) -> Any:
    """
    Return a copy of a model in which some layers are quantized.

    The input of each layer passes a QuantizeLinear and a DequantizeLinear with one scale; its
    weights are stored in the format, with one scale per output channel (int8) or one in all (fp8,
    as nvidia-modelopt writes them). Zero points are 0, and biases stay float: TensorRT refuses
    others. A sum of a quantized tensor and a layer's output, as in a residual block, reads the
    quantized tensor, so that TensorRT adds it in the kernel of the layer.

    :param layers: layers to quantize, of `network.layers`.
    :param amax: largest absolute value to represent per activation.
    :returns: ModelProto.
    """
    return _Insertion(network, quant_format).run(layers, amax)


class _Insertion:
    def __init__(self, network: QuantNetwork, quant_format: QuantFormat) -> None:
        import onnx

        self._onnx, self._network, self._format = onnx, network, quant_format
        self._type = onnx.TensorProto.DataType.Value(quant_format.onnx_type)
        self._model = onnx.ModelProto()
        self._model.CopyFrom(network.model)

    def run(self, layers: Sequence[QuantLayer], amax: Mapping[str, float]) -> Any:
        graph = self._model.graph
        by_output = {layer.output: layer for layer in layers}
        quantized = {layer.activation for layer in layers}
        nodes = list(graph.node)
        del graph.node[:]
        for value in graph.input:
            if value.name in quantized:
                graph.node.extend(self._activation(value.name, amax[value.name]))
        done: set[str] = set()
        for node in nodes:
            layer = by_output.get(node.output[0])
            if layer is not None:
                node.input[0] = f'{layer.activation}__dq'
                weight = f'{layer.weight}__{layer.axis}'
                if weight not in done:
                    done.add(weight)
                    graph.node.append(self._weight(layer, weight))
                node.input[1] = f'{weight}__dq'
            elif node.op_type == 'Add':
                self._residual(node, quantized)
            graph.node.append(node)
            for name in node.output:
                if name in quantized:
                    graph.node.extend(self._activation(name, amax[name]))
        self._remove_unused()
        return self._model

    def _residual(self, node: Any, quantized: set[str]) -> None:
        """Redirect the quantized one of two inputs that are computed."""
        inputs = list(node.input)
        found = [index for index, name in enumerate(inputs) if name in quantized]
        if len(found) == 1 and not self._network.weights.keys() & set(inputs):
            node.input[found[0]] += '__dq'

    def _activation(self, name: str, amax: float) -> Iterator[Any]:
        scale = f'{name}__scale'
        self._add_tensor(scale, self._format.scales(np.asarray(amax)))
        make = self._onnx.helper.make_node
        inputs = [scale, self._zero(())]
        yield make('QuantizeLinear', [name, *inputs], [f'{name}__q'], f'{name}__quantize')
        yield make(
            'DequantizeLinear', [f'{name}__q', *inputs], [f'{name}__dq'], f'{name}__dequantize'
        )

    def _weight(self, layer: QuantLayer, name: str) -> Any:
        """Store quantized weights; return their DequantizeLinear."""
        values = self._network.weights[layer.weight]()
        per_channel = self._format.name == 'int8'
        others = tuple(axis for axis in range(values.ndim) if axis != layer.axis)
        amax = np.abs(values).max(axis=others if per_channel else None, keepdims=True)
        scale = self._format.scales(amax)
        rounded = self._format.round(values / scale)
        weight = self._model.graph.initializer.add()
        weight.name, weight.data_type = f'{name}__q', self._type
        weight.dims.extend(values.shape)
        weight.raw_data = self._format.encode(rounded)
        shape = (values.shape[layer.axis],) if per_channel else ()
        self._add_tensor(f'{name}__scale', scale.reshape(shape))
        more: dict[str, Any] = {'axis': layer.axis} if per_channel else {}
        return self._onnx.helper.make_node(
            'DequantizeLinear',
            [f'{name}__q', f'{name}__scale', self._zero(shape)],
            [f'{name}__dq'],
            f'{name}__dequantize',
            **more,
        )

    def _zero(self, shape: tuple[int, ...]) -> str:
        """Return the name of a zero point."""
        name = f'quantization_zero{"_".join(map(str, ("", *shape)))}'
        if all(each.name != name for each in self._model.graph.initializer):
            zero = self._model.graph.initializer.add()
            zero.name, zero.data_type = name, self._type
            zero.dims.extend(shape)
            zero.raw_data = bytes(int(np.prod(shape)))
        return name

    def _add_tensor(self, name: str, values: np.ndarray) -> None:
        self._model.graph.initializer.append(self._onnx.numpy_helper.from_array(values, name))

    def _remove_unused(self) -> None:
        """Remove float weights, and views of them, that no node reads any more."""
        from trt_ros.engine.builder.onnx_check import used

        graph = self._model.graph
        wanted = {value.name for value in graph.output}
        kept = []
        for node in reversed(graph.node):
            constant = set(node.output) <= self._network.weights.keys()
            if not constant or wanted.intersection(node.output):
                kept.append(node)
                wanted.update(used(node))
        del graph.node[:]
        graph.node.extend(reversed(kept))
        for tensor in list(graph.initializer):
            if tensor.name not in wanted:
                graph.initializer.remove(tensor)
        for value in list(graph.input):  # Models of old IR list their weights here, too.
            if value.name in self._network.weights and value.name not in wanted:
                graph.input.remove(value)
