"""fp16 and bf16 models: valid, of the asked types, and with the answers of the float32 one."""

import numpy as np
import onnx
from onnx import TensorProto, helper
import onnxruntime
import pytest

from support.builds import build_here
from trt_ros.engine.builder.onnx_precision import convert
from trt_ros.engine.open import build_summary
from trt_ros.engine.options import BuildOptions
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


def test_a_model_without_floats_is_refused(models):
    path = models.one('Add', kind=TensorProto.INT32, weights={'one': np.int32([1] * 4)})
    with pytest.raises(ParameterError, match='no float32 to convert'):
        light(path)


def test_inputs_and_outputs_stay_float32_when_kept(models):
    path = models.conv()
    model = light(path)
    found = types(model)
    assert (found['x'], found['y']) == (TensorProto.FLOAT, TensorProto.FLOAT)
    assert found['c0__fp16'] == found['c1__fp16'] == TensorProto.FLOAT16
    x = image(1, 3, 32, 32)
    assert worst(run(model, x=x), run(onnx.load(path), x=x)) < 2e-3


def test_inputs_and_outputs_are_lowered_on_request(models):
    path = models.conv()
    model = light(path, io_dtypes='lower')
    found = types(model)
    assert (found['x'], found['y']) == (TensorProto.FLOAT16, TensorProto.FLOAT16)
    x = image(1, 3, 32, 32)
    y = run(model, x=x.astype(np.float16))
    assert y.dtype == np.float16
    assert worst(y, run(onnx.load(path), x=x)) < 2e-3


def test_layers_after_last_convolution_stay_float32(models):
    model = light(models.conv())
    assert [node.op_type for node in model.graph.node] == [
        'Cast',
        'Conv',
        'Relu',
        'Conv',
        'Cast',
        'Relu',
        'Mul',
    ]


@pytest.mark.parametrize('precision', LOW)
def test_weights_are_rounded_to_the_nearest(models, precision):
    path = models.one(
        'MatMul',
        shape=(1, 4),
        out=(1, 4),
        weights={'w': np.float32(np.diag([1.0, 1 / 3, -65000.0, 1e-3]))},
    )
    (weight,) = light(path, precision).graph.initializer
    assert weight.data_type == LOW[precision]
    found = np.diag(onnx.numpy_helper.to_array(weight).astype(np.float32))
    step = {'fp16': 2**-11, 'bf16': 2**-8}[precision]
    np.testing.assert_allclose(found, [1.0, 1 / 3, -65000.0, 1e-3], rtol=step)


def test_weights_that_fp16_cannot_hold_stay_float32_and_so_does_their_layer(models):
    path = models.one(
        'MatMul', shape=(1, 2), out=(1, 2), weights={'w': np.float32([[1e6, 0], [0, 1]])}
    )
    with pytest.raises(ParameterError, match='no float32 to convert'):
        light(path)
    assert types(light(path, 'bf16'))['x__bf16'] == TensorProto.BFLOAT16


def test_a_layer_norm_written_out_does_not_overflow(models):
    nodes = [
        helper.make_node('MatMul', ['x', 'w'], ['a']),
        helper.make_node('ReduceMean', ['a'], ['mean'], axes=[-1]),
        helper.make_node('Sub', ['a', 'mean'], ['d']),
        helper.make_node('Pow', ['d', 'two'], ['d2']),
        helper.make_node('ReduceMean', ['d2'], ['var'], axes=[-1]),
        helper.make_node('Sqrt', ['var'], ['std']),
        helper.make_node('Div', ['d', 'std'], ['n']),
        helper.make_node('MatMul', ['n', 'v'], ['y']),
    ]
    rng = np.random.default_rng(3)
    path = models.save(
        nodes,
        {'x': [1, 8, 16]},
        {'y': [1, 8, 16]},
        weights={
            'w': rng.normal(0, 1, (16, 16)).astype(np.float32),
            'two': np.float32(2),
            'v': rng.normal(0, 1, (16, 16)).astype(np.float32),
        },
    )
    x = image(1, 8, 16) * 500  # Squares reach 1e6, far beyond fp16.
    assert worst(run(light(path), x=x), run(onnx.load(path), x=x)) < 5e-3


def test_attention_from_primitives_keeps_outputs(models):
    nodes = [helper.make_node('MatMul', ['x', f'w{n}'], [n]) for n in 'qkv']
    nodes += [
        helper.make_node('Transpose', ['k'], ['kt'], perm=[0, 2, 1]),
        helper.make_node('MatMul', ['q', 'kt'], ['s']),
        helper.make_node('Softmax', ['s'], ['p'], axis=-1),
        helper.make_node('MatMul', ['p', 'v'], ['y']),
    ]
    rng = np.random.default_rng(4)
    path = models.save(
        nodes,
        {'x': [1, 'n', 32]},
        {'y': [1, 'n', 32]},
        weights={f'w{n}': rng.normal(0, 0.2, (32, 32)).astype(np.float32) for n in 'qkv'},
    )
    x = image(1, 20, 32)
    assert worst(run(light(path), x=x), run(onnx.load(path), x=x)) < 5e-3


