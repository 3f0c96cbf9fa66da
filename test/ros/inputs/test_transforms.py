"""Tensor nodes whose networks get transforms of tf2."""

import numpy as np
import pytest

pytest.importorskip('isaac_ros_tensor_list_interfaces')
pytest.importorskip('tf2_msgs')

from builtin_interfaces.msg import Time
from isaac_ros_tensor_list_interfaces.msg import TensorList
from rosgraph_msgs.msg import Clock
from sensor_msgs.msg import Image
from tf2_msgs.msg import TFMessage

from support.ros_messages import (
    LATCHED,
    MISSING_SECOND,
    RED,
    TO_FORWARD,
    as_image,
    at,
    diagnostics,
    follow_clock,
    read_tensors,
    stamped,
    transform,
)

CAMERAS = ('front', 'left', 'right')
IMAGES = 'x=images:' + ','.join(f'tf_{camera}/image_raw' for camera in CAMERAS)


@pytest.fixture
def run(start_node, models, request, peer, publisher):
    """Start a node of three cameras; return it, its results and a function that sends images."""

    def run(name, binding, **parameters):
        node = start_node(
            name,
            request.path.parents[2] / 'support/nodes/patient_transforms.py',
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


@pytest.fixture
def place(publisher):
    """Return a function that publishes the transform of a moving frame."""
    moving = []

    def place(*names, **values):
        moving[:] = moving or [publisher(TFMessage, '/tf')]
        moving[0].publish(TFMessage(transforms=[transform(*names, **values)]))

    return place


def test_a_network_gets_transforms_at_the_stamp_of_its_images(run, peer, place):
    binding = 'k=tf:base_link,front,left#translation[x],rotation[w]?scale=10'
    node, results, send = run('surround', binding)
    assert 'input k: transforms, front, left to base_link, with scale' in node.log

    def get(stamp, want):
        for x, camera in ((1, 'front'), (2, 'left')):
            place('base_link', camera, stamp=stamp, place=(x * stamp, 0, 0), turn=TO_FORWARD)
        send(stamp)
        assert numbers(results.wait_for(at(stamp))) == pytest.approx(want)

    get(1, [10, 5, 20, 5])
    send(MISSING_SECOND)
    node.wait_for_log("No transform from 'front' to 'base_link' at the time of the message.")
    diagnostics(peer, 'surround')(**{'dropped: no transform': '1'})
    get(4, [40, 5, 80, 5])
    assert len(results.messages) == 2


def test_an_initial_value_stands_for_a_missing_transform(run, place):
    _, results, send = run('surround_initial', 'k=tf:base_link,front#rotation?initial=7')
    send(MISSING_SECOND)
    assert numbers(results.wait_for(at(MISSING_SECOND))) == [7, 7, 7, 7]
    place('base_link', 'front', stamp=4, turn=TO_FORWARD)
    send(4)
    assert numbers(results.wait_for(at(4))) == pytest.approx(TO_FORWARD)


def test_transforms_from_before_a_jump_back_are_forgotten(run, peer, publisher, place):
    _, results, send = run('surround_again', 'k=tf:odom,front#rotation', use_sim_time=True)
    clock = publisher(Clock, '/clock')
    static = peer.publisher(TFMessage, '/tf_static', LATCHED)
    static.publish(TFMessage(transforms=[transform('base', 'front')]))

    def show(seconds):
        follow_clock(peer, lambda: clock.publish(Clock(clock=Time(sec=seconds))), seconds)

    show(5)
    place('odom', 'base', stamp=2)
    send(2)
    assert numbers(results.wait_for(at(2))) == pytest.approx([0, 0, 0, 1])
    results.messages.clear()
    show(1)
    send(2)
    diagnostics(peer, 'surround_again')(**{'frames received': '2'})
    place('odom', 'base', stamp=2, turn=(0.6, 0, 0, 0.8))
    assert numbers(results.wait_for(at(2))) == pytest.approx([0.6, 0, 0, 0.8])
