"""Networks on an inference server, which is killed and restarted here."""

from concurrent.futures import ThreadPoolExecutor
from contextlib import ExitStack, closing, suppress
import json
import logging
import os
from pathlib import Path
import signal

import cv2
import numpy as np
import pytest

from support.save_network import save_network
from support.waiting import wait_until
from trt_ros import Pipeline
from trt_ros.cli import main
from trt_ros.errors import (
    BackendError,
    BadFrameError,
    ClosedError,
    ParameterError,
    RemoteRefusedError,
    RemoteUnavailableError,
    TensorMismatchError,
    TrtRosError,
)
from trt_ros.progress import CancelledError
from trt_ros.runtime.cpu.onnx_runner import OnnxRuntimeRunner
from trt_ros.runtime.remote.address import parse_address
from trt_ros.runtime.remote.connection import CHANNEL_OPTIONS
from trt_ros.runtime.remote.remote_runner import RemoteRunner
from trt_ros.vision.frame import Frame

pytestmark = pytest.mark.slow  # Each starts a server.

RED = np.full((128, 128, 3), (0, 0, 255), np.uint8)
ZEROS = {'images': np.zeros((1, 3, 64, 64), np.float32)}
EXPECTED = [([32, 32, 96, 96], 0, 1.0)]


def found(detections):
    return [
        (xyxy.tolist(), int(label), round(float(score), 2))
        for xyxy, label, score in zip(detections.xyxy, detections.labels, detections.scores)
    ]


def stop(process):
    """Stop all threads of a child, which goes on until the signal has reached it."""
    process.send_signal(signal.SIGSTOP)
    os.waitpid(process.pid, os.WUNTRACED)


def open_regions():
    """Return the names of shared memory that a killed process would leave."""
    return [path.name for path in Path('/dev/shm').glob('trt_ros_*')]


@pytest.fixture
def open_runner(serve, color_detector):
    """Open the runner of a server with these arguments."""
    with ExitStack() as opened:

        def open_runner(*arguments):
            address = serve(color_detector(), arguments=arguments).address('colors')
            runner = RemoteRunner(parse_address(address), timeout_seconds=60.0)
            return opened.enter_context(closing(runner))

        yield open_runner


def until_available(infer, *args, **kwargs):
    """Try again: a server may not be back yet, or be late on a busy machine."""

    def attempt():
        try:
            return infer(*args, **kwargs)
        except RemoteUnavailableError:
            return None

    return wait_until(attempt, 'the server to answer')


def test_a_network_on_a_server_equals_its_file(serve, tmp_path):
    shapes = {'a': (1, 7), 'b': (2, 3), 'mask': (1, 3, 64, 64)}
    random = np.random.default_rng(0)
    path = save_network(
        tmp_path / 'net.onnx',
        'mean = ReduceMean <keepdims = 0> (image) '
        + ' '.join(f'{name} = Mul({name}_0, mean)' for name in shapes),
        {'image': (1, 3, 64, 64)},
        shapes,
        constants={f'{name}_0': random.random(shape, 'f4') for name, shape in shapes.items()},
        metadata={'task': 'pose', 'kpt_shape': '[17, 3]'},
    )
    address = parse_address(serve(Path(path)).address('net'))
    with (
        closing(RemoteRunner(address, timeout_seconds=60.0)) as remote,
        closing(OnnxRuntimeRunner.open(path, threads=1)) as local,
    ):
        assert (remote.inputs, remote.outputs) == (local.inputs, local.outputs)
        assert remote.metadata == local.metadata
        image = {'image': random.random((1, 3, 64, 64), 'f4')}
        found, wanted = remote.infer(image), local.infer(image)
    assert list(found) == list(wanted)
    for name, value in wanted.items():
        np.testing.assert_array_equal(found[name], value)
        assert found[name].flags.writeable == value.flags.writeable


