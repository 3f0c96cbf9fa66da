"""Result of one check of `trt-ros doctor`."""

from dataclasses import dataclass
from pathlib import Path
import subprocess

TOOL_SECONDS = 20.0


@dataclass(frozen=True)
class Finding:
    """
    A result of one check.

    :param state: 'ok'; 'missing', optional and absent; 'problem', present but broken.
    """

    name: str
    state: str
    detail: str
    remedy: str = ''


def file_text(path: Path) -> str:
    """Return the text of a file of the system without NUL and outer white space, '' without it."""
    try:
        return path.read_text(errors='replace').replace('\0', '').strip()
    except OSError:
        return ''


def tool_text(*command: str) -> str:
    """
    Run a program of the system that may be broken.

    :returns: what it printed, or why nothing is known.
    """
    try:
        done = subprocess.run(
            command,
            stdin=subprocess.DEVNULL,
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
            timeout=TOOL_SECONDS,
        )
    except subprocess.TimeoutExpired:
        return f'it did not end within {TOOL_SECONDS:g} s'
    except OSError as error:
        return error.strerror or str(error)
    return done.stdout.decode(errors='replace').strip()
