"""
Child processes for work on untrusted models, with time and memory limits.

A child exits with its parent, can be killed at any time and leaves no files behind. The module is
also its main program: `python -m trt_ros.child` reads requests as JSON lines from stdin.
"""

from collections.abc import Mapping, Sequence
from contextlib import suppress
import ctypes
import errno
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
from trt_ros.errors import BackendError, MemoryLimitError, ModelError, TimeLimitError, TrtRosError
from trt_ros.progress import Reporter

MAX_RESULT_NBYTES = 256 << 20  # As JSON; a model of 50 MB of metadata has 50 MB.
_MAX_OUTPUT_NBYTES = 1 << 16  # Of the output of a crashed process, its end.
HEARTBEAT_SECONDS = 0.05  # Interval of the checks for cancellation and memory use.
BUSY_FACTOR = 10.0  # Of checks whose time limit the user has not set; see Child.call.
PR_SET_PDEATHSIG = 1
_FREE = ('MemAvailable', 'SwapFree')
_USED = ('RssAnon', 'RssShmem', 'VmSwap')  # Without libraries, which are file mappings.


class Events:
    """Writer of events to the parent process, one JSON object per line."""

    def __init__(self, fd: int) -> None:
        self._file = os.fdopen(fd, 'w', encoding='ascii', buffering=1)

    def __call__(self, **event: Any) -> None:
        """Write an event."""
        self._file.write(json.dumps(event) + '\n')

    def phase(self, name: str, percent: float | None = None) -> None:
        """Report a phase; `percent` is 0 to 100, None if unknown."""
        self(phase=name, percent=percent)


class Child:
    """
    A process that runs one function of this package once per call.

    :param function: 'package.module:name' of a `function(request, events)` that returns a value
        JSON can represent.
    :param title: subject of error messages, such as 'The build of model.onnx'.
    :param remedy: remedy of the error if the process crashes.
    :param memory_nbytes: memory limit in bytes, above which the process is killed; see
        `memory_limit`. May be changed later.
    :param pass_fds: file descriptors that the function uses by their numbers.
    :param environment: environment variables that differ from those of this process.
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
        arguments = (function, str(os.getpid()), str(write_fd))
        self._events = os.fdopen(read_fd, 'rb')
        try:
            self._process = subprocess.Popen(
                [sys.executable, '-S', '-m', 'trt_ros.child', *arguments],
                stdin=subprocess.PIPE,
                stdout=self._output,
                stderr=self._output,
                env={**_environment(), **environment},
                pass_fds=(*pass_fds, write_fd),
                start_new_session=True,
            )  # A session of its own: Ctrl-C is handled by the parent.
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

        :param report: called every `HEARTBEAT_SECONDS` with the phase that the function reported
            last, and with `phase` before the first one; it also cancels the call.
        :param timeout_seconds: time limit; None for no limit.
        :param busy_factor: multiple of `timeout_seconds` that the call may take while the process
            has used less CPU time than `timeout_seconds`, as on a busy machine.
        :returns: the return value of the function.
        :raises CancelledError: if `report` was cancelled.
        :raises TimeLimitError: after the time limit.
        :raises MemoryLimitError: if the process needs too much memory, or its result has more
            than `MAX_RESULT_NBYTES` bytes.
        :raises TrtRosError: raised by the function, or if the process crashed.
        """
        report(phase)
        stdin = self._process.stdin
        assert stdin is not None
        with suppress(BrokenPipeError):  # The process has exited; _exit_error reports how.
            stdin.write(json.dumps(request).encode() + b'\n')
            stdin.flush()
        outcome = self._follow(report, phase, timeout_seconds, busy_factor)
        if 'error' in outcome:
            kind, problem, cause, remedy = outcome['error']
            error: type[TrtRosError] = getattr(errors, kind, ModelError)
            raise error(problem, cause=cause, remedy=remedy)
        if 'done' not in outcome:
            raise self._exit_error()
        return outcome['done']

    def close(self) -> None:
        """Kill the process; may be called twice."""
        if self._process.poll() is None:
            self._process.kill()
        self._process.wait()
        if self._process.stdin is not None:
            with suppress(BrokenPipeError):  # A request that it has not read.
                self._process.stdin.close()
        self._events.close()
        self._output.close()

    @property
    def is_usable(self) -> bool:
        """Whether it can be called again: it is killed when the thread that started it exits."""
        return self._thread is threading.current_thread() and self._process.poll() is None

    def _follow(
        self, report: Reporter, phase: str, timeout_seconds: float | None, busy_factor: float
    ) -> dict[str, Any]:
        """Report until the function returns or raises; return {} if the process exited instead."""
        began, percent = time.monotonic(), None
        chunks: list[bytes] = []  # Of a line whose end has not been read.
        nbytes = 0
        with selectors.DefaultSelector() as selector:
            selector.register(self._events, selectors.EVENT_READ)
            while True:
                if selector.select(HEARTBEAT_SECONDS):
                    chunk = os.read(self._events.fileno(), 1 << 16)
                    if not chunk:
                        return {}
                    *lines, rest = chunk.split(b'\n')
                    if lines:
                        lines[0] = b''.join((*chunks, lines[0]))
                        chunks, nbytes = [], 0
                    chunks.append(rest)
                    nbytes += len(rest)
                    if nbytes > MAX_RESULT_NBYTES:
                        raise MemoryLimitError(
                            f'{self._title} has a result of more than '
                            f'{MAX_RESULT_NBYTES >> 20} MiB.',
                            cause='The names or the metadata of the model are too long.',
                            remedy='Remove the metadata from the model, or export it again.',
                        )
                    for event in map(json.loads, lines):
                        if 'phase' not in event:
                            return dict(event)
                        phase, percent = event['phase'], event['percent']
                        report(phase, percent)
                report(phase, percent)
                if _nbytes(f'/proc/{self._process.pid}/status', _USED) > self.memory_nbytes:
                    raise too_large(self._title, self.memory_nbytes)
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
                        f'{self._title} timed out after {elapsed:.1f} s, during: {phase}.',
                        cause=f'The time limit is {timeout_seconds:g} s.',
                        remedy=self._remedy,
                    )

    def _cpu_seconds(self) -> float:
        """Return the CPU time of the process in seconds; infinity if it has exited."""
        try:
            fields = Path(f'/proc/{self._process.pid}/stat').read_text().rpartition(')')[2].split()
        except OSError:
            return float('inf')
        return (int(fields[11]) + int(fields[12])) / os.sysconf('SC_CLK_TCK')

    def _exit_error(self) -> TrtRosError:
        code = self._process.wait()
        nbytes = self._output.seek(0, os.SEEK_END)
        self._output.seek(max(nbytes - _MAX_OUTPUT_NBYTES, 0))
        output = self._output.read(_MAX_OUTPUT_NBYTES).decode(errors='replace').strip()
        tail = '\n'.join(output.splitlines()[-15:])
        if code == -signal.SIGKILL:
            return BackendError(
                f'{self._title} was killed.',
                cause=tail
                or 'Its process received SIGKILL, which the kernel sends when memory runs out.',
                remedy='Free memory and try again.',
            )
        if 'bad_alloc' in tail or tail.endswith('MemoryError'):
            return too_large(self._title, self.memory_nbytes)
        how = f'with {signal.Signals(-code).name}' if code < 0 else f'with exit code {code}'
        return ModelError(
            f'{self._title} crashed {how}.',
            cause=tail or 'Its process crashed without output.',
            remedy=self._remedy,
        )