def test_the_scales_of_a_resize_stay_float32(models):
    nodes = [
        helper.make_node('Resize', ['x', '', 'scales'], ['r'], mode='linear'),
        helper.make_node('Conv', ['r', 'w'], ['y']),
    ]
    path = models.save(
        nodes,
        {'x': [1, 1, 4, 4]},
        {'y': [1, 1, 8, 8]},
        weights={'scales': np.float32([1, 1, 2, 2]), 'w': np.float32([[[[3]]]])},
    )
    model = light(path)
    assert 'scales' in {one.name for one in model.graph.initializer}
    assert types(model)['r__fp16'] == TensorProto.FLOAT16


def test_indices_computed_in_floats_stay_exact(models):
    """A position above 2048 has no exact fp16."""
    nodes = [
        helper.make_node('Cast', ['i'], ['f'], to=TensorProto.FLOAT),
        helper.make_node('Mul', ['f', 'one'], ['g']),
        helper.make_node('Add', ['x', 'g'], ['s']),
        helper.make_node('MatMul', ['s', 'w'], ['y']),
    ]
    path = models.save(
        nodes,
        {'x': [1, 2], 'i': [1, 2]},
        {'y': [1, 2]},
        i=TensorProto.INT64,
        weights={'one': np.float32([1]), 'w': np.eye(2, dtype=np.float32)},
    )
    found = types(light(path))
    assert (found['f'], found['g'], found['s__fp16']) == (
        TensorProto.FLOAT,
        TensorProto.FLOAT,
        TensorProto.FLOAT16,
    )


def test_a_branch_inside_an_if_keeps_its_types(models):
    then, other = (
        helper.make_graph(
            [helper.make_node('Mul', ['a', factor], [f'{factor}_out'])],
            factor,
            [],
            [helper.make_tensor_value_info(f'{factor}_out', TensorProto.FLOAT, [1, 2])],
        )
        for factor in ('two', 'three')
    )
    nodes = [
        helper.make_node('MatMul', ['x', 'w'], ['a']),
        helper.make_node('If', ['c'], ['b'], then_branch=then, else_branch=other),
        helper.make_node('MatMul', ['b', 'w'], ['y']),
    ]
    path = models.save(
        nodes,
        {'x': [1, 2], 'c': []},
        {'y': [1, 2]},
        c=TensorProto.BOOL,
        weights={
            'w': np.float32([[1, 2], [3, 4]]),
            'two': np.float32([2]),
            'three': np.float32([3]),
        },
    )
    x = np.float32([[1, 1]])
    assert run(light(path), x=x, c=np.array(True)).tolist() == [[44.0, 64.0]]
    assert run(light(path), x=x, c=np.array(False)).tolist() == [[66.0, 96.0]]


def test_quantized_layers_keep_their_int8_and_get_low_scales(models):
    nodes = [
        helper.make_node('QuantizeLinear', ['x', 'sx', 'zero'], ['xq']),
        helper.make_node('DequantizeLinear', ['xq', 'sx', 'zero'], ['xd']),
        helper.make_node('DequantizeLinear', ['wq', 'sw', 'zero'], ['wd']),
        helper.make_node('MatMul', ['xd', 'wd'], ['y']),
    ]
    path = models.save(
        nodes,
        {'x': [1, 2]},
        {'y': [1, 2]},
        opset=19,
        weights={
            'sx': np.float32(0.25),
            'sw': np.float32(0.5),
            'zero': np.int8(0),
            'wq': np.int8([[2, 4], [6, 8]]),
        },
    )
    model = light(path)
    assert types(model)['xq'] == TensorProto.INT8
    assert run(model, x=np.float32([[1, 2]])).tolist() == [[7.0, 10.0]]


