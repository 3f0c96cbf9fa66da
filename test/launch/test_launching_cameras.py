"""cameras.launch.py, with one detector per camera or one for all."""

from __future__ import annotations

from pathlib import Path
import random

import pytest

# Not `launch`: where that is not installed, the checkout's folder of that name is imported.
pytest.importorskip('launch_ros')
pytest.importorskip('rclpy')
pytestmark = pytest.mark.ros


CHECKOUT = Path(__file__).parents[2]

MODEL = CHECKOUT / 'trt_ros' / 'demo' / 'shapes.onnx'


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
