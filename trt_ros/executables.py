"""
Entry points of the executables.

The nodes import for a second: Ctrl-C in that time ends them with a line instead of a traceback.
"""

from __future__ import annotations

from importlib import import_module
import os
import signal
from types import FrameType


def _end(number: int, frame: FrameType | None) -> None:
    # Not by an exception: some libraries catch it while they are imported.
    os.write(2, b'Interrupted while starting.\n')
    os._exit(128 + number)


def _run(module: str, function: str = 'main') -> int:
    signal.signal(signal.SIGINT, _end)
    code: int = getattr(import_module(module), function)()
    return code


def classifier() -> int:
    return _run('trt_ros.nodes.classifier')


def depth() -> int:
    return _run('trt_ros.nodes.depth')


def detector() -> int:
    return _run('trt_ros.nodes.detector')


def image_source() -> int:
    return _run('trt_ros.nodes.image_source')


def overlay() -> int:
    return _run('trt_ros.nodes.overlay')


def pose() -> int:
    return _run('trt_ros.nodes.pose')


def segmenter() -> int:
    return _run('trt_ros.nodes.segmenter')


def tensor() -> int:
    return _run('trt_ros.nodes.tensor')


def component_container() -> int:
    return _run('trt_ros.container.__main__')


def component_container_mt() -> int:
    return _run('trt_ros.container.__main__', 'main_mt')
