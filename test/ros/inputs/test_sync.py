"""Inputs that meet by stamp, and what is said of those that do not."""

import itertools

import numpy as np
import pytest

pytest.importorskip('isaac_ros_tensor_list_interfaces')

from diagnostic_msgs.msg import DiagnosticArray, DiagnosticStatus
from isaac_ros_tensor_list_interfaces.msg import TensorList
from sensor_msgs.msg import Image

from support.backends import ON_CPU
from support.ros_messages import BLACK, GREEN, RED, at, diagnostics, read_tensors, stamped


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
def test_a_bad_image_drops_its_set_and_the_next_set_is_run(
    start, peer, publisher, picture_of, as_image
):
    node = start('tensor', 'spoiled', 'stereo', inputs=['left=image:l', 'right=image:r'])
    left, right = publisher(Image, '/l'), publisher(Image, '/r')
    results = peer.inbox(TensorList, '/spoiled/tensors')
    bad = picture_of(RED, 1)
    bad.encoding = 'unheard'
    left.publish(picture_of(RED, 1))
    right.publish(bad)
    node.wait_for_log('A frame of /r was dropped (unknown encoding).')
    left.publish(picture_of(RED, 1.5))
    right.publish(stamped(as_image(np.ones((24, 24), np.uint16), '16UC1'), 1.5))
    node.wait_for_log('A frame of /l and of /r was dropped (depth image).')
    left.publish(picture_of(RED, 2))
    right.publish(picture_of(RED, 2))
    assert read_tensors(results.wait_for(at(2))) == {'difference': [pytest.approx([0, 0, 0])]}
    diagnostics(peer, 'spoiled')(
        **{
            'l: dropped: unknown encoding': '1',
            'r: dropped: unknown encoding': '1',
            'frames published': '1',
        }
    )


@ON_CPU
def test_images_of_close_stamps_meet(start, peer, publisher, picture_of):
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


def stale_status(inbox, name):
    """Return a status of a node that is STALE; None if there is none."""
    return next(
        (
            status
            for message in inbox.messages
            for status in message.status
            if (status.name, status.level) == (f'{name}: image', DiagnosticStatus.STALE)
        ),
        None,
    )


@ON_CPU
def test_without_partners_the_diagnostics_say_so(start, peer, publisher, picture_of):
    node = start(
        'tensor', 'alone', 'stereo', inputs=['left=image:lone/left', 'right=image:lone/right']
    )
    left, right = publisher(Image, '/lone/left'), publisher(Image, '/lone/right')
    inbox = peer.inbox(DiagnosticArray, '/diagnostics')
    stamps = itertools.count()

    def is_stale():
        stamp = next(stamps)
        left.publish(picture_of(RED, stamp))
        right.publish(picture_of(RED, stamp + 0.5))
        return stale_status(inbox, 'alone')

    status = peer.wait_until(is_stale, 'a stale status')
    node.wait_for_log('No messages of /lone/left and /lone/right have met. Cause: their stamps')
    assert 'images arrive, but no result for' in status.message
    assert '(messages without partner: /lone/left ' in status.message
    assert '; set approximate_sync to true)' in status.message


@ON_CPU
def test_a_clock_that_stands_still_is_named(start, peer, publisher, picture_of):
    start(
        'tensor',
        'frozen',
        'stereo',
        inputs=['left=image:cold/left', 'right=image:cold/right'],
        rate_hz=10.0,
        use_sim_time=True,
    )
    sides = [publisher(Image, f'/cold/{side}') for side in ('left', 'right')]
    inbox = peer.inbox(DiagnosticArray, '/diagnostics')
    stamps = itertools.count()

    def is_stale():
        stamp = next(stamps)
        for side in sides:
            side.publish(picture_of(RED, stamp))
        return stale_status(inbox, 'frozen')

    message = peer.wait_until(is_stale, 'a stale status').message
    assert message.startswith('images arrive, but no result for ')
    assert '(the time of /clock is 0.000 s; samples are taken while it advances: ' in message


@ON_CPU
def test_a_silent_topic_is_named(start, peer, publisher, picture_of):
    start(
        'tensor',
        'half',
        'policy',
        inputs=['left=image:one', 'right=image:two', 'joints=tensor:three'],
    )
    one, two = publisher(Image, '/one'), publisher(Image, '/two')
    inbox = peer.inbox(DiagnosticArray, '/diagnostics')

    stamps = itertools.count()

    def is_stale():
        stamp = next(stamps)
        one.publish(picture_of(RED, stamp))
        two.publish(picture_of(RED, stamp))
        return stale_status(inbox, 'half')

    message = peer.wait_until(is_stale, 'a stale status').message
    assert message.startswith('no message for ')
    assert message.endswith(' s on /three: no publisher')


@ON_CPU
def test_a_silent_topic_is_named_although_others_have_errors(start, peer, publisher, picture_of):
    start(
        'tensor',
        'masked',
        'policy',
        inputs=['left=image:first', 'right=image:second', 'joints=tensor:torques'],
    )
    one, two = publisher(Image, '/first'), publisher(Image, '/second')
    publisher(TensorList, '/torques')
    inbox = peer.inbox(DiagnosticArray, '/diagnostics')

    def is_stale():
        for each in (one, two):
            each.publish(picture_of(RED, 1))  # After the first: duplicate stamp.
        return stale_status(inbox, 'masked')

    message = peer.wait_until(is_stale, 'a stale status').message
    assert message.startswith('no message for ')
    assert message.endswith(' s on /torques: 1 publisher, no messages')
