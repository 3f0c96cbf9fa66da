"""Choice of the layers to quantise."""

from __future__ import annotations

import numpy as np
import pytest

from trt_ros.demo.evaluate import MODEL
from trt_ros.errors import ModelError, ParameterError
from trt_ros.quantization.formats import INT8
from trt_ros.quantization.layers import QuantNetwork
from trt_ros.quantization.qdq import with_qdq

onnx = pytest.importorskip('onnx')


def test_last_convolution_stays_in_float(residual_model):
    network = QuantNetwork(residual_model())
    assert [layer.name for layer in network.layers] == ['a', 'b']
    assert network.head == ['logits']
    assert network.left_out == {'head': 'last layer before the results'}


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


def test_model_without_layers_to_quantise_is_refused(residual_model):
    with pytest.raises(ParameterError, match=r'(?s)no layer to quantise.*a: kept by --keep'):
        QuantNetwork(residual_model(), ['Conv'])


def test_quantised_model_is_refused(residual_model):
    network = QuantNetwork(residual_model())
    quantised = with_qdq(network, network.layers, {'images': 1.0, 'a': 1.0}, INT8)
    with pytest.raises(ModelError, match='quantised already'):
        QuantNetwork(quantised)


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
