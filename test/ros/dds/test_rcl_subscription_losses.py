"""Messages that never arrive, counted by the gaps in their sequence numbers."""

from types import SimpleNamespace

import pytest
from rclpy.duration import Duration
from rclpy.qos import QoSProfile

from support.dds import HeldInbox
from support.waiting import DEADLINE_SECONDS
from trt_ros.ros.dds import transport
from trt_ros.ros.dds.rcl import Rcl
from trt_ros.ros.dds.rcl_subscription import RclSubscription
from trt_ros.ros.diagnostics import FrameCounts, RecentLoss


def test_lost_images_are_counted_by_sequence_numbers(here, elsewhere, subscribe, make_camera):
    if not transport.usable_rcl(here).counts_messages:
        pytest.skip('this middleware does not number messages')
    camera, inbox, missed = make_camera(elsewhere), HeldInbox(), []
    subscribe(here, inbox, QoSProfile(depth=2), on_missed=missed.append)
    camera.meets(1)
    assert missed == [0]
    camera.send()
    assert inbox.has_begun.wait(DEADLINE_SECONDS)
    for _ in range(9):  # The queue keeps two of them.
        camera.send()
    assert camera.publisher.wait_for_all_acked(Duration(seconds=DEADLINE_SECONDS))
    inbox.may_end.set()
    assert (inbox.wait(2), missed) == ([9, 10], [0, 7])


class Numbered:
    """An Rcl whose message infos are numbers: (publisher, number)."""

    def __init__(self, *, counts_messages):
        self.counts_messages = counts_messages

    gid_in = staticmethod(lambda info: info[0])
    number_in = staticmethod(lambda info: info[1])


@pytest.mark.parametrize('counts_messages', [True, False])
def test_gaps_are_counted_per_publisher_and_only_where_messages_are_numbered(counts_messages):
    missed = []
    subscription = object.__new__(RclSubscription)
    subscription._rcl = Numbered(counts_messages=counts_messages)
    subscription._last = {}
    subscription._on_missed = missed.append
    subscription._receive_buffers = SimpleNamespace()

    def arrives(publisher, number):
        subscription._receive_buffers.info = (publisher, number)
        return subscription._is_new_message()

    assert [arrives('a', 7), arrives('b', 1), arrives('a', 8), arrives('a', 11)] == [True] * 4
    assert [arrives('a', 11), arrives('b', 4)] == [not counts_messages, True]
    assert missed == ([2, 2] if counts_messages else [])
    for number in range(200):
        arrives(f'publisher {number}', 1)
    assert len(subscription._last) == (64 if counts_messages else 0)


def info_with(gid, source_timestamp, number):
    return (
        source_timestamp.to_bytes(8, 'little')
        + bytes(8)
        + number.to_bytes(8, 'little')
        + bytes(16)
        + gid
        + bytes(400)
    )


@pytest.mark.parametrize(
    ('stamps', 'numbers', 'counts'),
    [
        ([5, 6, 9], [1, 2, 3], True),
        ([5, 6, 9], [2**64 - 1] * 3, False),
        ([5, 5, 5], [0, 0, 0], False),
        ([0, 0, 0], [8, 9, 10], True),
    ],
)
def test_detects_message_info_of_the_middleware(stamps, numbers, counts):
    rcl, gid = object.__new__(Rcl), bytes(range(1, 17))
    infos = [info_with(gid, *each) for each in zip(stamps, numbers)]
    rcl.detect_info_layout(gid, infos)
    assert rcl.knows_gids
    assert rcl.counts_messages == counts
    assert [rcl.number_in(info) for info in infos] == numbers


def test_fraction_of_lost_images_is_reported():
    whole = FrameCounts()
    counts, loss = FrameCounts(whole), RecentLoss()
    assert loss.add(counts) == ''
    for _ in range(18):
        counts.receive()
    counts.miss(2)
    assert loss.add(counts) == ''  # So few may be chance.
    counts.miss(1)
    assert loss.add(counts) == '3 of 21 frames of the last 2 s were'
    assert whole.lost == counts.lost == 3
    for _ in range(100):
        counts.receive()
    assert loss.add(counts) == ''
