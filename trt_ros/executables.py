"""
Entry points of the executables; `python -m trt_ros.executables detector` runs one of a node.

Importing a node takes about a second. Ctrl-C during that time prints one line, not a traceback.
"""

from collections.abc import Callable
from functools import partial
from importlib import import_module
import os
import signal
import sys
from types import FrameType

from trt_ros.nodes import NODES


def _exit_on_signal(number: int, frame: FrameType | None) -> None:
    # No exception: some libraries catch it while they are imported.
    os.write(2, b'Interrupted while starting.\n')
    os._exit(128 + number)


def _run_node(name: str) -> int:
    signal.signal(signal.SIGINT, _exit_on_signal)
    cls = getattr(import_module(f'trt_ros.nodes.{name}'), NODES[name])
    return int(import_module('trt_ros.ros.process').run_node(cls))


def __getattr__(name: str) -> Callable[[], int]:
    """Return the function that runs the executable of a node."""
    if name not in NODES:
        raise AttributeError(name)
    return partial(_run_node, name)


def _run_container(function: str) -> int:
    signal.signal(signal.SIGINT, _exit_on_signal)
    return int(getattr(import_module('trt_ros.container.__main__'), function)())


component_container = partial(_run_container, 'main')
component_container_mt = partial(_run_container, 'main_mt')


if __name__ == '__main__':
    del sys.argv[0]  # Messages name the executable.
    sys.exit(_run_node(sys.argv[0]))
