"""fp16 and bf16 models: valid, of the asked types, and with the answers of the float32 one."""

import numpy as np
import onnx
from onnx import TensorProto
import onnx.reference
import onnxruntime
import pytest

from support.builds import build_here
from trt_ros.engine.builder.onnx_precision import convert
from trt_ros.engine.open import build_summary
from trt_ros.errors import ParameterError

LOW = {'fp16': TensorProto.FLOAT16, 'bf16': TensorProto.BFLOAT16}


def run(model, **inputs):
    return onnxruntime.InferenceSession(model.SerializeToString()).run(None, inputs)[0]


def light(path, precision='fp16', io_dtypes='keep'):
    model, _ = convert(path, precision, io_dtypes=io_dtypes)
    onnx.checker.check_model(model)
    return model


def types(model):
    """Give the element types of every tensor by inference."""
    graph = onnx.shape_inference.infer_shapes(model, strict_mode=True).graph
    values = (*graph.input, *graph.output, *graph.value_info)
    return {value.name: value.type.tensor_type.elem_type for value in values}


def image(*shape, seed=1):
    return np.random.default_rng(seed).uniform(-1, 1, shape).astype(np.float32)


def worst(found, expected):
    """The largest error, relative to the largest value."""
    return np.abs(found.astype(np.float32) - expected).max() / np.abs(expected).max()


@pytest.mark.parametrize(
    ('io_dtypes', 'kind', 'dtype'),
    [('keep', TensorProto.FLOAT, np.float32), ('lower', TensorProto.FLOAT16, np.float16)],
)
def test_inputs_and_outputs_are_lowered_on_request_only(models, io_dtypes, kind, dtype):
    path, x = models.conv(), image(1, 3, 32, 32)
    model = light(path, io_dtypes=io_dtypes)
    found = types(model)
    assert (found['x'], found['y']) == (kind, kind)
    assert TensorProto.FLOAT16 in (found['c1'], found.get('c1__fp16'))
    y = run(model, x=x.astype(dtype))
    assert y.dtype == dtype
    assert worst(y, run(onnx.load(path), x=x)) < 2e-3


def test_layers_after_last_convolution_and_excluded_operators_stay_float32(models):
    model = light(models.conv())
    operators = [node.op_type for node in model.graph.node]
    assert operators == ['Cast', 'Conv', 'Relu', 'Conv', 'Cast', 'Relu', 'Mul']
    path = models.conv(layers=3)
    model, _ = convert(path, 'fp16', io_dtypes='keep', fp32=('Relu',))
    relus = [node for node in model.graph.node if node.op_type == 'Relu']
    assert relus and not any('__fp16' in name for node in relus for name in node.output)


@pytest.mark.parametrize('precision', LOW)
def test_weights_are_rounded_to_the_nearest(models, precision):
    path = models.one('MatMul', w=np.float32(np.diag([1.0, 1 / 3, -65000.0, 1e-3])))
    (weight,) = light(path, precision).graph.initializer
    assert weight.data_type == LOW[precision]
    found = np.diag(onnx.numpy_helper.to_array(weight).astype(np.float32))
    step = {'fp16': 2**-11, 'bf16': 2**-8}[precision]
    np.testing.assert_allclose(found, [1.0, 1 / 3, -65000.0, 1e-3], rtol=step)


def test_weights_that_fp16_cannot_hold_stay_float32_and_so_does_their_layer(models):
    path = models.one('MatMul', shape=(1, 2), w=np.float32([[1e6, 0], [0, 1]]))
    with pytest.raises(ParameterError, match='no float32 to convert'):
        light(path)
    assert types(light(path, 'bf16'))['x__bf16'] == TensorProto.BFLOAT16


def test_the_scales_of_a_resize_stay_float32(models):
    path = models.save(
        """(float[1,1,4,4] x) => (float[1,1,8,8] y)
        <float[4] scales = {1, 1, 2, 2}, float[1,1,1,1] w = {3}>
        { r = Resize <mode = "linear"> (x, , scales) y = Conv(r, w) }"""
    )
    model = light(path)
    assert 'scales' in {one.name for one in model.graph.initializer}
    assert types(model)['r__fp16'] == TensorProto.FLOAT16


def test_indices_computed_in_floats_stay_exact(models):
    """A position above 2048 has no exact fp16."""
    path = models.save(
        """(float[1,2] x, int64[1,2] i) => (float[1,2] y)
        <float[1] one = {1}, float[2,2] w = {1, 0, 0, 1}>
        { f = Cast <to = 1> (i) g = Mul(f, one) s = Add(x, g) y = MatMul(s, w) }"""
    )
    found = types(light(path))
    assert found['f'] == found['g'] == TensorProto.FLOAT
    assert found['s__fp16'] == TensorProto.FLOAT16


