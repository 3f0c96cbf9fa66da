"""Nodes as processes of their own, started together and ended together."""

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

END_SECONDS = 30.0


@dataclass(frozen=True)
class NodeProcess:
    """One node, which writes into a log file."""

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

        :param folder: gets the log, NAME.log.
        :param remap: new names of topics by their old ones.
        """
        arguments = [sys.executable, '-m', f'trt_ros.nodes.{name}', '--ros-args']
        for key, value in parameters.items():
            # As JSON: YAML would read some text as a number, a truth value or a mapping.
            arguments += ['-p', f'{key}:={json.dumps(value)}']
        for old, new in (remap or {}).items():
            arguments += ['-r', f'{old}:={new}']
        log = folder / f'{name}.log'
        with log.open('wb') as output:
            # A session of its own: Ctrl-C reaches us alone, and we end the node in order.
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
        return self.log.read_text(errors='replace')

    def check(self, *, is_over: bool = False) -> None:
        """
        Look after the process.

        :raises TrtRosError: when it has ended; once all `is_over`, when it did not end well.
        """
        code = self.process.poll()
        if code or (code is not None and not is_over):
            raise self.trouble(f'The node {self.name} ended with exit code {code}.')

    def trouble(self, problem: str) -> TrtRosError:
        """Make an error that shows the end of the log."""
        return TrtRosError(
            problem,
            cause='\n'.join(self.log_text().splitlines()[-12:]) or 'It said nothing.',
            remedy=f'Read the whole log: {self.log}.',
        )


@contextmanager
def running() -> Iterator[list[NodeProcess]]:
    """
    Give a list for nodes, and end those that are in it, whatever happens.

    :raises TrtRosError: when one of them ends badly.
    """
    nodes: list[NodeProcess] = []
    try:
        yield nodes
    finally:
        for node in nodes:  # All at once, so that a second Ctrl-C leaves none behind.
            node.process.send_signal(signal.SIGINT)
        for node in nodes:
            try:
                node.process.wait(END_SECONDS)
            except subprocess.TimeoutExpired:
                node.process.kill()
                node.process.wait()
    for node in nodes:
        node.check(is_over=True)
