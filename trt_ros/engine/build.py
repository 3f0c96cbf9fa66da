"""ONNX in, plan out, in a child process that can be killed at any moment."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass
import json
import os
from pathlib import Path
import selectors
import signal
import subprocess
import sys
import time
from typing import IO, Any

import trt_ros
from trt_ros import errors
from trt_ros.backend import Flavour
from trt_ros.engine.config import refuse_unsupported
from trt_ros.engine.options import BuildOptions
from trt_ros.errors import BackendError, ModelError, TrtRosError
from trt_ros.progress import Reporter

HEARTBEAT_SECONDS = 0.2  # How soon a cancel is seen; TensorRT itself is silent for minutes.


class BuildTimeoutError(BackendError):
    """The build took longer than was allowed; it was killed."""


@dataclass(frozen=True)
class Built:
    """
    A plan in a nameless file in memory; close() gives it back.

    :param report: what was built, as the sidecar keeps it.
    :param timing_cache: the library's updated kernel times; b'' where it keeps none.
    """

    plan: IO[bytes]
    report: Mapping[str, Any]
    timing_cache: bytes

    def close(self) -> None:
        self.plan.close()


def build(onnx: Path, options: BuildOptions, flavour: Flavour, *, report: Reporter | None = None,
          timeout_seconds: float | None = None, device: int = 0,
          timing_cache: Path | None = None) -> Built:
    """
    Build an engine.

    :param report: told phases and percents on this thread, and asked whether to stop; both
        within a second whatever TensorRT does.
    :param device: the GPU to build on, where one is needed.
    :raises CancelledError: when `report` was cancelled; the child is dead by then.
    :raises BuildTimeoutError: when it took longer than `timeout_seconds`.
    :raises ModelError: when the model cannot be read, parsed or built.
    :raises ParameterError: when an option cannot be honoured.
    """
    refuse_unsupported(flavour, options)
    report = report or Reporter()
    with _memory_file('plan') as plan, _memory_file('timing') as timing, \
            _memory_file('said') as said:
        read_fd, write_fd = os.pipe()
        with open(read_fd, encoding='ascii', errors='replace') as events:
            spec = {
                'onnx': str(onnx.absolute()), 'options': options.to_json(),
                'flavour': flavour.name, 'parent': os.getpid(), 'plan_fd': plan.fileno(),
                'events_fd': write_fd, 'timing_fd': timing.fileno(),
                'timing_cache': timing_cache and str(timing_cache)}
            try:
                child = subprocess.Popen(
                    [sys.executable, '-S', '-m', 'trt_ros.engine.build_child'],
                    stdin=subprocess.PIPE, stdout=said, stderr=said, env=_environment(device),
                    pass_fds=(plan.fileno(), timing.fileno(), write_fd))
            finally:
                os.close(write_fd)
            try:
                _send(child, spec)
                outcome = _follow(child, events, report, timeout_seconds)
            finally:
                if child.poll() is None:
                    child.kill()
                child.wait()
        if 'error' in outcome:
            raise _error(*outcome['error'])
        if 'done' not in outcome:
            said.seek(0)
            raise _death(child.returncode, said.read(), onnx)
        timing.seek(0)
        plan.seek(0)
        return Built(os.fdopen(os.dup(plan.fileno()), 'rb'), outcome['done'], timing.read())


@contextmanager
def _memory_file(name: str) -> Iterator[IO[bytes]]:
    with os.fdopen(os.memfd_create(f'trt_ros {name}'), 'w+b') as file:
        yield file


def _environment(device: int) -> dict[str, str]:
    environment = dict(os.environ)
    visible = [name for name in environment.get('CUDA_VISIBLE_DEVICES', '').split(',') if name]
    if device < len(visible):
        environment['CUDA_VISIBLE_DEVICES'] = visible[device]
    elif device:
        environment['CUDA_VISIBLE_DEVICES'] = str(device)
    # The child starts without site, which ROS hooks into: it finds what the parent found.
    package = Path(trt_ros.__file__).parents[1]
    environment['PYTHONPATH'] = os.pathsep.join([str(package), *filter(None, sys.path)])
    return environment


def _send(child: subprocess.Popen[bytes], spec: Mapping[str, Any]) -> None:
    assert child.stdin is not None
    try:
        with child.stdin:
            child.stdin.write(json.dumps(spec).encode())
    except BrokenPipeError:
        pass  # It died at once; _death tells of what.


def _follow(child: subprocess.Popen[bytes], events: IO[str], report: Reporter,
            timeout_seconds: float | None) -> dict[str, Any]:
    """Pass the child's events on until it ends; give its last word, {} where it had none."""
    began, phase, percent = time.monotonic(), 'starting the build', None
    report(phase)
    outcome: dict[str, Any] = {}
    buffer = b''
    with selectors.DefaultSelector() as selector:
        selector.register(events, selectors.EVENT_READ)
        while True:
            if selector.select(HEARTBEAT_SECONDS):
                chunk = os.read(events.fileno(), 1 << 16)
                if not chunk:
                    return outcome
                *lines, buffer = (buffer + chunk).split(b'\n')
                for event in map(json.loads, lines):
                    if 'phase' in event:
                        phase, percent = event['phase'], event['percent']
                        report(phase, percent)
                    else:
                        outcome = event
            report(phase, percent)
            if timeout_seconds is not None and time.monotonic() - began > timeout_seconds:
                raise BuildTimeoutError(
                    f'The build was stopped after {timeout_seconds:g} s, in: {phase}.',
                    remedy='Allow more time, or lower optimization_level.')


def _error(kind: str, problem: str, cause: str, remedy: str) -> TrtRosError:
    found = getattr(errors, kind, ModelError)
    made: TrtRosError = found(problem, cause=cause, remedy=remedy)
    return made


def _death(code: int, said: bytes, onnx: Path) -> TrtRosError:
    tail = '\n'.join(said.decode(errors='replace').strip().splitlines()[-15:])
    if code == -signal.SIGKILL:
        return BackendError('The build process was killed.', cause=tail or
                            'Somebody, or the kernel when memory ran out, sent SIGKILL.',
                            remedy='Free memory, and build again.')
    how = f'by {signal.Signals(-code).name}' if code < 0 else f'with exit code {code}'
    return ModelError(f'The build process of {onnx} ended {how}.', cause=tail,
                      remedy='Check the model with `trt-ros inspect`; TensorRT may have crashed.')
