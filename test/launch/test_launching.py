"""The launch files, started for real."""

from __future__ import annotations

from contextlib import suppress
import os
from pathlib import Path
import random
import re
import signal
import subprocess
import sys
import time

import cv2
import numpy as np
import pytest

# Not `launch`: where that is not installed, the checkout's folder of that name is imported.
pytest.importorskip('launch_ros')
pytest.importorskip('rclpy')

pytestmark = pytest.mark.ros

DEADLINE_SECONDS = 120.0
CHECKOUT = Path(__file__).parents[2]
MODEL = CHECKOUT / 'trt_ros' / 'demo' / 'shapes.onnx'
RUN = """
import sys
from launch import LaunchDescription, LaunchService
from launch.actions import IncludeLaunchDescription
service = LaunchService(noninteractive=True)
service.include_launch_description(LaunchDescription([IncludeLaunchDescription(
    sys.argv[1], launch_arguments=[each.split(':=', 1) for each in sys.argv[2:]])]))
sys.exit(service.run())
"""


class Launch:
    """A launch file that runs, as `ros2 launch` would run it."""

    def __init__(self, folder, file, *arguments, **environment):
        self.left_behind = set()  # Of Fast DDS's files, by processes that crashed.
        self._log = folder / 'output'
        with self._log.open('wb') as output:
            self.process = subprocess.Popen(
                [sys.executable, '-c', RUN, str(CHECKOUT / 'launch' / file), *arguments],
                stdout=output,
                stderr=subprocess.STDOUT,
                env={
                    **os.environ,
                    'ROS_AUTOMATIC_DISCOVERY_RANGE': 'LOCALHOST',
                    'ROS_DOMAIN_ID': str(random.randint(1, 100)),
                    'ROS_LOG_DIR': str(folder),
                    **environment,
                },
            )

    @property
    def output(self):
        return self._log.read_text()

    def waits_for(self, condition):
        deadline = time.monotonic() + DEADLINE_SECONDS
        while not condition():
            assert time.monotonic() < deadline, self.output
            assert self.process.poll() is None, self.output
            self._pause()

    def says(self, *texts):
        self.waits_for(lambda: all(text in self.output for text in texts))

    def ends(self):
        """Return the exit code; all that was started has ended as well."""
        code = self.process.wait(DEADLINE_SECONDS)
        for pid in re.findall(r'process started with pid \[(\d+)\]', self.output):
            assert not Path('/proc', pid).exists()
        return code

    def stop(self):
        self.process.send_signal(signal.SIGINT)
        return self.ends()

    def _pause(self):
        with suppress(subprocess.TimeoutExpired):
            self.process.wait(0.05)


@pytest.fixture
def start(tmp_path):
    started = []

    def start_one(*arguments, folder=tmp_path, **environment):
        started.append(Launch(folder, *arguments, **environment))
        return started[-1]

    yield start_one
    for one in started:
        if one.process.poll() is None:
            one.stop()
    remove_what_crashed([name for one in started for name in one.left_behind])


@pytest.fixture
def picture(tmp_path):
    path = tmp_path / 'picture.png'
    cv2.imwrite(str(path), np.full((480, 640, 3), 90, np.uint8))
    return path


@pytest.mark.parametrize('container', ['none', 'new'])
def test_a_detector_becomes_active_and_ends_cleanly(start, container):
    launch = start(
        'detector.launch.py',
        f'model_path:={MODEL}',
        f'container:={container}',
        'namespace:=robot',
        'name:=eye',
        'labels:=[a, b, c, d, e, "6"]',
    )
    launch.says('[robot.eye]: activate: inactive -> active')
    assert launch.stop() == 0
    assert 'finished cleanly' in launch.output


@pytest.mark.parametrize(
    ('kind', 'shape'),
    [
        ('classifier', (1, 3)),
        ('depth', (1, 1, 32, 32)),
        ('segmenter', (1, 3, 32, 32)),
        ('pose', (1, 56, 21)),
        ('tensor', (7,)),
    ],
)
def test_a_node_of_another_task_becomes_active_and_ends_cleanly(start, tmp_path, kind, shape):
    from onnx import TensorProto, helper, numpy_helper, save

    if kind == 'tensor':
        pytest.importorskip('isaac_ros_tensor_list_interfaces')

    def info(name, shape):
        return helper.make_tensor_value_info(name, TensorProto.FLOAT, shape)

    graph = helper.make_graph(
        [
            helper.make_node('ReduceMean', ['images'], ['mean'], keepdims=0),
            helper.make_node('Add', ['mean', 'zeros'], ['scores']),
        ],
        'net',
        [info('images', (1, 3, 32, 32))],
        [info('scores', shape)],
        [numpy_helper.from_array(np.zeros(shape, np.float32), 'zeros')],
    )
    save(
        helper.make_model(graph, opset_imports=[helper.make_opsetid('', 17)], ir_version=8),
        tmp_path / 'net.onnx',
    )
    launch = start(f'{kind}.launch.py', f'model_path:={tmp_path / "net.onnx"}', 'container:=new')
    launch.says(f'[{kind}]: activate: inactive -> active')
    assert launch.stop() == 0


