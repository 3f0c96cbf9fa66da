"""Nodes in processes of their own, stopped together."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass
import json
from pathlib import Path
import signal
import subprocess
import sys

from trt_ros.errors import TrtRosError

STOP_TIMEOUT_SECONDS = 30.0


@dataclass(frozen=True)
class NodeProcess:
    """A process that runs one node and writes its output to a log file."""

    name: str
    process: subprocess.Popen[bytes]
    log: Path

    @classmethod
    def start(
        cls,
        name: str,
        folder: Path,
        parameters: Mapping[str, object],
        *,
        remap: Mapping[str, str] | None = None,
    ) -> NodeProcess:
        """
        Start a node of trt_ros.nodes.

        :param folder: folder of the log file, NAME.log.
        :param remap: new topic names by original name.
        """
        arguments = [sys.executable, '-m', 'trt_ros.executables', name, '--ros-args']
        for key, value in parameters.items():
            # JSON, because YAML parses some strings as numbers, booleans or mappings.
            arguments += ['-p', f'{key}:={json.dumps(value)}']
        for old, new in (remap or {}).items():
            arguments += ['-r', f'{old}:={new}']
        log = folder / f'{name}.log'
        with log.open('wb') as output:
            # A new session, so that Ctrl-C reaches this process only, which then stops the node.
            return cls(
                name,
                subprocess.Popen(
                    arguments,
                    stdin=subprocess.DEVNULL,
                    stdout=output,
                    stderr=subprocess.STDOUT,
                    start_new_session=True,
                ),
                log,
            )

    def log_text(self) -> str:
        """Return the text of the log file."""
        return self.log.read_text(errors='replace')

    def check(self, *, is_over: bool = False) -> None:
        """
        Check that the process is running or, when it `is_over`, that it exited with code 0.

        :raises TrtRosError: otherwise.
        """
        code = self.process.poll()
        if code or (code is not None and not is_over):
            raise self.error(f'Node {self.name} exited with code {code}.')

    def error(self, problem: str) -> TrtRosError:
        """Return an error with the end of the log as its cause."""
        return TrtRosError(
            problem,
            cause='\n'.join(self.log_text().splitlines()[-12:]) or 'The log is empty.',
            remedy=f'Read the whole log: {self.log}.',
        )


@contextmanager
def running() -> Iterator[list[NodeProcess]]:
    """
    Yield a list for node processes; stop the processes in it on exit.

    :raises TrtRosError: when one of them exits with an error.
    """
    nodes: list[NodeProcess] = []
    try:
        yield nodes
    finally:
        for node in nodes:  # All before waiting, so that a second Ctrl-C leaves no process behind.
            node.process.send_signal(signal.SIGINT)
        for node in nodes:
            try:
                node.process.wait(STOP_TIMEOUT_SECONDS)
            except subprocess.TimeoutExpired:
                node.process.kill()
                node.process.wait()
    for node in nodes:
        node.check(is_over=True)