@pytest.mark.parametrize('arguments', [['--plain'], ['--plain', '--typed']], ids=' '.join)
def test_server_without_extensions_gets_inputs_through_grpc(serve, color_detector, arguments):
    address = serve(color_detector(), arguments=arguments).address('colors')
    ignored = {'precision': 'fp16', 'cpu_threads': 2}
    with Pipeline.open(address, labels=['r', 'g', 'b'], **ignored) as pipeline:
        assert found(pipeline(RED)) == EXPECTED
        assert pipeline.diagnostics()['server inputs'] == 'gRPC'
        line = 'Ignored by Triton or another inference server: precision, cpu_threads.'
        assert line in pipeline.log_lines


@pytest.mark.parametrize(
    'reply',
    [
        'one byte less',
        'no outputs',
        'another name',
        'another type',
        'a negative shape',
        'a shape of two negative sizes',
        'the smallest shape',
        'the largest shape',
        'a shape of 100 sizes',
        'a value beyond its type',
        'no values',
        'one dimension',
    ],
)
def test_reply_that_no_model_has_is_refused(open_runner, reply):
    runner = open_runner('--reply', reply)
    with pytest.raises(TensorMismatchError, match='did not return') as raised:
        runner.infer(ZEROS)
    assert reply != 'one dimension' or raised.value.cause.startswith('It returned (')


@pytest.mark.parametrize('mode', ['inputs', 'outputs'])
@pytest.mark.parametrize(
    'shape',
    [[], [-7, 3, 64, 64], [2**62, 7, 21], [1] * 100],
    ids=lambda shape: 'x'.join(map(str, shape[:4])) or 'scalar',
)
def test_model_of_any_shape_is_refused_or_opened(serve, color_detector, mode, shape):
    shapes = json.dumps({mode: shape})
    address = serve(color_detector(), arguments=['--shapes', shapes]).address('colors')
    try:
        pipeline = Pipeline.open(address)
    except TrtRosError:
        return
    with pipeline, suppress(TrtRosError):
        pipeline(RED)


def test_server_that_loses_its_regions_gets_inputs_through_grpc_after_the_third(open_runner):
    runner, ways = open_runner('--forgetful'), []
    for _ in range(4):
        ways.append(runner.diagnostics()['server inputs'])
        runner.infer(ZEROS)
    assert ways == ['shared memory'] * 3 + ['gRPC']
    assert runner.diagnostics()['server requests failed'] == '0'


def test_lost_connection_is_tried_again_each_second():
    """By default, gRPC waits longer each time, up to two minutes."""
    assert dict(CHANNEL_OPTIONS)['grpc.max_reconnect_backoff_ms'] == 1000


def test_batch_is_limited_to_that_of_the_server_and_a_closed_pipeline_sends_nothing(
    serve, color_detector
):
    server = serve(color_detector(batch='batch'))
    frames = [Frame.from_pixels(RED)] * 10
    with Pipeline.open(server.address('colors'), batch=10) as pipeline:
        assert pipeline.max_batch == 8
        assert [found(each) for each in pipeline.infer_all(frames)] == [EXPECTED] * 10
    pipeline.close()
    with pytest.raises(ClosedError, match=r'The connection to .*colors is closed'):
        pipeline.runner.infer(ZEROS)


def test_runs_of_several_threads_overlap_with_a_region_each(serve, color_detector):
    with (
        Pipeline.open(serve(color_detector()).address('colors')) as pipeline,
        ThreadPoolExecutor(4) as threads,
    ):
        pictures = [
            np.full((64, 64, 3), np.eye(3)[n % 3][::-1] * 255, np.uint8) for n in range(40)
        ]
        results = list(threads.map(pipeline, pictures))
        assert [int(each.labels[0]) for each in results] == [n % 3 for n in range(40)]


