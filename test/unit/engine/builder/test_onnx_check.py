"""What is seen in an ONNX file before TensorRT sees it."""

from contextlib import nullcontext
import re

import numpy as np
import onnx
from onnx import TensorProto, helper
import pytest

from trt_ros.engine.builder.onnx_check import read_network, read_onnx, refuse_unbuildable
from trt_ros.engine.key import external_names
from trt_ros.errors import ModelError
from trt_ros.tensors import TensorSpec


def test_a_model_is_described(models):
    path = models.conv(batch='n', size=('h', 'w'), metadata={'names': "{0: 'weed'}"})
    _, info = read_onnx(path)
    assert info.inputs == (TensorSpec('x', (-1, 3, -1, -1), 'float32', 'input'),)
    assert info.outputs == (TensorSpec('y', (-1, 8, -1, -1), 'float32', 'output'),)
    assert info.metadata == {'names': "{0: 'weed'}"}
    assert (info.opset, info.producer) == (17, 'test')
    assert info.ops == {'Conv': 2, 'Mul': 1, 'Relu': 2}
    assert info.float_types == ('float32',)
    assert info.warnings == ()


def test_truncated_models_and_metadata_that_is_not_utf8_are_refused(models):
    path = models.conv()
    path.write_bytes(path.read_bytes()[:500])
    with pytest.raises(ModelError, match='is not an ONNX model or is truncated'):
        read_onnx(path)
    path = models.conv(metadata={'names': 'REPLACED'})
    path.write_bytes(path.read_bytes().replace(b'REPLACED', b'\xed\xa0\x80\xffaaaa'))
    with pytest.raises(ModelError, match='are not UTF-8'):
        read_onnx(path)


@pytest.mark.parametrize(
    ('graph', 'problem'),
    [
        ('(float[1] x) => (float[1] y) { y = Relu(none) }', r'is not valid ONNX.*\n.*none'),
        ('() => (float[1] y) { y = Constant <value_floats = [1.0]> () }', 'has no inputs'),
        *[
            (
                f'({kind}[1] x) => ({kind}[1] y) {{ y = Identity(x) }}',
                f'has the unsupported type {kind.upper()}',
            )
            for kind in ('string', 'complex64', 'complex128')
        ],
    ],
)
def test_a_network_that_cannot_run_is_refused_with_the_reason(models, graph, problem):
    with pytest.raises(ModelError, match=problem):
        read_onnx(models.save(graph))


def test_reports_model_newer_than_onnx(models):
    path = models.conv()
    model = onnx.load(path)
    model.ir_version = 99
    onnx.save(model, path)
    with pytest.raises(ModelError, match='pip install -U onnx'):
        read_onnx(path)


def declare(path, **entries):
    """Rewrite where the first weight says that its bytes lie; None leaves an entry out."""
    model = onnx.load(path, load_external_data=False)
    weight = model.graph.initializer[0]
    kept = {entry.key: entry.value for entry in weight.external_data} | entries
    del weight.external_data[:]
    for key, value in kept.items():
        if value is not None:
            weight.external_data.add(key=key, value=str(value))
    path.write_bytes(model.SerializeToString())


@pytest.fixture
def one_weight(models):
    """Write a model of one weight of 64 bytes in another file; return both paths."""
    path = models.one('MatMul', w=np.ones((4, 4), np.float32))
    data = models.split(path, 'w.data')
    assert data.stat().st_size == 64
    return path, data


SHORT = r'w\.data has 63 bytes; 64 are required'
TOO_SHORT = (
    r'weights w of .* is not available\.\nCause: Too short: {} bytes are declared; '
    r'the shape \[4, 4\] requires 64\.'
)


@pytest.mark.parametrize(
    ('entries', 'nbytes', 'problem'),
    [
        ({}, 63, SHORT),
        ({'length': None}, 63, SHORT),
        ({'length': 0}, 63, SHORT),
        ({'length': None, 'offset': None}, 63, SHORT),
        ({'offset': 1}, 64, r'w\.data has 64 bytes; 65 are required'),
        ({'length': 1}, 64, TOO_SHORT.format(1)),
        ({'length': 63}, 64, TOO_SHORT.format(63)),
        ({'length': -1}, 64, r'weights w of .* is not available'),
        ({'offset': -1}, 64, r'weights w of .* is not available'),
        ({'location': '../w.data'}, 64, 'is not a relative path'),
        ({'location': '/etc/passwd'}, 64, 'is not a relative path'),
        ({'location': ''}, 64, 'is not a relative path'),
        ({'location': 'v.data'}, 64, r'v\.data does not exist'),
        ({}, 64, ''),
        ({'length': None}, 64, ''),
        ({'length': 0}, 64, ''),
        ({'length': None, 'offset': None}, 64, ''),
        ({'offset': 1}, 65, ''),
    ],
)
def test_external_weights_are_read_unless_they_are_elsewhere_or_too_short(
    one_weight, entries, nbytes, problem
):
    path, data = one_weight
    declare(path, **entries)
    data.write_bytes(bytes(nbytes))
    with pytest.raises(ModelError, match=problem) if problem else nullcontext():
        read_onnx(path)


