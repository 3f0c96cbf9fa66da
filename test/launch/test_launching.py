"""Launch files, as ros2 launch runs them."""

from __future__ import annotations

from contextlib import closing
from pathlib import Path
import random
import re
import signal

import pytest

# Not `launch`: where that is not installed, the checkout's folder of that name is imported.
pytest.importorskip('launch_ros')

from sensor_msgs.msg import JointState
from std_msgs.msg import Float64MultiArray

from support.ros_nodes import shared_memory_of
from support.ros_peer import Peer
from support.save_network import save_mean, save_network, save_text
from trt_ros.demo import MODEL

CHECKOUT = Path(__file__).parents[2]


@pytest.fixture
def wrong(tmp_path):
    """Return the argument of a file with a parameter of the wrong type."""
    file = tmp_path / 'parameters.yaml'
    file.write_text('/**:\n  ros__parameters:\n    score_threshold: much\n')
    return f'params_file:={file}'


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
    if kind == 'tensor':
        pytest.importorskip('isaac_ros_tensor_list_interfaces')

    path = save_mean(tmp_path / 'net.onnx', shape)
    decoder = 'depth' if kind == 'depth' else 'auto'  # Its output is named as that of a mask.
    launch = start(
        f'{kind}.launch.py', f'model_path:={path}', f'decoder:={decoder}', 'container:=new'
    )
    launch.says(f'[{kind}]: activate: inactive -> active')
    assert launch.stop() == 0


def test_bindings_of_inputs_reach_the_node(start, tmp_path):
    save_text(
        tmp_path / 'policy.onnx',
        '(float[1, 3, 8, 8] left, float[1, 3, 8, 8] right, float[1, 4] q) => '
        '(float[1, 3, 8, 8] difference, float[1, 4] action) '
        '{ difference = Sub(left, right) action = Neg(q) }',
    )
    launch = start(
        'tensor.launch.py',
        f'model_path:={tmp_path / "policy.onnx"}',
        'inputs:=["left=image:front/left?mean=0,0,0&std=1,1,1", "right=image:front/right", '
        '"q=tensor:joints"]',
        'outputs:=[action]',
        'tensor_format:=multiarray',
        'rate_hz:=20.0',
        'backend:=onnxruntime',
    )
    launch.says('[tensor]: activate: inactive -> active')
    launch.says(
        'left: input 8x8',
        'right: input 8x8',
        'tensor q (1, 4) float32',
        'outputs action (as configured)',
        'synchronization: newest messages, sampled at 20 Hz',
    )
    assert launch.stop() == 0


@pytest.mark.parametrize('container', ['none', 'new'])
def test_a_policy_commands_joints_by_the_topics_of_the_arguments(start, tmp_path, container):
    path = save_network(
        tmp_path / 'mirror.onnx',
        'action = Neg(q)',
        {'q': (1, 2)},
        {'action': (1, 2)},
        metadata={'dof_names': '["hip", "knee"]'},
    )
    domain = random.randint(101, 200)
    launch = start(
        'policy.launch.py',
        f'model_path:={path}',
        f'container:={container}',
        'namespace:=robot',
        'joint_states:=/sensors/joints',
        'inputs:=["q=joints:joint_states#position[hip,knee]"]',
        'output:=multi_array',
        'blend_seconds:=0.0',
        'max_age:=60.0',
        'backend:=onnxruntime',
        ROS_DOMAIN_ID=str(domain),
    )
    launch.says('[robot.policy]: activate: inactive -> active')
    with closing(Peer(domain)) as peer:
        commands = peer.inbox(Float64MultiArray, '/robot/policy/commands')
        states = peer.publisher(JointState, '/sensors/joints')
        state = JointState(name=['knee', 'hip'], position=[0.5, 0.25])

        def has_command():
            state.header.stamp = peer.node.get_clock().now().to_msg()
            states.publish(state)
            return commands.messages

        peer.wait_until(has_command, launch.output)
        assert list(commands.messages[0].data) == [-0.25, -0.5]
    assert launch.stop() == 0


