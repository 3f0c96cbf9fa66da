"""Errors of rcl, and rclpy as the fallback where rcl cannot be used directly."""

import ctypes
import threading

import numpy as np
import pytest
from rclpy.executors import SingleThreadedExecutor
from rclpy.serialization import serialize_message
from sensor_msgs.msg import Image

from support.dds import RELIABLE, Inbox, number_of, numbered
from trt_ros.ros.dds import rcl as rcl_module
from trt_ros.ros.dds import transport
from trt_ros.ros.dds.rcl import Rcl, RclError
from trt_ros.ros.dds.rcl_subscription import MessageCallbacks
from trt_ros.ros.dds.transport import RclpySubscription


def test_rcl_error_includes_its_message(rcl):
    class NoPublisher:
        pointer = None

    with pytest.raises(
        RclError, match=r'rcl_publish_serialized_message failed \(return code \d+\).*publisher'
    ):
        rcl.publish(NoPublisher(), np.zeros(8, np.uint8))


class Flipping(Rcl):
    """Sends another last byte."""

    def publish(self, publisher, message):
        changed = message.copy()
        changed[-1] ^= 1
        super().publish(publisher, changed)


class Deaf(Rcl):
    """Never finds a message."""

    def take(self, subscription, c_bytes, info):
        return False


@pytest.mark.parametrize(
    'broken, why', [(Flipping, 'A message arrived changed'), (Deaf, '0 of 4 messages arrived')]
)
def test_fallback_where_messages_differ_from_rclpy(
    broken, why, node, set_constants, unchecked, capfd
):
    set_constants(TRANSPORT_SECONDS=0.5 if broken is Deaf else 60.0)
    before = set(threading.enumerate())
    assert transport.usable_rcl(node, broken) is None
    assert transport.usable_rcl(node, broken) is None
    log = capfd.readouterr().err
    assert log.count('Images and results go through rclpy') == 1 and why in log
    assert set(threading.enumerate()) == before


def test_detects_other_structure_layouts_before_use(rcl):
    class Wider(ctypes.Structure):
        _fields_ = [
            ('buffer', ctypes.c_void_p),
            ('flags', ctypes.c_size_t),
            ('length', ctypes.c_size_t),
            ('capacity', ctypes.c_size_t),
            ('allocator', rcl_module._Allocator),
        ]

    def init(room, capacity, allocator):
        wider = Wider.from_buffer(room._obj)
        wider.buffer, wider.flags, wider.length, wider.capacity = None, 0, 0, capacity.value
        wider.allocator = allocator._obj
        return rcl_module.OK

    with pytest.raises(RclError, match='unexpected layout'):
        rcl._check_layout(init, pytest.fail)


def test_reports_library_without_required_functions():
    for library, missing in (
        ('librcutils.so', 'rcl_take_serialized_message'),
        ('librcl_of_another_system.so', 'librcl_of_another_system'),
    ):
        with pytest.raises(RclError, match=missing):
            Rcl(library)


def test_rclpy_fallback_receives_same_messages(context, node, monkeypatch, unchecked):
    monkeypatch.setenv(transport.VARIABLE, 'rclpy')
    publisher = node.create_publisher(Image, 'images', RELIABLE)
    inbox = Inbox(number_of)
    subscription = transport.subscribe_serialized(
        node, Image, 'images', RELIABLE, MessageCallbacks(inbox)
    )
    assert isinstance(subscription, RclpySubscription)
    publish = transport.serialized_publish(node, publisher)
    executor = SingleThreadedExecutor(context=context)
    executor.add_node(node)
    for number in range(3):
        publish(np.frombuffer(serialize_message(numbered(number)), np.uint8))
    while len(inbox.messages) < 3:
        executor.spin_once()
    assert inbox.messages == [0, 1, 2]
    subscription.close()
    subscription.close()
    assert publisher.get_subscription_count() == 0
    executor.shutdown()
    node.destroy_publisher(publisher)
