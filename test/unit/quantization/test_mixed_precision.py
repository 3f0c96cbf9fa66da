"""Precision fp16 and bf16 of networks quantized here: everything else is lowered."""

from contextlib import closing

import numpy as np
import onnx
import pytest

from support.save_network import parse_network
from trt_ros.engine.builder.onnx_nodes import to_quantizing_opset
from trt_ros.engine.builder.onnx_precision import lower
from trt_ros.quantization.layers import FORMATS, INT8, QuantNetwork
from trt_ros.quantization.search import Insertion
from trt_ros.runtime.cpu.onnx_runner import OnnxRuntimeRunner

GRAPH = """(float[1, 3, 8, 8] images) => (float[1, 4, 8, 8] scores) {
    [first] a = Conv<pads = [1, 1, 1, 1]>(images, w0, b0)
    [relu] r = Relu(a)
    [second] c = Conv<pads = [1, 1, 1, 1]>(r, w1, b1)
    [sigmoid] s = Sigmoid(c)
    [silu] m = Mul(c, s)
    [third] d = Conv<pads = [1, 1, 1, 1]>(m, w2, b2)
    [residual] e = Add(r, d)
    [tokens] t = Reshape(e, rows)
    [query] q = MatMul(t, w3)
    [value] v = MatMul(t, w4)
    [turned] k = Transpose<perm = [0, 2, 1]>(v)
    [attention] x = MatMul(q, k)
    [softmax] p = Softmax(x)
    [context] y = MatMul(p, v)
    [skip] z = Add(y, t)
    [picture] f = Reshape(z, plane)
    [pool] g = MaxPool<kernel_shape = [2, 2], strides = [2, 2]>(f)
    [up] h = Resize(g, , sizes)
    [concat] i = Concat<axis = 1>(h, r)
    [join] j = Conv(i, w5)
    [head] l = Conv(j, w6, b6)
    [last] scores = Sigmoid(l)
}
"""
RANGES = dict.fromkeys(('images', 'r', 'm', 't', 'i'), 4.0)


@pytest.fixture(params=FORMATS)
def quantized(request):
    """Return the network with all but its last convolution quantized."""
    rng = np.random.default_rng(0)
    shapes = [(8, 3, 3, 3), (8, 8, 3, 3), (8, 8, 3, 3), (8, 8), (8, 8), (8, 16, 1, 1)]
    tensors = {
        **{f'w{index}': rng.normal(0, 0.3, shape) for index, shape in enumerate(shapes)},
        'w6': rng.normal(0, 0.3, (4, 8, 1, 1)),
        **{f'b{index}': rng.normal(0, 0.3, 8) for index in range(3)},
        'b6': np.zeros(4),
        'rows': np.array([1, 64, 8]),
        'plane': np.array([1, 8, 8, 8]),
        'sizes': np.float32([1, 1, 2, 2]),
    }
    model = parse_network(GRAPH, constants=tensors, ir_version=9)
    network = QuantNetwork(to_quantizing_opset(model, request.param))
    assert len(network.layers) == 6
    return Insertion(network, FORMATS[request.param]).run(network.layers, RANGES)


@pytest.mark.parametrize('precision', ['fp16', 'bf16'])
def test_everything_up_to_the_last_convolution_is_lowered(quantized, precision):
    model, line = lower(quantized, precision)
    assert '9 of 9 convolutions and matrix products' in line
    graph = onnx.shape_inference.infer_shapes(model).graph
    float32 = {
        value.name
        for value in (*graph.value_info, *graph.output)
        if value.type.tensor_type.elem_type == onnx.TensorProto.FLOAT
    }
    assert [n.name for n in model.graph.node if float32.intersection(n.output)] == [
        'l__cast',
        'last',
    ]
    makers = {name: node for node in model.graph.node for name in node.output}
    readers = [node for node in model.graph.node if node.name in ('first', 'query', 'residual')]
    for node in readers:  # Nothing between Q/DQ and its reader.
        assert makers[node.input[0]].op_type == 'DequantizeLinear'


def test_lowered_network_computes_the_same(quantized, tmp_path):
    images = np.random.default_rng(1).normal(size=(1, 3, 8, 8)).astype(np.float32)

    def run(model):
        onnx.save(model, tmp_path / 'model.onnx')
        with closing(OnnxRuntimeRunner.open(tmp_path / 'model.onnx', exact_qdq=True)) as runner:
            return runner.infer({'images': images})['scores']

    assert np.abs(run(quantized) - run(lower(quantized, 'fp16')[0])).mean() < 0.01


def test_scales_are_exact_in_both_precisions():
    scales = INT8.scales(np.random.default_rng(0).lognormal(sigma=3, size=1000))
    kept = scales[(scales > 1e-5) & (scales < 6e4)]
    assert kept.size > 900
    np.testing.assert_array_equal(kept.astype(np.float16).astype(np.float32), kept)
    assert not (scales.view(np.uint32) & 0xFFFF).any()  # bf16 is the upper half.
