"""fp16 and bf16 models: valid, of the asked types, and with the answers of the float32 one."""

from __future__ import annotations

import numpy as np
import onnx
from onnx import TensorProto, helper
import onnxruntime
import pytest

from trt_ros.engine.precision import convert
from trt_ros.errors import BackendError, ParameterError

LOW = {'fp16': TensorProto.FLOAT16, 'bf16': TensorProto.BFLOAT16}


def run(model, **inputs):
    return onnxruntime.InferenceSession(model.SerializeToString()).run(None, inputs)[0]


def light(path, precision='fp16', io_dtypes='keep'):
    model = convert(path, precision, io_dtypes=io_dtypes, converter='light')
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


def test_inputs_and_outputs_are_lowered_when_asked(models):
    path = models.conv()
    model = light(path, io_dtypes='lower')
    found = types(model)
    assert (found['x'], found['y']) == (TensorProto.FLOAT16, TensorProto.FLOAT16)
    x = image(1, 3, 32, 32)
    y = run(model, x=x.astype(np.float16))
    assert y.dtype == np.float16
    assert worst(y, run(onnx.load(path), x=x)) < 2e-3


def test_weights_are_halved(models):
    path = models.conv(layers=6)
    weights = {one.name: one.data_type for one in light(path).graph.initializer}
    assert {weights[f'w{index}__fp16'] for index in range(6)} == {TensorProto.FLOAT16}
    assert 'w0' not in weights


def test_what_comes_after_the_last_convolution_keeps_its_digits(models):
    model = light(models.conv())
    assert [node.op_type for node in model.graph.node] == [
        'Cast', 'Conv', 'Relu', 'Conv', 'Cast', 'Relu', 'Mul']


@pytest.mark.parametrize('precision', LOW)
def test_weights_are_rounded_to_the_nearest(models, precision):
    path = models.one('MatMul', shape=(1, 4), out=(1, 4),
                      weights={'w': np.float32(np.diag([1.0, 1 / 3, -65000.0, 1e-3]))})
    (weight,) = light(path, precision).graph.initializer
    assert weight.data_type == LOW[precision]
    found = np.diag(onnx.numpy_helper.to_array(weight).astype(np.float32))
    step = {'fp16': 2 ** -11, 'bf16': 2 ** -8}[precision]
    np.testing.assert_allclose(found, [1.0, 1 / 3, -65000.0, 1e-3], rtol=step)


def test_weights_that_fp16_cannot_hold_stay_float32_and_so_does_their_layer(models):
    path = models.one('MatMul', shape=(1, 2), out=(1, 2),
                      weights={'w': np.float32([[1e6, 0], [0, 1]])})
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
        helper.make_node('MatMul', ['n', 'v'], ['y'])]
    rng = np.random.default_rng(3)
    path = models.save(nodes, {'x': [1, 8, 16]}, {'y': [1, 8, 16]}, weights={
        'w': rng.normal(0, 1, (16, 16)).astype(np.float32), 'two': np.float32(2),
        'v': rng.normal(0, 1, (16, 16)).astype(np.float32)})
    x = image(1, 8, 16) * 500  # Squares reach 1e6, far beyond fp16.
    assert worst(run(light(path), x=x), run(onnx.load(path), x=x)) < 5e-3


def test_attention_from_primitives_answers_the_same(models):
    nodes = [helper.make_node('MatMul', ['x', f'w{n}'], [n]) for n in 'qkv']
    nodes += [helper.make_node('Transpose', ['k'], ['kt'], perm=[0, 2, 1]),
              helper.make_node('MatMul', ['q', 'kt'], ['s']),
              helper.make_node('Softmax', ['s'], ['p'], axis=-1),
              helper.make_node('MatMul', ['p', 'v'], ['y'])]
    rng = np.random.default_rng(4)
    path = models.save(nodes, {'x': [1, 'n', 32]}, {'y': [1, 'n', 32]}, weights={
        f'w{n}': rng.normal(0, 0.2, (32, 32)).astype(np.float32) for n in 'qkv'})
    x = image(1, 20, 32)
    assert worst(run(light(path), x=x), run(onnx.load(path), x=x)) < 5e-3


