"""Subscriptions whose messages wait until they are polled."""

import threading

import pytest
from sensor_msgs.msg import Image

from support.dds import QOS, Camera
from support.waiting import wait_until
from trt_ros.ros.dds import intra_process as intra
from trt_ros.ros.dds import transport
from trt_ros.ros.dds.cdr import read_stamp
from trt_ros.ros.dds.rcl_subscription import MessageCallbacks


@pytest.mark.parametrize('where', [0, 1], ids=['by_reference', 'through_dds'])
def test_polled_messages_wait_for_the_caller(nodes, where):
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
        nodes[0], Image, 'images', QOS['reliable'], callbacks
    )
    try:
        camera.meets(1)
        assert set(threading.enumerate()) == threads
        for _ in range(3):
            camera.send()
        assert numbers == sorted(set(numbers))
        wait_until(lambda: subscription.poll() or numbers[-1:] == [camera.sent], 'the newest')
        assert len(numbers) + counts['replaced'] == camera.sent
        assert counts['threads'] == {threading.current_thread()}
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