def too_large(title: str, nbytes: int) -> MemoryLimitError:
    """Return the error for work that needs more than `nbytes` bytes of memory."""
    return MemoryLimitError(
        f'{title} needs more than {nbytes / 2**30:.1f} GiB of memory.',
        cause='This is the limit for a model of this size, given the free memory.',
        remedy='Check that the model is complete and from a trusted source, set a smaller input '
        'size or batch, or free memory.',
    )


def memory_limit(model_nbytes: int, *, base_nbytes: int, factor: int) -> int:
    """Return `base_nbytes` + `factor` per byte of a model, at most 0.9 of the free memory."""
    return min(
        base_nbytes + factor * model_nbytes,
        _nbytes('/proc/meminfo', _FREE) * 9 // 10 or sys.maxsize,
    )


def limit_memory(nbytes: int) -> None:
    """Make further allocations beyond `nbytes` fail in this process; called in a child."""
    used = _nbytes('/proc/self/status', ('VmData',))
    stacks = (os.cpu_count() or 1) << 24  # Reserved by library threads, not used.
    _, hard = resource.getrlimit(resource.RLIMIT_DATA)
    wanted = used + nbytes + stacks
    resource.setrlimit(
        resource.RLIMIT_DATA,
        (wanted if hard == resource.RLIM_INFINITY else min(wanted, hard), hard),
    )


def _nbytes(path: str, names: Sequence[str]) -> int:
    """Return the sum of some lines of a /proc file in bytes; 0 if the process has exited."""
    try:
        with open(path, encoding='ascii') as file:
            lines = dict(line.split(':', 1) for line in file if ':' in line)
    except OSError:
        return 0
    return sum(int(lines[name].split()[0]) << 10 for name in names if name in lines)


def _environment() -> dict[str, str]:
    # The child starts without `site`, which ROS hooks into, with the import path of its parent,
    # and without threads for matrix products of NumPy.
    package = Path(__file__).parents[1]
    path = os.pathsep.join([str(package), *filter(None, sys.path)])
    return {'OPENBLAS_NUM_THREADS': '1', **os.environ, 'PYTHONPATH': path}


def _error_event(error: TrtRosError) -> list[str]:
    return [type(error).__name__, error.problem, error.cause, error.remedy]


def _file_too_large(error: OSError) -> BackendError:
    limit, _ = resource.getrlimit(resource.RLIMIT_FSIZE)
    return BackendError(
        'A result cannot be written.',
        cause=f'{error.strerror}; the file size limit of this process (ulimit -f) is '
        f'{limit / 2**20:.1f} MiB.',
        remedy='Raise the limit: ulimit -f unlimited',
    )


def main(function: str, parent: str, events_fd: str) -> int:
    """Run the function for each request on stdin; return the exit code."""
    # The kernel kills this process if the parent is killed.
    ctypes.CDLL(None).prctl(PR_SET_PDEATHSIG, signal.SIGKILL)
    if os.getppid() != int(parent):
        return 1
    resource.setrlimit(resource.RLIMIT_CORE, (0, 0))
    # If memory runs out nevertheless, the kernel kills this process rather than the node.
    Path('/proc/self/oom_score_adj').write_text('1000')
    events = Events(int(events_fd))
    module, _, name = function.partition(':')
    for line in sys.stdin:
        try:
            events(done=getattr(import_module(module), name)(json.loads(line), events))
        except TrtRosError as error:
            events(error=_error_event(error))
        except OSError as error:
            if error.errno != errno.EFBIG:
                raise
            events(error=_error_event(_file_too_large(error)))
    return 0


if __name__ == '__main__':
    sys.exit(main(*sys.argv[1:]))
