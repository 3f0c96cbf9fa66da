"""`trt-ros bench` where there is no GPU; test/gpu has the rest."""

from __future__ import annotations

import json

import pytest

from trt_ros.cli import main
from trt_ros.driver import nvidia_driver

pytest.importorskip('cv2')
pytest.importorskip('onnxruntime')
pytestmark = pytest.mark.skipif(bool(nvidia_driver().gpus), reason='this machine has a GPU')


@pytest.fixture
def bench(colour_detector, tmp_path, capsys):
    """Run the verb; give its exit code, its JSON and what was printed."""

    def run(*args, model=None, **kwargs):
        path = tmp_path / 'all.json'
        code = main(
            [
                'bench',
                str(model or colour_detector(**kwargs)),
                '--frames',
                '4',
                '--image-size',
                '160x120',
                '--json',
                str(path),
                *map(str, args),
            ]
        )
        found = json.loads(path.read_text()) if path.exists() else None
        return code, found, capsys.readouterr()

    return run


def test_without_a_gpu_onnx_runtime_is_measured_and_named(bench, tmp_path):
    code, found, said = bench('--plot', tmp_path / 'latency.png')
    assert code == 0
    assert found['log'][0].startswith('backend onnxruntime: ONNX Runtime on the CPU (no tens')
    assert said.out.startswith(found['log'][0])
    (result,) = found['results']
    assert set(result['host_ms']) == {'frame', 'preprocess', 'network', 'decode'}
    assert len(result['frame_times_ms']) == 4
    assert result['frames_per_second'] == pytest.approx(1e3 / result['host_ms']['frame']['mean'])
    parts = sum(result['host_ms'][name]['mean'] for name in ('preprocess', 'network', 'decode'))
    assert 0 < parts <= result['host_ms']['frame']['mean']
    assert (tmp_path / 'latency.png').read_bytes()[:4] == b'\x89PNG'


def test_requested_batch_is_measured(bench, monkeypatch):
    from trt_ros.runtime.cpu.onnx_runner import OnnxRuntimeRunner

    shapes, infer = [], OnnxRuntimeRunner.infer
    monkeypatch.setattr(
        OnnxRuntimeRunner,
        'infer',
        lambda self, tensors: (shapes.append(tensors['images'].shape), infer(self, tensors))[1],
    )
    code, found, said = bench('--batch', 8, batch='n')
    assert code == 0
    assert shapes[-4:] == [(8, 3, 64, 64)] * 4
    assert found['results'][0]['batch'] == 8
    assert '160x120 bgr8 in batches of 8: ' in said.out


def test_a_batch_that_the_network_does_not_take_is_refused(bench):
    code, found, said = bench('--batch', 8)
    assert (code, found) == (1, None)
    assert (
        'batch is 8, but this network runs with a batch of 1.\nRemedy: Leave --batch out'
        in said.err
    )


def test_a_network_that_no_decoder_recognises_is_measured(bench, tmp_path):
    onnx = pytest.importorskip('onnx')
    onnx.save(
        onnx.parser.parse_model(
            '<ir_version: 8, opset_import: ["": 17]>\n'
            'own (float[1, 3, 8, 8] x) => (float[1, 3, 8, 8] y, float[1, 3, 8, 8] z) '
            '{ y = Neg(x) z = Relu(x) }'
        ),
        tmp_path / 'own.onnx',
    )
    code, found, _ = bench(model=tmp_path / 'own.onnx')
    assert code == 0 and found['results'][0]['host_ms']['network']['mean'] > 0


@pytest.mark.parametrize(
    ('text', 'image'),
    [
        (
            'two (float[1, 3, 8, 8] a, float[1, 3, 8, 8] b) => (float[1, 3, 8, 8] y) '
            '{ y = Sub(a, b) }',
            'a [1, 3, 8, 8], b [1, 3, 8, 8]',
        ),
        ('joints (float[1, 7] q) => (float[1, 7] y) { y = Neg(q) }', 'q [1, 7]'),
    ],
)
def test_a_network_of_several_inputs_or_tensors_is_measured(bench, tmp_path, text, image):
    onnx = pytest.importorskip('onnx')
    onnx.save(
        onnx.parser.parse_model('<ir_version: 8, opset_import: ["": 17]>\n' + text),
        tmp_path / 'own.onnx',
    )
    code, found, said = bench(model=tmp_path / 'own.onnx')
    assert (code, said.err) == (0, '')
    (result,) = found['results']
    assert result['image'] == image
    assert all(result['host_ms'][name]['mean'] > 0 for name in ('preprocess', 'network', 'decode'))


@pytest.mark.parametrize(
    'flags', [('--precision', 'fp16'), ('--layers',), ('--no-graph',), ('--slots', '3')]
)
def test_rejects_tensorrt_options_without_tensorrt(bench, flags):
    code, found, said = bench(*flags)
    assert (code, found) == (1, None)
    assert f'{flags[0]} cannot be used with ONNX Runtime on the CPU.\nCause: backend ' in said.err


@pytest.mark.parametrize('verb', ['bench', 'verify'])
def test_a_backend_that_cannot_run_here_is_named_with_its_reason(verb, colour_detector, capsys):
    assert main([verb, str(colour_detector()), '--backend', 'tensorrt_rtx']) == 1
    said = capsys.readouterr().err
    assert 'The backend tensorrt_rtx cannot be used on this machine.\nCause: ' in said
    assert 'Remedy: Follow the advice of `trt-ros doctor`' in said


def test_verify_reports_missing_tensorrt(colour_detector, capsys):
    assert main(['verify', str(colour_detector())]) == 1
    assert 'Nothing to compare: ONNX Runtime is the only backend here.\nCause: ' in (
        capsys.readouterr().err
    )


@pytest.mark.parametrize(
    ('flag', 'name', 'problem'),
    [
        ('--plot', 'latency', "Unsupported picture format ''"),
        ('--plot', 'x.txt', "Unsupported picture format '.txt'"),
        ('--json', 'no/all.json', 'does not exist'),
    ],
)
def test_files_that_cannot_be_written_are_refused_before_measuring(
    bench, tmp_path, flag, name, problem
):
    code, _, said = bench(flag, tmp_path / name)
    assert code == 1 and problem in said.err and said.out == ''
