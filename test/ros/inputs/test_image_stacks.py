"""Images of several topics, stacked into one network input."""

import numpy as np
import pytest

pytest.importorskip('isaac_ros_tensor_list_interfaces')

from isaac_ros_tensor_list_interfaces.msg import TensorList
from sensor_msgs.msg import Image

from support.backends import ON_CPU
from support.ros_messages import GREEN, RED, as_image, at, diagnostics, read_tensors, stamped

CAMERAS = ('front', 'left', 'right')
BLUE = (0, 0, 255)
SHAPES = {'front': (48, 64), 'left': (30, 20), 'right': (7, 90)}


@pytest.fixture
def start_bev(start, peer, publisher):
    """
    Start a node of three cameras and a calibration.

    Return it, its results, and a function that publishes an image of one color; each camera has
    a size of its own.
    """

    def start_bev(name, calibration='k=constant:1,2,3,4', **parameters):
        topics = ','.join(f'{camera}/image_raw' for camera in CAMERAS)
        inputs = [f'x=images:{topics}?resize=stretch', calibration]
        node = start('tensor', name, 'bev', inputs=inputs, **parameters)
        publishers = {camera: publisher(Image, f'/{camera}/image_raw') for camera in CAMERAS}

        def publish(camera, color, stamp, encoding='rgb8', dtype=np.uint8):
            channels = () if np.isscalar(color) else (len(color),)
            pixels = np.full((*SHAPES[camera], *channels), color, dtype)
            publishers[camera].publish(stamped(as_image(pixels, encoding), stamp, camera))

        return node, peer.inbox(TensorList, f'/{name}/tensors'), publish

    return start_bev


def means(message):
    return read_tensors(message)['means'][0]


def test_images_of_three_cameras_meet_by_stamp(start_bev, peer):
    node, results, publish = start_bev('bev')
    topics = ', '.join(f'/{camera}/image_raw' for camera in CAMERAS)
    assert f'input x: images on {topics}\n' in node.log
    assert 'x: 3 images, input 16x16' in node.log
    for stamp in (1, 2):
        publish('front', RED, stamp)
        publish('left', GREEN, stamp)
    publish('right', BLUE, 2)
    found = results.wait_for(at(2))
    assert found.header.frame_id == 'front'
    assert means(found) == pytest.approx([1, 0, 0, 0, 1, 0, 0, 0, 1, 1, 2, 3, 4])
    diagnostics(peer, 'bev')(
        **{
            'frames received': '2',
            'frames published': '1',
            'front/image_raw: dropped: no partner': '1',
            'left/image_raw: dropped: no partner': '1',
            'right/image_raw: frames dropped': '0',
        }
    )
    assert len(results.messages) == 1


@ON_CPU
def test_encodings_of_a_stack_differ_and_bad_images_drop_their_set(start_bev, peer):
    node, results, publish = start_bev('mixed')
    publish('front', RED, 1)
    publish('left', GREEN, 1, 'unheard')
    publish('right', RED, 1)
    node.wait_for_log('A frame of /left/image_raw was dropped (unknown encoding).')
    publish('front', RED, 2)
    publish('left', 9, 2, '16UC1', np.uint16)
    publish('right', RED, 2)
    node.wait_for_log('of /right/image_raw was dropped (depth image).')
    publish('front', RED, 3)
    publish('left', 255, 3, 'mono8')
    publish('right', (*BLUE, 0), 3, 'bgra8')
    found = results.wait_for()
    assert at(3)(found)
    assert means(found)[:9] == pytest.approx([1, 0, 0, 1, 1, 1, 1, 0, 0])
    diagnostics(peer, 'mixed')(
        **{
            'left/image_raw: dropped: unknown encoding': '1',
            **{f'{camera}/image_raw: dropped: depth image': '1' for camera in CAMERAS},
            'frames published': '1',
        }
    )


@ON_CPU
def test_held_images_start_no_run_and_stay(start, peer, publisher, picture_of):
    inputs = ['x=images:goal/first,goal/second?held=true', 'main=image:goal/live']
    node = start('tensor', 'goals', 'context', inputs=inputs)
    assert 'input x: images on /goal/first, /goal/second, held' in node.log
    live, first, second = (
        publisher(Image, f'/goal/{name}') for name in ('live', 'first', 'second')
    )
    results = peer.inbox(TensorList, '/goals/tensors')
    received = diagnostics(peer, 'goals')
    live.publish(picture_of(RED, 1))
    node.wait_for_log('There is no message on /goal/first yet, which inputs holds')
    first.publish(picture_of(RED, 0.25))
    second.publish(picture_of(GREEN, 0.5))
    received(**{f'goal/{name}: frames received': '1' for name in ('first', 'second')})
    for stamp in (2, 3):
        live.publish(picture_of(RED, stamp))
        found = read_tensors(results.wait_for(at(stamp)))['differences']
        assert np.reshape(found, (2, 3)).tolist() == [[0, 0, 0], [1, -1, 0]]
    second.publish(picture_of(BLUE, 0.75))
    received(**{'goal/second: frames received': '2'})
    live.publish(picture_of(RED, 4))
    found = read_tensors(results.wait_for(at(4)))['differences']
    assert np.reshape(found, (2, 3)).tolist() == [[0, 0, 0], [1, 0, -1]]
