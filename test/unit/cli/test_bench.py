"""`trt-ros bench` where there is no GPU; test/gpu has the rest."""

import json
import sys

import pytest

from support.fake_nvtx import nvtx
from support.save_network import save_text
from trt_ros.cli import main
from trt_ros.cli._bench import fastest, print_precisions
from trt_ros.driver import nvidia_driver

pytestmark = pytest.mark.skipif(bool(nvidia_driver().gpus), reason='this machine has a GPU')


@pytest.fixture
def bench(color_detector, tmp_path, capsys):
    """Run the verb; give its exit code, its JSON and what was printed."""

    def run(*args, model=None, **kwargs):
        path = tmp_path / 'all.json'
        common = ('--frames', 4, '--image-size', '160x120', '--json', path)
        words = ('bench', model or color_detector(**kwargs), *common, *args)
        code = main([str(word) for word in words])
        found = json.loads(path.read_text()) if path.exists() else None
        return code, found, capsys.readouterr()

    return run


def test_without_a_gpu_onnx_runtime_is_measured_and_named(bench):
    code, found, said = bench()
    assert code == 0
    assert found['log'][0].startswith('backend onnxruntime: ONNX Runtime on the CPU (no tens')
    assert said.out.startswith(found['log'][0])
    (result,) = found['results']
    assert set(result['host_ms']) == {'frame', 'preprocess', 'network', 'decode'}
    assert len(result['frame_times_ms']) == 4
    assert result['frames_per_second'] == pytest.approx(1e3 / result['host_ms']['frame']['mean'])
    parts = sum(result['host_ms'][name]['mean'] for name in ('preprocess', 'network', 'decode'))
    assert 0 < parts <= result['host_ms']['frame']['mean']


@pytest.mark.slow
def test_requested_batch_is_measured(bench):
    code, found, said = bench('--batch', 8, batch='n')
    assert code == 0
    assert found['results'][0]['batch'] == 8
    assert '160x120 bgr8 in batches of 8: ' in said.out


@pytest.mark.slow
@pytest.mark.parametrize(
    ('graph', 'image'),
    [
        (
            '(float[1, 3, 8, 8] a, float[1, 3, 8, 8] b) => (float[1, 3, 8, 8] y) '
            '{ y = Sub(a, b) }',
            'a [1, 3, 8, 8], b [1, 3, 8, 8]',
        ),
        ('(float[1, 7] q) => (float[1, 7] y) { y = Neg(q) }', 'q [1, 7]'),
    ],
)
def test_a_network_that_no_decoder_recognizes_is_measured(bench, tmp_path, graph, image):
    code, found, said = bench(model=save_text(tmp_path / 'own.onnx', graph))
    assert (code, said.err) == (0, '')
    (result,) = found['results']
    assert result['image'] == image
    assert all(result['host_ms'][name]['mean'] > 0 for name in ('preprocess', 'network', 'decode'))


ON_CPU = 'cannot be used with ONNX Runtime on the CPU.\nCause: backend '


@pytest.mark.parametrize(
    ('flags', 'problem'),
    [
        ('--precision fp16', f'--precision {ON_CPU}'),
        ('--no-graph', f'--no-graph {ON_CPU}'),
        ('--gpu-wait spin --contexts 2', f'--gpu-wait, --contexts {ON_CPU}'),
        ('--profile images=1x3x64x64', f'--profile {ON_CPU}'),
        ('--plugin a.so --no-timing-cache', f'--plugin, --no-timing-cache {ON_CPU}'),
        ('--device 1 --remote-timeout 5', f'--device, --remote-timeout {ON_CPU}'),
        ('--precisions fp32,fp16', f'--precisions {ON_CPU}'),
        ('--precision fp16 --precisions fp32', '--precision and --precisions cannot be combined.'),
        ('--batch 8', 'network runs with a batch of 1.\nRemedy: Leave --batch out'),
    ],
)
def test_rejects_options_that_this_backend_or_network_lacks(bench, flags, problem):
    code, found, said = bench(*flags.split())
    assert (code, found) == (1, None)
    assert problem in said.err


def test_states_are_measured_one_run_at_a_time(bench, tmp_path):
    save_text(
        tmp_path / 'own.onnx',
        '(float[1, 7] q, float[1, 7] h) => (float[1, 7] y, float[1, 7] hn) '
        '{ hn = Add(q, h) y = Neg(hn) }',
    )
    flags = ('--inputs', 'q=tensor:q,h=state:hn')
    code, found, said = bench(*flags, '--frames-in-flight', 2, model=tmp_path / 'own.onnx')
    assert (code, found) == (1, None)
    assert '--frames-in-flight 2 cannot be used with states.\nCause: A run needs' in said.err
    code, found, said = bench(*flags, model=tmp_path / 'own.onnx')
    assert (code, found['results'][0]['frames_in_flight']) == (0, 1)


def test_times_of_every_frame_are_exported(bench, tmp_path):
    path = tmp_path / 'times.csv'
    code, found, _ = bench('--export-times', path, '--image-size', '64x48')
    assert code == 0
    header, *rows = [line.split(',') for line in path.read_text().splitlines()]
    assert header == [
        'image',
        'precision',
        'frame number',
        'frame (ms)',
        'preprocess (ms)',
        'network (ms)',
        'decode (ms)',
    ]
    assert [row[0] for row in rows] == ['160x120 bgr8'] * 4 + ['64x48 bgr8'] * 4
    assert [row[2] for row in rows] == ['0', '1', '2', '3'] * 2
    times = [float(row[3]) for row in rows[:4]]
    assert times == pytest.approx(found['results'][0]['frame_times_ms'], abs=1e-4)