@pytest.mark.parametrize('container', ['none', 'new'])
def test_missing_model_fails_launch_with_reason(start, container):
    launch = start('x86.launch.py', 'model_path:=no_such.onnx', f'container:={container}')
    assert launch.ends() == 1
    assert 'The model file no_such.onnx does not exist' in launch.output
    assert '/detector could not be configured' in launch.output


def test_component_load_failure_fails_launch_with_reason(start, tmp_path):
    file = tmp_path / 'parameters.yaml'
    file.write_text('/**:\n  ros__parameters:\n    score_threshold: much\n')
    launch = start('detector.launch.py', 'container:=new', f'params_file:={file}')
    assert launch.ends() == 1
    assert (
        'into /trt_ros_container: Component constructor threw an '
        "exception: score_threshold is 'much'" in launch.output
    )


def test_parameters_unsupported_for_components_fail_before_start(start, tmp_path):
    file = tmp_path / 'parameters.yaml'
    file.write_text('/**:\n  ros__parameters:\n    labels: []\n')
    launch = start('detector.launch.py', 'container:=new', f'params_file:={file}')
    assert launch.ends() == 1
    assert 'Remedy: Remove empty lists (`labels: []`)' in launch.output
    assert 'process started' not in launch.output


def test_nodes_in_existing_container_outlive_the_launch(start, tmp_path):
    domain_id = str(random.randint(1, 100))
    second = tmp_path / 'second'
    second.mkdir()
    owner = start(
        'detector.launch.py',
        f'model_path:={MODEL}',
        'container:=new',
        'name:=first',
        ROS_DOMAIN_ID=domain_id,
    )
    owner.says('[first]: activate: inactive -> active')
    guest = start(
        'detector.launch.py',
        f'model_path:={MODEL}',
        'container:=/trt_ros_container',
        folder=second,
        ROS_DOMAIN_ID=domain_id,
    )
    assert guest.ends() == 0
    assert '/detector: active in /trt_ros_container.' in guest.output
    owner.says('[detector]: activate: inactive -> active')
    assert owner.stop() == 0


def test_a_node_that_dies_fails_the_launch(start, tmp_path):
    file = tmp_path / 'parameters.yaml'
    file.write_text('/**:\n  ros__parameters:\n    score_threshold: much\n')
    launch = start('detector.launch.py', f'params_file:={file}')
    assert launch.ends() == 1
    assert "score_threshold is 'much'" in launch.output
    assert 'exited with code 1' in launch.output


def test_an_argument_that_is_not_allowed_fails_the_launch(start):
    launch = start('detector.launch.py', 'score_threshold:=7')
    assert launch.ends() == 1
    assert 'score_threshold is 7.0' in launch.output


@pytest.mark.parametrize(
    ('file', 'given', 'message'),
    [
        (
            'detector.launch.py',
            'score_treshold:=0.9',
            "argument 'score_treshold' does not exist.\nRemedy: Did you mean 'score_threshold'",
        ),
        (
            'jetson.launch.py',
            'modelpath:=x',
            "argument 'modelpath' does not exist.\nRemedy: Did you mean 'model_path'",
        ),
        ('demo.launch.py', 'source:=x', "argument 'source' does not exist.\nRemedy: "),
        (
            'cameras.launch.py',
            'colour:=red',
            "argument 'colour' does not exist.\nRemedy: Run `ros2 launch",
        ),
    ],
)
def test_an_unknown_argument_fails_the_launch_and_names_the_nearest(start, file, given, message):
    launch = (
        start(file, 'cameras:=none.yaml', given)
        if file == 'cameras.launch.py'
        else start(file, given)
    )
    assert launch.ends() == 1
    assert message in launch.output
    assert 'process started' not in launch.output


def test_arguments_of_including_launch_file_are_not_checked(start, tmp_path):
    outer = tmp_path / 'robot.launch.py'
    outer.write_text(
        'from launch import LaunchDescription\n'
        'from launch.actions import DeclareLaunchArgument, IncludeLaunchDescription\n\n\n'
        'def generate_launch_description():\n'
        '    return LaunchDescription([DeclareLaunchArgument("image_topic"),\n'
        f'        IncludeLaunchDescription({str(CHECKOUT / "launch/detector.launch.py")!r})])\n'
    )
    launch = start(outer, 'image_topic:=x', f'model_path:={MODEL}')
    launch.says('[detector]: activate: inactive -> active')
    assert launch.stop() == 0


