"""Real builds with tensorrt_rtx, on the CPU: what comes out, what is said when nothing does."""

from __future__ import annotations

import logging
import os
from pathlib import Path
import resource
import signal
import subprocess
import sys
import threading
import time

import numpy as np
import onnx
from onnx import TensorProto, helper
import pytest

import trt_ros
from trt_ros.engine.build.parent import BuildLog, build
from trt_ros.engine.cache import LOCK, EngineCache
from trt_ros.engine.options import BuildOptions, ShapeRange
from trt_ros.engine.plan import parse_plan_header
from trt_ros.errors import BackendError, ModelError, ParameterError, TimeLimitError
from trt_ros.progress import CancelledError, Reporter

pytestmark = pytest.mark.slow  # A second each.

FP8 = TensorProto.FLOAT8E4M3FN


def report_of(path, flavour, **options):
    """Build and give the report; the plan must be one."""
    built = build(path, BuildOptions(**options), flavour)
    try:
        plan = built.plan.read()
        header = parse_plan_header(plan[:64])
        assert (header.flavour, header.version, header.nbytes) == (
            'tensorrt_rtx',
            flavour.version,
            len(plan),
        )
        return {**built.report, 'header': header}
    finally:
        built.close()


@pytest.mark.parametrize(
    ('precision', 'layers'),
    [
        ('auto', {'float32': 6}),
        ('fp32', {'float32': 6}),
        ('tf32', {'float32': 6}),
        ('fp16', {'float16': 3, 'float32': 3}),
        ('bf16', {'bfloat16': 3, 'float32': 3}),
    ],
)
def test_layers_have_requested_precision(models, rtx, precision, layers):
    report = report_of(models.conv(), rtx, precision=precision)
    assert report['layer_precisions'] == layers
    assert report['layers_from'] == 'network'
    assert [one['dtype'] for one in (*report['inputs'], *report['outputs'])] == ['float32'] * 2


def test_inputs_and_outputs_are_lowered_on_request(models, rtx):
    report = report_of(models.conv(), rtx, precision='fp16', io_dtypes='lower')
    assert [one['dtype'] for one in (*report['inputs'], *report['outputs'])] == ['float16'] * 2


def test_report_contains_metadata_opset_and_shapes(models, rtx):
    report = report_of(models.conv(metadata={'names': '{0: "a"}'}), rtx)
    assert report['metadata'] == {'names': '{0: "a"}'}
    assert (report['onnx_opset'], report['batch'], report['profiles']) == (17, 1, [])
    assert report['inputs'] == [
        {'name': 'x', 'shape': [1, 3, 32, 32], 'dtype': 'float32', 'mode': 'input'}
    ]


def test_dynamic_shapes_get_requested_profiles(models, rtx):
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


def test_dynamic_shapes_without_a_profile_take_the_input_size(models, rtx):
    path = models.conv(batch='n', size=('h', 'w'))
    report = report_of(path, rtx, input_size=(48, 64))
    assert report['profiles'][0][0]['best'] == [1, 3, 48, 64]


def test_compute_capabilities_are_in_the_plan(models, rtx):
    assert report_of(models.conv(), rtx, compute_capabilities=('8.6', '12.0'))[
        'header'
    ].compute_capabilities == ((8, 6), (12, 0))


def test_fp8_of_the_model_is_kept(models, rtx):
    if rtx.version < (1, 5):
        pytest.skip('tensorrt_rtx 1.4 needs a GPU for that')
    nodes = [
        helper.make_node('QuantizeLinear', ['x', 's', 'z'], ['xq']),
        helper.make_node('DequantizeLinear', ['xq', 's', 'z'], ['xd']),
        helper.make_node('QuantizeLinear', ['w', 's', 'z'], ['wq']),
        helper.make_node('DequantizeLinear', ['wq', 's', 'z'], ['wd']),
        helper.make_node('MatMul', ['xd', 'wd'], ['y']),
    ]
    path = models.save(
        nodes,
        {'x': [16, 64]},
        {'y': [16, 64]},
        opset=19,
        weights={'s': np.float32(0.1), 'w': np.eye(64, dtype=np.float32)},
    )
    model = onnx.load(path)
    model.graph.initializer.append(helper.make_tensor('z', FP8, [], [0.0]))
    onnx.save(model, path)
    report = report_of(path, rtx, compute_capabilities=('8.9',))
    assert report['layer_precisions']['float8_e4m3fn'] == 2


