"""Which backend is chosen, and what is said about it."""

from contextlib import closing
from dataclasses import replace
import os

import numpy as np
import pytest

from support.bundles import two_sums
from trt_ros.errors import BackendError, ModelError, ParameterError
from trt_ros.progress import Reporter
from trt_ros.runtime import machine_options, options
from trt_ros.runtime.backends import BACKENDS, Backend, choose_backend, open_network
from trt_ros.runtime.cpu.measure import open_on_the_cpu
from trt_ros.runtime.options import PipelineOptions
from trt_ros.runtime.pipeline import Pipeline
from trt_ros.runtime.runner import Runner
from trt_ros.vision import letterbox

CPU = next(each for each in BACKENDS if each.name == 'onnxruntime')


def backend(name, missing=''):
    return Backend(name, name.title(), lambda: missing, open=None, pipeline=None)


FAST, SLOW, NO_FAST = backend('fast'), backend('slow'), backend('fast', 'no GPU')
SERVER = Backend('server', 'Server', str, open=None, pipeline=None, is_local=False)


@pytest.mark.parametrize(
    ('wanted', 'backends', 'error', 'problem'),
    [
        ('auto', (NO_FAST, backend('slow', 'not installed')), BackendError, 'U; no slow: not ins'),
        ('auto', (NO_FAST, SERVER), BackendError, 'Cause: no fast: no GPU\n'),
        ('fast', (NO_FAST, SLOW), BackendError, r'fast cannot be .*\.\nCause: no GPU\nRemedy: '),
        ('quick', (FAST, SLOW), ParameterError, 'Choose one of auto, fast, slow'),
    ],
    ids=['none', 'only a server', 'a named one is missing', 'unknown'],
)
def test_without_the_wanted_backend_the_reasons_are_told(wanted, backends, error, problem):
    with pytest.raises(error, match=problem):
        choose_backend(wanted, backends)


@pytest.mark.parametrize(
    ('wanted', 'fast', 'expected'),
    [
        ('auto', FAST, 'backend fast: Fast (the fastest on this machine)'),
        ('auto', NO_FAST, 'backend slow: Slow (no fast: no GPU)'),
        ('slow', FAST, 'backend slow: Slow (as requested)'),
    ],
)
def test_the_choice_is_logged_with_its_reason(wanted, fast, expected):
    chosen, why = choose_backend(wanted, (fast, SLOW))
    assert why == expected and f'backend {chosen.name}: ' in expected


def test_options_list_exactly_the_known_backends():
    names = [each.name for each in BACKENDS]
    assert list(machine_options.BACKENDS) == ['auto', *names]
    assert letterbox.RESIZES == options.RESIZES


def test_onnx_runtime_rejects_engine_file(tmp_path):
    (tmp_path / 'net.engine').write_bytes(b'vtrt' + bytes(60))
    with pytest.raises(ModelError, match=r'net\.engine is a TensorRT engine(?s:.*)the ONNX file'):
        CPU.open(PipelineOptions(model_path=str(tmp_path / 'net.engine')), Reporter(), 1)


SERVED = {'remote_timeout': 5.0, 'remote_ca_path': 'ca.pem', 'remote_token_path': 'token'}
SERVER_ONLY = ', '.join(SERVED)


@pytest.mark.parametrize(
    ('name', 'given', 'told'),
    [
        ('onnxruntime', {}, []),
        ('onnxruntime', {'resize': 'stretch', 'cpu_threads': 2}, []),
        (
            'onnxruntime',
            {'precision': 'fp16', 'device': 1, 'gpu_wait': 'block', **SERVED},
            [f'Ignored by ONNX Runtime on the CPU: precision, device, gpu_wait, {SERVER_ONLY}.'],
        ),
        ('tensorrt', {'precision': 'fp16', 'gpu_wait': 'block'}, []),
        (
            'tensorrt',
            {'cpu_threads': 2, **SERVED},
            [f'Ignored by TensorRT: cpu_threads, {SERVER_ONLY}.'],
        ),
        ('triton', {'remote_timeout': 5.0}, []),
        (
            'triton',
            {'precision': 'fp16', 'cpu_threads': 2, 'engine_cache_dir': 'cache'},
            [
                'Ignored by Triton or another inference server: precision, engine_cache_dir, '
                'cpu_threads.'
            ],
        ),
    ],
)
def test_options_of_other_backends_are_reported_as_ignored(use_backend, name, given, told):
    backend = next(each for each in BACKENDS if each.name == name)
    use_backend(replace(backend, open=lambda *_: Runner()), 'chosen')
    path = 'grpc://localhost:1/net' if name == 'triton' else 'none.onnx'
    lines = open_network(PipelineOptions(model_path=path, **given), Reporter())[2]
    assert lines == ('chosen', *told)


def test_options_without_effect_are_in_the_log_lines_once(color_detector, tmp_path):
    given = {'backend': 'onnxruntime', 'gpu_wait': 'block'}
    opened = [
        Pipeline.open(str(color_detector()), **given),
        Pipeline.open(str(two_sums(tmp_path)), **given),
        open_on_the_cpu(PipelineOptions(str(color_detector()), **given), 1),
    ]
    for pipeline in opened:
        with closing(pipeline):
            told = [line for line in pipeline.log_lines if 'Ignored' in line]
            assert told == ['Ignored by ONNX Runtime on the CPU: gpu_wait.']


@pytest.mark.parametrize('asked', [0, 3])
def test_cpu_threads_option_reaches_onnx_runtime(color_detector, asked):
    runner = CPU.open(
        PipelineOptions(model_path=str(color_detector()), cpu_threads=asked), Reporter(), 1
    )
    runner.infer({'images': np.zeros((1, 3, 64, 64), np.float32)})
    threads = runner._runner._session.get_session_options().intra_op_num_threads
    runner.close()
    assert threads == (asked or len(os.sched_getaffinity(0)))
