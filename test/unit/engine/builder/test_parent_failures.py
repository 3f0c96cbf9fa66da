"""Builds that tensorrt_rtx, or trt_ros before it, refuses."""

import numpy as np
from onnx import TensorProto, helper
import pytest

from support.builds import build_here
from trt_ros.engine.builder.parent import build
from trt_ros.engine.options import BuildOptions, ShapeRange
from trt_ros.errors import BackendError, ModelError, ParameterError

pytestmark = pytest.mark.slow  # A second each.

REFUSED = [
    ({'dla_core': 0}, 'dla_core'),
    ({'plugins': ('x.so',)}, 'plugins'),
    ({'editable_timing_cache': True}, 'editable_timing_cache'),
    ({'version_compatible': True}, 'version_compatible'),
    ({'hardware_compatible': 'ampere_plus'}, 'hardware_compatible'),
    (
        {'compute_capabilities': ('5.3',)},
        'compute_capabilities.*Unknown compute capability: 5.3.*8.6, 8.9, 12.0',
    ),
    ({'compute_capabilities': ('86',)}, 'compute_capabilities.*Unknown compute capability: 86'),
    ({'strip_weights': True, 'precision': 'fp16'}, 'strip_weights'),
]


@pytest.mark.parametrize(('options', 'said'), REFUSED)
def test_rejects_options_unsupported_by_rtx_before_building(models, rtx, options, said):
    with pytest.raises(ParameterError, match=f'(?s)cannot apply .*{said}'):
        build(models.conv(), BuildOptions(**options), rtx)


def test_a_precision_that_the_model_contradicts_is_refused(models, rtx):
    half = models.one('Relu', kind=TensorProto.FLOAT16)
    with pytest.raises(
        ParameterError, match=r'precision fp32 is not possible for .*\n.*computes in float16'
    ):
        build_here(half, rtx, precision='fp32')


def node(op, inputs, outputs, name='', **attributes):
    return helper.make_node(op, inputs, outputs, name, **attributes)


def topk(models):
    return models.save(
        [node('TopK', ['x', 'k'], ['y', 'i'], 'top')],
        {'x': [1, 8400]},
        {'y': [1, 5000]},
        weights={'k': np.int64([5000])},
    )


def attention(models):
    return models.save(
        [node('Attention', ['q', 'k', 'v'], ['y'], 'attend')],
        {name: [1, 4, 16, 32] for name in 'qkv'},
        {'y': [1, 4, 16, 32]},
        opset=23,
    )


def int8_convolution(models):
    return models.save(
        [
            node('QuantizeLinear', ['x', 's', 'z'], ['xq']),
            node('DequantizeLinear', ['xq', 's', 'z'], ['xd']),
            node('DequantizeLinear', ['wq', 's', 'z'], ['wd']),
            node('Conv', ['xd', 'wd'], ['y']),
        ],
        {'x': [1, 3, 8, 8]},
        {'y': [1, 8, 6, 6]},
        weights={'s': np.float32(0.1), 'z': np.int8(0), 'wq': np.ones((8, 3, 3, 3), np.int8)},
    )


def scatter(models):
    return models.save(
        [node('ScatterND', ['x', 'i', 'u'], ['y'], 'scatter', reduction='add')],
        {'x': [4, 4], 'u': [2, 4], 'i': [2, 1]},
        {'y': [4, 4]},
        i=TensorProto.INT64,
    )


def plugin(models):
    return models.one('EfficientNMS_TRT')


def own_operator(models):
    return models.one('MyOwnOp')


def uint8_at_once(models):
    return models.one('Transpose', shape=(1, 4), out=(4, 1), kind=TensorProto.UINT8, perm=[1, 0])


def convolutions(models):
    return models.conv(size=(512, 512), layers=4)


@pytest.mark.parametrize(
    ('make', 'options', 'said', 'below'),
    [
        (topk, {}, 'does not support the operator TopK of 5000 values', (9,)),
        (attention, {}, 'No kernel supports the Attention(?s:.*)Set precision to fp16', (9,)),
        (
            int8_convolution,
            {},
            'does not run int8 convolutions(?s:.*)Use the original with precision fp16',
            (1, 7),
        ),
        (scatter, {}, 'cannot parse(?s:.*)Cause: Node ScatterND scatter: .*reduction', (9,)),
        (plugin, {}, 'the_EfficientNMS_TRT. cannot be cut off(?s:.*)lacks boxes', (9,)),
        (own_operator, {}, 'operator MyOwnOp|needs a plugin', (9,)),
        (uint8_at_once, {}, 'cannot parse the model', (9,)),
        (
            convolutions,
            {'workspace_mib': 0},
            'workspace limit(?s:.*)Increase or remove workspace_mib',
            (9,),
        ),
        (
            convolutions,
            {'precision': 'bf16', 'compute_capabilities': ('7.5',)},
            'does not run bf16 on compute capability 7.5: it needs 8(?s:.*)Set precision to',
            (9,),
        ),
    ],
)
def test_rtx_build_failure_reports_cause_and_remedy(models, rtx, make, options, said, below):
    if rtx.version >= below:
        pytest.skip('this release builds it')
    with pytest.raises((BackendError, ModelError), match=said):
        build_here(make(models), rtx, **options)


def test_attention_builds_in_precision_named_by_remedy(models, rtx):
    assert build_here(attention(models), rtx, precision='fp16')[0]['layer_precisions']


def test_reports_profile_that_contradicts_model(models, rtx):
    with pytest.raises(ParameterError, match=r'The model declares x \(\?, 3, 32, 32\)'):
        build_here(
            models.conv(batch='n'),
            rtx,
            profiles=((ShapeRange('x', (1, 4, 32, 32), (1, 4, 32, 32), (1, 4, 32, 32)),),),
        )


def test_timing_iterations_are_positive():
    with pytest.raises(ParameterError, match='avg_timing_iterations is 0'):
        BuildOptions(avg_timing_iterations=0)