def quantized(models, *, kind=TensorProto.FLOAT8E4M3FN, opset=19, scale=0.02, weight_scale=0.002):
    """Write three convolutions between Q/DQ nodes, weights quantized by the graph; sigmoid."""
    rng, nodes, last, channels = np.random.default_rng(5), [], 'x', 3
    weights = {'s': np.float32(scale), 'ws': np.float32(weight_scale)}
    for i in range(3):
        weights[f'w{i}'] = rng.normal(0, 0.1, (8, channels, 3, 3)).astype(np.float32)
        nodes += [
            helper.make_node('QuantizeLinear', [last, 's', 'zero'], [f'q{i}']),
            helper.make_node('DequantizeLinear', [f'q{i}', 's', 'zero'], [f'd{i}']),
            helper.make_node('QuantizeLinear', [f'w{i}', 'ws', 'zero'], [f'wq{i}']),
            helper.make_node('DequantizeLinear', [f'wq{i}', 'ws', 'zero'], [f'wd{i}']),
            helper.make_node('Conv', [f'd{i}', f'wd{i}'], [f'c{i}'], pads=[1] * 4),
            helper.make_node('Relu', [f'c{i}'], [f'r{i}']),
        ]
        last, channels = f'r{i}', 8
    nodes.append(helper.make_node('Sigmoid', [last], ['y']))
    path = models.save(
        nodes, {'x': [1, 3, 16, 16]}, {'y': [1, 8, 16, 16]}, weights=weights, opset=opset
    )
    model = onnx.load(path)
    model.graph.initializer.append(helper.make_tensor('zero', kind, [], [0]))
    model.ir_version = 9
    onnx.save(model, path)
    return path


@pytest.mark.parametrize('precision', LOW)
@pytest.mark.parametrize('kind', [TensorProto.FLOAT8E4M3FN, TensorProto.INT8])
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


def test_excluded_operator_stays_float32_everywhere(models):
    path = models.conv(layers=3)
    model, _ = convert(path, 'fp16', io_dtypes='keep', fp32=('Relu',))
    relus = [node for node in model.graph.node if node.op_type == 'Relu']
    assert relus and not any('__fp16' in name for node in relus for name in node.output)


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


def test_exclusions_are_refused_where_nothing_is_converted():
    with pytest.raises(ParameterError, match='fp32 has no effect with precision'):
        BuildOptions(fp32=('Conv',))


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


@pytest.mark.slow
def test_rtx_builds_quantized_model_with_an_excluded_layer(models, rtx):
    report, _ = build_here(quantized(models), rtx, precision='fp16', fp32=('c1',))
    found = report['layer_precisions']
    assert found['float8_e4m3fn'] == 6 and found['float16'] >= 6
    assert found['float32'] > 1 and '1 excluded' in report['lowered']


ONES, AXIS = np.ones(4, np.float32), {'axes': [1]}
# The inputs that each has beside the image, its attributes, its opset.
DELICATE_NODES = {
    'Pow': ([np.float32(2)], {}, 17),
    'Exp': ([], {}, 17),
    'Log': ([], {}, 17),
    'Sqrt': ([], {}, 17),
    'Reciprocal': ([], {}, 17),
    'Softplus': ([], {}, 17),
    'CumSum': ([np.int64(1)], {}, 17),
    'Mean': ([ONES[:1]], {}, 17),
    'ReduceMean': ([], AXIS, 17),
    'ReduceSum': ([np.int64([1])], {}, 17),
    'ReduceL1': ([], AXIS, 17),
    'ReduceL2': ([], AXIS, 17),
    'ReduceSumSquare': ([], AXIS, 17),
    'ReduceLogSum': ([], AXIS, 17),
    'ReduceLogSumExp': ([], AXIS, 17),
    'LayerNormalization': ([ONES[:2]], {}, 17),
    'RMSNormalization': ([ONES[:2]], {}, 23),
    'InstanceNormalization': ([ONES, ONES], {}, 17),
    'GroupNormalization': ([ONES, ONES], {'num_groups': 2}, 21),
    'LpNormalization': ([], {}, 17),
    'MeanVarianceNormalization': ([], AXIS, 17),
}


@pytest.mark.parametrize('op', DELICATE_NODES)
def test_sums_powers_and_norms_between_convolutions_stay_float32(models, op):
    others, attributes, opset = DELICATE_NODES[op]
    weights = {f'w{index}': value for index, value in enumerate(others)}
    nodes = [
        helper.make_node('Conv', ['x', 'k'], ['a']),
        helper.make_node(op, ['a', *weights], ['b'], **attributes),
        helper.make_node('Mul', ['a', 'b'], ['c']),
        helper.make_node('Conv', ['c', 'k'], ['y']),
    ]
    path = models.save(
        nodes,
        {'x': [1, 4, 2]},
        {'y': [1, 4, 2]},
        opset=opset,
        weights={'k': np.ones((4, 4, 1), np.float32), **weights},
    )
    model = light(path)
    (node,) = (node for node in model.graph.node if node.op_type == op)
    assert (node.input[0], node.output[0]) == ('a', 'b')
    found = types(model)
    assert found['a'] == TensorProto.FLOAT
    assert (found['a__fp16'], found['c__fp16']) == (TensorProto.FLOAT16, TensorProto.FLOAT16)
