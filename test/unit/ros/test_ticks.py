"""Calls at a rate, in a thread of their own and in simulated time."""

import threading

import pytest

pytest.importorskip('rclpy')
pytest.importorskip('lifecycle_msgs')

from rclpy.parameter import Parameter
from rosgraph_msgs.msg import Clock

from support.waiting import DEADLINE_SECONDS
from trt_ros.ros.lifecycle import ManagedNode
from trt_ros.ros.ticks import Ticks

pytestmark = pytest.mark.ros


def test_calls_need_no_executor_and_go_on_after_an_error_until_close(context):
    node, calls = ManagedNode('steady', context=context), []
    begun, go_on = threading.Event(), threading.Event()

    def call():
        calls.append(threading.current_thread())
        if len(calls) < 3:
            raise ValueError('an error')
        begun.set()
        go_on.wait(DEADLINE_SECONDS)

    ticks = Ticks(node, 0.001, call)
    assert begun.wait(DEADLINE_SECONDS)
    closing = threading.Thread(target=ticks.close)
    closing.start()
    closing.join(0.05)
    assert closing.is_alive() and len(calls) == 3, 'close waits for the call in progress'
    go_on.set()
    closing.join(DEADLINE_SECONDS)
    assert len(set(calls)) == 1 and not calls[0].is_alive()
    node.destroy_node()


def test_a_simulation_that_stands_still_makes_no_calls(context, spin):
    simulated = [Parameter('use_sim_time', value=True)]
    node, calls = ManagedNode('simulated', context=context, parameter_overrides=simulated), []
    clock, message = node.create_publisher(Clock, 'clock', 10), Clock()
    ticks = Ticks(node, 0.5, lambda: calls.append(node.now_ns()))

    def advance():
        message.clock.sec += 1
        clock.publish(message)
        return len(calls) >= 2

    spin(advance, node)
    ticks.close()
    assert all(each % 10**9 == 0 for each in calls)
