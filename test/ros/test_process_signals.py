"""What the process of a node does: its end by signals, its garbage collector."""

from contextlib import ExitStack
import gc
import os
from pathlib import Path
import signal
import subprocess
import sys

import pytest

from support.frozen import COLLECTOR
from support.waiting import DEADLINE_SECONDS
from trt_ros.ros.lifecycle import ManagedNode

HANGING = """
import sys
import threading
from trt_ros.ros.lifecycle import ManagedNode
from trt_ros.ros.process import run_node

class Hanging(ManagedNode):
    def activate(self):
        self.while_active.callback(self.hang)
        print('active', flush=True)

    def hang(self):
        print('going down', flush=True)
        threading.Event().wait()

sys.exit(run_node(lambda: Hanging('hanging')))
"""


OPEN = {
    'subscription': """
import rclpy
from trt_ros.ros.images import subscribe_images

rclpy.init()
node = rclpy.create_node('watcher')
subscription = subscribe_images(node, 'image', print)
print('active', flush=True)
rclpy.spin(node)
""",
    'node': """
import rclpy
from trt_ros.nodes.overlay import OverlayNode

class Announced(OverlayNode):
    def activate(self):
        super().activate()
        print('active', flush=True)

rclpy.init()
rclpy.spin(Announced('overlay'))
""",
}


@pytest.fixture
def start(domain_id):
    """Return a function that starts a program; killed at the end of the test."""
    with ExitStack() as ends:

        def start(program, *args):
            # Without shared memory, of which a killed process would leave some.
            process = subprocess.Popen(
                [sys.executable, '-c', program, *args],
                text=True,
                stdout=subprocess.PIPE,
                stderr=subprocess.DEVNULL,
                env={
                    **os.environ,
                    'ROS_DOMAIN_ID': str(domain_id),
                    'FASTDDS_BUILTIN_TRANSPORTS': 'UDPv4',
                },
            )
            ends.enter_context(process)
            ends.callback(process.kill)
            return process

        yield start


@pytest.fixture
def hanging(start):
    """A node that never finishes going down."""
    return start(HANGING, '--ros-args', '-p', 'autostart:=true')


@pytest.mark.parametrize('program', OPEN.values(), ids=OPEN)
def test_ctrl_c_ends_a_program_that_closes_nothing(start, program):
    process = start(program)
    assert process.stdout.readline() == 'active\n'
    process.send_signal(signal.SIGINT)
    assert process.wait(DEADLINE_SECONDS) == -signal.SIGINT  # By KeyboardInterrupt.


@pytest.mark.parametrize('first', [signal.SIGINT, signal.SIGTERM])
def test_second_sigterm_kills_hanging_shutdown(hanging, first):
    assert hanging.stdout.readline() == 'active\n'
    hanging.send_signal(first)
    assert hanging.stdout.readline() == 'going down\n'
    assert hanging.poll() is None
    hanging.send_signal(signal.SIGTERM)
    assert hanging.wait(DEADLINE_SECONDS) == -signal.SIGTERM


def test_second_sigint_is_ignored_during_shutdown(hanging):
    assert hanging.stdout.readline() == 'active\n'
    hanging.send_signal(signal.SIGINT)
    assert hanging.stdout.readline() == 'going down\n'
    status = Path(f'/proc/{hanging.pid}/status').read_text()
    (ignored,) = (line.split()[1] for line in status.splitlines() if line.startswith('SigIgn'))
    assert int(ignored, 16) >> signal.SIGINT - 1 & 1


def test_configure_and_cleanup_collect_garbage_and_freeze_survivors(peer, monkeypatch):
    for name, function in COLLECTOR.items():
        monkeypatch.setattr(gc, name, function)

    class Litter(ManagedNode):
        def configure(self):
            self.kept = [[] for _ in range(10_000)]

    node = Litter('litter', context=peer.context)
    try:
        gc.unfreeze()  # Frozen again by the node.
        node.trigger_configure()
        frozen = gc.get_freeze_count()
        assert frozen > 10_000
        assert len(gc.get_objects()) < frozen  # The collector looks at what came since.
        node.kept = None
        node.trigger_cleanup()
        assert gc.get_freeze_count() < frozen - 9_000  # Other threads make objects, too.
        assert gc.get_freeze_count() > 0
    finally:
        node.destroy_node()
