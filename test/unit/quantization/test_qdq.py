"""Q/DQ nodes: their places, scales and what they compute."""

import numpy as np
import onnx
import pytest

from trt_ros.engine.builder.onnx_nodes import to_quantizing_opset
from trt_ros.quantization.layers import FORMATS, FP8, INT8, QuantNetwork
from trt_ros.quantization.search import Insertion
from trt_ros.runtime.cpu.onnx_runner import OnnxRuntimeRunner

AMAX = {'images': 4.0, 'a': 6.0}


def quantized(model, quant_format, names=('a', 'b')):
    network = QuantNetwork(to_quantizing_opset(model, quant_format.name))
    layers = [layer for layer in network.layers if layer.name in names]
    found = Insertion(network, quant_format).run(layers, AMAX)
    onnx.checker.check_model(found, full_check=True)
    return network, found


def weight(model, name):
    tensor = next(each for each in model.graph.initializer if each.name == name)
    return onnx.numpy_helper.to_array(tensor).astype(np.float64)


def conv(values, weights):
    return np.einsum('oi,bihw->bohw', weights[:, :, 0, 0], values)


@pytest.mark.parametrize('quant_format', FORMATS.values(), ids=FORMATS)
@pytest.mark.parametrize('exact', [False, True])
def test_onnx_runtime_computes_with_the_rounded_values(
    residual_model, quant_format, exact, tmp_path
):
    model = residual_model()
    _, found = quantized(model, quant_format)
    onnx.save(found, tmp_path / 'q.onnx')
    runner = OnnxRuntimeRunner.open(tmp_path / 'q.onnx', exact_qdq=exact)
    images = np.random.default_rng(1).normal(size=(1, 3, 16, 16)).astype(np.float32)
    got = runner.infer({'images': images})['scores']
    runner.close()

    def rounded(values, amax):
        return quant_format.simulate(values.astype(np.float64), amax)

    def rounded_weights(name):
        values = weight(model, name)
        axes = (1, 2, 3) if quant_format is INT8 else None
        return rounded(values, np.abs(values).max(axis=axes, keepdims=True))

    a = np.maximum(conv(rounded(images, AMAX['images']), rounded_weights('wa')), 0)
    a = rounded(a, AMAX['a'])
    b = conv(a, rounded_weights('wb')) + weight(model, 'bb')[:, None, None]
    logits = conv(a + b, weight(model, 'wh'))
    np.testing.assert_allclose(got, 1 / (1 + np.exp(-logits)), atol=0.02)
    assert np.abs(got - 1 / (1 + np.exp(-logits))).mean() < 1e-3


def test_scales_are_per_channel_for_weights_and_biases_stay_float(residual_model):
    _, found = quantized(residual_model(), INT8)
    tensors = {each.name: each for each in found.graph.initializer}
    assert list(tensors['wb__0__scale'].dims) == [3]
    assert tensors['wb__0__q'].data_type == onnx.TensorProto.INT8
    assert tensors['bb'].data_type == onnx.TensorProto.FLOAT
    assert 'wa' not in tensors and 'wh' in tensors
    nodes = {node.name: node for node in found.graph.node}
    assert list(nodes['b'].input) == ['a__dq', 'wb__0__dq', 'bb']
    scale = float(onnx.numpy_helper.to_array(tensors['a__scale']))
    assert 6 / 127 <= scale <= 6 / 127 * (1 + 2**-7)


def test_fp8_weights_have_one_scale(residual_model):
    _, found = quantized(residual_model(), FP8)
    tensors = {each.name: each for each in found.graph.initializer}
    assert list(tensors['wb__0__scale'].dims) == []
    assert tensors['wb__0__q'].data_type == onnx.TensorProto.FLOAT8E4M3FN


def test_residual_sum_reads_the_quantized_tensor(residual_model):
    _, found = quantized(residual_model(), INT8)
    nodes = {node.name: node for node in found.graph.node}
    assert list(nodes['sum'].input) == ['a__dq', 'b']
    _, without_b = quantized(residual_model(), INT8, names=('a',))
    nodes = {node.name: node for node in without_b.graph.node}
    assert list(nodes['sum'].input) == ['a', 'b']
    assert list(nodes['b'].input) == ['a', 'wb', 'bb']


def test_original_is_left_unchanged(residual_model):
    model = residual_model()
    before = model.SerializeToString()
    quantized(model, INT8)
    assert model.SerializeToString() == before


@pytest.mark.parametrize('kind', ['Constant', 'Identity'])
def test_weights_of_constants_and_shared_ones_are_found(residual_model, kind):
    model = residual_model()
    graph = model.graph
    tensor = next(each for each in graph.initializer if each.name == 'wb')
    if kind == 'Constant':
        node = onnx.helper.make_node('Constant', [], ['wc'], value=tensor)
    else:
        node = onnx.helper.make_node('Identity', ['wb'], ['wc'])
    graph.node.insert(0, node)
    next(each for each in graph.node if each.name == 'b').input[1] = 'wc'
    _, found = quantized(model, INT8)
    assert {'wb', 'wc'}.isdisjoint(name for node in found.graph.node for name in node.output)
    assert kind not in {node.op_type for node in found.graph.node}
    assert 'wb' not in {each.name for each in found.graph.initializer}


@pytest.mark.parametrize(
    ('op', 'shape', 'attributes', 'axis'),
    [('MatMul', (16, 5), {}, 1), ('Gemm', (16, 5), {}, 1), ('Gemm', (5, 16), {'transB': 1}, 0)],
)
def test_scales_of_matrix_products_are_per_output_column(op, shape, attributes, axis):
    from onnx import TensorProto, helper, numpy_helper

    rng = np.random.default_rng(0)
    graph = helper.make_graph(
        [
            helper.make_node(op, ['x', 'w'], ['y'], 'first', **attributes),
            helper.make_node('MatMul', ['y', 'v'], ['z'], 'last'),
        ],
        'products',
        [helper.make_tensor_value_info('x', TensorProto.FLOAT, [1, 16])],
        [helper.make_tensor_value_info('z', TensorProto.FLOAT, [1, 2])],
        [
            numpy_helper.from_array(rng.normal(size=shape).astype(np.float32), 'w'),
            numpy_helper.from_array(rng.normal(size=(5, 2)).astype(np.float32), 'v'),
        ],
    )
    model = helper.make_model(graph, opset_imports=[helper.make_opsetid('', 19)])
    network = QuantNetwork(model)
    found = Insertion(network, INT8).run(network.layers, {'x': 1.0})
    onnx.checker.check_model(found, full_check=True)
    (layer,) = network.layers
    assert layer.axis == axis
    scale = next(each for each in found.graph.initializer if each.name == f'w__{axis}__scale')
    assert list(scale.dims) == [5]
