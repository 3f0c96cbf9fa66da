"""Subscriptions whose QoS changes while messages arrive."""

import gc
from pathlib import Path
import threading

import pytest
from sensor_msgs.msg import Image

from support.dds import QOS, Camera
from support.waiting import wait_until
from trt_ros.ros.dds import intra_process as intra
from trt_ros.ros.dds import transport
from trt_ros.ros.dds.cdr import read_stamp
from trt_ros.ros.dds.rcl_subscription import MessageCallbacks


class Taken:
    """The numbers of the images that a subscription handed over, and what it missed."""

    def __init__(self, node, reliability, **options):
        self.numbers, self.missed = [], []
        self.subscription = transport.subscribe_serialized(
            node,
            Image,
            'images',
            QOS[reliability],
            MessageCallbacks(
                lambda message: self.numbers.append(read_stamp(message)[0]),
                on_missed=self.missed.append,
                on_incompatible=lambda policy: None,
                **options,
            ),
        )


@pytest.mark.parametrize('where', [0, 1], ids=['by_reference', 'through_dds'])
@pytest.mark.parametrize(
    ('before', 'after'), [('best_effort', 'reliable'), ('reliable', 'best_effort')]
)
def test_no_image_is_lost_or_comes_twice_while_the_qos_changes(nodes, where, before, after):
    camera = Camera(nodes[where], QOS['reliable'])
    taken = Taken(nodes[0], before)
    try:
        camera.meets(1)
        ending, threads = threading.Event(), set(threading.enumerate())

        def send():
            while not ending.wait(0.002):
                camera.send()

        sending = threading.Thread(target=send)
        sending.start()
        try:
            for change in (after, before, after):
                seen = len(taken.numbers)
                wait_until(lambda seen=seen: len(taken.numbers) > seen + 5, 'images')
                taken.subscription.change_qos(QOS[change])
                wait_until(taken.subscription.is_settled, 'the change')
        finally:
            ending.set()
            sending.join()
        wait_until(lambda: taken.numbers[-1:] == [camera.sent], 'the last image')
        first = taken.numbers[0]
        assert taken.numbers == list(range(first, camera.sent + 1))
        assert sum(taken.missed) == 0
        camera.meets(1)
        assert set(threading.enumerate()) == threads
    finally:
        taken.subscription.close()
        camera.close()
    assert intra.count_buffers() == 0


def test_late_publisher_is_received_by_reference_after_qos_change(nodes):
    taken = Taken(nodes[0], 'reliable')
    weak = Camera(nodes[0], QOS['best_effort'])
    try:
        weak.send()
        taken.subscription.change_qos(QOS['best_effort'])
        wait_until(lambda: weak.send() or taken.numbers, 'an image')
        wait_until(taken.subscription.is_settled, 'the change')
        assert taken.numbers == sorted(set(taken.numbers))
    finally:
        taken.subscription.close()
        weak.close()


def test_many_qos_changes_leak_nothing(nodes):
    camera = Camera(nodes[1], QOS['reliable'])
    taken = Taken(nodes[0], 'best_effort')

    def mappings():
        gc.collect()
        return len(Path('/proc/self/maps').read_text().splitlines())

    counts = []
    try:
        camera.meets(1)
        for number in range(12):
            taken.subscription.change_qos(QOS['best_effort' if number % 2 else 'reliable'])
            wait_until(lambda: camera.send() or taken.subscription.is_settled(), 'the change')
            camera.meets(1)
            counts.append(mappings())
            assert len(list(nodes[0].subscriptions)) == 1
    finally:
        taken.subscription.close()
        camera.close()
    assert max(counts[6:]) <= max(counts[:6]) + 2
    assert not list(nodes[0].subscriptions)


@pytest.mark.parametrize('where', [0, 1], ids=['by_reference', 'through_dds'])
def test_polled_messages_wait_for_the_caller_through_changes_of_qos(nodes, where):
    threads, counts = set(threading.enumerate()), {'replaced': 0, 'threads': set()}
    camera = Camera(nodes[where], QOS['reliable'])
    policies = []

    def take(message):
        counts['threads'].add(threading.current_thread())
        numbers.append(read_stamp(message)[0])

    def replaced():
        counts['replaced'] += 1

    numbers = []
    callbacks = MessageCallbacks(take, replaced, on_incompatible=policies.append, is_polled=True)
    subscription = transport.subscribe_serialized(
        nodes[0], Image, 'images', QOS['best_effort'], callbacks
    )
    try:
        camera.meets(1)
        assert set(threading.enumerate()) == threads
        for each in ('reliable', 'best_effort'):
            for _ in range(3):
                camera.send()
            assert numbers == sorted(set(numbers))
            wait_until(lambda: subscription.poll() or numbers[-1:] == [camera.sent], 'the newest')
            assert len(numbers) + counts['replaced'] == camera.sent
            subscription.change_qos(QOS[each])
            wait_until(lambda: subscription.poll() or subscription.is_settled(), 'the change')
        assert counts['threads'] == {threading.current_thread()}
        subscription.change_qos(QOS['reliable'])
        weak = Camera(nodes[1], QOS['best_effort'])
        try:
            wait_until(lambda: subscription.poll() or policies == ['RELIABILITY'], 'the event')
        finally:
            weak.close()
    finally:
        subscription.close()
        camera.close()
    seen = len(numbers)
    subscription.poll()
    assert len(numbers) == seen
    assert intra.count_buffers() == 0
