"""Lifetime of intra-process buffers and their memory, and the fallbacks without them."""

import gc
import threading

import numpy as np
from rclpy.executors import SingleThreadedExecutor

from support.dds import Camera, CountingRcl, Inbox, number_of
from support.waiting import DEADLINE_SECONDS, wait_until
from trt_ros.ros.dds import intra_process as intra
from trt_ros.ros.dds import transport
from trt_ros.ros.dds.memory import MemoryLoan, Pool, read_only


def test_changing_publishers_and_subscribers_leak_nothing(here, elsewhere, subscribe):
    """While they do, messages flow; none comes twice, and none that was not sent."""
    ending = threading.Event()

    def publish_on():
        number = 0
        while not ending.is_set():
            camera = Camera(here)
            for _ in range(20):
                number += 1
                camera.send(number % 250, 2000 + number)
            camera.close()

    def loans():
        gc.collect()
        return sum(isinstance(each, MemoryLoan) for each in gc.get_objects())

    there = subscribe(elsewhere, Inbox(number_of))
    before = set(threading.enumerate())
    publishing = threading.Thread(target=publish_on)
    publishing.start()
    try:
        for _ in range(15):
            near = Inbox(number_of)
            subscription = subscribe(here, near)
            near.wait(5)
            subscription.close()
            # The numbers follow each other as they were sent: nothing twice, nothing strange.
            steps = np.diff(near.messages) % 250
            assert (steps > 0).all(), near.messages
    finally:
        ending.set()
        publishing.join()
    there.close()
    assert not intra._buffers
    assert set(threading.enumerate()) <= before
    wait_until(lambda: loans() == 0, 'all memory to be given back')


def test_the_end_of_the_context_ends_the_thread(unchecked, subscribe, make_camera):
    inbox = Inbox(number_of)
    subscription = subscribe(unchecked, inbox)
    make_camera(unchecked).send(1)
    assert inbox.wait(1) == [1]
    unchecked.context.shutdown()
    subscription._thread.join(DEADLINE_SECONDS)
    assert not subscription._thread.is_alive()
    subscription.close()


def test_middleware_without_publisher_ids_is_reported_and_works(
    unchecked, subscribe, make_camera, capfd
):
    class Unknowing(CountingRcl):
        knows_gids = False

    Unknowing(unchecked.context)
    inbox, camera = Inbox(number_of), make_camera(unchecked)
    subscribe(unchecked, inbox)
    camera.meets(1)
    camera.send(3)
    assert inbox.wait(1) == [3]
    assert 'use_intra_process_comms has no effect' in capfd.readouterr().err


def test_rclpy_fallback_receives_same_messages(unchecked, subscribe, make_camera, monkeypatch):
    monkeypatch.setenv(transport.VARIABLE, 'rclpy')
    inbox, camera = Inbox(number_of), make_camera(unchecked)
    subscription = subscribe(unchecked, inbox)
    assert isinstance(subscription, transport.RclpySubscription)
    executor = SingleThreadedExecutor(context=unchecked.context)
    executor.add_node(unchecked)
    for number in range(3):
        camera.send(number)
    while len(inbox.messages) < 3:
        executor.spin_once()
    subscription._receive(b'')  # As Fast DDS may deliver; see Rcl.take.
    assert inbox.messages == [0, 1, 2]
    subscription.close()
    subscription.close()
    assert camera.publisher.get_subscription_count() == 0
    executor.shutdown()


def test_memory_comes_back_when_no_view_of_it_is_left():
    pool = Pool()
    first = pool.take(5000)
    address = first.ctypes.data
    view = read_only(first)[10:20]
    del first
    second = pool.take(5000)
    assert second.ctypes.data != address
    del view
    assert pool.take(4000).ctypes.data == address
    assert pool.take(1_000_000).size == 1_000_000
