"""Layers with Q/DQ nodes: how they are rounded, and which are found and kept in float."""

import numpy as np
import onnx
import pytest

from support.save_network import parse_network
from trt_ros.demo import MODEL
from trt_ros.engine.builder.onnx_nodes import to_quantizing_opset
from trt_ros.errors import ModelError, ParameterError
from trt_ros.quantization.layers import FORMATS, FP8, INT8, QuantNetwork
from trt_ros.quantization.search import Insertion
from trt_ros.runtime.cpu.onnx_runner import OnnxRuntimeRunner


@pytest.mark.parametrize('quant_format', FORMATS.values(), ids=FORMATS)
def test_onnx_reads_the_rounded_values_back(quant_format):
    values = np.concatenate(
        [
            [0.0, -0.0, 2.0**-9, 2.0**-10, 3 * 2.0**-9, 2.0**-6, 447.0, 449.0, -1e6],
            np.random.default_rng(0).normal(scale=60, size=2000),
        ]
    )
    rounded = quant_format.round(values)
    tensor = onnx.TensorProto(
        dims=values.shape,
        data_type=onnx.TensorProto.DataType.Value(quant_format.onnx_type),
        raw_data=quant_format.encode(rounded),
    )
    read = onnx.numpy_helper.to_array(tensor).astype(np.float64)
    np.testing.assert_array_equal(read, rounded)
    assert np.abs(rounded).max() == quant_format.largest


def test_int8_rounds_to_multiples_of_the_scale_and_fp8_keeps_three_bits_of_mantissa():
    found = INT8.simulate(np.array([0, 0.4, 0.6, 300, -300]), 127.0)
    assert found.tolist() == [0, 0, 1, 127, -127]
    assert INT8.scales(np.zeros(2)).tolist() == pytest.approx([1 / 127] * 2, rel=2**-7)
    # Between 16 and 32 the step is 2; a tie goes to the even one.
    assert FP8.round(np.array([16.9, 17.0, 17.1, 19.0])).tolist() == [16.0, 16.0, 18.0, 20.0]


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


@pytest.mark.parametrize(
    ('quant_format', 'dims', 'dtype'), [(INT8, [3], 'INT8'), (FP8, [], 'FLOAT8E4M3FN')]
)
def test_scales_of_weights_are_those_of_the_format_and_biases_stay_float(
    residual_model, quant_format, dims, dtype
):
    _, found = quantized(residual_model(), quant_format)
    tensors = {each.name: each for each in found.graph.initializer}
    assert list(tensors['wb__0__scale'].dims) == dims
    assert tensors['wb__0__q'].data_type == onnx.TensorProto.DataType.Value(dtype)
    assert tensors['bb'].data_type == onnx.TensorProto.FLOAT
    assert 'wa' not in tensors and 'wh' in tensors
    nodes = {node.name: node for node in found.graph.node}
    assert list(nodes['b'].input) == ['a__dq', 'wb__0__dq', 'bb']
    scale = float(onnx.numpy_helper.to_array(tensors['a__scale']))
    exact = 6 / quant_format.largest
    assert exact <= scale <= exact * (1 + 2**-7)


def test_residual_sum_reads_the_quantized_tensor_and_the_original_stays(residual_model):
    model = residual_model()
    before = model.SerializeToString()
    _, found = quantized(model, INT8)
    assert model.SerializeToString() == before
    nodes = {node.name: node for node in found.graph.node}
    assert list(nodes['sum'].input) == ['a__dq', 'b']
    _, without_b = quantized(model, INT8, names=('a',))
    nodes = {node.name: node for node in without_b.graph.node}
    assert list(nodes['sum'].input) == ['a', 'b']
    assert list(nodes['b'].input) == ['a', 'wb', 'bb']


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
    ('op', 'shape', 'axis'),
    [('MatMul', (16, 5), 1), ('Gemm', (16, 5), 1), ('Gemm <transB = 1>', (5, 16), 0)],
)
def test_scales_of_matrix_products_are_per_output_column(op, shape, axis):
    rng = np.random.default_rng(0)
    model = parse_network(
        f"""(float[1,16] x) => (float[1,2] z)
        {{ [first] y = {op} (x, w) [last] z = MatMul(y, v) }}""",
        constants={'w': rng.normal(size=shape), 'v': rng.normal(size=(5, 2))},
        opset=19,
    )
    network = QuantNetwork(model)
    found = Insertion(network, INT8).run(network.layers, {'x': 1.0})
    onnx.checker.check_model(found, full_check=True)
    (layer,) = network.layers
    assert layer.axis == axis
    scale = next(each for each in found.graph.initializer if each.name == f'w__{axis}__scale')
    assert list(scale.dims) == [5]


