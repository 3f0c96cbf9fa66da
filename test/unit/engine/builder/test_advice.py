"""Advice of `inspect` on networks that are built to need it."""

import json
import re

import numpy as np
import onnx
import pytest

from support.builds import build_here
from support.save_network import parse_network
from trt_ros.cli import main
from trt_ros.engine.builder.advice import advise_on_layers, advise_on_model, advise_on_quantization
from trt_ros.engine.builder.layers import EngineLayer, parse_inspector


def model(body: str, inputs: str, outputs: str, **weights: tuple[int, ...]) -> onnx.ModelProto:
    made = parse_network(
        f'({inputs}) => ({outputs}) <float s = {{0.1}}, int8 z = {{0}}> {{ {body} }}',
        constants={name: np.ones(shape) for name, shape in weights.items()},
        opset=19,
    )
    onnx.checker.check_model(made)
    return made


def convolutions(first: int, second: int) -> onnx.ModelProto:
    return model(
        'a = Conv(x, w)  b = Conv(a, v)  y = Conv(b, u)',
        'float[1,3,8,8] x',
        'float[1,5,8,8] y',
        w=(first, 3, 1, 1),
        v=(second, first, 1, 1),
        u=(5, second, 1, 1),
    )


def attention(
    head: int, scores: str = '', axis: int = -1, between: str = 'Mul(qk, s)'
) -> onnx.ModelProto:
    return model(
        f'k = Transpose<perm=[0,1,3,2]>(x)  qk = MatMul(x, k)  d = {between}'
        f' p = Softmax<axis={axis}>(d)  y = MatMul(p, x)',
        f'float[1,2,16,{head}] x',
        f'float[1,2,16,{head}] y{scores}',
    )


def products(batch: str) -> onnx.ModelProto:
    return model(
        'a = MatMul(x, w)  y = MatMul(a, w)',
        f'float[{batch},8] x',
        f'float[{batch},8] y',
        w=(8, 8),
    )


@pytest.mark.parametrize(
    ('network', 'lines'),
    [
        (convolutions(8, 16), []),
        (convolutions(8, 20), ['channels that are no multiple of 8: 1 of 3 (b 20x8). Export']),
        (products('N'), []),
        (products('1'), []),
        (products('16'), []),
        (products('5'), ['a batch of 5 (x): its matrix products take as long as a batch of 8.']),
        (attention(32), []),
        (attention(64, between='Exp(qk)'), []),
        (attention(64, between='Relu(qk)'), ['attention that does not fuse: 1 of 1 (p): Relu is']),
        (attention(36), ['attention that does not fuse: 1 of 1 (p): heads have 36 channels.']),
        (
            attention(512, ', float[1,2,16,16] p', axis=2),
            [
                'attention that does not fuse: 1 of 1 (p): its weights are used elsewhere, too.',
                'attention that does not fuse: 1 of 1 (p): heads have 512 channels.',
                'attention that does not fuse: 1 of 1 (p): Softmax is along axis 2.',
            ],
        ),
    ],
)
def test_a_network_is_told_what_to_export(network, lines):
    found = advise_on_model(network)
    assert len(found) == len(lines), found
    assert all(line.startswith(start) for line, start in zip(found, lines)), found


QAT = 'qx = QuantizeLinear(x, s, z)  dx = DequantizeLinear(qx, s, z)'
WEIGHT = 'qw = QuantizeLinear(w, s, z)  dw = DequantizeLinear(qw, s, z)'
REQUANTIZE = 'qa = QuantizeLinear(a, s, z)  da = DequantizeLinear(qa, s, z)'