@pytest.mark.parametrize(
    ('flags', 'said'),
    [
        (('--precisions', 'fp32,fp3'), "'fp3' is not one of auto, fp32, tf32, fp16, bf16"),
        (('--warm-up', '0'), '0 is not 1 or above'),
        (('--image-size', '0x480'), 'width and height of 0x480 are not 1 to 16384'),
        (('--image-size', '99999x9'), 'width and height of 99999x9 are not 1 to 16384'),
    ],
)
def test_wrong_usage_is_refused(bench, capsys, flags, said):
    with pytest.raises(SystemExit):
        bench(*flags)
    assert said in capsys.readouterr().err


def measured(precision, p50, agreement, watts):
    return {
        'image': '640x480 bgr8',
        'precision': precision,
        'frames_per_second': 1e3 / p50,
        'graph_ms': {'gpu': {'p50': p50, 'p99': 2 * p50}},
        'memory': {'device': {'weights': 5e6, 'slots': 2.5e6}},
        'agreement': agreement,
        'watts': watts,
    }


def test_precisions_are_compared_in_a_table_and_a_sentence(capsys):
    results = [
        measured('fp32', 4.0, {'max_error': 0.0012, 'cosine': 1.0}, 301.4),
        measured('fp16', 2.0, {'max_error': 0.25, 'cosine': 0.99987}, None),
        measured('bf16', 2.5, {}, 250.0),
    ]
    print_precisions(results)
    _, image, header, *rows, last = capsys.readouterr().out.splitlines()
    assert image == '640x480 bgr8'
    assert header.split()[:4] == ['precision', 'GPU', 'p50', '(µs)']
    assert [row.split() for row in rows] == [
        ['fp32', '4000.0', '8000.0', '250', '7.5', '0.0012', '1.000000', '301'],
        ['fp16', '2000.0', '4000.0', '500', '7.5', '0.25', '0.999870', '?'],
        ['bf16', '2500.0', '5000.0', '400', '7.5', '?', '?', '250'],
    ]
    assert (
        last == 'fp16 is 2.00 times as fast as fp32; cosine similarity to ONNX Runtime 0.999870.'
    )
    assert fastest(results[1:]) == 'fp16 is the fastest here.'


@pytest.mark.parametrize('verb', ['bench', 'verify'])
def test_a_backend_that_cannot_run_here_is_named_with_its_reason(verb, color_detector, capsys):
    assert main([verb, str(color_detector()), '--backend', 'tensorrt_rtx']) == 1
    said = capsys.readouterr().err
    assert 'The backend tensorrt_rtx cannot be used on this machine.\nCause: ' in said
    assert 'Remedy: Follow the advice of `trt-ros doctor`' in said


@pytest.mark.parametrize(
    ('flag', 'name', 'problem'),
    [
        ('--json', f'{"x" * 300}.json', 'File name too long'),
        ('--json', 'no/all.json', 'does not exist'),
        ('--export-times', 'no/times.csv', 'does not exist'),
    ],
)
def test_files_that_cannot_be_written_are_refused_before_measuring(
    bench, tmp_path, flag, name, problem
):
    code, _, said = bench(flag, tmp_path / name)
    assert code == 1 and problem in said.err and said.out == ''


def test_profiling_records_the_steps_of_each_frame(bench, monkeypatch, tmp_path):
    monkeypatch.setitem(sys.modules, 'nvtx', nvtx)
    monkeypatch.setenv('NVTX_LOG', str(tmp_path / 'ranges.txt'))
    code, _, said = bench('--profiling', '--warm-up', '2')
    assert code == 0
    assert said.out.startswith('profiling: NVTX ranges of the domain trt_ros\n')
    (ranges,) = nvtx.read_ranges().values()
    steps = [(depth, f'trt_ros: {name}') for depth, name in ((1, 'frame'), (2, 'preprocess'))]
    steps += [(2, 'trt_ros: network'), (2, 'trt_ros: decode')]
    begin = ranges.index((0, 'trt_ros: warm-up'))
    assert ranges[begin + 1 :] == [*steps * 2, (0, 'trt_ros: frames'), *steps * 4]
    bench()
    assert nvtx.read_ranges() == {next(iter(nvtx.read_ranges())): ranges}


def test_profiling_without_nvtx_fails_before_anything_is_measured(bench, monkeypatch):
    monkeypatch.setitem(sys.modules, 'nvtx', None)
    code, found, said = bench('--profiling')
    assert (code, found, said.out) == (1, None, '')
    assert 'pip install nvtx' in said.err


@pytest.mark.parametrize('flag', ['--frames-in-flight', '--slots'])
def test_frames_in_flight_are_named_and_layers_measured(bench, flag):
    code, found, said = bench(flag, 2, '--layers')
    assert code == 0 and found['results'][0]['frames_in_flight'] == 2
    assert 'frames/s with 2 in flight\n' in said.out
    layers = found['results'][0]['layers_ms']
    assert layers and all(ms > 0 for ms in layers.values())
    assert f'µs  {max(layers, key=layers.get)}\n' in said.out
