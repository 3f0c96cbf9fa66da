"""Transitions and parameters of a managed node in this process."""

from dataclasses import dataclass
import threading

import pytest

pytest.importorskip('rclpy')
pytest.importorskip('lifecycle_msgs')

from diagnostic_msgs.msg import DiagnosticArray
from lifecycle_msgs.srv import ChangeState
from rclpy.executors import SingleThreadedExecutor
from rclpy.parameter import Parameter

from support.waiting import DEADLINE_SECONDS, wait_until
from trt_ros.errors import ParameterError
from trt_ros.progress import CancelledError
from trt_ros.ros.diagnostics import CountingNode
from trt_ros.ros.lifecycle import ManagedNode, NodeParameters
from trt_ros.ros.parameters import param
from trt_ros.ros.transition_thread import _follow

pytestmark = pytest.mark.ros
AUTOSTART = [Parameter('autostart', value=True)]


class Slow(ManagedNode):
    """A node whose configure ends when it is cancelled."""

    begun = threading.Event()
    was_cancelled = False

    def configure(self):
        self.begun.set()
        self.was_cancelled = self.cancelled.wait(DEADLINE_SECONDS)
        raise CancelledError


class Held(ManagedNode):
    """A node whose configure lasts until `may_end`, and then needs the executor."""

    def __init__(self, *args, **kwargs):
        self.begun, self.may_end, self.ran = threading.Event(), threading.Event(), []
        super().__init__(*args, **kwargs)

    def configure(self):
        self.begun.set()
        assert self.may_end.wait(DEADLINE_SECONDS)
        self.run_on_executor(lambda: self.ran.append(threading.current_thread().name))


@dataclass(frozen=True)
class SizeParameters(NodeParameters):
    """Parameters of a node of a size."""

    size: int = param(1, 'Size.', between=(0, 10), mutable=True)


class Odd(ManagedNode):
    """A node that refuses even sizes only when they are applied."""

    Parameters = SizeParameters

    def parameters_changed(self):
        if self.parameters.size % 2 == 0:
            raise ParameterError(f'The size {self.parameters.size} is even.')


def test_stop_cancels_a_configure_in_progress(context, spin):
    node = Slow('slow', context=context, parameter_overrides=AUTOSTART)
    spin(node.begun.is_set, node)
    node.stop()
    assert node.was_cancelled
    assert node.state_label == 'unconfigured'


def test_a_transition_ends_as_usual_after_the_shutdown_of_its_executor(context, capfd):
    node = Held('held', context=context, parameter_overrides=AUTOSTART)
    executor = SingleThreadedExecutor(context=context)
    executor.add_node(node)
    wait_until(lambda: executor.spin_once(timeout_sec=0.01) or node.begun.is_set())
    executor.shutdown()
    node.may_end.set()
    wait_until(node._transitions.done.done)
    node.destroy_node()
    log = capfd.readouterr().err
    assert node.ran == ['transition']
    assert 'Started: active.' in log and 'Traceback' not in log


def test_a_parameter_that_cannot_be_applied_is_refused_and_keeps_its_value(context, spin):
    node = Odd('odd', context=context, parameter_overrides=AUTOSTART)
    spin(lambda: node.state_label == 'active', node)
    (refused,) = node.set_parameters([Parameter('size', value=4)])
    assert (refused.successful, refused.reason) == (False, 'The size 4 is even.')
    assert (node.parameters.size, node.get_parameter('size').value) == (1, 1)
    (changed,) = node.set_parameters([Parameter('size', value=5)])
    assert changed.successful
    assert (node.parameters.size, node.get_parameter('size').value) == (5, 5)


def test_a_node_with_a_manager_does_not_ask_for_configure(context, spin, capfd):
    managed, other = (
        ManagedNode(name, namespace='front', context=context) for name in ('managed', 'other')
    )
    other.create_client(ChangeState, 'managed/change_state')
    wait_until(lambda: managed.count_clients('managed/change_state'))
    log, command = '', 'ros2 lifecycle set /front/other'

    def other_asks():
        nonlocal log
        log += capfd.readouterr().err
        return f'Waiting for configure: {command} configure, then {command} activate.' in log

    spin(other_asks, managed, other)  # Created later, so its timer is the later one.
    assert '/front/managed configure' not in log


def test_a_node_without_frames_and_subscribers_is_looked_at_every_other_second(context):
    node, peer = CountingNode('quiet', context=context), ManagedNode('peer', context=context)
    count = node._status_publisher.get_subscription_count

    class Stopping:
        waits = []

        def wait(self, seconds):
            self.waits.append(seconds)
            if len(self.waits) == 2:
                node._counts.receive()
            elif len(self.waits) == 4:
                self.seen = peer.create_subscription(DiagnosticArray, '/diagnostics', print, 1)
                wait_until(count, 'a subscriber')
            elif len(self.waits) == 5:
                peer.destroy_subscription(self.seen)
                wait_until(lambda: not count(), 'no subscriber')
            return len(self.waits) == 6

    _follow(lambda: node, Stopping())
    assert Stopping.waits == [1, 2, 1, 2, 1, 2]


def test_what_a_node_does_every_second_does_not_wake_up_its_executor(context, spin):
    before = set(threading.enumerate())
    node, called = ManagedNode('idle', context=context, parameter_overrides=AUTOSTART), []
    node.followers += [lambda: 1 / 0, lambda: called.append(1)]
    spin(lambda: node.state_label == 'active', node)
    assert not list(node.timers)
    wait_until(lambda: len(called) == 2, 'calls after others that failed')
    node.stop()
    assert set(threading.enumerate()) <= before
