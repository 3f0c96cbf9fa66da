"""Inputs that meet by stamp, and what is said of those that do not."""

import itertools

import numpy as np
import pytest

pytest.importorskip('isaac_ros_tensor_list_interfaces')

from diagnostic_msgs.msg import DiagnosticArray, DiagnosticStatus
from isaac_ros_tensor_list_interfaces.msg import TensorList
from sensor_msgs.msg import Image

from support.backends import ON_CPU
from support.ros_messages import (
    BLACK,
    GREEN,
    RED,
    as_image,
    at,
    diagnostics,
    read_tensors,
    stamped,
)


def test_two_images_of_one_stamp_meet(start, peer, publisher, picture_of):
    node = start(
        'tensor', 'stereo', 'stereo', inputs=['left=image:cam/left', 'right=image:cam/right']
    )
    assert 'input left: image on /cam/left' in node.log
    assert 'synchronization: equal stamps' in node.log
    left, right = publisher(Image, '/cam/left'), publisher(Image, '/cam/right')
    results = peer.inbox(TensorList, '/stereo/tensors')
    for stamp in (1, 2, 3):
        left.publish(picture_of(RED, stamp, 'left'))
    right.publish(picture_of(GREEN, 2, 'right'))
    found = results.wait_for(at(2))
    assert found.header.frame_id == 'left'
    assert read_tensors(found) == {'difference': [pytest.approx([1, -1, 0])]}
    right.publish(picture_of(BLACK, 3, 'right'))
    assert read_tensors(results.wait_for(at(3))) == {'difference': [pytest.approx([1, 0, 0])]}
    status = diagnostics(peer, 'stereo')
    status(
        **{
            'frames received': '3',
            'frames published': '2',
            'dropped: no partner': '1',
            'cam/left: dropped: no partner': '1',
            'cam/right: frames received': '2',
            'cam/right: frames published': '2',
            'cam/right: frames dropped': '0',
        }
    )
    right.publish(picture_of(BLACK, 3, 'right'))
    node.wait_for_log('Messages of /cam/right are dropped: duplicate stamp. Remedy: publish each')
    assert len(results.messages) == 2


@ON_CPU
def test_images_of_close_stamps_meet_and_a_bad_one_drops_its_set_alone(
    start, peer, publisher, picture_of
):
    node = start(
        'tensor',
        'close',
        'stereo',
        inputs=['left=image:near/left', 'right=image:near/right'],
        approximate_sync=True,
        approximate_sync_tolerance_seconds=0.01,
    )
    assert 'synchronization: stamps at most 0.01 s apart' in node.log
    left, right = publisher(Image, '/near/left'), publisher(Image, '/near/right')
    results = peer.inbox(TensorList, '/close/tensors')
    right.publish(picture_of(BLACK, 1.05))
    left.publish(picture_of(RED, 1.0))
    right.publish(picture_of(GREEN, 1.009))
    assert read_tensors(results.wait_for(at(1.0))) == {'difference': [pytest.approx([1, -1, 0])]}
    left.publish(picture_of(RED, 1.045))
    assert read_tensors(results.wait_for(at(1.045))) == {'difference': [pytest.approx([1, 0, 0])]}
    bad = picture_of(RED, 2)
    bad.encoding = 'unheard'
    left.publish(picture_of(RED, 2))
    right.publish(bad)
    node.wait_for_log('A frame of /near/right was dropped (unknown encoding).')
    left.publish(picture_of(RED, 2.5))
    right.publish(stamped(as_image(np.ones((24, 24), np.uint16), '16UC1'), 2.5))
    node.wait_for_log('A frame of /near/left and of /near/right was dropped (depth image).')
    left.publish(picture_of(RED, 3))
    right.publish(picture_of(RED, 3))
    assert read_tensors(results.wait_for(at(3))) == {'difference': [pytest.approx([0, 0, 0])]}
    diagnostics(peer, 'close')(
        **{
            'near/left: dropped: unknown encoding': '1',
            'near/right: dropped: unknown encoding': '1',
            'frames published': '3',
        }
    )


@pytest.fixture
def stale(peer, picture_of):
    """Publish images of ascending stamps on topics until a node is stale; return its message."""
    stamps = itertools.count()

    def stale(name, *publishers, apart=0.0, stamps=stamps):
        inbox = peer.inbox(DiagnosticArray, '/diagnostics')

        def is_stale():
            stamp = next(stamps)
            for index, each in enumerate(publishers):
                each.publish(picture_of(RED, stamp + apart * index))
            found = [message.status[0] for message in inbox.messages]
            return [
                each.message
                for each in found
                if (each.name, each.level) == (f'{name}: image', DiagnosticStatus.STALE)
            ]

        return peer.wait_until(is_stale, 'a stale status', pause=0.1)[-1]

    return stale


@ON_CPU
def test_without_partners_the_diagnostics_say_so(start, publisher, stale):
    inputs = ['left=image:lone/left', 'right=image:lone/right']
    node = start('tensor', 'alone', 'stereo', inputs=inputs)
    sides = [publisher(Image, f'/lone/{side}') for side in ('left', 'right')]
    message = stale('alone', *sides, apart=0.5)
    node.wait_for_log('No messages of /lone/left and /lone/right have met. Cause: their stamps')
    assert 'images arrive, but no result for' in message
    assert '(messages without partner: /lone/left ' in message
    assert '; set approximate_sync to true)' in message


@ON_CPU
def test_a_clock_that_stands_still_is_named(start, publisher, stale):
    inputs = ['left=image:cold/left', 'right=image:cold/right']
    start('tensor', 'frozen', 'stereo', inputs=inputs, rate_hz=10.0, use_sim_time=True)
    message = stale('frozen', *(publisher(Image, f'/cold/{side}') for side in ('left', 'right')))
    assert message.startswith('images arrive, but no result for ')
    assert '(the time of /clock is 0.000 s; samples are taken while it advances: ' in message


@ON_CPU
def test_a_silent_topic_is_named_although_others_have_errors(start, peer, publisher, stale):
    inputs = ['left=image:one', 'right=image:two', 'joints=tensor:three']
    start('tensor', 'half', 'policy', inputs=inputs)
    images = [publisher(Image, topic) for topic in ('/one', '/two')]
    message = stale('half', *images)
    assert message.startswith('no message for ')
    assert message.endswith(' s on /three: no publisher')
    publisher(TensorList, '/three')
    ending = ' s on /three: 1 publisher, no messages'
    # After the first: duplicate stamp.
    peer.wait_until(
        lambda: stale('half', *images, stamps=itertools.repeat(10**6)).endswith(ending), ending
    )