def test_submitted_frames_run_at_the_same_time(serve, color_detector):
    server = serve.process(color_detector())
    with Pipeline.open(server.address('colors'), frames_in_flight=2) as pipeline:
        stop(server.process)
        try:
            # Neither waits for the server.
            pending = [pipeline.submit(RED), pipeline.submit(RED[..., ::-1])]
        finally:
            server.process.send_signal(signal.SIGCONT)
        assert [int(each.result().labels[0]) for each in pending] == [0, 2]
        depth = Frame.from_pixels(np.zeros((2, 2), np.uint16), '16UC1')
        with pytest.raises(BadFrameError, match='16UC1'):
            pipeline.submit(depth)


def test_killed_server_drops_frames_until_it_is_back(serve, color_detector):
    server, before = serve.process(color_detector()), open_regions()
    with Pipeline.open(server.address('colors')) as pipeline:
        assert found(pipeline(RED)) == EXPECTED
        assert open_regions() == before  # Also while it is used: a killed process leaves none.
        assert pipeline.backend == 'triton'
        assert pipeline.class_names == ('red', 'green', 'blue')
        assert pipeline.diagnostics()['server state'] == 'ready'
        server.kill()
        with pytest.raises(RemoteUnavailableError, match='is not available') as raised:
            pipeline(RED)
        assert raised.value.kind == 'remote unavailable'
        assert 'is not available' in pipeline.diagnostics()['server state']
        server.start()
        assert found(until_available(pipeline, RED)) == EXPECTED
        assert pipeline.diagnostics()['server state'] == 'ready'
        # Its memory is registered again.
        assert found(pipeline(RED)) == EXPECTED
        assert pipeline.diagnostics()['server inputs'] == 'shared memory'


def test_server_that_hangs_costs_the_timeout_per_frame(serve, color_detector):
    server = serve.process(color_detector())
    address = server.address('colors')
    with until_available(Pipeline.open, address, remote_timeout=0.2) as pipeline:
        stop(server.process)
        with pytest.raises(RemoteUnavailableError, match=r'did not answer within 0\.2 s'):
            pipeline(RED)
        server.process.send_signal(signal.SIGCONT)
        assert found(until_available(pipeline, RED)) == EXPECTED


def test_configure_without_a_server_names_its_address():
    pytest.importorskip('tritonclient.grpc')
    with pytest.raises(BackendError, match=r'grpc://localhost:1/net is not available\.\nCause: '):
        Pipeline.open('grpc://localhost:1/net')


def test_unknown_model_is_named_and_the_error_of_a_server_is_escaped_and_short(
    serve, color_detector
):
    server = serve(color_detector())
    with pytest.raises(RemoteUnavailableError, match=r'does not have grpc://.*/colour(?s:.*)Load'):
        Pipeline.open(server.address('colour'))
    for name, shown in (('a%1B%5B31m%E2%80%AE', r'a\x1b[31m\u202e'), ('a' * 5000, 'aaa...aaa')):
        with pytest.raises(RemoteUnavailableError) as raised:
            Pipeline.open(server.address(name))
        assert shown in raised.value.problem and shown in raised.value.cause
        assert len(str(raised.value)) < 2000 and '\x1b' not in str(raised.value)


def test_opening_is_cancelled_while_a_server_does_not_answer(serve, color_detector):
    import threading

    server = serve.process(color_detector())
    stop(server.process)
    cancelled = threading.Event()

    def cancel(progress):
        if progress.phase.startswith('waiting for localhost'):
            cancelled.set()

    with pytest.raises(CancelledError, match='Cancelled before waiting for localhost'):
        Pipeline.open(server.address('colors'), on_progress=cancel, cancelled=cancelled)


def test_replaced_model_of_another_shape_is_reported(serve, color_detector, tmp_path):
    server = serve.process(color_detector())
    with Pipeline.open(server.address('colors')) as pipeline:
        server.kill()
        color_detector(shape=(96, 96))
        serve.process(tmp_path / 'colors.onnx').kill()  # Writes the repository anew.
        server.start()
        with pytest.raises(RemoteRefusedError, match='refused a request') as raised:
            until_available(pipeline, RED)
        assert raised.value.kind == 'remote error'


# TLS and tokens.


