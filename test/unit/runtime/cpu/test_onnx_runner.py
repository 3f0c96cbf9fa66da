"""ONNX Runtime on the CPU, on real models."""

from functools import partial
import os
from pathlib import Path
import re
import sys

import numpy as np
import onnx
from onnx import TensorProto, helper
import pytest

from support.save_network import parse_network, save_network
from support.scripts import run_script
from trt_ros.demo import MODEL
from trt_ros.errors import BackendError, ClosedError, ModelError, TensorMismatchError
from trt_ros.runtime.cpu import onnx_runner as onnx_cpu
from trt_ros.runtime.cpu.onnx_runner import OnnxRuntimeRunner
from trt_ros.tensors import TensorSpec


@pytest.fixture
def write(tmp_path):
    """Write a model of one node, y = op(x, constants); return its path."""

    def make(op='Identity', shape=(1, 3), *, kind='float', domain='', constants=None, **others):
        sizes = ','.join('?' if size is None else str(size) for size in shape)
        inputs = ', '.join(['x', *(constants or {})])
        model = parse_network(
            f'({kind}[{sizes}] x) => ({kind}[{sizes}] y) {{ y = {op} ({inputs}) }}',
            constants=constants,
            **others,
        )
        if domain:
            model.graph.node[0].domain = domain
            model.opset_import.append(helper.make_opsetid(domain, 1))
        onnx.save(model, tmp_path / 'model.onnx')
        return tmp_path / 'model.onnx'

    return make


@pytest.mark.parametrize(
    'dtype', ['float16', 'float64', 'uint8', 'int8', 'int32', 'int64', 'bool']
)
def test_values_of_every_dtype_pass_through_unchanged(write, dtype):
    kind = 'double' if dtype == 'float64' else dtype
    runner = OnnxRuntimeRunner.open(write(kind=kind))
    assert runner.inputs[0].dtype == runner.outputs[0].dtype == dtype
    result = runner.infer({'x': np.array([[0, 1, 7]]).astype(dtype)})['y']
    assert (result.dtype, result.tolist()) == (dtype, np.array([[0, 1, 7]], dtype).tolist())


def test_specs_hold_names_shapes_dtypes_and_minus_one_for_dynamic(write):
    runner = OnnxRuntimeRunner.open(write(shape=(1, 'channels', None, 4)))
    assert runner.inputs == (TensorSpec('x', (1, -1, -1, 4), 'float32', 'input'),)
    assert runner.outputs == (TensorSpec('y', (1, -1, -1, 4), 'float32', 'output'),)
    assert runner.backend == 'onnxruntime'


@pytest.mark.parametrize(
    ('tensors', 'message'),
    [
        ({}, r"The input x \(1, 3\) float32 is missing(?s:.*)Remedy: Pass an array named 'x'"),
        ({'z': np.zeros((1, 3), np.float32)}, 'is missing'),
        ({'x': np.zeros((1, 4), np.float32)}, r'takes x \(1, 3\) float32, but x came as \(1, 4\)'),
        (
            {'x': np.zeros((1, 3), np.float16)},
            r'came as \(1, 3\) float16(?s:.*)that shape and type',
        ),
        (
            {'x': np.zeros((1, 3), np.float32), 'z': np.zeros(1)},
            'no input named z(?s:.*)Pass only these',
        ),
    ],
)
def test_wrong_tensors_are_refused(write, tensors, message):
    runner = OnnxRuntimeRunner.open(write())
    with pytest.raises(TensorMismatchError, match=message):
        runner.infer(tensors)


def test_a_run_that_has_begun_ends_after_another_thread_has_closed_the_runner_for_good(write):
    class ClosedMeanwhile(OnnxRuntimeRunner):
        def __getattribute__(self, name):
            value = super().__getattribute__(name)
            if name == '_session':
                self.close()
            return value

    runner, tensors = ClosedMeanwhile.open(write('Neg')), {'x': np.ones((1, 3), np.float32)}
    assert runner.infer(tensors)['y'].tolist() == [[-1, -1, -1]]
    with pytest.raises(ClosedError, match=r'model\.onnx is closed'):
        runner.infer(tensors)  # And closes it again.


def test_a_run_that_fails_names_the_shapes_and_the_remedy(write):
    fixed = {'w': np.zeros((1, 3))}
    runner = OnnxRuntimeRunner.open(write('Add', shape=('n', 'm'), constants=fixed))
    with pytest.raises(ModelError, match=r'on x \(1, 5\)') as caught:
        runner.infer({'x': np.zeros((1, 5), np.float32)})
    assert 'multiples of 32' in caught.value.remedy
    assert caught.value.kind == 'network error'
    assert caught.value.cause