def test_a_branch_inside_an_if_keeps_its_types(models):
    path = models.save(
        """(float[1,2] x, bool c) => (float[1,2] y)
        <float[2,2] w = {1, 2, 3, 4}, float[1] two = {2}, float[1] three = {3}> {
            a = MatMul(x, w)
            b = If(c) <then_branch = then () => (float[1,2] t) { t = Mul(a, two) },
                else_branch = other () => (float[1,2] o) { o = Mul(a, three) }>
            y = MatMul(b, w)
        }"""
    )
    x = np.float32([[1, 1]])
    assert run(light(path), x=x, c=np.array(True)).tolist() == [[44.0, 64.0]]
    assert run(light(path), x=x, c=np.array(False)).tolist() == [[66.0, 96.0]]


def quantized(models, *, kind='float8_e4m3fn', scale=0.02):
    """Write three convolutions between Q/DQ nodes, weights quantized by the graph; sigmoid."""
    weights = {'s': scale, 'ws': 0.002, 'zero': np.zeros((), kind)}
    rng, nodes = np.random.default_rng(5), ''
    for i in range(3):
        shape = (8, 8 if i else 3, 3, 3)
        weights[f'w{i}'] = rng.normal(0, 0.1, shape)
        nodes += f"""
            q{i} = QuantizeLinear({f'r{i - 1}' if i else 'x'}, s, zero)
            d{i} = DequantizeLinear(q{i}, s, zero)
            wq{i} = QuantizeLinear(w{i}, ws, zero)
            wd{i} = DequantizeLinear(wq{i}, ws, zero)
            c{i} = Conv <pads = [1, 1, 1, 1]> (d{i}, wd{i})
            r{i} = Relu(c{i})"""
    return models.save(
        f'(float[1,3,16,16] x) => (float[1,8,16,16] y) {{ {nodes} y = Sigmoid(r2) }}',
        constants=weights,
        opset=19,
        ir_version=9,
    )


@pytest.mark.parametrize('precision', LOW)
@pytest.mark.parametrize('kind', ['float8_e4m3fn', 'int8'])
def test_layers_between_q_and_dq_are_lowered_without_casts(models, precision, kind):
    model, told = convert(quantized(models, kind=kind), precision, io_dtypes='keep')
    found = types(model)
    makers = {name: node for node in model.graph.node for name in node.output}
    convolutions = [node for node in model.graph.node if node.op_type == 'Conv']
    assert len(convolutions) == 3
    for node in convolutions:
        assert found[node.output[0]] == LOW[precision]
        assert {makers[name].op_type for name in node.input} == {'DequantizeLinear'}
    assert [node.op_type for node in model.graph.node].count('Cast') == 1  # Before Sigmoid
    assert told == (
        f'{precision}: 13 of 19 nodes, 3 of 3 convolutions and matrix products, 8 of 12 Q/DQ nodes'
    )


def test_scales_that_fp16_cannot_hold_are_refused_with_the_reason(models):
    path = quantized(models, scale=1e-6)
    with pytest.raises(
        ParameterError,
        match=r'no convolution or matrix product can be converted.'
        r'\nCause: 3 of the scales .* such as s, lose precision in fp16',
    ):
        light(path)
    assert light(path, 'bf16')


def test_a_layer_whose_scale_fp16_cannot_hold_stays_float32_and_is_counted(models):
    path = quantized(models)
    model = onnx.load(path)
    model.graph.initializer.append(onnx.numpy_helper.from_array(np.float32(1e-6), 'tiny'))
    for node in model.graph.node:
        if node.output[0] in ('wq1', 'wd1'):
            node.input[1] = 'tiny'
    onnx.save(model, path)
    model, told = convert(path, 'fp16', io_dtypes='keep')
    assert '2 of 3 convolutions' in told
    found = types(model)
    assert (found['c1'], found['c0__fp16']) == (TensorProto.FLOAT, TensorProto.FLOAT16)


@pytest.mark.slow
@pytest.mark.parametrize('precision', ['fp16', 'bf16'])
def test_rtx_builds_quantized_model_in_mixed_precision_and_logs_fraction(models, rtx, precision):
    report, _ = build_here(quantized(models), rtx, precision=precision)
    found = report['layer_precisions']
    low = {'fp16': 'float16', 'bf16': 'bfloat16'}[precision]
    assert (found[low], found['float8_e4m3fn']) == (11, 6) and found['float32'] <= 2
    assert f'{precision}: 13 of 19 nodes' in report['lowered']
    assert report['lowered'] in build_summary(report)


