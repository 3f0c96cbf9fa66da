"""
Work on untrusted models in a child process that is bounded in time and memory.

It ends with its parent, can be killed at any moment and leaves no files behind. The module is also
its main program: `python -m trt_ros.child` reads requests, JSON lines, from stdin.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from contextlib import suppress
import ctypes
from importlib import import_module
import json
import os
from pathlib import Path
import resource
import selectors
import signal
import subprocess
import sys
import threading
import time
from typing import Any

from trt_ros import errors
from trt_ros.errors import (
    BackendError,
    MemoryLimitError,
    ModelError,
    TimeLimitError,
    TrtRosError,
)
from trt_ros.progress import Reporter

HEARTBEAT_SECONDS = 0.05  # How soon a cancel and excessive memory are noticed.
BUSY_FACTOR = 10.0  # For checks whose time limit nobody has asked for.
PR_SET_PDEATHSIG = 1
_FREE = ('MemAvailable', 'SwapFree')
_USED = ('RssAnon', 'RssShmem', 'VmSwap')  # Not the libraries: those are files.


class Events:
    """Lines of JSON for the parent."""

    def __init__(self, fd: int) -> None:
        self._file = os.fdopen(fd, 'w', encoding='ascii', buffering=1)

    def __call__(self, **event: Any) -> None:
        self._file.write(json.dumps(event) + '\n')

    def phase(self, name: str, percent: float | None = None) -> None:
        self(phase=name, percent=percent)


class Child:
    """
    A process that runs one function of this package, once per call.

    :param function: 'package.module:name' of a `function(request, events)`, which returns what
        JSON can hold.
    :param title: subject of an error: 'The build of model.onnx'.
    :param remedy: what helps when the process crashes.
    :param memory_nbytes: the process is killed above it; see `memory_limit`. May be set again.
    :param pass_fds: file descriptors that the function uses by their numbers.
    :param environment: variables that differ from this process's.
    """

    def __init__(
        self,
        function: str,
        *,
        title: str,
        remedy: str,
        memory_nbytes: int,
        pass_fds: Sequence[int] = (),
        environment: Mapping[str, str] = {},
    ) -> None:
        self._title, self._remedy, self.memory_nbytes = title, remedy, memory_nbytes
        self._thread = threading.current_thread()
        self._output = os.fdopen(os.memfd_create('trt_ros output'), 'w+b')
        read_fd, write_fd = os.pipe()
        self._events = os.fdopen(read_fd, 'rb')
        try:
            self._process = subprocess.Popen(
                [
                    sys.executable,
                    '-S',
                    '-m',
                    'trt_ros.child',
                    function,
                    str(os.getpid()),
                    str(write_fd),
                ],
                stdin=subprocess.PIPE,
                stdout=self._output,
                stderr=self._output,
                env={**_environment(), **environment},
                pass_fds=(*pass_fds, write_fd),
                start_new_session=True,
            )  # Ctrl-C is the parent's to handle.
        except BaseException:
            self._events.close()
            self._output.close()
            raise
        finally:
            os.close(write_fd)

    def call(
        self,
        request: Mapping[str, Any],
        *,
        report: Reporter,
        phase: str,
        timeout_seconds: float | None = None,
        busy_factor: float = 1.0,
    ) -> Any:
        """
        Run the function once.

        :param report: called with the function's phases, or `phase` until it names one, and asked
            whether to stop, every `HEARTBEAT_SECONDS`.
        :param busy_factor: how many times `timeout_seconds` it may take while it has had less CPU
            time than that, as on a busy machine.
        :returns: what the function returned.
        :raises CancelledError: when `report` was cancelled.
        :raises TimeLimitError: after `timeout_seconds`.
        :raises MemoryLimitError: when the process needs too much memory.
        :raises TrtRosError: as the function raised it, or when the process crashed.
        """
        report(phase)
        stdin = self._process.stdin
        assert stdin is not None
        with suppress(BrokenPipeError):  # It ended at once; _death says how.
            stdin.write(json.dumps(request).encode() + b'\n')
            stdin.flush()
        outcome = self._follow(report, phase, timeout_seconds, busy_factor)
        if 'error' in outcome:
            kind, problem, cause, remedy = outcome['error']
            error: type[TrtRosError] = getattr(errors, kind, ModelError)
            raise error(problem, cause=cause, remedy=remedy)
        if 'done' not in outcome:
            raise self._death()
        return outcome['done']

    def close(self) -> None:
        """Kill the process; may be called twice."""
        if self._process.poll() is None:
            self._process.kill()
        self._process.wait()
        if self._process.stdin is not None:
            with suppress(BrokenPipeError):  # A request that it did not take.
                self._process.stdin.close()
        self._events.close()
        self._output.close()

    @property
    def is_usable(self) -> bool:
        """Whether to call it again: the kernel ends it with the thread that started it."""
        return self._thread is threading.current_thread() and self._process.poll() is None

    def _follow(
        self, report: Reporter, phase: str, timeout_seconds: float | None, busy_factor: float
    ) -> dict[str, Any]:
        """Report until the function returns or raises; {} when the process ended instead."""
        began, percent, buffer = time.monotonic(), None, b''
        with selectors.DefaultSelector() as selector:
            selector.register(self._events, selectors.EVENT_READ)
            while True:
                if selector.select(HEARTBEAT_SECONDS):
                    chunk = os.read(self._events.fileno(), 1 << 16)
                    if not chunk:
                        return {}
                    *lines, buffer = (buffer + chunk).split(b'\n')
                    for event in map(json.loads, lines):
                        if 'phase' not in event:
                            return dict(event)
                        phase, percent = event['phase'], event['percent']
                        report(phase, percent)
                report(phase, percent)
                if _nbytes(f'/proc/{self._process.pid}/status', _USED) > self.memory_nbytes:
                    raise self._too_large()
                elapsed = time.monotonic() - began
                if (
                    timeout_seconds is not None
                    and elapsed > timeout_seconds
                    and (
                        elapsed > busy_factor * timeout_seconds
                        or self._cpu_seconds() > timeout_seconds
                    )
                ):
                    raise TimeLimitError(
                        f'{self._title} was stopped after {elapsed:.1f} s, in: {phase}.',
                        cause='No answer within the time limit.',
                        remedy=self._remedy,
                    )

    def _cpu_seconds(self) -> float:
        """Return the CPU time of the process; infinity when it ended."""
        try:
            fields = Path(f'/proc/{self._process.pid}/stat').read_text().rpartition(')')[2].split()
        except OSError:
            return float('inf')
        return (int(fields[11]) + int(fields[12])) / os.sysconf('SC_CLK_TCK')

    def _too_large(self) -> MemoryLimitError:
        return too_large(self._title, self.memory_nbytes)

    def _death(self) -> TrtRosError:
        code = self._process.wait()
        self._output.seek(0)
        output = self._output.read().decode(errors='replace').strip()
        tail = '\n'.join(output.splitlines()[-15:])
        if code == -signal.SIGKILL:
            return BackendError(
                f'{self._title} was killed.',
                cause=tail or 'Its process received SIGKILL, as it does when memory runs out.',
                remedy='Free memory, and try again.',
            )
        if 'bad_alloc' in tail or tail.endswith('MemoryError'):
            return self._too_large()
        how = f'by {signal.Signals(-code).name}' if code < 0 else f'with exit code {code}'
        return ModelError(
            f'{self._title} ended {how}.',
            cause=tail or 'Its process crashed.',
            remedy=self._remedy,
        )


def too_large(title: str, nbytes: int) -> MemoryLimitError:
    """Return the error of work that needs more than `nbytes` bytes of memory."""
    return MemoryLimitError(
        f'{title} needs more than {nbytes / 2**30:.1f} GiB of memory.',
        cause='That is the limit for a model of this size with the memory that is free.',
        remedy='Check that the model is complete and from a trusted source, choose a smaller '
        'input size or batch, or free memory.',
    )


def memory_limit(model_nbytes: int, *, base_nbytes: int, factor: int) -> int:
    """
    Return how much memory the work on a model may take.

    :param base_nbytes: what any model may take.
    :param factor: what it may take more per byte of the model.
    :returns: bytes; never more than 0.9 of what is free.
    """
    return min(
        base_nbytes + factor * model_nbytes,
        _nbytes('/proc/meminfo', _FREE) * 9 // 10 or sys.maxsize,
    )


def limit_memory(nbytes: int) -> None:
    """Let allocations beyond `nbytes` from now on fail in this process; called in a child."""
    used = _nbytes('/proc/self/status', ('VmData',))
    stacks = (os.cpu_count() or 1) << 24  # Reserved by the threads of a library, not used.
    _, hard = resource.getrlimit(resource.RLIMIT_DATA)
    wanted = used + nbytes + stacks
    resource.setrlimit(
        resource.RLIMIT_DATA,
        (wanted if hard == resource.RLIM_INFINITY else min(wanted, hard), hard),
    )


def _nbytes(path: str, names: Sequence[str]) -> int:
    """Add up some lines of a file of /proc; 0 when the process ended."""
    try:
        with open(path, encoding='ascii') as file:
            lines = dict(line.split(':', 1) for line in file if ':' in line)
    except OSError:
        return 0
    return sum(int(lines[name].split()[0]) << 10 for name in names if name in lines)


def _environment() -> dict[str, str]:
    # The child starts without site, which ROS hooks into: it finds what the parent found.
    package = Path(__file__).parents[1]
    return {**os.environ, 'PYTHONPATH': os.pathsep.join([str(package), *filter(None, sys.path)])}


def main(function: str, parent: str, events_fd: str) -> int:
    """Run the function for each request on stdin; return the exit code."""
    # A parent killed outright takes this process with it.
    ctypes.CDLL(None).prctl(PR_SET_PDEATHSIG, signal.SIGKILL)
    if os.getppid() != int(parent):
        return 1
    resource.setrlimit(resource.RLIMIT_CORE, (0, 0))
    # Where memory runs out after all, the kernel ends this process rather than the node.
    Path('/proc/self/oom_score_adj').write_text('1000')
    events = Events(int(events_fd))
    module, _, name = function.partition(':')
    for line in sys.stdin:
        try:
            events(done=getattr(import_module(module), name)(json.loads(line), events))
        except TrtRosError as error:
            events(error=[type(error).__name__, error.problem, error.cause, error.remedy])
    return 0


if __name__ == '__main__':
    sys.exit(main(*sys.argv[1:]))