# Threads.

X = {'x': np.ones((1, 3), np.float32)}


def options_of(runner):
    return runner._session.get_session_options()


def tuned(path, seconds, tried):
    """Return a runner on as many CPUs as the most of the threads, and its log lines."""

    def run_seconds(session, tensors):
        assert tensors is X
        tried.append(session.get_session_options().intra_op_num_threads)
        return seconds[tried[-1]]

    open_session = partial(onnx_cpu._open_session, onnx_cpu.load_onnxruntime(), path)
    runner = OnnxRuntimeRunner(open_session(max(seconds)), path, open_session)
    return runner, runner.tune_threads(X, run_seconds)


@pytest.mark.parametrize(
    ('seconds', 'tried', 'chosen'),
    [
        ({1: 0.01}, [], 1),
        ({2: 0.01, 1: 0.0105}, [2, 1], 1),
        ({2: 0.01, 1: 0.012}, [2, 1], 2),
        ({8: 0.01, 4: 0.009, 2: 0.0098, 1: 0.01}, [8, 4, 2, 1], 2),
        ({8: 0.010, 4: 0.009, 2: 0.0101, 1: 0.009}, [8, 4, 2], 4),
        ({6: 0.01, 3: 0.01, 1: 0.03}, [6, 3, 1], 3),
        ({8: 0.2, 4: 0.1}, [8], 8),
    ],
)
def test_uses_fewest_threads_of_nearly_equal_speed(write, seconds, tried, chosen):
    seen = []
    runner, lines = tuned(write(), seconds, seen)
    assert seen == tried
    assert options_of(runner).intra_op_num_threads == chosen
    assert lines == () or lines[0].startswith(f'CPU threads: {chosen} (median run with ')
    assert runner.infer(X)['y'].tolist() == [[1, 1, 1]]


def test_log_line_reports_measured_times_of_real_runs(write):
    assert tuned(write(), {2: 0.01, 1: 0.0132}, [])[1] == (
        'CPU threads: 2 (median run with 2: 10 ms; with 1: 13.2 ms)',
    )
    runner = OnnxRuntimeRunner.open(write(), threads=1)
    assert 0 < onnx_cpu._run_seconds(runner._session, X) < onnx_cpu.MEASURED_SECONDS


def test_requested_threads_are_used_without_measuring_and_do_not_spin(write):
    runner = OnnxRuntimeRunner.open(write(), threads=3)
    assert runner.tune_threads(X, pytest.fail) == ()
    assert options_of(runner).intra_op_num_threads == 3
    # Neither between frames nor in a run, where others may need the CPU that it waits for.
    spins = options_of(runner).get_session_config_entry('session.intra_op.allow_spinning')
    assert spins == '0'


# Files that are no models.


def test_a_missing_file_is_named(tmp_path, monkeypatch):
    with pytest.raises(ModelError, match=r'.*nowhere\.onnx does not exist'):
        OnnxRuntimeRunner.open(tmp_path / 'nowhere.onnx')
    monkeypatch.chdir(tmp_path)
    with pytest.raises(ModelError) as caught:
        OnnxRuntimeRunner.open('nowhere.onnx')
    assert caught.value.cause == f'The current folder is {tmp_path}.'


NO_ONNX = 'is not an ONNX model, or is truncated'


@pytest.mark.parametrize(
    ('make', 'problem', 'remedy'),
    [
        (Path.mkdir, 'Is a directory', ''),
        (Path.touch, 'is empty', ''),
        (
            lambda path: path.write_text('version https://git-lfs.github.com/spec/v1\nsize 1\n'),
            'git-LFS pointer',
            'git lfs pull',
        ),
        (lambda path: path.write_text('<html>not found</html>'), NO_ONNX, ''),
        (lambda path: path.write_bytes(MODEL.read_bytes()[:5000]), NO_ONNX, ''),
        (lambda path: path.write_bytes(MODEL.read_bytes()[::-1]), NO_ONNX, ''),
    ],
    ids=['folder', 'empty', 'git LFS', 'a web page', 'cut short', 'noise'],
)
def test_what_is_no_model_is_named(tmp_path, make, problem, remedy):
    make(tmp_path / 'model.onnx')
    with pytest.raises(ModelError, match=problem) as caught:
        OnnxRuntimeRunner.open(tmp_path / 'model.onnx')
    assert remedy in caught.value.remedy
    assert 'ONNXRuntimeError' not in str(caught.value)