@pytest.mark.parametrize(
    ('body', 'lines'),
    [
        (f'{QAT} {WEIGHT} a = Conv(dx, dw)  y = Relu(a)', ['Q/DQ: 1 of 1 ']),
        (f'{QAT} m = MaxPool<kernel_shape=[1,1]>(dx) {WEIGHT} y = Conv(m, dw)', ['Q/DQ: 1 of 1 ']),
        (f'{QAT} y = Conv(dx, w)', ['Q/DQ: 0 of 1 ', 'weights without Q/DQ: 1 (y).']),
        (f'{WEIGHT} y = Conv(x, dw)', ['Q/DQ: 0 of 1 ', 'inputs without Q/DQ: 1 (y).']),
        (
            f'{QAT} {WEIGHT} a = Conv(dx, dw)  y = Conv(a, w)',
            ['Q/DQ: 1 of 2 convolutions and matrix products read quantized inputs and weights; '],
        ),
        (
            f'{QAT} {WEIGHT} a = Conv(dx, dw) {REQUANTIZE} y = Relu(da)',
            ['Q/DQ: 1 of 1 ', 'Q/DQ between a layer and its normalization or activation: 1 (a).'],
        ),
        (
            f'{QAT} {WEIGHT} c = Conv(dx, dw)  a = Add(c, x) {REQUANTIZE} y = Conv(da, dw)',
            ['Q/DQ: 2 of 2 ', 'residual branches without Q/DQ: 1 (a).'],
        ),
        (
            f'{QAT} {WEIGHT} c = Conv(dx, dw)  a = Add(c, dx) {REQUANTIZE} y = Conv(da, dw)',
            ['Q/DQ: 2 of 2 '],
        ),
    ],
)
def test_placement_of_quantizers_is_compared_with_the_guide(body, lines):
    network = model(body, 'float[1,8,4,4] x', 'float[1,8,4,4] y', w=(8, 8, 1, 1))
    found = advise_on_quantization(network)
    assert len(found) == len(lines), found
    assert all(line.startswith(start) for line, start in zip(found, lines)), found


def layer(name, kind='', dtype='float16', **more):
    return EngineLayer(name, kind, dtype, **more)


CONV = layer('conv1 + relu1', 'CaskConvolution')


@pytest.mark.parametrize(
    ('layers', 'start'),
    [
        ([CONV], ''),
        ([CONV, layer('Reformatting CopyNode for x', 'Reformat')], 'reformat layers: 1 of 2'),
        (
            [CONV, layer('QuantizeLinear_7', 'Quantize')],
            'Q/DQ layers that were not fused: 1 of 2 (QuantizeLinear_7)',
        ),
        ([layer('conv1.weight + QuantizeLinear_7 + Conv_9', 'CaskConvolution')], ''),
        (
            [layer('qk_MatMul'), layer('__myl_MaxrSubExpSumDivMul_myl0_5'), layer('av_MatMul')],
            'attention that is not fused: 1 of 3 (__myl_MaxrSubExpSumDivMul_myl0_5)',
        ),
        (
            [layer('qk', 'gemm'), layer('__myl_MulMaxrSubExpSum_myl0_2'), layer('av', 'gemm')],
            'attention that is not fused: 1 of 3 (__myl_MulMaxrSubExpSum_myl0_2)',
        ),
        ([layer('qkv_MatMul'), layer('_gemm_mha_v2_myl0_6'), layer('out_MatMul')], ''),
        ([layer('MatMul_1'), layer('Softmax_2', 'SoftMax')], ''),  # A classifier.
        (
            [CONV, layer('Conv_3', 'CaskConvolution', 'float32')],
            'convolutions and matrix products in float32 beside lower ones: 1 of 2 (Conv_3)',
        ),
        (
            [layer('Conv_3', 'CaskConvolution', 'float32')],
            'convolutions and matrix products in TF32: 1 of 1 (Conv_3)',
        ),
    ],
)
def test_layers_of_an_engine_are_told_what_to_change(layers, start):
    found = advise_on_layers(layers)
    assert [line[: len(start)] for line in found] == ([start] if start else []), found
    if not start.startswith('convolutions'):  # Before fusion, only types are known.
        assert advise_on_layers(layers, is_fused=False) == []


