"""Launch files that run in processes of their own."""

from __future__ import annotations

from contextlib import suppress
import os
from pathlib import Path
import re
import signal
import subprocess
import sys
import time

from support.ros_nodes import shared_memory_of
from support.waiting import DEADLINE_SECONDS

CHECKOUT = Path(__file__).parents[2]

RUN = """
import os, sys
from launch import LaunchDescription, LaunchService
from launch.actions import IncludeLaunchDescription
service = LaunchService(noninteractive=not os.environ.get('INTERACTIVE'))
service.include_launch_description(LaunchDescription([IncludeLaunchDescription(
    sys.argv[1], launch_arguments=[each.split(':=', 1) for each in sys.argv[2:]])]))
sys.exit(service.run())
"""


class Launch:
    """A launch file that runs, as `ros2 launch` would run it."""

    def __init__(self, folder, file, *arguments, **environment):
        self.left_behind = set()  # Of Fast DDS's files, by processes that crashed.
        self._log = folder / 'output'
        self._mark = f'ROS_LOG_DIR={folder}'.encode()
        with self._log.open('wb') as output:
            self.process = subprocess.Popen(
                [sys.executable, '-c', RUN, str(CHECKOUT / 'launch' / file), *arguments],
                stdout=output,
                stderr=subprocess.STDOUT,
                env={
                    **os.environ,
                    'ROS_AUTOMATIC_DISCOVERY_RANGE': 'LOCALHOST',
                    **environment,
                    'ROS_LOG_DIR': str(folder),
                },
            )

    @property
    def output(self):
        return self._log.read_text()

    def waits_for(self, condition):
        deadline = time.monotonic() + DEADLINE_SECONDS
        while not condition():
            assert time.monotonic() < deadline, self.output
            assert self.process.poll() is None, self.output
            self._pause()

    def says(self, *texts):
        self.waits_for(lambda: all(text in self.output for text in texts))

    def ends(self):
        """Return the exit code; all that was started has ended as well."""
        code = self.process.wait(DEADLINE_SECONDS)
        assert not [path for path in Path('/proc').glob('[0-9]*') if self._is_mine(path)]
        return code

    def _is_mine(self, process):
        try:
            return self._mark in (process / 'environ').read_bytes().split(b'\0')
        except OSError:  # Ended meanwhile.
            return False

    def stop(self):
        self.process.send_signal(signal.SIGINT)
        return self.ends()

    def pid_of(self, executable):
        """Return the process id of the last start of an executable; 0 without any."""
        started = re.findall(
            rf'\[{executable}-\d+\]: process started with pid \[(\d+)\]', self.output
        )
        return int(started[-1]) if started else 0

    def crash(self, executable):
        """Kill a process."""
        pid = self.pid_of(executable)
        self.left_behind |= shared_memory_of(pid, with_ports=True)
        os.kill(pid, signal.SIGKILL)
        self.waits_for(lambda: not Path('/proc', str(pid)).exists())

    def _pause(self):
        with suppress(subprocess.TimeoutExpired):
            self.process.wait(0.05)


def remove_what_crashed(files):
    """Remove what Fast DDS left behind; what others had mapped too is theirs or gone by now."""
    used = set().union(
        *(shared_memory_of(each.name, with_ports=True) for each in Path('/proc').glob('[0-9]*'))
    )
    for name in set(files) - used:
        Path(name).unlink(missing_ok=True)
        # A port's lock is not mapped under its name.
        Path(f'/dev/shm/sem.{Path(name).name}_mutex').unlink(missing_ok=True)
