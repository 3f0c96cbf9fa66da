"""Ctrl-C while a launch starts its processes."""

from contextlib import suppress
import os
from pathlib import Path
import random
import signal
import subprocess

import pytest

MODEL = Path(__file__).parents[2] / 'trt_ros' / 'demo' / 'shapes.onnx'
MOMENTS = 200 if os.environ.get('TRT_ROS_TEST_EXHAUSTIVE') == '1' else 3

INTERRUPTED = """
import signal
from launch.actions import OpaqueFunction
from trt_ros.launching.arguments import common_arguments, launch_description
from trt_ros.launching.graph import NodeDescription, launch_nodes
from trt_ros.nodes.tracker import TrackerNode

def nodes(context):
    return [
        *launch_nodes(context, [NodeDescription(TrackerNode, 'tracker')]),
        OpaqueFunction(function=lambda context: signal.raise_signal(signal.SIGINT)),
    ]

def generate_launch_description():
    return launch_description(common_arguments(container='none'), nodes)
"""


@pytest.mark.parametrize('container', ['none', 'new'])
@pytest.mark.parametrize('interactive', ['', '1'])
def test_ctrl_c_before_a_process_is_started_ends_that_process(
    start, tmp_path, container, interactive
):
    file = tmp_path / 'interrupted.launch.py'
    file.write_text(INTERRUPTED)
    launch = start(file, f'container:={container}', INTERACTIVE=interactive)
    assert launch.ends() == 0
    assert 'process started' in launch.output
    assert 'failed to terminate' not in launch.output


@pytest.mark.parametrize(
    'arguments',
    [
        ('detector.launch.py', 'container:=none', f'model_path:={MODEL}'),
        ('detector.launch.py', 'container:=new', f'model_path:={MODEL}'),
        ('demo.launch.py',),
    ],
    ids=['process', 'container', 'demo'],
)
def test_ctrl_c_at_any_moment_leaves_no_process(start, tmp_path, arguments):
    for number in range(MOMENTS):
        folder = tmp_path / str(number)
        folder.mkdir()
        launch = start(*arguments, folder=folder, TMPDIR=str(folder))
        launch.says('Default logging verbosity')
        with suppress(subprocess.TimeoutExpired):
            launch.process.wait(random.uniform(0.0, 3.0))
        launch.process.send_signal(signal.SIGINT)
        code = launch.ends()
        is_loading = 'process started' not in launch.output  # Launch itself may fail to import.
        assert code == 0 or is_loading, launch.output
