"""Q/DQ nodes around layers, and the layers that stay in float because they are sensitive."""

from collections.abc import Iterator, Mapping, Sequence
import math
from typing import Any

import numpy as np
import onnx

from trt_ros.engine.builder.onnx_nodes import set_nodes, used
from trt_ros.errors import ParameterError
from trt_ros.progress import Reporter
from trt_ros.quantization.calibration import NO_BOXES, Calibration
from trt_ros.quantization.layers import QuantFormat, QuantLayer, QuantNetwork
from trt_ros.quantization.result_agreement import Evaluation, FrameNetwork, ResultAgreement
from trt_ros.runtime.fitting import ResolvedModel


class Insertion:
    """Adds Q/DQ nodes of a format to a copy of a model."""

    def __init__(self, network: QuantNetwork, quant_format: QuantFormat) -> None:
        self._network, self._format = network, quant_format
        self._type = onnx.TensorProto.DataType.Value(quant_format.onnx_type)
        self._model = onnx.ModelProto()
        self._model.CopyFrom(network.model)

    def run(self, layers: Sequence[QuantLayer], amax: Mapping[str, float]) -> Any:
        """
        Return the copy with some layers quantized.

        The input of each layer passes a QuantizeLinear and a DequantizeLinear with one scale; its
        weights are stored in the format, with one scale per output channel (int8) or one in all
        (fp8, as nvidia-modelopt writes them). Zero points are 0, and biases stay float: TensorRT
        refuses others. A sum of a quantized tensor and a layer's output, as in a residual block,
        reads the quantized tensor, so that TensorRT adds it in the kernel of the layer.

        :param layers: layers to quantize, of `network.layers`.
        :param amax: largest absolute value to represent per activation.
        :returns: ModelProto.
        """
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
        inputs = [scale, self._zero(())]
        yield self._node('Quantize', [name, *inputs], f'{name}__q', name)
        yield self._node('Dequantize', [f'{name}__q', *inputs], f'{name}__dq', name)

    def _weight(self, layer: QuantLayer, name: str) -> Any:
        """Store quantized weights; return their DequantizeLinear."""
        values = self._network.weights[layer.weight]()
        per_channel = self._format.name == 'int8'
        others = tuple(axis for axis in range(values.ndim) if axis != layer.axis)
        amax = np.abs(values).max(axis=others if per_channel else None, keepdims=True)
        scale = self._format.scales(amax)
        rounded = self._format.round(values / scale)
        self._add_raw(f'{name}__q', values.shape, self._format.encode(rounded))
        shape = (values.shape[layer.axis],) if per_channel else ()
        self._add_tensor(f'{name}__scale', scale.reshape(shape))
        more: dict[str, Any] = {'axis': layer.axis} if per_channel else {}
        inputs = [f'{name}__q', f'{name}__scale', self._zero(shape)]
        return self._node('Dequantize', inputs, f'{name}__dq', name, **more)

    def _node(self, op: str, inputs: list[str], output: str, name: str, **more: Any) -> Any:
        title = f'{name}__{op.lower()}'
        return onnx.helper.make_node(f'{op}Linear', inputs, [output], title, **more)

    def _zero(self, shape: tuple[int, ...]) -> str:
        name = f'quantization_zero{"_".join(map(str, ("", *shape)))}'
        if all(each.name != name for each in self._model.graph.initializer):
            self._add_raw(name, shape, bytes(int(np.prod(shape))))
        return name

    def _add_raw(self, name: str, shape: tuple[int, ...], data: bytes) -> None:
        """Add a tensor of the quantized format."""
        tensor = onnx.helper.make_tensor(name, self._type, shape, data, raw=True)
        self._model.graph.initializer.append(tensor)

    def _add_tensor(self, name: str, values: np.ndarray) -> None:
        self._model.graph.initializer.append(onnx.numpy_helper.from_array(values, name))

    def _remove_unused(self) -> None:
        """Remove float weights, and views of them, that no node reads any more."""
        graph = self._model.graph
        wanted = {value.name for value in graph.output}
        kept = []
        for node in reversed(graph.node):
            constant = set(node.output) <= self._network.weights.keys()
            if not constant or wanted.intersection(node.output):
                kept.append(node)
                wanted.update(used(node))
        set_nodes(graph, reversed(kept))
        for tensor in list(graph.initializer):
            if tensor.name not in wanted:
                graph.initializer.remove(tensor)
        for value in list(graph.input):  # Models of old IR list their weights here, too.
            if value.name in self._network.weights and value.name not in wanted:
                graph.input.remove(value)


