"""Commands of the set-up: their log files, and the cause and remedy of a failure."""

from __future__ import annotations

from collections.abc import Callable, Mapping
import os
from pathlib import Path
import re
import subprocess

from environment import HOOK_DONE, Environment, SetupError

NO_NETWORK = re.compile(
    'NewConnectionError|NameResolutionError|ConnectTimeoutError|ReadTimeoutError|ProxyError|'
    'Network is unreachable|Connection refused|Temporary failure in name resolution'
)


def run(
    command: list[str],
    environment: Environment,
    name: str,
    *,
    follow: Callable[[str], None] = lambda line: None,
    variables: Mapping[str, str] | None = None,
    folder: Path | None = None,
) -> None:
    """
    Run a command with its output in a log file.

    :raises SetupError: if it fails, with a cause and a remedy derived from the output.
    """
    log = environment.notes / f'{name}.log'
    log.parent.mkdir(parents=True, exist_ok=True)
    if variables is None:
        # Keeps the pip settings of the user, except those that install elsewhere. As a variable,
        # the constraints also apply to the build requirements of source packages.
        variables = (
            {
                key: value
                for key, value in os.environ.items()
                if key not in ('PIP_TARGET', 'PIP_PREFIX', 'PIP_ROOT', 'PYTHONHOME')
            }
            | HOOK_DONE
            | {'PIP_USER': '0', 'PIP_CONSTRAINT': str(environment.notes / 'constraints.txt')}
        )
    lines: list[str] = []
    with (
        log.open('a') as file,
        subprocess.Popen(
            command,
            text=True,
            errors='replace',
            env=dict(variables),
            cwd=folder,
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
        ) as process,
    ):
        assert process.stdout is not None
        for line in process.stdout:
            file.write(line)
            lines.append(line.rstrip())
            follow(line)
    if process.returncode:
        raise explain(lines, log, name)


def explain(lines: list[str], log: Path, name: str) -> SetupError:
    """Turn the output of a failed command into a cause and a remedy."""
    output = '\n'.join(lines)
    if 'No space left on device' in output:
        return SetupError('The disk is full.', remedy='Free 2 GB and start again.')
    if name == 'pip' and NO_NETWORK.search(output):
        return SetupError(
            'Cannot reach the Python package index.',
            cause='No network, or a proxy in between.',
            remedy='Connect this machine (behind a proxy: set https_proxy; with an index of '
            'your own: PIP_INDEX_URL) and start again; it continues from here.',
        )
    if name == 'pip' and 'No matching distribution found' in output:
        wanted = output.rsplit('No matching distribution found for ', 1)[1].split('\n')[0]
        return SetupError(
            f'The package index has no {wanted} for this machine.',
            remedy='Use Python 3.12 on an x86_64 machine with glibc 2.28 or newer, or install '
            'ROS 2 with its apt packages and source it.',
        )
    tail = '\n'.join(lines[-15:])
    return SetupError(
        f'Setting up failed at {name}. The end of its output:\n{tail}',
        remedy=f'See {log}. Delete {log.parent.parent} to start over.',
    )
