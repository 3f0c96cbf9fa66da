"""Choice of the layers to quantize."""

import numpy as np
import onnx
import pytest

from trt_ros.demo import MODEL
from trt_ros.errors import ModelError, ParameterError
from trt_ros.quantization.layers import INT8, QuantNetwork
from trt_ros.quantization.search import Insertion


def test_last_convolutions_of_each_grid_of_a_detector_stay_in_float():
    network = QuantNetwork(onnx.load(MODEL))
    assert len(network.layers) == 36
    assert len(network.head) == 6
    assert all('_head.1' in name for name in network.left_out)


@pytest.mark.parametrize('pattern', ['b', 'a*'])
def test_kept_layers_stay_in_float(residual_model, pattern):
    network = QuantNetwork(residual_model(), [pattern])
    assert len(network.layers) == 1
    assert 'kept by --keep' in network.left_out.values()


def test_pattern_that_matches_nothing_is_refused(residual_model):
    with pytest.raises(ParameterError, match=r"keep 'x\*' matches no node"):
        QuantNetwork(residual_model(), ['x*'])


def test_model_without_layers_to_quantize_is_refused(residual_model):
    with pytest.raises(ParameterError, match=r'(?s)no layer to quantize.*a: kept by --keep'):
        QuantNetwork(residual_model(), ['Conv'])


def test_quantized_model_is_refused(residual_model):
    network = QuantNetwork(residual_model())
    quantized = Insertion(network, INT8).run(network.layers, {'images': 1.0, 'a': 1.0})
    with pytest.raises(ModelError, match='quantized already'):
        QuantNetwork(quantized)


def test_convolution_of_box_distributions_does_not_hide_the_one_before(residual_model):
    model = residual_model()
    graph = model.graph
    weights = np.arange(2, dtype=np.float32).reshape(1, 2, 1, 1)
    graph.initializer.append(onnx.numpy_helper.from_array(weights, 'bins'))
    graph.node.append(onnx.helper.make_node('Conv', ['scores', 'bins'], ['sides'], 'dfl'))
    graph.output[0].name = 'sides'
    network = QuantNetwork(model)
    assert [layer.name for layer in network.layers] == ['a', 'b']
    assert set(network.left_out) == {'head', 'dfl'}


def test_float16_weights_are_refused(residual_model):
    model = residual_model()
    for tensor in model.graph.initializer:
        values = onnx.numpy_helper.to_array(tensor).astype(np.float16)
        tensor.CopyFrom(onnx.numpy_helper.from_array(values, tensor.name))
    with pytest.raises(ParameterError, match='weights are float16, not float32'):
        QuantNetwork(model)


def fp8_layers(weight_shape, op='Conv', **attributes):
    """Return the names of the layers chosen for fp8, and the reason of the first layer."""
    helper, rng = onnx.helper, np.random.default_rng(0)
    channels = weight_shape[0] if op == 'ConvTranspose' else weight_shape[1]
    outputs = weight_shape[1] if op == 'ConvTranspose' else weight_shape[0]
    channels *= attributes.get('group', 1)
    product = op == 'MatMul'
    weights = {
        'w': rng.normal(size=weight_shape),
        'v': rng.normal(size=(64, outputs, 1, 1)),
        'h': rng.normal(size=(2, 64, 1, 1)),
    }
    if product:
        weights |= {'v': rng.normal(size=(weight_shape[1], 64)), 'h': rng.normal(size=(64, 2))}
    kind = 'MatMul' if product else 'Conv'
    graph = helper.make_graph(
        [
            helper.make_node(op, ['x', 'w'], ['y'], 'first', **attributes),
            helper.make_node(kind, ['y', 'v'], ['z'], 'second'),
            helper.make_node(kind, ['z', 'h'], ['found'], 'head'),
        ],
        'fp8',
        [helper.make_tensor_value_info('x', onnx.TensorProto.FLOAT, [1, channels, 32, 32])],
        [helper.make_tensor_value_info('found', onnx.TensorProto.FLOAT, None)],
        [
            onnx.numpy_helper.from_array(values.astype(np.float32), name)
            for name, values in weights.items()
        ],
    )
    model = helper.make_model(graph, opset_imports=[helper.make_opsetid('', 19)])
    network = QuantNetwork(model, (), 'fp8')
    assert 'first' in {layer.name for layer in QuantNetwork(model).layers}  # To int8.
    return [layer.name for layer in network.layers], network.left_out.get('first', '')


@pytest.mark.parametrize(
    ('shape', 'op', 'attributes', 'reason'),
    [
        ((32, 3, 3, 3), 'Conv', {}, 'multiples of 16 channels, at least 32, not 32 and 3'),
        ((32, 16, 3, 3), 'Conv', {}, 'not 32 and 16'),
        ((32, 40, 3, 3), 'Conv', {}, 'not 32 and 40'),
        ((32, 1, 3, 3), 'Conv', {'group': 32}, 'no grouped convolutions'),
        ((32, 32, 7, 7), 'Conv', {}, 'no kernels of more than 32 elements'),
        ((32, 32, 2, 2), 'ConvTranspose', {}, 'no transposed convolutions'),
        ((24, 32), 'MatMul', {}, 'not 24 and 32'),
    ],
)
def test_layers_without_fp8_kernel_stay_in_float(shape, op, attributes, reason):
    layers, found = fp8_layers(shape, op, **attributes)
    assert 'first' not in layers
    assert reason in found


@pytest.mark.parametrize(('shape', 'op'), [((32, 48, 3, 3), 'Conv'), ((32, 64), 'MatMul')])
def test_aligned_layers_are_quantized_to_fp8(shape, op):
    layers, found = fp8_layers(shape, op)
    assert (layers, found) == (['first', 'second'], '')


def test_only_aligned_convolutions_of_the_demo_detector_are_quantized_to_fp8():
    network = QuantNetwork(onnx.load(MODEL), (), 'fp8')
    assert len(network.layers) == 32
    assert '/network/to_8/to_8.0/to_8.0.0/Conv' in network.left_out


def test_last_convolution_stays_in_float(residual_model):
    network = QuantNetwork(residual_model())
    assert [layer.name for layer in network.layers] == ['a', 'b']
    assert network.head == ['logits']
    assert network.left_out == {'head': 'last layer before the results'}
