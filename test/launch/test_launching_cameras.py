"""cameras.launch.py, with one detector per camera or one for all."""

from contextlib import closing
from pathlib import Path
import runpy

from launch import LaunchContext
import pytest
from rcl_interfaces.srv import GetParameters

from support.ros_peer import Peer
from trt_ros.demo import MODEL
from trt_ros.errors import ParameterError

CHECKOUT = Path(__file__).parents[2]
FILE = CHECKOUT / 'launch/cameras.launch.py'


@pytest.fixture
def peer(monkeypatch, domain_id):
    monkeypatch.setenv('ROS_AUTOMATIC_DISCOVERY_RANGE', 'LOCALHOST')
    with closing(Peer(domain_id)) as peer:
        yield peer


@pytest.fixture
def start_cameras(start, tmp_path):
    """Launch the cameras of a file with this content."""

    def start_cameras(content, *arguments):
        cameras = tmp_path / 'cameras.yaml'
        cameras.write_text(content)
        return start(FILE.name, f'cameras:={cameras}', *arguments)

    return start_cameras


@pytest.mark.parametrize('one_node', ['true', 'false'])
def test_the_shipped_example_of_cameras_is_accepted(start_cameras, one_node):
    example = (CHECKOUT / 'config/cameras.example.yaml').read_text()
    launch = start_cameras(example, f'one_node:={one_node}', 'autostart:=false')
    launch.says('trt_ros::DetectorNode', 'trt_ros::ImageSourceNode')
    assert launch.stop() == 0


def test_each_camera_of_a_file_has_its_detector(start_cameras, picture):
    launch = start_cameras(
        f'parameters:\n  model_path: {MODEL}\n'
        'cameras:\n'
        '  front: {image: /front_camera}\n'
        f'  rear: {{source: {picture}, parameters: {{score_threshold: 0.5}}}}\n'
    )
    launch.says(
        '[front.detector]: activate: inactive -> active',
        '[rear.detector]: activate: inactive -> active',
        '[rear.image_source]: activate: inactive -> active',
    )
    assert launch.stop() == 0


def test_one_detector_of_all_cameras_has_the_topics_of_one_each(start_cameras, peer, picture):
    launch = start_cameras(
        f'parameters:\n  model_path: {MODEL}\n'
        f'cameras:\n  front: {{image: /front_camera}}\n  rear: {{source: {picture}}}\n',
        'one_node:=true',
        'backend:=onnxruntime',
    )
    launch.says(
        '[detector]: activate: inactive -> active',
        'the network accepts one image per run',
        '[rear.image_source]: activate: inactive -> active',
    )
    launch.waits_for(
        lambda: all(
            peer.node.count_publishers(f'/{name}/detector/detections') == 1
            and peer.node.count_subscribers(image) == 1
            for name, image in (('front', '/front_camera'), ('rear', '/rear/image'))
        )
    )
    assert launch.stop() == 0


THREE_CAMERAS = """
cameras:
  front: {image: /front_camera}
  rear: {image: /rear_camera}
  left: {image: /left_camera}
"""
OWN_DEVICES = THREE_CAMERAS.replace('/rear_camera', '/rear, parameters: {device: 7}').replace(
    '/left_camera', '/left, parameters: {device: auto}'
)


@pytest.mark.parametrize(
    ('content', 'one_node', 'expected'),
    [
        (THREE_CAMERAS, 'false', {'/front/detector': 2, '/rear/detector': 5, '/left/detector': 2}),
        (THREE_CAMERAS, 'true', {'/detector_2': 2, '/detector_5': 5}),
        (OWN_DEVICES, 'false', {'/front/detector': 2, '/rear/detector': 7, '/left/detector': -1}),
    ],
    ids=['one each', 'one per device', 'own devices'],
)
def test_cameras_without_a_device_take_those_given_in_turn(
    start_cameras, peer, content, one_node, expected
):
    arguments = f'one_node:={one_node}', 'devices:=[2, 5]', 'autostart:=false'
    launch = start_cameras(content, *arguments)
    for node, device in expected.items():
        given = peer.call(
            GetParameters, f'{node}/get_parameters', names=['device', 'image_topics']
        ).values
        assert given[0].integer_value == device
        if one_node == 'true':
            of_device = {2: ['front', 'left'], 5: ['rear']}[device]
            assert list(given[1].string_array_value) == of_device
    assert launch.stop() == 0