SENSITIVITY_FRAMES = 2


class LayerSearch:
    """
    The variants of a network that differ in the layers that are quantized.

    :param amax: largest absolute value to represent per activation, by `method`.
    """

    def __init__(
        self,
        network: QuantNetwork,
        fitted: ResolvedModel[Any],
        amax: Mapping[str, float],
        method: str,
        quant_format: QuantFormat,
        evaluation: Evaluation,
        report: Reporter,
    ) -> None:
        self._network, self._fitted, self._amax, self._method = network, fitted, amax, method
        self._format, self._evaluation, self._report = quant_format, evaluation, report

    def model(self, layers: Sequence[QuantLayer]) -> Any:
        """Return the ModelProto with these layers quantized."""
        return Insertion(self._network, self._format).run(layers, self._amax)

    def errors(self, calibration: Calibration) -> dict[str, float]:
        """
        Measure the error of the last layers per layer, when that layer alone is quantized.

        The last layers are the inputs of the decoding: their values have comparable sizes, unlike
        those of an output of boxes in pixels and scores. The error is the root mean square in
        standard deviations of the original, the mean over the last layers and some frames.

        :param calibration: keeps the errors, also those of an earlier run.
        """
        frames = self._evaluation.frames[:SENSITIVITY_FRAMES]
        head, layers = self._network.head, self._network.layers
        keys = {layer.name: f'{self._format.name} {self._method} {layer.name}' for layer in layers}
        kept = calibration.errors
        with FrameNetwork.open(self._network.model, self._fitted, head) as original:
            wanted = [original.run(frame, NO_BOXES)[1] for frame in frames]
        with calibration.kept():
            for index, layer in enumerate(layers):
                self._report('measuring layers', 100.0 * index / len(layers))
                if keys[layer.name] in kept:
                    continue
                with FrameNetwork.open(self.model([layer]), self._fitted, head) as variant:
                    got = [variant.run(frame, NO_BOXES)[1] for frame in frames]
                errors = [
                    _relative_error(ours[name], want[name])
                    for ours, want in zip(got, wanted)
                    for name in head
                ]
                kept[keys[layer.name]] = float(np.mean(errors))
                calibration.keep(if_due=True)
        return {name: kept[key] for name, key in keys.items()}

    def agreement(self, layers: Sequence[QuantLayer]) -> ResultAgreement:
        """Return the agreement with the original when these layers are quantized."""
        with FrameNetwork.open(self.model(layers), self._fitted) as variant:
            return self._evaluation.agreement(variant)

    def fallback(
        self, errors: Mapping[str, float], max_drop: float
    ) -> tuple[list[QuantLayer], ResultAgreement]:
        """
        Find the layers to quantize: all but the most sensitive ones, as few as meet `max_drop`.

        Their number is searched by bisection, so that a network of N layers takes log2(N)
        evaluations.

        :returns: the layers in topological order, and their agreement.
        :raises ParameterError: when one quantized layer alone exceeds `max_drop`.
        """
        layers = self._network.layers
        by_error = sorted(layers, key=lambda layer: -errors[layer.name])

        def without(count: int) -> list[QuantLayer]:
            left_out = {layer.output for layer in by_error[:count]}
            return [layer for layer in layers if layer.output not in left_out]

        too_few, enough = -1, len(layers)  # Numbers of layers in float.
        best: ResultAgreement | None = None
        trial = 0  # All of them quantized.
        while too_few + 1 < enough:
            self._report(f'evaluating with {trial} of {len(layers)} layers in float')
            found = self.agreement(without(trial))
            if found.drop <= max_drop:
                enough, best = trial, found
            else:
                too_few = trial
            trial = (too_few + enough) // 2
        if best is None:
            raise ParameterError(
                f'No layer can be quantized to {self._format.name} with a drop of {max_drop:g}.',
                cause=f'With one layer: {found}.',
                remedy='Calibrate with images of the application, or allow a larger --max-drop.',
            )
        return without(enough), best


def _relative_error(got: np.ndarray, want: np.ndarray) -> float:
    difference = got.astype(np.float64) - want
    deviation = float(want.std(dtype=np.float64))
    error = float(np.sqrt((difference**2).mean())) / (deviation or 1.0)
    return math.inf if math.isnan(error) else error
