"""Real builds with tensorrt_rtx, on the CPU: reports, progress and logs."""

import logging

import numpy as np
import pytest

from support.builds import build_here
from trt_ros.engine.builder.parent import BuildLog, build
from trt_ros.engine.options import BuildOptions, ShapeRange
from trt_ros.errors import ModelError
from trt_ros.progress import Reporter

pytestmark = pytest.mark.slow  # A second each.


def report_of(path, library, **options):
    """Build and return the report; the plan must be one."""
    report, header = build_here(path, library, **options)
    assert (header.library, header.version) == ('tensorrt_rtx', library.version)
    return {**report, 'header': header}


@pytest.mark.parametrize(
    ('precision', 'layers', 'io_dtypes', 'dtype'),
    [
        ('auto', {'float32': 6}, 'keep', 'float32'),
        ('fp32', {'float32': 6}, 'keep', 'float32'),
        ('tf32', {'float32': 6}, 'keep', 'float32'),
        ('fp16', {'float16': 3, 'float32': 3}, 'keep', 'float32'),
        ('bf16', {'bfloat16': 3, 'float32': 3}, 'keep', 'float32'),
        ('fp16', {'float16': 3, 'float32': 3}, 'lower', 'float16'),
    ],
)
def test_layers_have_requested_precision(models, rtx, precision, layers, io_dtypes, dtype):
    report = report_of(models.conv(), rtx, precision=precision, io_dtypes=io_dtypes)
    assert report['layer_precisions'] == layers
    assert report['layers_from'] == 'network'
    assert [one['dtype'] for one in (*report['inputs'], *report['outputs'])] == [dtype] * 2


def test_report_contains_metadata_opset_shapes_and_targets(models, rtx):
    path = models.conv(name='ein Modell (größer)', metadata={'names': '{0: "a"}'})
    report = report_of(path, rtx, compute_capabilities=('8.6', '12.0'))
    assert report['metadata'] == {'names': '{0: "a"}'}
    assert (report['onnx_opset'], report['batch'], report['profiles']) == (17, 1, [])
    assert report['inputs'] == [
        {'name': 'x', 'shape': [1, 3, 32, 32], 'dtype': 'float32', 'mode': 'input'}
    ]
    assert report['header'].compute_capabilities == ((8, 6), (12, 0))


def test_dynamic_shapes_get_requested_profiles_or_the_input_size(models, rtx):
    path = models.conv(batch='n', size=('h', 'w'))
    small, large = (
        ShapeRange('x', (1, 3, s, s), (2, 3, s, s), (4, 3, 2 * s, s)) for s in (32, 64)
    )
    report = report_of(path, rtx, profiles=((small,), (large,)))
    assert report['batch'] == 4
    assert [profile[0]['high'] for profile in report['profiles']] == [
        [4, 3, 64, 32],
        [4, 3, 128, 64],
    ]
    report = report_of(path, rtx, input_size=(48, 64))
    assert report['profiles'][0][0]['best'] == [1, 3, 48, 64]


@pytest.mark.parametrize(
    ('options', 'ignored'),
    [
        (
            {'precision': 'fp32', 'optimization_level': 5, 'aux_streams': 2},
            ['precision fp32', 'optimization_level', 'aux_streams'],
        ),
        ({'precision': 'tf32', 'weight_streaming_budget_mib': 1}, []),
        ({'io_dtypes': 'lower'}, ['io_dtypes lower: precision auto keeps all types']),
        ({'io_dtypes': 'lower', 'precision': 'bf16'}, []),
        ({'batch': 4}, ['batch 4: the batch size of the model is fixed']),
        (
            {'sparse': True, 'avg_timing_iterations': 4},
            ['avg_timing_iterations: tensorrt_rtx accepts it without effect'],
        ),
    ],
)
def test_options_without_effect_on_rtx_are_reported(models, rtx, options, ignored):
    report = report_of(models.conv(), rtx, **options)
    assert len(report['ignored_options']) == len(ignored) and report['batch'] == 1
    assert all(map(str.startswith, report['ignored_options'], ignored))


def test_integers_that_are_not_a_shape_and_external_data_are_built(models, rtx):
    graph = '(float[1,3,4,4] x, int64[2] s) => (float[1,2,4,4] y) { y = Gather <axis = 1> (x, s) }'
    build_here(models.save(graph), rtx)
    path = models.conv()
    models.split(path)
    assert report_of(path, rtx)['layer_precisions'] == {'float32': 6}
    assert report_of(path, rtx, precision='fp16')['layer_precisions']['float16'] == 3


@pytest.mark.parametrize('opset', [7, 11, 24])
def test_old_and_new_opsets_build(models, rtx, opset):
    assert report_of(models.conv(opset=opset), rtx)['onnx_opset'] == opset


NIGHTLY = pytest.mark.nightly


@pytest.mark.parametrize(
    'precision', ['fp16', *(pytest.param(each, marks=NIGHTLY) for each in ('tf32', 'bf16'))]
)
def test_the_weeds_detector_builds(weeds, rtx, precision):
    report = report_of(weeds / 'weeds_yolox_nano.onnx', rtx, precision=precision)
    assert report['outputs'][0]['shape'] == [1, 3549, 8]


def test_progress_names_phases_and_never_decreases(models, rtx, caplog):
    seen = []
    build(models.conv(layers=40), BuildOptions(), rtx, report=Reporter(seen.append)).plan.close()
    phases = [one.phase for one in seen]
    assert list(dict.fromkeys(phases))[:4] == [
        'starting the build',
        'checking the model',
        'parsing the model',
        'Building engine',
    ]
    percents = [one.percent for one in seen if one.percent is not None]
    assert percents == sorted(percents) and percents[-1] == 100.0
    elapsed = [one.elapsed_seconds for one in seen]
    assert max(np.diff(elapsed)) < 10  # Reports go on while TensorRT is silent.
    assert '[VERBOSE]' not in caplog.text


def test_log_of_tensorrt_reaches_its_logger_at_debug_level(models, rtx, caplog):
    caplog.set_level(logging.DEBUG, 'trt_ros.tensorrt_rtx')
    build(models.conv(), BuildOptions(), rtx).plan.close()
    assert '[VERBOSE] Parsing node: conv_0 [Conv]' in caplog.messages


def test_log_is_written_although_the_build_fails(models, rtx, tmp_path):
    path = models.one('Transpose <perm = [1, 0]>', out=(4, 1), kind='uint8')
    with (tmp_path / 'build.log').open('w+b', buffering=0) as file:
        with pytest.raises(ModelError):
            build(path, BuildOptions(), rtx, build_log=BuildLog(file, verbose=False))
        file.seek(0)
        assert b'[INFO] ONNX IR version' in file.read()