@pytest.mark.parametrize('pattern', ['second', 'c1', 'sec*'])
def test_excluded_layer_stays_float32(models, pattern):
    path = models.conv(layers=3)
    model = onnx.load(path)
    next(node for node in model.graph.node if node.output[0] == 'c1').name = 'second'
    onnx.save(model, path)
    model, told = convert(path, 'fp16', io_dtypes='keep', fp32=(pattern,))
    found = types(model)
    assert (found['c0__fp16'], found['c1'], found['c2__fp16']) == (
        TensorProto.FLOAT16,
        TensorProto.FLOAT,
        TensorProto.FLOAT16,
    )
    assert '2 of 3 convolutions' in told and ', 1 excluded' in told
    x = image(1, 3, 32, 32)
    assert worst(run(model, x=x), run(onnx.load(path), x=x)) < 2e-3


@pytest.mark.parametrize(
    ('pattern', 'message'),
    [
        ('/head/*', r"fp32 '/head/\*' matches no node.*\nRemedy: Use a name or operator"),
        ('*', 'Cause: No tensor .* apart from layers excluded by fp32'),
    ],
)
def test_exclusion_without_effect_is_refused(models, pattern, message):
    with pytest.raises(ParameterError, match=message):
        convert(models.conv(), 'fp16', io_dtypes='keep', fp32=(pattern,))


def test_exclusion_in_quantized_network_keeps_the_rest_low(models):
    path = quantized(models)
    model, told = convert(path, 'fp16', io_dtypes='keep', fp32=('c1',))
    assert '2 of 3 convolutions' in told
    found = types(model)
    assert (found['c1'], found['c0__fp16']) == (TensorProto.FLOAT, TensorProto.FLOAT16)
    makers = {name: node.op_type for node in model.graph.node for name in node.output}
    for node in model.graph.node:
        if node.op_type == 'Conv':  # No Cast keeps TensorRT from fusing it.
            assert {makers[name] for name in node.input} == {'DequantizeLinear'}


ONES, AXIS = np.ones(4, np.float32), '<axes = [1]>'
# The inputs that each has beside the image, its attributes, its opset.
DELICATE_NODES = {
    'Pow': ([np.float32(2)], '', 17),
    'Exp': ([], '', 17),
    'Log': ([], '', 17),
    'Sqrt': ([], '', 17),
    'Reciprocal': ([], '', 17),
    'Softplus': ([], '', 17),
    'CumSum': ([np.int64(1)], '', 17),
    'Mean': ([ONES[:1]], '', 17),
    'ReduceMean': ([], AXIS, 17),
    'ReduceSum': ([np.int64([1])], '', 17),
    'ReduceL1': ([], AXIS, 17),
    'ReduceL2': ([], AXIS, 17),
    'ReduceSumSquare': ([], AXIS, 17),
    'ReduceLogSum': ([], AXIS, 17),
    'ReduceLogSumExp': ([], AXIS, 17),
    'LayerNormalization': ([ONES[:2]], '', 17),
    'RMSNormalization': ([ONES[:2]], '', 23),
    'InstanceNormalization': ([ONES, ONES], '', 17),
    'GroupNormalization': ([ONES, ONES], '<num_groups = 2>', 21),
    'LpNormalization': ([], '', 17),
    'MeanVarianceNormalization': ([], AXIS, 17),
}


@pytest.mark.parametrize('op', DELICATE_NODES)
def test_sums_powers_and_norms_between_convolutions_stay_float32(models, op):
    others, attributes, opset = DELICATE_NODES[op]
    weights = {f'w{index}': value for index, value in enumerate(others)}
    path = models.save(
        f"""(float[1,4,2] x) => (float[1,4,2] y) {{
            a = Conv(x, k)
            b = {op} {attributes} ({', '.join(['a', *weights])})
            c = Mul(a, b)
            y = Conv(c, k)
        }}""",
        opset=opset,
        constants={'k': np.ones((4, 4, 1)), **weights},
    )
    model = light(path)
    (node,) = (node for node in model.graph.node if node.op_type == op)
    assert (node.input[0], node.output[0]) == ('a', 'b')
    found = types(model)
    assert found['a'] == TensorProto.FLOAT
    assert (found['a__fp16'], found['c__fp16']) == (TensorProto.FLOAT16, TensorProto.FLOAT16)
