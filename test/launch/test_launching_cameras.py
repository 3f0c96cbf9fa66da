"""cameras.launch.py, with one detector per camera or one for all."""

from __future__ import annotations

from contextlib import closing
from pathlib import Path

import pytest

# Not `launch`: where that is not installed, the checkout's folder of that name is imported.
pytest.importorskip('launch_ros')
from demo.domain import reserved_domain
from rcl_interfaces.srv import GetParameters

from support.ros_peer import Peer
from trt_ros.demo import MODEL

CHECKOUT = Path(__file__).parents[2]


@pytest.fixture
def peer(monkeypatch):
    monkeypatch.setenv('ROS_AUTOMATIC_DISCOVERY_RANGE', 'LOCALHOST')
    with reserved_domain() as domain_id, closing(Peer(domain_id)) as peer:
        yield peer


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


def test_one_detector_of_all_cameras_has_the_topics_of_one_each(start, peer, picture, tmp_path):
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
        ROS_DOMAIN_ID=str(peer.node.context.get_domain_id()),
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


@pytest.mark.parametrize(
    ('one_node', 'expected'),
    [
        ('false', {'/front/detector': 2, '/rear/detector': 5, '/left/detector': 2}),
        ('true', {'/detector_2': 2, '/detector_5': 5}),
    ],
)
def test_cameras_take_devices_in_turn(start, peer, tmp_path, one_node, expected):
    cameras = tmp_path / 'cameras.yaml'
    cameras.write_text(THREE_CAMERAS)
    launch = start(
        'cameras.launch.py',
        f'cameras:={cameras}',
        f'one_node:={one_node}',
        'devices:=[2, 5]',
        'autostart:=false',
        ROS_DOMAIN_ID=str(peer.node.context.get_domain_id()),
    )
    for node, device in expected.items():
        given = peer.call(
            GetParameters, f'{node}/get_parameters', names=['device', 'image_topics']
        ).values
        assert given[0].integer_value == device
        if one_node == 'true':
            of_device = {2: ['front', 'left'], 5: ['rear']}[device]
            assert list(given[1].string_array_value) == of_device
    assert launch.stop() == 0


def test_a_camera_keeps_the_device_of_its_parameters(start, peer, tmp_path):
    cameras = tmp_path / 'cameras.yaml'
    own = THREE_CAMERAS.replace('/rear_camera', '/rear, parameters: {device: 7}')
    own = own.replace('/left_camera', '/left, parameters: {device: auto}')
    cameras.write_text(own)
    launch = start(
        'cameras.launch.py',
        f'cameras:={cameras}',
        'devices:=[2, 5]',
        'autostart:=false',
        ROS_DOMAIN_ID=str(peer.node.context.get_domain_id()),
    )
    for camera, device in (('rear', 7), ('left', -1)):
        service = f'/{camera}/detector/get_parameters'
        given = peer.call(GetParameters, service, names=['device']).values
        assert given[0].integer_value == device
    assert launch.stop() == 0


@pytest.mark.parametrize(
    ('arguments', 'message'),
    [
        (['devices:=0, 1'], "devices is '0, 1'.\nCause: It must be a list"),
        (['devices:=[0, 0]'], 'must be a list of different CUDA device indices'),
        (['devices:=[-1, 0]'], 'must be a list of different CUDA device indices'),
        (['devices:=[0, 64]'], 'device is 64'),
        (['devices:=[0, 1]', 'device:=1'], 'device and devices are both given.'),
    ],
)
def test_devices_that_cannot_be_meant_are_refused(start, tmp_path, arguments, message):
    cameras = tmp_path / 'cameras.yaml'
    cameras.write_text(THREE_CAMERAS)
    launch = start('cameras.launch.py', f'cameras:={cameras}', *arguments)
    assert launch.ends() == 1
    assert message in launch.output


def test_one_detector_refuses_cameras_with_their_own_parameters(start, tmp_path):
    cameras = tmp_path / 'cameras.yaml'
    cameras.write_text('cameras: {front: {parameters: {score_threshold: 0.5}}}')
    launch = start('cameras.launch.py', f'cameras:={cameras}', 'one_node:=true')
    assert launch.ends() == 1
    assert 'camera front has parameters, but one_node is true' in launch.output


@pytest.mark.parametrize(
    ('parameters', 'arguments'), [('{image_topics: [a]}', []), ('{}', ['image_topics:=[a]'])]
)
def test_one_detector_refuses_other_image_topics(start, tmp_path, parameters, arguments):
    cameras = tmp_path / 'cameras.yaml'
    cameras.write_text(f'parameters: {parameters}\n{THREE_CAMERAS}')
    launch = start('cameras.launch.py', f'cameras:={cameras}', 'one_node:=true', *arguments)
    assert launch.ends() == 1
    assert 'image_topics is set, but one_node is true.' in launch.output


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
            '{parameters: {autostart: false}, cameras: {front: }}',
            'cameras.yaml: parameters: autostart has no effect here.',
        ),
        (
            'cameras: {front: {parameters: {autostart: false}}}',
            'camera front: parameters: autostart has no effect here.',
        ),
        (
            '{parameter: {max_rate_hz: 5.0}, cameras: {front: }}',
            'cameras.yaml has unknown keys: parameter.',
        ),
        ('cameras: {0: {image: /a}}', 'camera 0: name is 0, but must be text.'),
        ('cameras: {front left: {image: /a}}', "front left has the topic '/front left'."),
        ('cameras: {front: {image: }}', 'camera front: image is None, but must be text.'),
        ('cameras: {front: {image: my image}}', "has the topic '/front/my image'.\nCause: Inv"),
        ('cameras: {front: {source: [a, b]}}', "source is ['a', 'b'], but must be text."),
        ('cameras: {front: {image: /a}, /front: {image: /b}}', 'has camera front twice.'),
    ],
)
def test_invalid_cameras_file_fails_launch(start, tmp_path, content, message):
    cameras = tmp_path / 'cameras.yaml'
    if content is not None:
        cameras.write_text(content)
    launch = start('cameras.launch.py', f'cameras:={cameras}')
    assert launch.ends() == 1
    assert message in launch.output
