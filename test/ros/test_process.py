"""The process of a node or container: its arguments, its signals, its exit code."""

import os
from pathlib import Path
import re
import signal
import subprocess
import sys

import pytest
import yaml

from support.save_network import save_text
from support.waiting import DEADLINE_SECONDS, wait_until
from trt_ros.nodes.detector import DetectorParameters
from trt_ros.parameter_field import specifications
from trt_ros.trt import installed

CHECKOUT = Path(__file__).parents[2]
EXECUTABLES = ('detector', 'component_container')
#: Starts an executable as its installed script does.
SCRIPT = 'import sys; sys.argv[0] = {0!r}; from trt_ros.executables import {0}; sys.exit({0}())'


@pytest.fixture
def environment(domain_id, tmp_path):
    path = os.pathsep.join(filter(None, (str(CHECKOUT), os.environ.get('PYTHONPATH'))))
    return {
        **os.environ,
        'PYTHONPATH': path,
        'ROS_DOMAIN_ID': str(domain_id),
        'ROS_LOG_DIR': str(tmp_path),
    }


@pytest.fixture
def run(environment, node_server, tmp_path):
    """Run an executable to its end; return the exit code and what it wrote."""

    def run_one(executable, *arguments, code=SCRIPT):
        script, log = tmp_path / f'{executable}.py', tmp_path / 'log'
        script.write_text(code.format(executable))
        log.touch()
        ended = node_server.start([str(script), *arguments], environment, log)
        return ended.wait(DEADLINE_SECONDS), log.read_text()

    return run_one


def test_a_process_of_many_threads_ends_like_others(run):
    code = """
import threading
threading.stack_size(8 << 20)
ends = [threading.Event() for _ in range(16)]
threads = [threading.Thread(target=end.wait) for end in ends]
for thread in threads:
    thread.start()
for end, thread in zip(ends, threads):
    end.set()
    thread.join()
"""
    assert run('threads', code=code) == (0, '')


@pytest.mark.parametrize('program', ['trt_ros.nodes.image_source', 'trt_ros.container'])
@pytest.mark.parametrize('number', [signal.SIGTERM, signal.SIGHUP])
def test_signal_shuts_down_cleanly(start_node, tmp_path, program, number):
    name = f'{program.rpartition(".")[2]}_{int(number)}'
    node = start_node(name, program, autostart=False)
    node.peer.wait_until(lambda: name in node.peer.node.get_node_names(), name)
    node.process.send_signal(number)
    assert node.process.wait(DEADLINE_SECONDS) == 0
    assert 'Traceback' not in node.log


def test_what_is_started_with_nohup_survives_its_terminal(start_node):
    before = signal.signal(signal.SIGHUP, signal.SIG_IGN)
    try:
        node = start_node('stays', 'trt_ros.nodes.image_source', autostart=False)
    finally:
        signal.signal(signal.SIGHUP, before)
    node.peer.wait_until(lambda: 'stays' in node.peer.node.get_node_names(), 'the node')
    node.process.send_signal(signal.SIGHUP)
    assert node.get('rate_hz') == 10.0
    node.stop()


@pytest.mark.parametrize('executable', EXECUTABLES)
def test_ctrl_c_during_the_imports_ends_with_a_line(environment, tmp_path, executable):
    begun = tmp_path / 'begun'
    (tmp_path / 'rclpy.py').write_text(
        f'import pathlib, signal\npathlib.Path({str(begun)!r}).touch()\n'
        'while True:\n    signal.pause()\n'
    )
    environment['PYTHONPATH'] = f'{tmp_path}{os.pathsep}{environment["PYTHONPATH"]}'
    command = [sys.executable, '-c', SCRIPT.format(executable)]
    process = subprocess.Popen(command, env=environment, text=True, stderr=subprocess.PIPE)
    wait_until(lambda: begun.exists() or process.poll() is not None, 'the imports')
    process.send_signal(signal.SIGINT)
    assert process.communicate(timeout=DEADLINE_SECONDS)[1] == 'Interrupted while starting.\n'
    assert process.returncode == 130


@pytest.mark.parametrize(
    ('executable', 'arguments', 'message'),
    [
        *(
            (
                executable,
                ['-p', 'x:=1'],
                'Unknown arguments: -p x:=1.\nCause: .*\nRemedy: Run {} --ros-args -p',
            )
            for executable in EXECUTABLES
        ),
        (
            'component_container',
            ['--ros-args', '--params-file', 'nosuch.yaml'],
            r"params file: '--params-file nosuch\.yaml'",
        ),
        ('detector', ['--ros-args', '-p', 'labels:=[a, 1]'], 'Sequence should be of same type'),
        ('detector', ['--ros-args', '--nosuch'], '--nosuch'),
        (
            'detector',
            ['model_path:=x', '--ros-args', '-r', '__node:=eye'],
            'Unknown arguments: model_path:=x.',
        ),
        ('component_container', ['--ros-args', '-r', '__node:=a b'], "rule: '-r __node:=a b'"),
        ('detector', ['--ros-args', '-r', '__ns:=/a//b'], "remap rule: '-r __ns:=/a//b'"),
        *(
            (each, ['--ros-args', '-p', 'use_sim_time:=much'], 'use_sim_time')
            for each in EXECUTABLES
        ),
    ],
)
def test_invalid_arguments_exit_with_message(run, executable, arguments, message):
    code, errors = run(executable, *arguments)
    assert code == 2
    assert re.search(message.format(executable), errors), errors
    assert re.search(f'^{executable}: ', errors, re.MULTILINE)
    assert 'Traceback' not in errors


@pytest.mark.parametrize('flag', ['--help', pytest.param('-h', marks=pytest.mark.nightly)])
def test_help_shows_all_parameters_as_a_parameter_file(run, flag):
    code, text = run('detector', flag)
    assert code == 0 and text.startswith('usage: detector [--ros-args ')
    assert 'publishes bounding boxes' in text
    file = yaml.safe_load(text[text.index('/**:') :])
    shown = file['/**']['ros__parameters']
    assert set(specifications(DetectorParameters)) - set(shown) <= {
        name for name, each in specifications(DetectorParameters).items() if each.default == ()
    }


BUILD = """
import sys
from pathlib import Path
from trt_ros.engine.builder.parent import build
from trt_ros.engine.options import BuildOptions
from trt_ros.ros.process import log_through_ros, start_ros
from trt_ros.trt import load_trt
start_ros(sys.argv[2:], "", "")
log_through_ros()
build(Path(sys.argv[1]), BuildOptions(), load_trt("tensorrt_rtx")).plan.close()
"""


@pytest.mark.skipif(not installed('tensorrt_rtx'), reason='tensorrt_rtx is missing')
@pytest.mark.parametrize('level', ['info', 'debug'])
def test_debug_level_has_the_log_of_tensorrt(run, tmp_path, level):
    network = tmp_path / 'own.onnx'
    save_text(network, '(float[1, 8] x) => (float[1, 8] y) { y = Relu(x) }')
    code, log = run('build', str(network), '--ros-args', '--log-level', level, code=BUILD)
    assert code == 0, log
    assert ('[trt_ros.tensorrt_rtx]: [VERBOSE] Parsing node' in log) == (level == 'debug')


def test_help_of_a_container_shows_its_parameters(run):
    code, text = run('component_container_mt', '--help')
    assert code == 0
    file = yaml.safe_load(text[text.index('/**:') :])
    assert file['/**']['ros__parameters'] == {
        'thread_num': os.cpu_count(),
        'allow_modules': False,
        'exit_on_failure': False,
    }