def test_reports_options_without_effect_on_rtx(models, rtx):
    report = report_of(models.conv(), rtx, precision='fp32', optimization_level=5, aux_streams=2)
    assert [line.split(':')[0] for line in report['ignored_options']] == [
        'precision fp32',
        'optimization_level',
        'aux_streams',
    ]
    assert report_of(models.conv(), rtx, precision='tf32')['ignored_options'] == []


def test_weight_streaming_builds(models, rtx):
    assert report_of(models.conv(), rtx, weight_streaming=True)['batch'] == 1


def test_external_data_is_read_and_converted(models, rtx):
    path = models.conv()
    onnx.save(onnx.load(path), path, save_as_external_data=True, location='w', size_threshold=0)
    assert report_of(path, rtx)['layer_precisions'] == {'float32': 6}
    assert report_of(path, rtx, precision='fp16')['layer_precisions']['float16'] == 3


@pytest.mark.parametrize('opset', [7, 11, 24])
def test_old_and_new_opsets_build(models, rtx, opset):
    assert report_of(models.conv(opset=opset), rtx)['onnx_opset'] == opset


def test_the_demo_model_builds(rtx):
    model = Path(trt_ros.__file__).parent / 'demo' / 'shapes.onnx'
    report = report_of(model, rtx, precision='fp16')
    assert max(report['layer_precisions'], key=report['layer_precisions'].get) == 'float16'
    assert 'names' in report['metadata']


@pytest.mark.parametrize('precision', ['tf32', 'fp16', 'bf16'])
def test_the_weeds_detector_builds(weeds, rtx, precision):
    report = report_of(weeds / 'weeds_yolox_nano.onnx', rtx, precision=precision)
    assert report['outputs'][0]['shape'] == [1, 3549, 8]


def test_a_path_with_spaces_and_signs_builds(models, rtx):
    assert report_of(models.conv(name='ein Modell (größer)'), rtx)['batch'] == 1


REFUSED = [
    ({'dla_core': 0}, 'dla_core'),
    ({'plugins': ('x.so',)}, 'plugins'),
    ({'version_compatible': True}, 'version_compatible'),
    ({'hardware_compatible': 'ampere_plus'}, 'hardware_compatible'),
    (
        {'compute_capabilities': ('5.3',)},
        'compute_capabilities.*Unknown compute capability: 5.3.*8.6, 8.9, 12.0',
    ),
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
        build(half, BuildOptions(precision='fp32'), rtx)


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
        (topk, {}, 'TopK is limited to 3840 values', (9,)),
        (attention, {}, 'No kernel supports the Attention(?s:.*)Set precision to fp16', (9,)),
        (int8_convolution, {}, 'int8 convolutions(?s:.*)1.7 or newer', (1, 7)),
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
            {'workspace_mib': 1},
            'workspace limit(?s:.*)Increase or remove workspace_mib',
            (9,),
        ),
        (
            convolutions,
            {'precision': 'bf16', 'compute_capabilities': ('7.5',)},
            'A target GPU does not support b16(?s:.*)Remove the older',
            (9,),
        ),
    ],
)
def test_rtx_build_failure_reports_cause_and_remedy(models, rtx, make, options, said, below):
    if rtx.version >= below:
        pytest.skip('this release builds it')
    with pytest.raises(ModelError, match=said):
        build(make(models), BuildOptions(**options), rtx).close()


def test_attention_builds_in_precision_named_by_remedy(models, rtx):
    assert report_of(attention(models), rtx, precision='fp16')['layer_precisions']


def test_reports_profile_that_contradicts_model(models, rtx):
    with pytest.raises(ParameterError, match=r'The model declares x \(\?, 3, 32, 32\)'):
        build(
            models.conv(batch='n'),
            BuildOptions(
                profiles=((ShapeRange('x', (1, 4, 32, 32), (1, 4, 32, 32), (1, 4, 32, 32)),),)
            ),
            rtx,
        )


def test_progress_names_phases_and_never_decreases(models, rtx):
    seen = []
    build(models.conv(layers=40), BuildOptions(), rtx, report=Reporter(seen.append)).close()
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


def children():
    """Give the pids of this process's children."""
    task = f'/proc/{os.getpid()}/task/{threading.get_native_id()}'
    return Path(task, 'children').read_text().split()