def logged_layers(path, library, **options):
    """Yield the layers that tensorrt_rtx logs of an engine, which only a GPU could load."""
    messages = []
    with library.log.copy_to(lambda _, text: messages.append(text)):
        build_here(path, library, **options)
    (text,) = (each for each in messages if each.startswith('Layers:'))
    for name, kind, rest in re.findall(r'(?m)^Name: (.*?), LayerType: (\w*)(.*)', text):
        inputs, outputs = (
            [{'Datatype': each} for each in re.findall(r'Datatype: (\w+)', part)]
            for part in rest.partition('Outputs:')[::2]
        )
        entry = {'Name': name, 'LayerType': kind, 'Inputs': inputs, 'Outputs': outputs}
        yield from parse_inspector(json.dumps({'Layers': [entry]}))


@pytest.mark.slow
@pytest.mark.parametrize(
    ('network', 'precision', 'titles'),
    [
        (attention(64), 'fp16', []),
        (attention(64), 'auto', ['attention', 'convolutions and matrix products in TF32: 2 of']),
        (attention(64, ', float[1,2,16,16] p'), 'fp16', ['attention']),
        (attention(64, between='Tanh(qk)'), 'fp16', ['attention']),
        (attention(64, between='Relu(qk)'), 'fp16', ['attention']),
        (attention(64, between='Exp(qk)'), 'fp16', []),
        (convolutions(8, 16), 'auto', ['reformat', 'convolutions and matrix products in TF32']),
    ],
)
def test_names_of_layers_are_those_of_the_real_library(network, precision, titles, rtx, tmp_path):
    path = tmp_path / 'net.onnx'
    onnx.save(network, path)
    layers = [*logged_layers(path, rtx, precision=precision)]
    found = advise_on_layers(layers, precision)
    assert len(found) == len(titles), (found, layers)
    assert all(map(str.startswith, found, titles)), (found, layers)


def test_reformats_have_their_share_of_the_measured_time():
    names = ['conv', 'Reformatting CopyNode a', 'Reformatting CopyNode b']
    (line,) = advise_on_layers(
        [EngineLayer(name) for name in names], times=dict(zip(names, (7.0, 1.0, 2.0)))
    )
    assert '2 of 3' in line and '30 % of the time' in line


@pytest.mark.slow
def test_inspect_prints_advice_for_models_and_engines(rtx, tmp_path, capsys):
    path = tmp_path / 'net.onnx'
    onnx.save(convolutions(8, 20), path)
    assert main(['inspect', str(path)]) == 0
    assert 'advice: channels that are no multiple of 8' in capsys.readouterr().out
    build = ['build', str(path), '--engine-cache-dir', str(tmp_path / 'cache')]
    for flags, said in (
        (['--precision', 'tf32'], 'in TF32: 3 of 3'),
        (['--precision', 'fp32'], ''),
        (['--precision', 'fp16', '--fp32', 'b'], 'in float32 beside lower ones: '),
    ):
        assert main([*build, *flags]) == 0
        assert main(['inspect', capsys.readouterr().out.strip()]) == 0
        text = capsys.readouterr().out
        assert f'advice: convolutions and matrix products {said}' in text or not said
        assert ('advice: conv' in text) == bool(said)


@pytest.mark.slow
def test_placement_is_in_the_log_of_a_build(rtx, tmp_path):
    path = tmp_path / 'net.onnx'
    body = f'{QAT} {WEIGHT} a = MatMul(dx, dw)  y = MatMul(a, dw)'
    onnx.save(model(body, 'float[16,64] x', 'float[16,64] y', w=(64, 64)), path)
    report, _ = build_here(path, rtx)
    first, second = report['advice']
    assert first.startswith('Q/DQ: 1 of 2') and second.startswith('inputs without Q/DQ: 1 (y)')
    assert json.dumps(report['quantized']) == '{"int8 matrix products": ["a"]}'
