"""Launch files, as ros2 launch runs them."""

from contextlib import closing
from importlib.util import find_spec
from pathlib import Path
import re
import signal

import pytest
from sensor_msgs.msg import JointState
from std_msgs.msg import Float64MultiArray

from support.ros_nodes import shared_memory_of
from support.ros_peer import Peer
from support.save_network import save_mean, save_network, save_text
from trt_ros.demo import MODEL

CHECKOUT = Path(__file__).parents[2]


@pytest.fixture(scope='module')
def models(tmp_path_factory):
    """Return a folder of a network of each task, and of one of two images and a tensor."""
    folder = tmp_path_factory.mktemp('models')
    for kind, shape in (
        ('classifier', (1, 3)),
        ('depth', (1, 1, 32, 32)),
        ('segmenter', (1, 3, 32, 32)),
        ('pose', (1, 56, 21)),
        ('tensor', (7,)),
    ):
        save_mean(folder / f'{kind}.onnx', shape)
    save_text(
        folder / 'policy.onnx',
        '(float[1, 3, 8, 8] left, float[1, 3, 8, 8] right, float[1, 4] q) => '
        '(float[1, 3, 8, 8] difference, float[1, 4] action) '
        '{ difference = Sub(left, right) action = Neg(q) }',
    )
    return folder


def started(arguments, *texts, **options):
    return pytest.param(arguments, texts, id=arguments.partition('.')[0], **options)


ROBOT = f'model_path:={MODEL} namespace:=robot name:=eye labels:=[a,b,c,d,e,"6"]'
TOPICS = 'detections:=/given/detections depth_image:=/given/depth instances:=/given/instances'
BOUND = (
    'inputs:=["left=image:front/left?mean=0,0,0&std=1,1,1","right=image:front/right",'
    '"q=tensor:joints"] outputs:=[action] tensor_format:=multiarray rate_hz:=20.0'
)


@pytest.mark.parametrize(
    ('arguments', 'texts'),
    [
        started(f'detector.launch.py container:=none {ROBOT}', '[robot.eye]: activate: inactive'),
        started(f'detector.launch.py container:=new {ROBOT}', '[robot.eye]: activate: inactive'),
        *(
            started(
                f'{kind}.launch.py model_path:={{models}}/{kind}.onnx container:=new',
                f'[{kind}]: activate: inactive -> active',
            )
            for kind in ('classifier', 'segmenter')
        ),
        *(  # Their outputs are named as those of a mask, or are no keypoints.
            started(
                f'{kind}.launch.py model_path:={{models}}/{kind}.onnx container:=new '
                f'decoder:={name}',
                f'[{kind}]: activate: inactive -> active',
            )
            for kind, name in (('depth', 'depth'), ('pose', 'yolov8_pose'))
        ),
        started(
            'tensor.launch.py model_path:={models}/tensor.onnx container:=new',
            '[tensor]: activate: inactive -> active',
            marks=pytest.mark.skipif(
                not find_spec('isaac_ros_tensor_list_interfaces'), reason='no tensor lists'
            ),
        ),
        started(
            f'tensor.launch.py model_path:={{models}}/policy.onnx backend:=onnxruntime {BOUND}',
            '[tensor]: activate: inactive -> active',
            'left: input 8x8',
            'right: input 8x8',
            'tensor q (1, 4) float32',
            'outputs action (as configured)',
            'synchronization: newest messages, sampled at 20 Hz',
        ),
        started(
            'tracker.launch.py container:=new track_method:=bytetrack name:=ids',
            '[ids]: activate: inactive -> active',
        ),
        started(
            f'detections_3d.launch.py use_instances:=true {TOPICS}',
            '[detections_3d]: activate: inactive -> active',
            *('/given/detections', '/given/depth', '/given/instances'),
        ),
        started(
            f'detector.launch.py model_path:={MODEL} container:=/absent',
            'Waiting for service /absent/_container/load_node. Remedy: Start the container',
        ),
    ],
)
def test_a_launch_becomes_active_or_says_why_and_ends_cleanly(start, models, arguments, texts):
    launch = start(*arguments.replace('{models}', str(models)).split())
    launch.says(*texts)
    assert launch.stop() == 0
    assert ('finished cleanly' in launch.output) == ('/absent' not in arguments)


@pytest.mark.parametrize('container', ['none', 'new'])
def test_a_policy_commands_joints_by_the_topics_of_the_arguments(
    start, tmp_path, domain_id, container
):
    path = save_network(
        tmp_path / 'mirror.onnx',
        'action = Neg(q)',
        {'q': (1, 2)},
        {'action': (1, 2)},
        metadata={'dof_names': '["hip", "knee"]'},
    )
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
    )
    launch.says('[robot.policy]: activate: inactive -> active')
    with closing(Peer(domain_id)) as peer:
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