def signal_child(number):
    (pid,) = children()
    os.kill(int(pid), number)


def when(phase, action):
    """Make a Reporter's callback that acts once TensorRT is in mid-build."""
    done = []

    def told(progress):
        if not done and progress.phase.startswith(phase):
            done.append(progress)
            action()

    return told


@pytest.fixture
def slow_model(models):
    """Takes TensorRT several seconds."""
    return models.conv(layers=400, size=(64, 64), name='slow')


def test_cancel_kills_the_build_at_once(slow_model, rtx):
    cancelled = threading.Event()
    began = []

    def cancel():
        began.append(time.monotonic())
        cancelled.set()

    reporter = Reporter(when('Cloning', cancel), cancelled)
    with pytest.raises(CancelledError):
        build(slow_model, BuildOptions(), rtx, report=reporter)
    print(f'cancelled after {time.monotonic() - began[0]:.3f} s')
    assert children() == []


def test_timeout_kills_build_and_names_phase(slow_model, rtx):
    with pytest.raises(TimeLimitError, match=r'timed out after \d\.\d s, during: \w+'):
        build(slow_model, BuildOptions(), rtx, timeout_seconds=0.5)
    assert children() == []


def test_a_callback_that_raises_ends_the_build(slow_model, rtx):
    def broken(_):
        raise RuntimeError('the listener broke')

    with pytest.raises(RuntimeError, match='listener'):
        build(slow_model, BuildOptions(), rtx, report=Reporter(broken))
    assert children() == []


def test_parent_memory_stays_small(models, rtx):
    build(models.conv(), BuildOptions(), rtx).close()
    before = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
    build(models.conv(layers=40, size=(256, 256)), BuildOptions(), rtx).close()
    grown = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss - before
    assert grown < 8 * 1024  # KiB; the child's peak is 200 MiB and more.


def test_twenty_kills_in_mid_build_leave_nothing_and_the_next_build_works(
    slow_model, models, rtx, tmp_path, monkeypatch
):
    temporary = tmp_path / 'tmp'
    temporary.mkdir()
    monkeypatch.setenv('TMPDIR', str(temporary))
    cache = EngineCache(models.folder / 'cache')
    descriptors = len(os.listdir('/proc/self/fd'))
    phases = [
        'starting',
        'checking',
        'parsing',
        'Building engine',
        'Cloning',
        'Preparing',
        'Building engine from',
        'Optimizing',
        'Computing profile',
        'Timing',
    ]
    for phase in phases * 2:
        reporter = Reporter(when(phase, lambda: signal_child(signal.SIGKILL)))
        with pytest.raises(BackendError, match='was killed'):
            cache.get_or_build(slow_model, BuildOptions(), rtx, report=reporter)
    assert children() == []
    assert len(os.listdir('/proc/self/fd')) == descriptors
    assert list(temporary.iterdir()) == []
    assert [path for path in cache.root.rglob('*') if path.is_file() and path.name != LOCK] == []
    assert report_of(models.conv(), rtx)['batch'] == 1


def test_a_parent_that_is_killed_takes_the_build_with_it(slow_model, rtx, tmp_path):
    script = (
        'import sys\n'
        'from pathlib import Path\n'
        'from trt_ros.trt import load_trt\n'
        'from trt_ros.engine.build.parent import build\n'
        'from trt_ros.engine.options import BuildOptions\n'
        'from trt_ros.progress import Reporter\n'
        'build(Path(sys.argv[1]), BuildOptions(), load_trt("tensorrt_rtx"),\n'
        '      report=Reporter(lambda one: print(one.phase, flush=True)))\n'
    )
    parent = subprocess.Popen(
        [sys.executable, '-c', script, str(slow_model)], stdout=subprocess.PIPE, text=True
    )
    for line in parent.stdout:
        if line.startswith('Cloning'):
            break
    (child,) = Path(f'/proc/{parent.pid}/task/{parent.pid}/children').read_text().split()
    parent.kill()
    parent.wait()
    parent.stdout.close()
    deadline = time.monotonic() + 60
    while Path(f'/proc/{child}/cmdline').exists() and time.monotonic() < deadline:
        if not Path(f'/proc/{child}/cmdline').read_bytes():
            break  # A zombie that init has not reaped yet
        threading.Event().wait(0.05)
    else:
        assert not Path(f'/proc/{child}').exists()


