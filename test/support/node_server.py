"""
A process that has imported what nodes import, and forks one process per node of a test.

Importing takes each node a second of CPU time; a suite starts hundreds. Requests are lines of JSON
on stdin, each is answered by the pid; the exit code is written to a file.
"""

import ctypes
from ctypes.util import find_library
import faulthandler
import gc
from importlib import import_module
import inspect
import json
import os
from pathlib import Path
import re
import runpy
import signal
import subprocess
import sys
import time
from typing import Any
import warnings

from support.frozen import freeze_present_objects

#: Other threads of OpenBLAS crash a forked process at its end, on a machine of many cores.
ONE_THREAD = {'OPENBLAS_NUM_THREADS': '1'}


class ForkedProcess:
    """A process forked by the server, used like a subprocess.Popen."""

    def __init__(self, pid: int, exit_path: Path) -> None:
        self.pid, self._exit_path = pid, exit_path
        self.returncode: int | None = None

    def poll(self) -> int | None:
        if self.returncode is None and self._exit_path.exists():
            self.returncode = int(self._exit_path.read_text())
        return self.returncode

    def wait(self, timeout: float) -> int:
        deadline = time.monotonic() + timeout
        while self.poll() is None:
            if time.monotonic() > deadline:
                raise subprocess.TimeoutExpired(f'process {self.pid}', timeout)
            time.sleep(0.002)
        assert self.returncode is not None
        return self.returncode

    def send_signal(self, number: int) -> None:
        if self.poll() is None:
            os.kill(self.pid, number)


class NodeServer:
    """The server, seen from the test."""

    def __init__(self, environment: dict[str, str], folder: Path) -> None:
        self._folder = folder
        self._process = subprocess.Popen(
            [sys.executable, __file__, str(folder)],
            env=environment | ONE_THREAD,
            text=True,
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
        )

    def start(self, command: list[str], environment: dict[str, str], log: Path) -> ForkedProcess:
        """Start `-m MODULE ..` or `SCRIPT ..`, as Python does with these arguments."""
        assert self._process.stdin is not None and self._process.stdout is not None
        request = {
            'command': command,
            'environment': environment | ONE_THREAD,
            'log': str(log),
            'ignores_hangup': signal.getsignal(signal.SIGHUP) == signal.SIG_IGN,
        }
        print(json.dumps(request), file=self._process.stdin, flush=True)
        pid = int(self._process.stdout.readline())
        return ForkedProcess(pid, self._folder / f'{pid}.exit')

    def close(self) -> None:
        self._process.communicate()


def prepare() -> None:
    """Import what a node imports from its start to its first result."""
    from diagnostic_msgs.msg import DiagnosticArray
    from lifecycle_msgs.srv import ChangeState
    from rclpy.type_support import check_for_type_support
    from sensor_msgs.msg import Image
    from vision_msgs.msg import Detection2DArray

    for name in import_module('trt_ros.nodes').NODES:
        import_module(f'trt_ros.nodes.{name}')
    for name in ('numpy.random', 'trt_ros.ros.process', 'trt_ros.runtime.opening'):
        import_module(name)
    if not find_library('cuda'):
        # With these, nodes on a GPU hung at their exit (16 cores, H100).
        for name in ('onnxruntime', 'trt_ros.runtime.cpu.pipeline'):
            import_module(name)
    for kind in (ChangeState, DiagnosticArray, Detection2DArray, Image):
        check_for_type_support(kind)
    # Logging searches the file of its caller in all modules.
    inspect.getframeinfo(inspect.currentframe())
    gc.collect()
    freeze_present_objects()


def serve(folder: Path) -> dict[str, Any]:
    """Fork a process per request; return the request in each of them, {} in the server."""

    def reap(*_: Any) -> None:
        while True:
            try:
                pid, status = os.waitpid(-1, os.WNOHANG)
            except ChildProcessError:
                return
            if not pid:
                return
            unfinished = folder / f'{pid}.unfinished'
            unfinished.write_text(str(os.waitstatus_to_exitcode(status)))
            unfinished.rename(folder / f'{pid}.exit')

    signal.signal(signal.SIGCHLD, reap)
    for line in sys.stdin:
        signal.pthread_sigmask(signal.SIG_BLOCK, [signal.SIGCHLD])
        pid = fork()
        if not pid:
            signal.signal(signal.SIGCHLD, signal.SIG_DFL)
            signal.pthread_sigmask(signal.SIG_UNBLOCK, [signal.SIGCHLD])
            return dict(json.loads(line))
        (folder / f'{pid}.exit').unlink(missing_ok=True)  # Of an earlier process.
        print(pid, flush=True)
        signal.pthread_sigmask(signal.SIG_UNBLOCK, [signal.SIGCHLD])
    return {}


def fork() -> int:
    """
    Fork as os.fork(), and restart in the child the threads of LTTng, which ROS loads.

    At its end, the child cancels them: without new ones, it crashes if glibc has unmapped the
    stacks of those of the parent, as it does after many threads.
    """
    name = r'/\S*/liblttng-ust(?:-[0-9a-f]{8})?\.so\S*'  # With a hash in wheels.
    found = re.search(name, Path('/proc/self/maps').read_text())
    if found is None:
        return os.fork()
    library = ctypes.CDLL(found[0])
    prefix = 'lttng_ust' if hasattr(library, 'lttng_ust_before_fork') else 'ust'  # From 2.13 on.
    signals = ctypes.create_string_buffer(128)  # A sigset_t.
    getattr(library, f'{prefix}_before_fork')(signals)
    pid = os.fork()
    getattr(library, f'{prefix}_after_fork_{"parent" if pid else "child"}')(signals)
    return pid


def run(request: dict[str, Any]) -> None:
    """Run the requested program in this process."""
    if request['ignores_hangup']:
        signal.signal(signal.SIGHUP, signal.SIG_IGN)
    log = os.open(request['log'], os.O_WRONLY | os.O_APPEND)
    nothing = os.open(os.devnull, os.O_RDONLY)
    for source, target in ((nothing, 0), (log, 1), (log, 2)):
        os.dup2(source, target)
    for file in (nothing, log):
        os.close(file)
    faulthandler.enable()
    os.environ.clear()
    os.environ.update(request['environment'])
    added = os.environ.get('PYTHONPATH', '').split(os.pathsep)
    sys.path[:0] = [each for each in added if each not in sys.path]
    program, *arguments = request['command']
    warnings.filterwarnings('ignore', '.* found in sys.modules', RuntimeWarning)
    if program == '-m':
        program, *arguments = arguments
        sys.argv = [program, *arguments]
        runpy.run_module(program, run_name='__main__', alter_sys=True)
    else:
        sys.argv = [program, *arguments]
        sys.path.insert(0, str(Path(program).parent))
        runpy.run_path(program, run_name='__main__')


if __name__ == '__main__':
    sys.path.pop(0)  # The folder of this file.
    prepare()
    wanted = serve(Path(sys.argv[1]))
    if wanted:
        run(wanted)