def test_the_scales_of_a_resize_stay_float32(models):
    nodes = [helper.make_node('Resize', ['x', '', 'scales'], ['r'], mode='linear'),
             helper.make_node('Conv', ['r', 'w'], ['y'])]
    path = models.save(nodes, {'x': [1, 1, 4, 4]}, {'y': [1, 1, 8, 8]}, weights={
        'scales': np.float32([1, 1, 2, 2]), 'w': np.float32([[[[3]]]])})
    model = light(path)
    assert 'scales' in {one.name for one in model.graph.initializer}
    assert types(model)['r__fp16'] == TensorProto.FLOAT16


def test_indices_computed_in_floats_stay_exact(models):
    """A position above 2048 has no exact fp16."""
    nodes = [helper.make_node('Cast', ['i'], ['f'], to=TensorProto.FLOAT),
             helper.make_node('Mul', ['f', 'one'], ['g']),
             helper.make_node('Add', ['x', 'g'], ['s']),
             helper.make_node('MatMul', ['s', 'w'], ['y'])]
    path = models.save(nodes, {'x': [1, 2], 'i': [1, 2]}, {'y': [1, 2]}, i=TensorProto.INT64,
                       weights={'one': np.float32([1]), 'w': np.eye(2, dtype=np.float32)})
    found = types(light(path))
    assert (found['f'], found['g'], found['s__fp16']) == (
        TensorProto.FLOAT, TensorProto.FLOAT, TensorProto.FLOAT16)


def test_a_branch_inside_an_if_keeps_its_types(models):
    then, other = (helper.make_graph(
        [helper.make_node('Mul', ['a', factor], [f'{factor}_out'])], factor, [],
        [helper.make_tensor_value_info(f'{factor}_out', TensorProto.FLOAT, [1, 2])])
        for factor in ('two', 'three'))
    nodes = [helper.make_node('MatMul', ['x', 'w'], ['a']),
             helper.make_node('If', ['c'], ['b'], then_branch=then, else_branch=other),
             helper.make_node('MatMul', ['b', 'w'], ['y'])]
    path = models.save(nodes, {'x': [1, 2], 'c': []}, {'y': [1, 2]}, c=TensorProto.BOOL, weights={
        'w': np.float32([[1, 2], [3, 4]]), 'two': np.float32([2]), 'three': np.float32([3])})
    x = np.float32([[1, 1]])
    assert run(light(path), x=x, c=np.array(True)).tolist() == [[44.0, 64.0]]
    assert run(light(path), x=x, c=np.array(False)).tolist() == [[66.0, 96.0]]


def test_quantised_layers_keep_their_int8_and_get_low_scales(models):
    nodes = [helper.make_node('QuantizeLinear', ['x', 'sx', 'zero'], ['xq']),
             helper.make_node('DequantizeLinear', ['xq', 'sx', 'zero'], ['xd']),
             helper.make_node('DequantizeLinear', ['wq', 'sw', 'zero'], ['wd']),
             helper.make_node('MatMul', ['xd', 'wd'], ['y'])]
    path = models.save(nodes, {'x': [1, 2]}, {'y': [1, 2]}, opset=19, weights={
        'sx': np.float32(0.25), 'sw': np.float32(0.5), 'zero': np.int8(0),
        'wq': np.int8([[2, 4], [6, 8]])})
    model = light(path)
    assert types(model)['xq'] == TensorProto.INT8
    assert run(model, x=np.float32([[1, 2]])).tolist() == [[7.0, 10.0]]


def test_modelopt_is_named_when_it_is_missing(models):
    with pytest.raises(BackendError, match=r'pip install .*modelopt'):
        convert(models.conv(), 'fp16', io_dtypes='keep', converter='modelopt')