@pytest.mark.parametrize(
    'damage', [os.remove, lambda path: os.truncate(path, 10)], ids=['missing', 'cut short']
)
def test_missing_external_data_is_named(write, tmp_path, damage):
    path = write('Add', shape=(1000,), constants={'w': np.ones(1000)})
    external = {'save_as_external_data': True, 'location': 'weights.data', 'size_threshold': 0}
    onnx.save(onnx.load(path), path, **external)
    found = OnnxRuntimeRunner.open(path).infer({'x': np.ones(1000, np.float32)})['y']
    assert found.tolist() == [2.0] * 1000
    damage(tmp_path / 'weights.data')
    with pytest.raises(
        ModelError, match=r'The external weights of .* are missing or truncated'
    ) as caught:
        OnnxRuntimeRunner.open(path)
    assert 'beside the model' in caught.value.remedy


@pytest.mark.parametrize(
    'more',
    [
        {'op': 'Frobnicate'},
        {'op': 'Frobnicate', 'domain': 'my.domain'},
        {'op': 'Relu', 'kind': 'int16'},
    ],
    ids=['unknown', 'custom', 'not implemented'],
)
def test_reports_operator_that_cannot_run(write, more):
    with pytest.raises(ModelError, match='cannot run an operator') as caught:
        OnnxRuntimeRunner.open(write(**more))
    assert more['op'] in caught.value.cause


def test_dynamically_quantized_convolutions_report_remedy(tmp_path):
    path = save_network(
        tmp_path / 'dynamic.onnx',
        'y = ConvInteger(x, w)',
        {'x': [TensorProto.UINT8, (1, 3, 8, 8)]},
        {'y': [TensorProto.INT32, (1, 2, 6, 6)]},
        constants={'w': np.ones((2, 3, 3, 3), np.int8)},
    )
    try:
        runner = OnnxRuntimeRunner.open(path)
    except ModelError as error:
        assert re.search(r'int8 dynamically, as in .*dynamic\.onnx', error.problem)
        assert 'QuantFormat.QDQ' in error.remedy
        assert 'ConvInteger' in error.cause
    else:  # ONNX Runtime 1.32 runs them.
        assert (runner.infer({'x': np.ones((1, 3, 8, 8), np.uint8)})['y'] == 27).all()
        runner.close()


@pytest.mark.parametrize('more', [{'ir_version': 99}, {'opset': 99}])
def test_newer_model_asks_for_newer_onnxruntime(write, more):
    with pytest.raises(ModelError, match='newer than this ONNX Runtime') as caught:
        OnnxRuntimeRunner.open(write(**more))
    assert '99' in caught.value.cause
    assert '/onnxruntime_src' not in str(caught.value)


def test_bfloat16_inputs_and_a_missing_onnxruntime_are_refused(write, monkeypatch):
    with pytest.raises(ModelError, match=r'The input x .* tensor\(bfloat16\)'):
        OnnxRuntimeRunner.open(write(kind='bfloat16'))
    path = write()
    monkeypatch.setitem(sys.modules, 'onnxruntime', None)
    with pytest.raises(BackendError, match='pip install onnxruntime'):
        OnnxRuntimeRunner.open(path)


@pytest.mark.parametrize('usable', [1, 3])
def test_a_restricted_cpu_set_gets_one_thread_per_usable_core(write, usable):
    code = f"""
import os, sys
os.cpu_count = lambda: 64
os.sched_getaffinity = lambda pid: set(range({usable}))
from trt_ros.runtime.cpu.onnx_runner import OnnxRuntimeRunner
assert 'onnxruntime' not in sys.modules, 'the module itself imports it'
import onnxruntime
before = len(os.listdir('/proc/self/task'))
runner = OnnxRuntimeRunner.open(sys.argv[1])
print(len(os.listdir('/proc/self/task')) - before)
"""
    # In a process of its own, where no other thread ends meanwhile.
    started = run_script(code, write())
    # The thread that calls infer() is one of them.
    assert int(started.stdout) == usable - 1


def test_dynamic_shapes_change_from_call_to_call_and_earlier_outputs_stay_as_they_are(write):
    runner, counts = OnnxRuntimeRunner.open(write('Neg', shape=('n', 2))), (1, 3, 0, 2, 2)
    found = [runner.infer({'x': np.full((n, 2), i, np.float32)}) for i, n in enumerate(counts)]
    assert [each['y'].tolist() for each in found] == [[[-i, -i]] * n for i, n in enumerate(counts)]