def test_invalid_bindings_fail_the_launch_with_the_remedy(start):
    launch = start('detector.launch.py', f'model_path:={MODEL}', 'inputs:=["nothing=image:a"]')
    assert launch.ends() == 1
    assert "The network has no input 'nothing', which inputs binds." in launch.output


def test_a_tracker_becomes_active_and_ends_cleanly(start):
    launch = start('tracker.launch.py', 'container:=new', 'track_method:=bytetrack', 'name:=ids')
    launch.says('[ids]: activate: inactive -> active')
    assert launch.stop() == 0


def test_detections_3d_subscribes_to_the_given_topics(start):
    given = ('detections', 'depth_image', 'instances')
    topics = [f'{topic}:=/given/{topic}' for topic in given]
    launch = start('detections_3d.launch.py', 'use_instances:=true', *topics)
    launch.says('[detections_3d]: activate: inactive -> active')
    launch.says(*(f'/given/{topic}' for topic in given))
    assert launch.stop() == 0


@pytest.mark.parametrize('container', ['none', 'new'])
def test_missing_model_fails_launch_with_reason(start, container):
    launch = start('x86.launch.py', 'model_path:=no_such.onnx', f'container:={container}')
    assert launch.ends() == 1
    assert 'The model file no_such.onnx does not exist' in launch.output
    assert 'Startup failed: see the error above.' in launch.output
    assert 'exited with code 1' in launch.output


def test_an_empty_container_is_refused(start):
    launch = start('detector.launch.py', f'model_path:={MODEL}', 'container:=')
    assert launch.ends() == 1
    assert 'The launch argument container is empty.' in launch.output


def test_a_container_that_does_not_run_is_named_with_the_remedy(start):
    launch = start('detector.launch.py', f'model_path:={MODEL}', 'container:=/absent')
    launch.says('Waiting for service /absent/_container/load_node. Remedy: Start the container')
    assert launch.stop() == 0


def test_component_load_failure_fails_launch_with_reason(start, wrong):
    launch = start('detector.launch.py', 'container:=new', wrong)
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
    assert '/detector: loaded in /trt_ros_container.' in guest.output
    owner.says('[detector]: activate: inactive -> active')
    assert owner.stop() == 0


def test_a_component_that_cannot_be_loaded_into_a_running_container_fails_the_launch(
    start, tmp_path, wrong
):
    domain_id, second = str(random.randint(1, 100)), tmp_path / 'second'
    second.mkdir()
    owner = start('tracker.launch.py', 'container:=new', ROS_DOMAIN_ID=domain_id)
    owner.says('[tracker]: activate: inactive -> active')
    guest = start(
        'detector.launch.py',
        'container:=/trt_ros_container',
        wrong,
        folder=second,
        ROS_DOMAIN_ID=domain_id,
    )
    assert guest.ends() == 1
    assert "score_threshold is 'much'" in guest.output
    assert owner.stop() == 0


@pytest.mark.parametrize(
    ('arguments', 'is_jetson'), [((), True), (('platform:=x86',), False)], ids=['default', 'given']
)
def test_the_platform_of_a_platform_file_can_be_overridden(start, arguments, is_jetson):
    launch = start('jetson.launch.py', 'autostart:=false', *arguments)
    launch.says('process started')
    assert launch.stop() == 0
    assert ('jetson_clocks' in launch.output) == is_jetson


def test_a_node_that_dies_fails_the_launch(start, wrong):
    launch = start('detector.launch.py', wrong)
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
            'color:=red',
            "argument 'color' does not exist.\nRemedy: Run `ros2 launch",
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
    mapped = set().union(*map(shared_memory_of, (launch.process.pid, *started)))
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


def test_the_demo_without_arguments_plays_its_own_video(start, tmp_path):
    drawn = tmp_path / 'drawn'
    launch = start('demo.launch.py', f'overlay.output_dir:={drawn}')
    launch.waits_for(lambda: len(list(drawn.glob('*[0-9].png'))) > 3)
    assert launch.stop() == 0