@pytest.mark.parametrize('container', ['none', 'new'])
def test_closed_terminal_stops_launch_cleanly(start, container):
    launch = start('detector.launch.py', f'model_path:={MODEL}', f'container:={container}')
    launch.says('[detector]: activate: inactive -> active')
    started = re.findall(r'process started with pid \[(\d+)\]', launch.output)
    mapped = {
        name
        for pid in (launch.process.pid, *started)
        for name in re.findall(
            r'/dev/shm/fastrtps_(?!port)\S+', Path(f'/proc/{pid}/maps').read_text()
        )
    }
    assert mapped
    launch.process.send_signal(signal.SIGHUP)
    assert launch.ends() == 0
    assert not [name for name in mapped if Path(name).exists()]


def test_without_autostart_nodes_stay_unconfigured(start):
    launch = start('detector.launch.py', 'container:=new', 'autostart:=false')
    launch.says('as /detector, id 1')
    assert launch.stop() == 0
    assert 'unconfigured ->' not in launch.output


@pytest.mark.parametrize('container', ['none', 'new'])
def test_the_demo_draws_on_images_larger_than_fast_dds_default_memory(
    start, container, picture, tmp_path
):
    drawn = tmp_path / 'drawn'
    launch = start(
        'demo.launch.py',
        f'container:={container}',
        f'image_source.source:={picture}',
        f'overlay.output_dir:={drawn}',
    )
    launch.waits_for(lambda: len(list(drawn.glob('*[0-9].png'))) > 3)
    launch.says('[overlay]: activate', '[detector]: activate')  # As the layouts name them.
    assert launch.stop() == 0


def test_the_demo_without_arguments_draws_its_own_pictures(start, tmp_path):
    (tmp_path / 'temporary').mkdir()
    drawn = tmp_path / 'drawn'
    launch = start(
        'demo.launch.py', f'overlay.output_dir:={drawn}', TMPDIR=str(tmp_path / 'temporary')
    )
    launch.waits_for(lambda: len(list(drawn.glob('*[0-9].png'))) > 3)
    assert launch.stop() == 0
    assert list((tmp_path / 'temporary').glob('trt_ros_demo_*')) == []


@pytest.mark.parametrize('one_node', ['true', 'false'])
def test_the_shipped_example_of_cameras_is_accepted(start, one_node):
    launch = start(
        'cameras.launch.py',
        f'one_node:={one_node}',
        'autostart:=false',
        f'cameras:={CHECKOUT / "config" / "cameras.example.yaml"}',
    )
    launch.says('trt_ros::DetectorNode', 'trt_ros::ImageSourceNode')
    assert launch.stop() == 0


def test_each_camera_of_a_file_has_its_detector(start, picture, tmp_path):
    cameras = tmp_path / 'cameras.yaml'
    cameras.write_text(
        f'parameters:\n  model_path: {MODEL}\n'
        'cameras:\n'
        '  front: {image: /front_camera}\n'
        f'  rear: {{source: {picture}, parameters: {{score_threshold: 0.5}}}}\n'
    )
    launch = start('cameras.launch.py', f'cameras:={cameras}')
    launch.says(
        '[front.detector]: activate: inactive -> active',
        '[rear.detector]: activate: inactive -> active',
        '[rear.image_source]: activate: inactive -> active',
    )
    assert launch.stop() == 0


def test_one_detector_of_all_cameras_has_the_topics_of_one_each(
    start, picture, tmp_path, monkeypatch
):
    import rclpy

    monkeypatch.setenv('ROS_AUTOMATIC_DISCOVERY_RANGE', 'LOCALHOST')
    domain_id = random.randint(1, 100)
    cameras = tmp_path / 'cameras.yaml'
    cameras.write_text(
        f'parameters:\n  model_path: {MODEL}\n'
        f'cameras:\n  front: {{image: /front_camera}}\n  rear: {{source: {picture}}}\n'
    )
    launch = start(
        'cameras.launch.py',
        f'cameras:={cameras}',
        'one_node:=true',
        'backend:=onnxruntime',
        ROS_DOMAIN_ID=str(domain_id),
    )
    launch.says(
        '[detector]: activate: inactive -> active',
        'the network accepts one image per run',
        '[rear.image_source]: activate: inactive -> active',
    )
    context = rclpy.Context()
    rclpy.init(context=context, domain_id=domain_id)
    try:
        node = rclpy.create_node('peer', context=context)
        launch.waits_for(
            lambda: all(
                node.count_publishers(f'/{name}/detector/detections') == 1
                and node.count_subscribers(image) == 1
                for name, image in (('front', '/front_camera'), ('rear', '/rear/image'))
            )
        )
        node.destroy_node()
    finally:
        rclpy.shutdown(context=context)
    assert launch.stop() == 0


