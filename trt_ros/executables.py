"""
Entry points of the executables.

Importing a node takes about a second. Ctrl-C during that time prints one line, not a traceback.
"""

from __future__ import annotations

from importlib import import_module
import os
import signal
from types import FrameType


def _exit_on_signal(number: int, frame: FrameType | None) -> None:
    # No exception: some libraries catch it while they are imported.
    os.write(2, b'Interrupted while starting.\n')
    os._exit(128 + number)


def _run(module: str, function: str = 'main') -> int:
    signal.signal(signal.SIGINT, _exit_on_signal)
    code: int = getattr(import_module(module), function)()
    return code


def classifier() -> int:
    """Run the executable `classifier`."""
    return _run('trt_ros.nodes.classifier')


def depth() -> int:
    """Run the executable `depth`."""
    return _run('trt_ros.nodes.depth')


def detections_3d() -> int:
    """Run the executable `detections_3d`."""
    return _run('trt_ros.nodes.detections_3d')


def detector() -> int:
    """Run the executable `detector`."""
    return _run('trt_ros.nodes.detector')


def image_source() -> int:
    """Run the executable `image_source`."""
    return _run('trt_ros.nodes.image_source')


def overlay() -> int:
    """Run the executable `overlay`."""
    return _run('trt_ros.nodes.overlay')


def pose() -> int:
    """Run the executable `pose`."""
    return _run('trt_ros.nodes.pose')


def segmenter() -> int:
    """Run the executable `segmenter`."""
    return _run('trt_ros.nodes.segmenter')


def tensor() -> int:
    """Run the executable `tensor`."""
    return _run('trt_ros.nodes.tensor')


def tracker() -> int:
    """Run the executable `tracker`."""
    return _run('trt_ros.nodes.tracker')


def component_container() -> int:
    """Run the executable `component_container`."""
    return _run('trt_ros.container.__main__')


def component_container_mt() -> int:
    """Run the executable `component_container_mt`."""
    return _run('trt_ros.container.__main__', 'main_mt')
