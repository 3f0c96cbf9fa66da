"""Tensor nodes whose networks get transforms of tf2, by a stand-in of tf2_ros."""

import numpy as np
import pytest

pytest.importorskip('isaac_ros_tensor_list_interfaces')
pytest.importorskip('tf2_msgs')

from builtin_interfaces.msg import Time
from geometry_msgs.msg import Quaternion, Transform, TransformStamped
from isaac_ros_tensor_list_interfaces.msg import TensorList
from rclpy.qos import DurabilityPolicy, QoSProfile
from rosgraph_msgs.msg import Clock
from sensor_msgs.msg import Image
from tf2_msgs.msg import TFMessage

from support.ros_messages import (
    RED,
    as_image,
    at,
    diagnostics,
    follow_clock,
    read_tensors,
    stamped,
)

CAMERAS = ('front', 'left', 'right')
IMAGES = 'x=images:' + ','.join(f'tf_{camera}/image_raw' for camera in CAMERAS)


@pytest.fixture
def run(start_node, models, request, peer, publisher):
    """Start a node of three cameras; return it, its results and a function that sends images."""

    def run(name, binding, **parameters):
        node = start_node(
            name,
            request.path.parents[2] / 'support/nodes/fake_transforms.py',
            autostart=True,
            backend='onnxruntime',
            model_path=models['bev'],
            inputs=[IMAGES, binding],
            qos_reliability='reliable',
            **parameters,
        )
        node.wait_for_log('Started: active.')
        publishers = [publisher(Image, f'/tf_{camera}/image_raw') for camera in CAMERAS]

        def send(stamp):
            pixels = np.full((8, 8, 3), RED, np.uint8)
            for each in publishers:
                each.publish(stamped(as_image(pixels, 'rgb8'), stamp, 'camera'))

        return node, peer.inbox(TensorList, f'/{name}/tensors'), send

    return run


def numbers(message):
    return read_tensors(message)['means'][0][-4:]


def test_a_network_gets_transforms_at_the_stamp_of_its_images(run, peer):
    binding = 'k=tf:base_link,front,left#translation[x],rotation[w]?scale=10'
    node, results, send = run('surround', binding)
    assert 'input k: transforms, front, left to base_link, with scale' in node.log
    send(1)
    assert numbers(results.wait_for(at(1))) == [10, 5, 20, 5]
    send(99)
    node.wait_for_log('It would require extrapolation into the future.')
    diagnostics(peer, 'surround')(**{'dropped: no transform': '1'})
    send(100)
    assert numbers(results.wait_for(at(100))) == [10, 5, 20, 5]
    assert len(results.messages) == 2


def test_an_initial_value_stands_for_a_missing_transform(run):
    _, results, send = run('surround_initial', 'k=tf:base_link,front#rotation?initial=7')
    for stamp, want in ((99, [7, 7, 7, 7]), (100, [-0.5, 0.5, -0.5, 0.5])):
        send(stamp)
        assert numbers(results.wait_for(at(stamp))) == want


def test_transforms_from_before_a_jump_back_are_forgotten(run, peer, publisher):
    _, results, send = run('surround_again', 'k=tf:odom,front#rotation', use_sim_time=True)
    clock, moving = publisher(Clock, '/clock'), publisher(TFMessage, '/tf')
    latched = QoSProfile(depth=1, durability=DurabilityPolicy.TRANSIENT_LOCAL)

    def place(publisher, parent, child, **rotation):
        placed = TransformStamped(child_frame_id=child, transform=Transform(**rotation))
        publisher.publish(TFMessage(transforms=[stamped(placed, 2, parent)]))

    def show(seconds):
        follow_clock(peer, lambda: clock.publish(Clock(clock=Time(sec=seconds))), seconds)

    place(peer.publisher(TFMessage, '/tf_static', latched), 'base', 'front')
    show(5)
    place(moving, 'odom', 'base')
    send(2)
    assert numbers(results.wait_for(at(2))) == [0, 0, 0, 1]
    results.messages.clear()
    show(1)
    send(2)
    diagnostics(peer, 'surround_again')(**{'frames received': '2'})
    place(moving, 'odom', 'base', rotation=Quaternion(x=1.0, w=0.0))
    assert numbers(results.wait_for(at(2))) == [1, 0, 0, 0]
