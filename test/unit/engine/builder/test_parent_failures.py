"""Builds that tensorrt_rtx, or trt_ros before it, refuses."""

import numpy as np
import pytest

from support.builds import build_here
from support.networks.nms import TWO_NMS, write_nms
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


ATTENTION = """(float[1,4,16,32] q, float[1,4,16,32] k, float[1,4,16,32] v) =>
    (float[1,4,16,32] y) { [attend] y = Attention(q, k, v) }"""
INT8 = """(float[1,3,8,8] x) => (float[1,8,6,6] y) <float s = {0.1}, int8 z = {0}> {
    xq = QuantizeLinear(x, s, z) xd = DequantizeLinear(xq, s, z) wd = DequantizeLinear(wq, s, z)
    y = Conv(xd, wd)
}"""
NETWORKS = {
    'topk': lambda models: models.save(
        '(float[1,8400] x) => (float[1,5000] y) <int64[1] k = {5000}> { y, i = TopK(x, k) }'
    ),
    'attention': lambda models: models.save(ATTENTION, opset=23),
    'int8': lambda models: models.save(INT8, constants={'wq': np.ones((8, 3, 3, 3), np.int8)}),
    'scatter': lambda models: models.save(
        """(float[4,4] x, float[2,4] u, int64[2,1] i) => (float[4,4] y)
        { [scatter] y = ScatterND <reduction = "add"> (x, i, u) }"""
    ),
    'plugin': lambda models: models.one('EfficientNMS_TRT'),
    'own operator': lambda models: models.one('MyOwnOp'),
    'uint8': lambda models: models.one('Transpose <perm = [1, 0]>', out=(4, 1), kind='uint8'),
    'convolutions': lambda models: models.conv(size=(512, 512), layers=4),
    'half': lambda models: models.one('Relu', kind='float16'),
    'dynamic': lambda models: models.conv(batch='n'),
    'shape': lambda models: models.save(
        '(float[1,3,4,4] x, int64[2] s) => (float[a,b] y) { y = Reshape(x, s) }'
    ),
    'nms': lambda models: write_nms(models.folder, *TWO_NMS),
}
SHAPE = (1, 4, 32, 32)


@pytest.mark.parametrize(
    ('network', 'options', 'said'),
    [
        ('topk', {}, 'does not support the operator TopK of 5000 values'),
        ('attention', {}, 'No kernel supports the Attention(?s:.*)Set precision to fp16'),
        ('int8', {}, 'does not run int8 convolutions(?s:.*)Use the original with precision fp16'),
        ('scatter', {}, 'cannot parse(?s:.*)Cause: Node ScatterND scatter: .*reduction'),
        ('plugin', {}, 'the_EfficientNMS_TRT. cannot be cut off(?s:.*)lacks boxes'),
        ('own operator', {}, 'operator MyOwnOp|needs a plugin'),
        ('uint8', {}, 'cannot parse the model'),
        (
            'convolutions',
            {'workspace_mib': 0},
            'workspace limit(?s:.*)Increase or remove workspace_mib',
        ),
        (
            'convolutions',
            {'precision': 'bf16', 'compute_capabilities': ('7.5',)},
            'does not run bf16 on compute capability 7.5: it needs 8(?s:.*)Set precision to',
        ),
        (
            'half',
            {'precision': 'fp32'},
            r'precision fp32 is not possible for .*\n.*computes in float16',
        ),
        (
            'dynamic',
            {'profiles': ((ShapeRange('x', SHAPE, SHAPE, SHAPE),),)},
            r'The model declares x \(\?, 3, 32, 32\)',
        ),
        ('shape', {}, r'The input s \(2\) int64 of .* is a shape tensor(?s:.*)onnxruntime'),
        (
            'nms',
            {},
            r'^\S+ cannot be built: tensorrt_rtx \S+ does not support NonMax\w+\. The NMS of ',
        ),
        ('half', {'cut_nms': True}, 'no NMS to cut off'),
    ],
)
def test_rtx_build_failure_reports_cause_and_remedy(models, rtx, network, options, said):
    if network == 'int8' and rtx.version >= (1, 7):
        pytest.skip('this release builds it')
    with pytest.raises((BackendError, ModelError, ParameterError), match=said):
        build_here(NETWORKS[network](models), rtx, **options)


def test_attention_builds_in_precision_named_by_remedy(models, rtx):
    report, _ = build_here(models.save(ATTENTION, opset=23), rtx, precision='fp16')
    assert report['layer_precisions']
