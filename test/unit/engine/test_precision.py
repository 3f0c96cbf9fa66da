"""Table of precisions, compared with what the installed TensorRT builds."""

from pathlib import Path
import re
from types import SimpleNamespace

import numpy as np
import onnx
from onnx import TensorProto, helper, numpy_helper
import pytest

from support.builds import build_here, describe_here
from support.save_network import parse_network
from trt_ros.cli import main
from trt_ros.driver import nvidia_driver
from trt_ros.engine.builder.onnx_nodes import layers_by_precision, refuse_uint8
from trt_ros.engine.precision import (
    check_precisions,
    limits,
    refused_gpu,
    rule_against,
    summary,
    table_row,
)
from trt_ros.errors import BackendError, ModelError, TrtRosError
from trt_ros.trt import Library

WEIGHTS = {  # Type of the weights, of their scales, block size, opset.
    'int8': ('int8', 'float', 0, 19),
    'fp8': ('float8_e4m3fn', 'float', 0, 19),
    'int4': ('int4', 'float16', 32, 21),
    'nvfp4': ('float4_e2m1fn', 'float', 16, 23),
}
DTYPES = {'float': 'float32', 'float16': 'float16', 'bfloat16': 'bfloat16'}


def network(kind, op):
    """Return a convolution or matrix product whose weights, and inputs, have a type."""
    shape, size = ([64, 64, 3, 3], [1, 64, 8, 8]) if op == 'Conv' else ([64, 64], [32, 64])
    kinds = {'fp16': 'float16', 'bf16': 'bfloat16'}
    opset, of_input, nodes, x, w = 19, kinds.get(kind, 'float'), '', 'x', 'w'
    constants = {'w': np.ones(shape, DTYPES[of_input])}
    if kind in WEIGHTS:
        stored, of_input, block, opset = WEIGHTS[kind]
        rows = [shape[0] // block, *shape[1:]] if block else []
        constants = {'w': np.zeros(shape, stored), 's': np.ones(rows, DTYPES[of_input])}
        scale = 's'
        if kind == 'nvfp4':  # Scales of blocks are fp8, and have a scale of their own.
            constants |= {'s': np.ones(rows, 'float8_e4m3fn'), 'one': np.float32(1)}
            scale, nodes = 'ds', 'ds = DequantizeLinear(s, one)'
        if not block:
            constants['z'] = np.zeros([], stored)
            nodes += 'q = QuantizeLinear(x, s, z) dx = DequantizeLinear(q, s, z)'
            x = 'dx'
        blocks = f'<axis = 0, block_size = {block}>' if block else ''
        nodes += f' dw = DequantizeLinear {blocks} (w, {scale})'
        w = 'dw'
    pads = '<pads = [1, 1, 1, 1]>' if op == 'Conv' else ''
    of_input = f'{of_input}{size}'
    return parse_network(
        f'({of_input} x) => ({of_input} y) {{ {nodes} y = {op} {pads} ({x}, {w}) }}',
        constants=constants,
        opset=opset,
        ir_version=11 if opset > 21 else 9,
    )


CASES = [('fp16', 'MatMul'), ('bf16', 'MatMul'), ('int8', 'Conv'), ('fp8', 'Conv')]
CASES += [(kind, 'MatMul') for kind in WEIGHTS]


@pytest.mark.slow
@pytest.mark.parametrize(('kind', 'op'), CASES)
def test_the_table_says_what_tensorrt_rtx_builds(kind, op, rtx):
    model = network(kind, op)
    layers = 'convolutions' if op == 'Conv' else 'matrix products'
    if kind in WEIGHTS:
        assert layers_by_precision(model.graph) == {f'{kind} {layers}': ['y']}
    for capability in ((7, 5), (8, 0), (8, 6), (8, 9), (12, 0), (12, 1)):
        builder = rtx.new_builder()
        typed = rtx.trt.NetworkDefinitionCreationFlag.STRONGLY_TYPED
        net = builder.create_network(1 << int(typed))
        with rtx.log.collect() as captured:
            assert rtx.trt.OnnxParser(net, rtx.log).parse(model.SerializeToString())
            config = builder.create_builder_config()
            config.num_compute_capabilities = 1
            target = rtx.member('ComputeCapability', f'SM{capability[0]}{capability[1]}')
            assert config.set_compute_capability(target, 0)
            plan = builder.build_serialized_network(net, config)
        rule = rule_against(kind, rtx, capability, layers)
        assert (plan is None) == (rule is not None), (capability, captured.errors[:1])


def library(name, *version):
    return Library(name, SimpleNamespace(), version, '', None)


RTX, RTX17, FULL = (
    library(*each)
    for each in (('tensorrt_rtx', 1, 5, 0), ('tensorrt_rtx', 1, 7, 1), ('tensorrt', 11, 4, 0))
)


@pytest.mark.parametrize(
    ('which', 'capability', 'row'),
    [
        (RTX, (9, 0), 'int8 (no convolutions), fp8 (no convolutions), mxfp8, int4; not nvfp4'),
        (RTX, (8, 6), 'int8 (no convolutions), int4; not fp8, mxfp8, nvfp4'),
        (RTX, (12, 0), 'int8 (no convolutions), fp8, mxfp8, int4, nvfp4'),
        (RTX17, (8, 9), 'int8, fp8, mxfp8, int4; not nvfp4'),
        (FULL, (9, 0), 'int8, fp8, int4; not mxfp8, nvfp4'),
        (FULL, (10, 0), 'int8, fp8, mxfp8, int4, nvfp4'),
        (RTX, None, 'int8 (no convolutions), fp8, mxfp8, int4, nvfp4'),
    ],
)
def test_a_row_names_what_runs_and_what_does_not(which, capability, row):
    found = table_row(which, capability)
    assert re.sub(r' \([0-9.]+ or newer\)', '', found) == f'fp32, tf32, fp16, bf16, {row}'
    assert ('nvfp4 (10.0 or newer)' in found) == (capability is None)


@pytest.mark.parametrize(
    ('which', 'capability', 'reason'),
    [
        (library('tensorrt', 10, 3), (7, 0), ''),
        (library('tensorrt', 10, 13), (7, 0), 'compute capability 7.0, but it needs 7.5'),
        (FULL, (9, 0), ''),
        (RTX, (9, 0), ''),
        (RTX17, (9, 0), 'compute capability 9.0, but it runs on 7.5, 8.0, 8.6, 8.9, 12.0 and'),
        (RTX17, (12, 1), ''),
        (RTX17, (8, 7), 'compute capability 8.7, but'),
        (RTX, (6, 1), 'compute capability 6.1, but it needs 7.5'),
    ],
)
def test_a_gpu_that_a_library_refuses_is_told(which, capability, reason):
    found = refused_gpu(which, capability)
    assert found.startswith(reason) if reason else not found


def test_layers_are_refused_with_their_names_and_the_matrix_of_tensorrt_is_a_warning():
    names = {'fp8 convolutions': ['stem', 'a', 'b', 'c']}
    assert check_precisions(RTX, (8, 9), names) == []
    assert check_precisions(FULL, (9, 0), names) == []
    with pytest.raises(BackendError, match=r'fp8 convolutions on .* 9\.0: it computes') as caught:
        check_precisions(RTX, (9, 0), names)
    assert caught.value.cause == 'The model has 4: stem, a, b, ...'
    assert '--keep Conv' in caught.value.remedy
    (line,) = check_precisions(FULL, (8, 6), {'fp8 matrix products': ['a']})
    assert line.startswith("by NVIDIA's support matrix, tensorrt 11.4.0 does not run fp8 matrix")


def test_quantized_layers_are_listed_with_the_gpus_that_they_need():
    def lines(key, which, is_checked=False):
        return summary({key: ['a']}, which.name, which.version, is_checked=is_checked)

    need = 'needs compute capability'
    assert lines('fp8 convolutions', RTX) == [
        f'warning: 1 fp8 convolutions; {need} 8.9 or newer; on compute capability 9.0, it '
        'computes them wrongly, without their scales'
    ]
    assert lines('fp8 convolutions', FULL) == [f'warning: 1 fp8 convolutions; {need} 8.9 or newer']
    assert lines('mxfp8 matrix products', FULL, True) == [
        f'1 mxfp8 matrix products; {need} 10.0 or newer'
    ]
    assert lines('int4 matrix products', RTX, True) == [
        f'1 int4 matrix products; {need} 8.0 or newer'
    ]
    assert lines('int8 convolutions', RTX17) == ['1 int8 convolutions']
    assert limits('int8 convolutions', RTX.name, RTX.version) == []  # No GPU has them.


def test_int8_on_an_h100_is_not_sent_to_a_release_that_refuses_the_gpu():
    with pytest.raises(BackendError, match=r'1\.7, which refuses this GPU'):
        check_precisions(RTX, (9, 0), {'int8 convolutions': ['stem']})
    for capability in (None, (8, 6)):
        with pytest.raises(BackendError, match=r'it needs release 1\.7\.') as caught:
            check_precisions(RTX, capability, {'int8 convolutions': ['stem']})
        assert caught.value.remedy.startswith('Install tensorrt_rtx 1.7')
    with pytest.raises(BackendError, match='does not run bf16 on compute capability 7'):
        check_precisions(RTX, (7, 5), {}, 'bf16')
    with pytest.raises(BackendError, match=r'9\.0: it runs on 7\.5'):
        check_precisions(RTX17, (9, 0), {}, 'fp16')


@pytest.mark.slow
@pytest.mark.parametrize(
    ('kind', 'targets', 'said'),
    [
        ('int4', ('7.5',), 'int4 matrix products on compute capability 7.5: it needs 8.0'),
        ('nvfp4', ('12.0', '8.9'), 'nvfp4 matrix products on compute capability 8.9: it needs 10'),
        ('int4', ('8.9',), ''),
        ('nvfp4', ('12.0',), ''),
    ],
)
def test_files_of_four_bits_are_built_or_refused_at_intake(kind, targets, said, rtx, tmp_path):
    path = tmp_path / 'model.onnx'
    onnx.save(network(kind, 'MatMul'), path)
    if said:
        with pytest.raises(BackendError, match=said):
            build_here(path, rtx, compute_capabilities=targets)
        return
    report, _ = build_here(path, rtx, compute_capabilities=targets)
    assert report['quantized'] == {f'{kind} matrix products': ['y']}


@pytest.mark.slow
@pytest.mark.skipif(bool(nvidia_driver().gpus), reason='this GPU is checked')
def test_without_a_target_the_gpus_that_lack_a_precision_are_told(
    rtx, tmp_path, monkeypatch, capsys
):
    monkeypatch.setenv('XDG_CACHE_HOME', str(tmp_path))
    path = tmp_path / 'model.onnx'
    onnx.save(network('nvfp4', 'MatMul'), path)
    told = 'warning: 1 nvfp4 matrix products; needs compute capability 10.0 or newer\n'
    assert main(['build', str(path)]) == 0
    engine, err = capsys.readouterr()
    assert told in err
    for each in (str(path), engine.strip()):
        assert main(['inspect', each]) == 0
        assert told in capsys.readouterr().out
    assert main(['build', str(path), '--compute-capability', '12.0']) == 0
    assert 'warning' not in capsys.readouterr().err


@pytest.mark.slow
def test_inspect_prints_what_build_refuses(rtx, tmp_path, capsys):
    path = tmp_path / 'model.onnx'
    unknown, asymmetric = network('fp16', 'MatMul'), network('int8', 'MatMul')
    unknown.graph.node[-1].domain, unknown.graph.node[-1].op_type = 'my.operators', 'Own'
    unknown.opset_import.append(helper.make_opsetid('my.operators', 1))
    for tensor in asymmetric.graph.initializer:
        if tensor.name in 'wz':
            tensor.data_type = TensorProto.UINT8
            tensor.raw_data = b'\x80' * len(tensor.raw_data)
    for model, cause in (
        (asymmetric, 'quantizes to uint8'),
        (unknown, 'The operator Own is not supported.'),
        (network('int8', 'Conv'), 'does not run int8 convolutions'),
    ):
        onnx.save(model, path)
        with pytest.raises(TrtRosError, match=cause):
            describe_here(path, rtx)
    assert main(['inspect', str(path)]) == 0
    assert re.search(f'warning: build refuses it: .*{cause}', capsys.readouterr().out)
    onnx.save(network('fp16', 'MatMul'), path)
    describe_here(path, rtx)


@pytest.mark.parametrize('zero', ['none', 'uint8', 'constant', 'int8', 'given'])
def test_uint8_that_would_be_computed_as_int8_is_refused(zero):
    model = network('int8', 'MatMul')
    quantize = next(each for each in model.graph.node if each.op_type == 'QuantizeLinear')
    values = numpy_helper.from_array(np.zeros([], np.uint8), 'u')
    if zero in ('none', 'given'):
        del quantize.input[2:]
    if zero == 'given':
        quantize.attribute.append(helper.make_attribute('output_dtype', TensorProto.INT8))
    if zero in ('uint8', 'constant'):
        quantize.input[2] = 'u'
    if zero == 'uint8':
        model.graph.initializer.append(values)
    if zero == 'constant':
        model.graph.node.insert(0, helper.make_node('Constant', [], ['u'], value=values))
    if zero in ('int8', 'given'):
        refuse_uint8(Path('m.onnx'), model.graph)
        return
    with pytest.raises(ModelError, match=r'm\.onnx quantizes to uint8.*\n.*1 QuantizeLinear'):
        refuse_uint8(Path('m.onnx'), model.graph)


def test_a_lookup_in_quantized_rows_needs_their_type():
    model = network('int4', 'MatMul')
    model.graph.node[-1].CopyFrom(helper.make_node('Gather', ['dw', 'index'], ['y']))
    assert layers_by_precision(model.graph) == {'int4 lookups': ['y']}


@pytest.mark.slow
def test_the_operators_of_modelopt_are_recognized_and_built(rtx, tmp_path):
    model = network('fp8', 'MatMul')
    model.opset_import.append(helper.make_opsetid('trt', 1))
    *quantizing, product = model.graph.node
    for node in quantizing:
        node.op_type, node.domain = f'TRT_FP8{node.op_type}', 'trt'
        del node.input[2:]
    assert layers_by_precision(model.graph) == {'fp8 matrix products': [product.output[0]]}
    path = tmp_path / 'model.onnx'
    onnx.save(model, path)
    report, _ = build_here(path, rtx)
    assert report['layer_precisions']['float8_e4m3fn'] == 1
    assert report['advice'] == [
        'Q/DQ: 1 of 1 convolutions and matrix products read quantized inputs and weights'
    ]


@pytest.mark.slow
@pytest.mark.parametrize('side', [0, 1])
def test_a_convolution_of_one_quantized_input_computes_in_float(side, rtx, tmp_path):
    model = network('int8', 'Conv')
    floats = np.ones([64, 64, 3, 3], np.float32)
    model.graph.initializer.append(numpy_helper.from_array(floats, 'float'))
    model.graph.node[-1].input[side] = ('x', 'float')[side]
    path = tmp_path / 'one_side.onnx'
    onnx.save(model, str(path))
    assert layers_by_precision(model.graph) == {}
    build_here(path, rtx)