def test_last_convolutions_of_a_detector_stay_in_float_and_for_fp8_those_not_aligned():
    network, to_fp8 = (QuantNetwork(onnx.load(MODEL), (), to) for to in ('int8', 'fp8'))
    assert len(network.layers) == 36
    assert len(network.head) == 6
    assert all('_head.1' in name for name in network.left_out)
    assert len(to_fp8.layers) == 32
    assert '/network/to_8/to_8.0/to_8.0.0/Conv' in to_fp8.left_out


@pytest.mark.parametrize('pattern', ['b', 'a*'])
def test_kept_layers_stay_in_float(residual_model, pattern):
    network = QuantNetwork(residual_model(), [pattern])
    assert len(network.layers) == 1
    assert 'kept by --keep' in network.left_out.values()


def test_models_without_layers_to_quantize_quantized_or_of_float16_are_refused(residual_model):
    with pytest.raises(ParameterError, match=r'(?s)no layer to quantize.*a: kept by --keep'):
        QuantNetwork(residual_model(), ['Conv'])
    _, found = quantized(residual_model(), INT8)
    with pytest.raises(ModelError, match='quantized already'):
        QuantNetwork(found)
    model = residual_model()
    for tensor in model.graph.initializer:
        values = onnx.numpy_helper.to_array(tensor).astype(np.float16)
        tensor.CopyFrom(onnx.numpy_helper.from_array(values, tensor.name))
    with pytest.raises(ParameterError, match='weights are float16, not float32'):
        QuantNetwork(model)


def test_convolution_of_box_distributions_does_not_hide_the_one_before(residual_model):
    model = residual_model()
    graph = model.graph
    weights = np.arange(2, dtype=np.float32).reshape(1, 2, 1, 1)
    graph.initializer.append(onnx.numpy_helper.from_array(weights, 'bins'))
    graph.node.append(onnx.helper.make_node('Conv', ['scores', 'bins'], ['sides'], 'dfl'))
    graph.output[0].name = 'sides'
    network = QuantNetwork(model)
    assert [layer.name for layer in network.layers] == ['a', 'b']
    assert (network.head, set(network.left_out)) == (['logits'], {'head', 'dfl'})


def fp8_layers(shape, op='Conv', attributes=''):
    """Return the names of the layers chosen for fp8, and the reason of the first layer."""
    rng = np.random.default_rng(0)
    outputs = shape[op in ('ConvTranspose', 'MatMul')]
    kind = 'MatMul' if op == 'MatMul' else 'Conv'
    shapes = {'w': shape, 'v': (64, outputs, 1, 1), 'h': (2, 64, 1, 1)}
    if kind == 'MatMul':
        shapes |= {'v': (outputs, 64), 'h': (64, 2)}
    model = parse_network(
        f"""(float[1,c,32,32] x) => (float[] found) {{
            [first] y = {op} {attributes} (x, w)
            [second] z = {kind} (y, v)
            [head] found = {kind} (z, h)
        }}""",
        constants={name: rng.normal(size=each) for name, each in shapes.items()},
        opset=19,
    )
    network = QuantNetwork(model, (), 'fp8')
    assert 'first' in {layer.name for layer in QuantNetwork(model).layers}  # To int8.
    return [layer.name for layer in network.layers], network.left_out.get('first', '')


@pytest.mark.parametrize(
    ('shape', 'op', 'attributes', 'reason'),
    [
        ((32, 3, 3, 3), 'Conv', '', 'multiples of 16 channels, at least 32, not 32 and 3'),
        ((32, 16, 3, 3), 'Conv', '', 'not 32 and 16'),
        ((32, 40, 3, 3), 'Conv', '', 'not 32 and 40'),
        ((32, 1, 3, 3), 'Conv', '<group = 32>', 'no grouped convolutions'),
        ((32, 32, 7, 7), 'Conv', '', 'no kernels of more than 32 elements'),
        ((32, 32, 2, 2), 'ConvTranspose', '', 'no transposed convolutions'),
        ((24, 32), 'MatMul', '', 'not 24 and 32'),
        ((32, 48, 3, 3), 'Conv', '', ''),
        ((32, 64), 'MatMul', '', ''),
    ],
)
def test_layers_without_fp8_kernel_stay_in_float(shape, op, attributes, reason):
    layers, found = fp8_layers(shape, op, attributes)
    assert reason in found and bool(reason) == bool(found)
    assert 'first' not in layers if reason else layers == ['first', 'second']