def test_a_file_that_cannot_be_read_fails_the_launch(start, tmp_path):
    launch = start(FILE.name, f'cameras:={tmp_path / "cameras.yaml"}')
    assert launch.ends() == 1
    assert 'cameras.yaml cannot be read.\nCause: [Errno 2] No such file' in launch.output


ONE_NODE = {'one_node': 'true'}


@pytest.mark.parametrize(
    ('content', 'arguments', 'message'),
    [
        (THREE_CAMERAS, {'devices': '0, 1'}, "devices is '0, 1'.\nCause: It must be a list"),
        (THREE_CAMERAS, {'devices': '[0, 0]'}, 'must be a list of different CUDA device indices'),
        (THREE_CAMERAS, {'devices': '[-1, 0]'}, 'must be a list of different CUDA device indices'),
        (THREE_CAMERAS, {'devices': '[0, 64]'}, 'device is 64'),
        (
            THREE_CAMERAS,
            {'devices': '[0, 1]', 'device': '1'},
            'device and devices are both given.',
        ),
        (
            'cameras: {front: {parameters: {score_threshold: 0.5}}}',
            ONE_NODE,
            'camera front has parameters, but one_node is true',
        ),
        (
            f'parameters: {{image_topics: [a]}}\n{THREE_CAMERAS}',
            ONE_NODE,
            'image_topics is set, but one_node is true.',
        ),
        (
            THREE_CAMERAS,
            {**ONE_NODE, 'image_topics': '[a]'},
            'image_topics is set, but one_node is true.',
        ),
        ('cameras: {', {}, 'cameras.yaml cannot be read.\nCause: while parsing'),
        ('', {}, 'lists no cameras'),
        ('- front', {}, "cameras.yaml is ['front']"),
        ('cameras: [front, rear]', {}, "cameras is ['front', 'rear']"),
        ('cameras: {front: /image}', {}, "camera front is '/image'"),
        ('cameras: {front: {topic: /image}}', {}, 'camera front has unknown keys: topic'),
        ('cameras: {front: {parameters: [scores]}}', {}, "camera front: parameters is ['scores']"),
        ('cameras: {front: {parameters: {scores: 1}}}', {}, "no parameter 'scores'"),
        (
            '{parameters: {autostart: false}, cameras: {front: }}',
            {},
            'cameras.yaml: parameters: autostart has no effect here.',
        ),
        (
            'cameras: {front: {parameters: {autostart: false}}}',
            {},
            'camera front: parameters: autostart has no effect here.',
        ),
        (
            '{parameter: {max_rate_hz: 5.0}, cameras: {front: }}',
            {},
            'cameras.yaml has unknown keys: parameter.',
        ),
        ('cameras: {0: {image: /a}}', {}, 'camera 0: name is 0, but must be text.'),
        ('cameras: {front left: {image: /a}}', {}, "front left has the topic '/front left'."),
        ('cameras: {front: {image: }}', {}, 'camera front: image is None, but must be text.'),
        (
            'cameras: {front: {image: my image}}',
            {},
            "has the topic '/front/my image'.\nCause: Inv",
        ),
        ('cameras: {front: {source: [a, b]}}', {}, "source is ['a', 'b'], but must be text."),
        ('cameras: {front: {image: /a}, /front: {image: /b}}', {}, 'has camera front twice.'),
    ],
)
def test_cameras_that_cannot_be_meant_are_refused(tmp_path, content, arguments, message):
    cameras, context, file = tmp_path / 'cameras.yaml', LaunchContext(), runpy.run_path(str(FILE))
    cameras.write_text(content)
    context.launch_configurations.update(cameras=str(cameras), **arguments)
    for argument in file['generate_launch_description']().get_launch_arguments():
        argument.execute(context)
    with pytest.raises(ParameterError) as refused:
        file['nodes'](context)
    assert message in str(refused.value)
