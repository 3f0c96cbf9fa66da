"""Errors of rcl, and rclpy as the fallback where rcl cannot be used directly."""

import ctypes
import threading

import numpy as np
import pytest

from support.waiting import DEADLINE_SECONDS
from trt_ros.ros.dds import rcl as rcl_module
from trt_ros.ros.dds import transport
from trt_ros.ros.dds.rcl import Rcl, RclError


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
def test_messages_that_differ_from_those_of_rclpy_are_noticed(broken, why, node, set_constants):
    set_constants(TRANSPORT_SECONDS=0.1 if broken is Deaf else DEADLINE_SECONDS)
    before = set(threading.enumerate())
    with pytest.raises(RclError, match=why):
        transport.check_transport(broken(), node.context)
    assert set(threading.enumerate()) == before


@pytest.mark.parametrize(
    ('library', 'missing'),
    [
        ('librcutils.so', 'rcl_take_serialized_message'),
        ('librcl_of_another_system.so', 'librcl_of_another_system'),
    ],
)
def test_rclpy_is_the_fallback_without_the_functions_of_rcl(
    unchecked, set_constants, capfd, library, missing
):
    set_constants(RCL=library)
    assert [transport.usable_rcl(unchecked) for _ in range(2)] == [None, None]
    log = capfd.readouterr().err
    assert log.count('Images and results go through rclpy') == 1 and missing in log


@pytest.mark.parametrize('value, count', [('shm', 1), ('dds', 0), ('', 0)])
def test_a_transport_that_does_not_exist_is_reported(unchecked, monkeypatch, capfd, value, count):
    monkeypatch.setenv(transport.VARIABLE, value)
    assert all(transport.usable_rcl(unchecked) for _ in range(2))
    log = capfd.readouterr().err
    assert log.count(f'{transport.VARIABLE}={value!r} has no effect. Remedy') == count


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
