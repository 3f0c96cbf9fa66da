"""Nodes that a container is asked to load; what they do can be read on its output.

Run as a program it is the multi-threaded container.
"""

import asyncio
import os
import sys
import time

import rclpy
from rclpy.lifecycle import LifecycleNode, TransitionCallbackReturn
from rclpy.node import Node

from trt_ros.container.__main__ import main_mt
from trt_ros.errors import ParameterError


def say(text: str) -> None:
    print(f'<{text}>', flush=True)


def say_options(node: Node) -> None:
    rate, chatter = node.declare_parameter('rate', 1.0).value, node.resolve_topic_name('chatter')
    say(f'{node.get_fully_qualified_name()} {chatter} {rate}')


class Options(Node):
    """Hands on the options it is given."""

    def __init__(self, **options):
        super().__init__('options', **options)
        say_options(self)

    def destroy_node(self):
        say(f'destroying {self.get_fully_qualified_name()}')
        super().destroy_node()


class NoOptions(Node):
    """Knows of no options, as most nodes in Python."""

    def __init__(self):
        super().__init__('no_options')
        say_options(self)


class Managed(LifecycleNode):
    """A lifecycle node that knows of no options."""

    def __init__(self):
        super().__init__('managed')

    def on_configure(self, state):
        return TransitionCallbackReturn.SUCCESS


class ThrowsLoading(Node):
    def __init__(self, **options):
        super().__init__('throws_loading', **options)
        raise RuntimeError('no such camera')


class ManagedThrowsLoading(ThrowsLoading, LifecycleNode):
    pass


class RefusesLoading(Node):
    def __init__(self, **options):
        raise ParameterError('No model.', remedy='Set model_path.')


class ExitsLoading(Node):
    def __init__(self, **options):
        sys.exit('gone')


class ThrowsSpinning(Node):
    def __init__(self, **options):
        super().__init__('throws_spinning', **options)
        self.ticks = 0
        self.create_timer(0.05, self.tick)
        self.create_timer(0.05, self.leave)
        self.create_timer(0.05, self.give_up)

    def tick(self):
        self.ticks += 1
        say(f'tick {self.ticks}')
        raise ValueError('bad frame')

    def leave(self):
        sys.exit(3)

    def give_up(self):
        raise asyncio.CancelledError


class ThrowsUnloading(Node):
    def __init__(self, **options):
        super().__init__('throws_unloading', **options)

    def destroy_node(self):
        raise RuntimeError('cannot let go')


def wait_for_the_end_of(file: str) -> None:
    while os.path.exists(file):
        time.sleep(0.01)


class SlowLoading(Node):
    """Is under construction as long as the file `hold` exists."""

    def __init__(self, **options):
        super().__init__('slow_loading', **options)
        hold = self.declare_parameter('hold', '').value
        say('constructing')
        wait_for_the_end_of(hold)


class Busy(Node):
    """Keeps its thread to itself as long as the file `hold` exists."""

    def __init__(self, **options):
        super().__init__('busy', **options)
        self.hold = self.declare_parameter('hold', '').value
        self.timer = self.create_timer(0.0, self.work)

    def work(self):
        self.timer.cancel()
        say('busy')
        wait_for_the_end_of(self.hold)
        say('free')


class EndsRos(Node):
    def __init__(self, **options):
        super().__init__('ends_ros', **options)
        self.create_timer(0.0, rclpy.shutdown)


not_a_node = 42


if __name__ == '__main__':
    sys.exit(main_mt())
