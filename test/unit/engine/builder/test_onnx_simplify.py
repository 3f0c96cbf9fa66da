"""Simplified networks: what is removed, and what keeps the original."""

from collections import Counter
import sys

import numpy as np
import onnx
from onnx import TensorProto, helper, numpy_helper
import pytest

from trt_ros.engine.builder.onnx_check import read_onnx
from trt_ros.engine.builder.onnx_simplify import simplify
from trt_ros.engine.builder.parent import build
from trt_ros.engine.cache import EngineCache
from trt_ros.engine.key import OnnxFile, cache_key
from trt_ros.engine.open import build_summary
from trt_ros.engine.options import BuildOptions
from trt_ros.errors import ParameterError

slim = pytest.importorskip('onnxslim').slim
pytest.importorskip('onnxruntime')
SHAPES = {'x': (1, 4)}


@pytest.fixture
def wordy(models):
    """Write a sum and a product with constants that are computed, and operators without effect."""
    return models.save(
        [
            helper.make_node('Add', ['w', 'w'], ['twice']),
            helper.make_node('Identity', ['x'], ['same']),
            helper.make_node('Mul', ['same', 'twice'], ['product']),
            helper.make_node('Transpose', ['product'], ['turned'], perm=[1, 0]),
            helper.make_node('Transpose', ['turned'], ['back'], perm=[1, 0]),
            helper.make_node('Relu', ['back'], ['y']),
        ],
        {'x': ['batch', 4]},
        {'y': ['batch', 4]},
        weights={'w': np.arange(4, dtype=np.float32)},
    )


def run_slim(monkeypatch, change):
    """Let onnxslim also change the network."""

    def changed(model):
        simplified = slim(model)
        change(simplified)
        return simplified

    monkeypatch.setattr('onnxslim.slim', changed)


def operators(model) -> list[str]:
    return [node.op_type for node in model.graph.node]


def test_constants_are_folded_and_the_original_stays(wordy):
    model, info = read_onnx(wordy)
    before = model.SerializeToString()
    simplified, line = simplify(wordy, model, info.inputs, SHAPES)
    assert operators(simplified) == ['Mul', 'Relu']
    assert line == 'simplified: 6 to 2 operators, with equal results'
    assert model.SerializeToString() == before


def test_weights_in_another_file_are_read(wordy):
    model = onnx.load(wordy)
    path = wordy.with_name('external.onnx')
    onnx.save(model, path, save_as_external_data=True, location='external.data', size_threshold=0)
    model, info = read_onnx(path)
    simplified, _ = simplify(path, model, info.inputs, SHAPES)
    assert operators(simplified) == ['Mul', 'Relu']
    (factor,) = (numpy_helper.to_array(each) for each in simplified.graph.initializer)
    assert factor.tolist() == [0, 2, 4, 6]


def double_weights(model):
    for each in model.graph.initializer:
        each.CopyFrom(numpy_helper.from_array(numpy_helper.to_array(each) * 1.01, each.name))


def rename_output(model):
    model.graph.output[0].name = model.graph.node[-1].output[0] = 'z'


def break_operator(model):
    model.graph.node[-1].op_type = 'Unheard'


@pytest.mark.parametrize(
    ('change', 'reason'),
    [
        (double_weights, 'the output y differs from that of the original'),
        (rename_output, 'its outputs change'),
        (break_operator, 'ONNX Runtime cannot compare the results: '),
        (lambda _: 1 / 0, 'onnxslim failed with ZeroDivisionError: division by zero'),
    ],
)
def test_a_network_of_other_results_is_not_used(wordy, monkeypatch, change, reason):
    run_slim(monkeypatch, change)
    model, info = read_onnx(wordy)
    simplified, line = simplify(wordy, model, info.inputs, SHAPES)
    assert simplified is None
    assert line.startswith(f'not simplified: {reason}')


def test_quantized_weights_stay_quantized(models):
    path = models.save(
        [
            helper.make_node('DequantizeLinear', ['w', 'scale', 'zero'], ['weights']),
            helper.make_node('MatMul', ['x', 'weights'], ['y']),
        ],
        {'x': [1, 4]},
        {'y': [1, 4]},
        weights={
            'w': np.ones((4, 4), np.int8),
            'scale': np.full((), 0.1, np.float32),
            'zero': np.zeros((), np.int8),
        },
    )
    model, info = read_onnx(path)
    simplified, line = simplify(path, model, info.inputs, SHAPES)
    if simplified is None:
        assert line == 'not simplified: its quantized operators (Q/DQ) change'
    else:
        assert 'DequantizeLinear' in operators(simplified)


def test_a_missing_package_is_named(wordy, monkeypatch):
    monkeypatch.setitem(sys.modules, 'onnxslim', None)
    model, info = read_onnx(wordy)
    with pytest.raises(ParameterError, match=r'(?s)simplify needs .*pip install onnxslim'):
        simplify(wordy, model, info.inputs, SHAPES)


def test_integers_and_masks_are_compared(models):
    path = models.save(
        [
            helper.make_node('Identity', ['table'], ['same']),
            helper.make_node('Gather', ['same', 'tokens'], ['rows']),
            helper.make_node('Where', ['mask', 'rows', 'zero'], ['y']),
        ],
        {'tokens': [3], 'mask': [3, 2]},
        {'y': [3, 2]},
        weights={'table': np.ones((2, 2), np.float32), 'zero': np.zeros((), np.float32)},
        tokens=TensorProto.INT64,
        mask=TensorProto.BOOL,
    )
    model, info = read_onnx(path)
    shapes = {'tokens': (3,), 'mask': (3, 2)}
    simplified, line = simplify(path, model, info.inputs, shapes)
    assert operators(simplified) == ['Gather', 'Where'], line


@pytest.mark.slow
def test_an_engine_is_built_from_the_simplified_network(wordy, rtx, tmp_path):
    plain, simple = BuildOptions(), BuildOptions(simplify=True)
    file = OnnxFile.read(wordy)
    assert cache_key(file, plain, rtx, 0) != cache_key(file, simple, rtx, 0)
    entry = EngineCache(tmp_path).get_or_build(wordy, simple, rtx)
    assert 'simplified: 6 to 2 operators, with equal results' in build_summary(entry.sidecar)
    assert entry.sidecar['packages']['onnxslim']
    kinds = Counter(layer['kind'] for layer in entry.sidecar['layers'])
    assert (kinds['ELEMENTWISE'], kinds['IDENTITY']) == (1, 0)


def test_a_simplified_network_is_lowered_too(models, rtx):
    options = BuildOptions(simplify=True, precision='fp16')
    built = build(models.conv(), options, rtx)
    built.close()
    assert built.report['simplified'].startswith('simplified: ')
    assert 'float16' in built.report['layer_precisions']


@pytest.mark.parametrize('option', [{'strip_weights': True}, {'converter': 'modelopt'}])
def test_options_that_read_the_file_again_are_refused(wordy, rtx, monkeypatch, option):
    monkeypatch.setattr('trt_ros.engine.builder.parent.refuse_unsupported', lambda *_: None)
    with pytest.raises(ParameterError, match=r'cannot be combined with simplify\.'):
        build(wordy, BuildOptions(simplify=True, **option), rtx)
