"""Result of one check of `trt-ros doctor`."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path


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