def test_data_file_with_a_name_too_long_for_the_disk_does_not_exist(one_weight):
    path, _ = one_weight
    declare(path, location='w' * 5000)
    assert external_names(path) == []
    with pytest.raises(ModelError, match='does not exist') as caught:
        read_onnx(path)
    assert len(str(caught.value)) < 1000


def test_integers_outside_int32_except_slice_ends_and_operators_of_plugins_are_warnings(models):
    large = models.one('Add', kind='int64', big=np.int64([2**40] * 4))
    assert 'big contains 1099511627776, outside INT32' in read_onnx(large)[1].warnings[0]
    end = models.one('Add', kind='int64', end=np.int64([2**63 - 1] * 4))
    assert read_onnx(end)[1].warnings == ()
    _, info = read_onnx(models.one('EfficientNMS_TRT'))
    assert 'EfficientNMS_TRT' in info.warnings[0]


@pytest.mark.parametrize('opset', [99, 2**62])
def test_opset_beyond_the_checker_is_a_warning(models, opset):
    model = onnx.load(models.one('Relu'))
    model.opset_import[0].version = opset
    onnx.save(model, path := models.folder / 'new.onnx')
    _, info = read_onnx(path)
    newest = onnx.defs.onnx_opset_version()
    assert info.opset == opset
    assert f'opset {opset} is newer than {newest}, the last one' in info.warnings[-1]


TOP = """(float[1,5000] x) => (float[1,n] y) <int64[1] k = {%d}> {
    [best] y, i = TopK(x, k) }"""
NMS = """(float[1,9,4] boxes, float[1,1,9] scores) => (int64[n,3] y) {
    [suppress] y = NonMaxSuppression(boxes, scores) }"""
INTEGERS = """(float[4,4] x) => (int32[4,4] y) {
    x8, scale, zero = DynamicQuantizeLinear(x) y = MatMulInteger(x8, x8, zero) }"""
FOLDED = """(float[1,2] x) => (float[1,2] y) {
    shape = Shape(x) where = NonZero(shape) w = Cast <to = 1> (where) y = Add(x, w) }"""


@pytest.mark.parametrize(
    ('graph', 'problem'),
    [
        (TOP % 3840, ''),
        (TOP % 3841, r'TopK of 3841 values \(node best.*\n.*smaller K'),
        (NMS, r'NonMaxSuppression \(node suppress.*\n.*without NMS'),
        (INTEGERS, r'(?s)operator DynamicQuantizeLinear.*Remedy.*quant_format=QuantFormat\.QDQ'),
        (FOLDED, ''),
    ],
    ids=['TopK', 'larger TopK', 'NMS', 'integers', 'folded constants'],
)
def test_what_only_the_builder_of_rtx_would_refuse_is_refused(models, graph, problem):
    model, _ = read_onnx(path := models.save(graph))
    with pytest.raises(ModelError, match=problem) if problem else nullcontext():
        refuse_unbuildable(path, model)


def test_external_int4_weights_are_two_values_per_byte(models):
    path = models.save(
        """(float[1] x) => (float[5] y, float[1] z) <float s = {1}>
        { y = DequantizeLinear(w, s) z = Identity(x) }""",
        opset=21,
        ir_version=10,
    )
    model = onnx.load(path)
    model.graph.initializer.insert(
        0, helper.make_tensor('w', TensorProto.INT4, [5], b'\x21\x43\x05', raw=True)
    )
    onnx.save(model, path, save_as_external_data=True, location='w.data', size_threshold=0)
    read_onnx(path)
    declare(path, length=2)
    with pytest.raises(ModelError, match=r'2 bytes are declared; the shape \[5\] requires 3'):
        read_onnx(path)


@pytest.mark.parametrize(
    ('fields', 'cause'),
    [
        ({'data_type': 99, 'raw_data': b'0000'}, 'type 99 is unknown'),
        ({'data_type': 0, 'raw_data': b'0000'}, 'type 0 is unknown'),
        (
            {'data_type': TensorProto.FLOAT, 'raw_data': b'00'},
            'has 2 bytes; its shape and type require 4',
        ),
        (
            {'data_type': TensorProto.FLOAT, 'raw_data': b'00000'},
            'has 5 bytes; its shape and type require 4',
        ),
        (
            {'data_type': TensorProto.FLOAT, 'dims': [-1], 'raw_data': b'0000'},
            r'shape is \[1, -1\]',
        ),
        ({'data_type': TensorProto.INT64, 'dims': [3], 'int64_data': [1]}, 'reshape|size'),
    ],
)
def test_a_tensor_whose_bytes_type_and_shape_contradict_each_other_is_refused(
    models, fields, cause
):
    path = models.one('Relu')
    model = onnx.load(path)
    tensor = TensorProto(name='w', dims=[1])
    tensor.MergeFrom(TensorProto(**fields))
    model.graph.initializer.append(tensor)
    path.write_bytes(model.SerializeToString())
    with pytest.raises(ModelError) as caught:
        read_onnx(path)
    assert re.search(cause, caught.value.cause), caught.value


def test_an_input_of_an_unknown_type_is_refused(models):
    path = models.one('Relu')
    model = onnx.load(path)
    model.graph.input[0].type.tensor_type.elem_type = 99
    path.write_bytes(model.SerializeToString())
    with pytest.raises(ModelError):
        read_onnx(path)
    with pytest.raises(ModelError, match='unknown type 99'):
        read_network(path)