def parameter_file(folder, parameters):
    """Return the argument of a file of parameters, or nothing without any."""
    (folder / 'parameters.yaml').write_text(f'/**:\n  ros__parameters:\n    {parameters}\n')
    return [f'params_file:={folder / "parameters.yaml"}'] if parameters else []


def test_nodes_in_a_running_container_outlive_the_launch_whether_or_not_it_fails(start, tmp_path):
    owner = start('detector.launch.py', f'model_path:={MODEL}', 'container:=new', 'name:=first')
    owner.says('[first]: activate: inactive -> active')
    guests = []
    for score in ('much', '0.5'):
        folder = tmp_path / score
        folder.mkdir()
        given = parameter_file(folder, f'score_threshold: {score}')
        given += [f'model_path:={MODEL}', 'container:=/trt_ros_container']
        guests.append(start('detector.launch.py', *given, folder=folder))
        assert guests[-1].ends() == (score == 'much')
    assert "score_threshold is 'much'" in guests[0].output
    assert '/detector: loaded in /trt_ros_container.' in guests[1].output
    owner.says('[detector]: activate: inactive -> active')
    assert owner.stop() == 0


@pytest.mark.parametrize(
    ('arguments', 'is_jetson'), [((), True), (('platform:=x86',), False)], ids=['default', 'given']
)
def test_the_platform_of_a_platform_file_can_be_overridden(start, arguments, is_jetson):
    launch = start('jetson.launch.py', 'autostart:=false', *arguments)
    launch.says('process started')
    assert launch.stop() == 0
    assert ('jetson_clocks' in launch.output) == is_jetson


NEAREST = "Launch argument '{}' does not exist.\nRemedy: Did you mean '{}'"


@pytest.mark.parametrize(
    ('arguments', 'parameters', 'message'),
    [
        (
            f'detector.launch.py model_path:={MODEL} container:=',
            '',
            'argument container is empty.',
        ),
        ('detector.launch.py container:=new', 'labels: []', 'Remedy: Remove empty lists (`labels'),
        ('detector.launch.py respawn:=true respawn_delay:=soon', '', "respawn_delay is 'soon'"),
        (
            'detector.launch.py score_treshold:=0.9',
            '',
            NEAREST.format('score_treshold', 'score_threshold'),
        ),
        ('jetson.launch.py modelpath:=x', '', NEAREST.format('modelpath', 'model_path')),
        ('demo.launch.py source:=x', '', "argument 'source' does not exist.\nRemedy: "),
        (
            'cameras.launch.py cameras:=none.yaml color:=red',
            '',
            "argument 'color' does not exist.\nRemedy: Run `ros2 launch",
        ),
    ],
)
def test_what_cannot_be_meant_fails_the_launch_before_anything_is_started(
    start, tmp_path, arguments, parameters, message
):
    launch = start(*arguments.split(), *parameter_file(tmp_path, parameters))
    assert launch.ends() == 1
    assert message in launch.output
    assert 'process started' not in launch.output


@pytest.mark.parametrize(
    ('arguments', 'parameters', 'texts'),
    [
        *(
            (
                f'x86.launch.py model_path:=no_such.onnx container:={container}',
                '',
                [
                    'The model file no_such.onnx does not exist',
                    'Startup failed: see the error above.',
                    'exited with code 1',
                ],
            )
            for container in ('none', 'new')
        ),
        (
            f'detector.launch.py model_path:={MODEL} inputs:=["nothing=image:a"]',
            '',
            ["The network has no input 'nothing', which inputs binds."],
        ),
        (
            'detector.launch.py',
            'score_threshold: much',
            ["score_threshold is 'much'", 'exited with code 1'],
        ),
        (
            'detector.launch.py container:=new',
            'score_threshold: much',
            [
                'into /trt_ros_container: Component constructor threw an exception: '
                "score_threshold is 'much'"
            ],
        ),
    ],
)
def test_a_node_that_does_not_start_fails_the_launch_with_the_reason(
    start, tmp_path, arguments, parameters, texts
):
    launch = start(*arguments.split(), *parameter_file(tmp_path, parameters))
    assert launch.ends() == 1
    for text in texts:
        assert text in launch.output


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


@pytest.mark.parametrize('container', ['none', 'new', None])
def test_the_demo_draws_on_images_larger_than_fast_dds_default_memory(
    start, container, picture, tmp_path
):
    drawn = tmp_path / 'drawn'
    given = [f'container:={container}', f'image_source.source:={picture}'] if container else []
    launch = start('demo.launch.py', f'overlay.output_dir:={drawn}', *given)  # Else its own video.
    launch.waits_for(lambda: len(list(drawn.glob('*[0-9].png'))) > 3)
    launch.says('[overlay]: activate', '[detector]: activate')  # As the layouts name them.
    assert launch.stop() == 0
