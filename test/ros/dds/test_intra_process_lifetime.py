"""Lifetime of intra-process buffers and their memory, and the fallbacks without them."""

import gc
import threading

import numpy as np
import rclpy
from rclpy.executors import SingleThreadedExecutor
from sensor_msgs.msg import Image

from support.dds import RELIABLE, Camera, Inbox, number_of
from support.waiting import wait_until
from trt_ros.ros.dds import intra_process as intra
from trt_ros.ros.dds import transport
from trt_ros.ros.dds.memory import MemoryLoan, Pool, read_only
from trt_ros.ros.dds.rcl_subscription import MessageCallbacks


def test_changing_publishers_and_subscribers_leak_nothing(here, elsewhere, subscribe):
    """While they do, messages flow; none comes twice, and none that was not sent."""
    ending, sent = threading.Event(), []

    def publish_on():
        number = 0
        while not ending.is_set():
            camera = Camera(here)
            for _ in range(20):
                number += 1
                sent.append(number % 250)
                camera.send(number % 250, 2000 + number)
            camera.close()

    def loans():
        gc.collect()
        return sum(isinstance(each, MemoryLoan) for each in gc.get_objects())

    far = Inbox(number_of)
    there = subscribe(elsewhere, far)
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
    assert intra.count_buffers() == 0
    assert set(threading.enumerate()) <= before
    wait_until(lambda: loans() == 0, 'all memory to be given back')


def test_context_shutdown_is_clean(domain_id):
    context = rclpy.Context()
    rclpy.init(context=context, domain_id=domain_id)
    node = rclpy.create_node('ending', context=context, start_parameter_services=False)
    node.use_intra_process_comms = True
    inbox = Inbox(number_of)
    subscription = transport.subscribe_serialized(
        node, Image, 'images', RELIABLE, MessageCallbacks(inbox)
    )
    camera = Camera(node)
    camera.send(1)
    assert inbox.wait(1) == [1]
    rclpy.shutdown(context=context)
    subscription.close()
    node.destroy_node()
    assert intra.count_buffers() == 0


def test_middleware_without_publisher_ids_is_reported_and_works(here, subscribe, unchecked, capfd):
    class Unknowing(transport.Rcl):
        knows_gids = False

    assert transport.usable_rcl(here, Unknowing) is not None
    inbox = Inbox(number_of)
    subscribe(here, inbox)
    camera = Camera(here)
    camera.meets(1)
    camera.send(3)
    assert inbox.wait(1) == [3]
    assert 'use_intra_process_comms has no effect' in capfd.readouterr().err
    camera.close()


def test_rclpy_fallback_works(here, monkeypatch, unchecked):
    monkeypatch.setenv(transport.VARIABLE, 'rclpy')
    inbox = Inbox(number_of)
    subscription = transport.subscribe_serialized(
        here, Image, 'images', RELIABLE, MessageCallbacks(inbox)
    )
    camera = Camera(here)
    executor = SingleThreadedExecutor(context=here.context)
    executor.add_node(here)
    camera.send(4)
    while not inbox.messages:
        executor.spin_once()
    assert inbox.messages == [4]
    subscription.close()
    camera.close()
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
