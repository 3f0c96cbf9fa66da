"""Subscriptions whose messages wait until they are polled."""

import threading

import pytest

from support.dds import QOS
from support.waiting import wait_until
from trt_ros.ros.dds.cdr import read_stamp


@pytest.mark.parametrize('is_by_reference', [True, False], ids=['by_reference', 'through_dds'])
def test_polled_messages_wait_for_the_caller(
    here, elsewhere, subscribe, make_camera, is_by_reference
):
    threads, numbers, replaced, policies = set(threading.enumerate()), [], [], []
    camera = make_camera(here if is_by_reference else elsewhere, QOS['reliable'])

    def take(message):
        assert threading.current_thread() is this
        numbers.append(read_stamp(message)[0])

    this = threading.current_thread()
    subscription = subscribe(
        here,
        take,
        QOS['reliable'],
        on_replaced=lambda: replaced.append(1),
        on_incompatible=policies.append,
        is_polled=True,
    )
    camera.meets(1)
    assert set(threading.enumerate()) == threads
    for _ in range(3):
        camera.send()
    wait_until(lambda: subscription.poll() or numbers[-1:] == [camera.sent], 'the newest')
    assert numbers == sorted(set(numbers))
    assert len(numbers) + len(replaced) == camera.sent
    make_camera(elsewhere, QOS['best_effort'])
    wait_until(lambda: subscription.poll() or policies == ['RELIABILITY'], 'the event')
    subscription.close()
    seen = len(numbers)
    subscription.poll()
    assert len(numbers) == seen