def test_a_crash_of_tensorrt_is_an_error(slow_model, rtx):
    reporter = Reporter(when('Cloning', lambda: signal_child(signal.SIGSEGV)))
    with pytest.raises(ModelError, match=r'slow\.onnx crashed with SIGSEGV'):
        build(slow_model, BuildOptions(), rtx, report=reporter)


def test_a_cancel_kills_a_child_that_does_not_end_by_itself(slow_model, rtx):
    cancelled, child, ended = threading.Event(), [], []

    def stop_and_cancel():
        child.extend(map(int, children()))
        os.kill(child[0], signal.SIGSTOP)  # As one that hangs, and hears of no closed pipe.
        cancelled.set()

    def work():
        try:
            build(
                slow_model,
                BuildOptions(),
                rtx,
                report=Reporter(when('Cloning', stop_and_cancel), cancelled),
            )
        except CancelledError:
            ended.append('cancelled')

    thread = threading.Thread(target=work)
    thread.start()
    thread.join(120)
    if is_stuck := thread.is_alive():
        os.kill(child[0], signal.SIGKILL)
        thread.join()
    assert not is_stuck
    assert ended == ['cancelled']
    assert not Path(f'/proc/{child[0]}').exists()


def is_gone(pid):
    """Tell whether a process has ended; a zombie has, though nobody has reaped it yet."""
    try:
        return Path(f'/proc/{pid}/stat').read_text().rpartition(')')[2].split()[0] in 'ZX'
    except OSError:
        return True


def test_child_exits_with_its_parent(slow_model, rtx):
    script = (
        'import sys\n'
        'from pathlib import Path\n'
        'from trt_ros.trt import load_trt\n'
        'from trt_ros.engine.build.parent import build\n'
        'from trt_ros.engine.options import BuildOptions\n'
        'from trt_ros.progress import Reporter\n'
        'build(Path(sys.argv[1]), BuildOptions(), load_trt("tensorrt_rtx"),\n'
        '      report=Reporter(lambda one: print(one.phase, flush=True)))\n'
    )
    parent = subprocess.Popen(
        [sys.executable, '-c', script, str(slow_model)], stdout=subprocess.PIPE, text=True
    )
    for line in parent.stdout:
        if line.startswith('Cloning'):
            break
    (child,) = map(int, Path(f'/proc/{parent.pid}/task/{parent.pid}/children').read_text().split())
    os.kill(child, signal.SIGSTOP)  # It writes to no broken pipe: only the kernel can end it.
    parent.kill()
    parent.wait()
    parent.stdout.close()
    deadline = time.monotonic() + 60
    while not is_gone(child) and time.monotonic() < deadline:
        threading.Event().wait(0.05)
    outlived = not is_gone(child)
    if outlived:
        os.kill(child, signal.SIGKILL)
    assert not outlived


def test_log_of_tensorrt_reaches_its_logger_at_debug_level(models, rtx, caplog):
    build(models.conv(), BuildOptions(), rtx).close()
    assert '[VERBOSE]' not in caplog.text
    caplog.set_level(logging.DEBUG, 'trt_ros.tensorrt_rtx')
    build(models.conv(), BuildOptions(), rtx).close()
    assert '[VERBOSE] Parsing node: conv_0 [Conv]' in caplog.messages


def test_log_is_written_although_the_build_fails(models, rtx, tmp_path):
    path = models.save(
        [helper.make_node('NonZero', ['x'], ['y'])],
        {'x': [4]},
        {'y': [1, 'n']},
        y=TensorProto.INT64,
    )
    with (tmp_path / 'build.log').open('w+b', buffering=0) as file:
        with pytest.raises(ModelError):
            build(path, BuildOptions(), rtx, build_log=BuildLog(file, verbose=False))
        build(models.conv(), BuildOptions(), rtx, build_log=BuildLog(file, verbose=False)).close()
        file.seek(0)
        assert b'[INFO] ONNX IR version' in file.read()


def test_sparse_builds_and_timing_iterations_have_no_effect_on_rtx(models, rtx):
    report = report_of(models.conv(), rtx, sparse=True, avg_timing_iterations=4)
    assert report['ignored_options'] == [
        'avg_timing_iterations: tensorrt_rtx accepts it without effect'
    ]


def test_timing_iterations_are_positive():
    with pytest.raises(ParameterError, match='Invalid avg_timing_iterations: 0'):
        BuildOptions(avg_timing_iterations=0)