@pytest.fixture
def secured(serve, color_detector, certificate, tmp_path):
    """Return the address of a server that wants a token, and the options for it."""
    certificate_path, key = certificate
    token_path = tmp_path / 'token'
    token_path.write_text('s3cret-token\n')
    server = serve(
        color_detector(),
        arguments=['--token=s3cret-token', f'--certificate={certificate_path}', f'--key={key}'],
    )
    options = {'remote_ca_path': str(certificate_path), 'remote_token_path': str(token_path)}
    return server.address('colors', 'grpcs'), options


def test_new_token_in_the_file_is_used_and_an_old_one_refused(secured, caplog):
    caplog.set_level(logging.DEBUG)
    address, options = secured
    with Pipeline.open(address, **options) as pipeline:
        Path(options['remote_token_path']).write_text('0ld-token')
        with pytest.raises(RemoteRefusedError, match=r'invalid token.*UNAUTHENTICATED') as raised:
            pipeline(RED)
        assert 'Set remote_token_path to a file with a valid token' in str(raised.value)
        assert '0ld-token' not in str(raised.value)
        Path(options['remote_token_path']).write_text('s3cret-token')
        assert found(pipeline(RED)) == EXPECTED
        assert 's3cret' not in f'{pipeline.log_lines} {pipeline.diagnostics()} {caplog.text}'


def test_server_with_an_unknown_certificate_is_refused(secured):
    address, options = secured
    with pytest.raises(RemoteUnavailableError, match=r'is not available(?s:.*)TLS of model_path'):
        Pipeline.open(address, remote_token_path=options['remote_token_path'])


@pytest.mark.parametrize(
    'scheme, options, message',
    [
        ('grpc', {'remote_token_path': 'token'}, 'must not be sent in plain text'),
        ('grpc', {'remote_ca_path': 'ca.pem'}, r'remote_ca_path is set, but .* has no TLS'),
        ('grpcs', {'remote_ca_path': 'ca.pem'}, 'ca.pem of remote_ca_path cannot be read'),
        ('grpcs', {'remote_token_path': 'none'}, 'none of remote_token_path cannot be read'),
        ('grpcs', {'remote_token_path': 'token'}, 'does not hold a token'),
        ('grpcs', {'remote_ca_path': '/dev/zero'}, 'Not a regular file'),
        ('grpcs', {'remote_token_path': '/dev/zero'}, 'Not a regular file'),
    ],
)
def test_files_of_tls_and_token_are_checked(scheme, options, message, tmp_path, monkeypatch):
    pytest.importorskip('tritonclient.grpc')
    monkeypatch.chdir(tmp_path)
    Path('token').write_text('two words')
    with pytest.raises(ParameterError, match=message):
        Pipeline.open(f'{scheme}://localhost:1/net', **options)


def test_model_and_backend_must_agree():
    with pytest.raises(ParameterError, match='grpc://gpu/net, but backend is tensorrt'):
        Pipeline.open('grpc://gpu/net', backend='tensorrt')
    with pytest.raises(ParameterError, match=r'backend is triton, but model_path is net\.onnx'):
        Pipeline.open('net.onnx', backend='triton')


def test_command_line_detects_and_measures_on_a_server(serve, color_detector, tmp_path, capsys):
    address = serve(color_detector(batch='batch')).address('colors')
    cv2.imwrite(str(tmp_path / 'red.png'), RED)
    assert main(['infer', str(tmp_path / 'red.png'), '--model', address, '--json']) == 0
    [entry] = json.loads(capsys.readouterr().out)
    assert entry['detections'][0]['label'] == 'red'
    measured = ['bench', address, '--image-size', '64x64', '--frames', '3', '--batch', '2']
    assert main(measured) == 0
    assert '64x64 bgr8 in batches of 2: ' in capsys.readouterr().out
    assert main([*measured, '--precision', 'fp16']) == 1
    assert '--precision cannot be used with Triton or another' in capsys.readouterr().err