def test_one_detector_refuses_cameras_with_their_own_parameters(start, tmp_path):
    cameras = tmp_path / 'cameras.yaml'
    cameras.write_text('cameras: {front: {parameters: {score_threshold: 0.5}}}')
    launch = start('cameras.launch.py', f'cameras:={cameras}', 'one_node:=true')
    assert launch.ends() == 1
    assert 'camera front has parameters, but one_node is true' in launch.output


@pytest.mark.parametrize(
    ('content', 'message'),
    [
        (None, 'cameras.yaml cannot be read.\nCause: [Errno 2] No such file'),
        ('cameras: {', 'cameras.yaml cannot be read.\nCause: while parsing'),
        ('', 'lists no cameras'),
        ('- front', "cameras.yaml is ['front']"),
        ('cameras: [front, rear]', "cameras is ['front', 'rear']"),
        ('cameras: {front: /image}', "camera front is '/image'"),
        ('cameras: {front: {topic: /image}}', 'camera front has unknown keys: topic'),
        ('cameras: {front: {parameters: [scores]}}', "camera front: parameters is ['scores']"),
        ('cameras: {front: {parameters: {scores: 1}}}', "no parameter 'scores'"),
        (
            '{parameter: {max_rate_hz: 5.0}, cameras: {front: }}',
            'cameras.yaml has unknown keys: parameter.',
        ),
    ],
)
def test_invalid_cameras_file_fails_launch(start, tmp_path, content, message):
    cameras = tmp_path / 'cameras.yaml'
    if content is not None:
        cameras.write_text(content)
    launch = start('cameras.launch.py', f'cameras:={cameras}')
    assert launch.ends() == 1
    assert message in launch.output


def pid_of(launch, executable):
    """Return the process id of what was last started of an executable; 0 when nothing was."""
    started = re.findall(
        rf'\[{executable}-\d+\]: process started with pid \[(\d+)\]', launch.output
    )
    return int(started[-1]) if started else 0


def crash(launch, executable):
    """End a process at once."""
    pid = pid_of(launch, executable)
    launch.left_behind |= shared_memory_of(pid)
    os.kill(pid, signal.SIGKILL)
    launch.waits_for(lambda: not Path('/proc', str(pid)).exists())


def remove_what_crashed(files):
    """Remove what Fast DDS left behind; what others had mapped too is theirs or gone by now."""
    used = set().union(*(shared_memory_of(each.name) for each in Path('/proc').glob('[0-9]*')))
    for name in set(files) - used:
        Path(name).unlink(missing_ok=True)
        # A port's lock is not mapped under its name.
        Path(f'/dev/shm/sem.{Path(name).name}_mutex').unlink(missing_ok=True)


def shared_memory_of(pid):
    """Return Fast DDS's files that a process has open or mapped."""
    with suppress(OSError):  # Gone, or another user's.
        maps = Path(f'/proc/{pid}/maps').read_text()
        opened = [os.readlink(each) for each in Path(f'/proc/{pid}/fd').iterdir()]
        return set(re.findall(r'/dev/shm/fastrtps_\S+', '\n'.join([maps, *opened])))
    return set()


@pytest.mark.parametrize(
    ('container', 'crashing', 'source_starts'),
    [('none', 'detector', 1), ('new', 'component_container_mt', 3)],
)
def test_crashed_node_is_respawned_and_becomes_active(
    start, picture, container, crashing, source_starts
):
    launch = start(
        'detector.launch.py',
        f'model_path:={MODEL}',
        f'source:={picture}',
        f'container:={container}',
        'respawn:=true',
        'respawn_delay:=0.1',
    )

    def activations(node):
        return launch.output.count(f'[{node}]: activate: inactive -> active')

    for lives in (1, 2, 3):
        launch.waits_for(
            lambda lives=lives: (
                activations('detector') == lives
                and activations('image_source') == min(lives, source_starts)
            )
        )
        if lives < 3:
            crash(launch, crashing)
    assert launch.stop() == 0


def test_a_crash_before_the_others_are_up_leaves_none_of_them_behind(start, picture):
    launch = start(
        'detector.launch.py',
        f'model_path:={MODEL}',
        f'source:={picture}',
        'respawn:=true',
        'respawn_delay:=0.1',
    )
    launch.waits_for(lambda: pid_of(launch, 'detector') and pid_of(launch, 'image_source'))
    crash(launch, 'detector')
    launch.says(
        '[detector]: activate: inactive -> active', '[image_source]: activate: inactive -> active'
    )
    assert launch.stop() == 0


def test_invalid_respawn_delay_fails_launch(start):
    launch = start('detector.launch.py', 'respawn:=true', 'respawn_delay:=soon')
    assert launch.ends() == 1
    assert "respawn_delay is 'soon'" in launch.output
