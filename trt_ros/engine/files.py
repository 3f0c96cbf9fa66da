"""Hashes, folder locks and permission checks of files shared between processes."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
import fcntl
import hashlib
import os
from pathlib import Path
import stat
import time
from typing import IO

from trt_ros.errors import ParameterError
from trt_ros.progress import Reporter
from trt_ros.regular_file import open_regular

LOCK = '.lock'


def sha256_of(file: IO[bytes]) -> str:
    """Return the SHA-256 of a file from its current position to the end."""
    digest = hashlib.sha256()
    while chunk := file.read(1 << 20):
        digest.update(chunk)
    return digest.hexdigest()


def sha256_of_file(path: Path) -> str:
    """Return the SHA-256 of a regular file."""
    with open_regular(path) as file:
        return sha256_of(file)


@contextmanager
def locked(folder: Path, report: Reporter) -> Iterator[None]:
    """Lock `folder` against other processes and threads; cancellable while waiting."""
    with os.fdopen(os.open(folder / LOCK, os.O_CREAT | os.O_RDWR, 0o600), 'rb') as file:
        while True:
            try:
                fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
                break
            except BlockingIOError:
                report('waiting for another node or process that is building this model')
                time.sleep(0.1)
        yield  # Closing the file unlocks.


def make_private(folder: Path, root: Path) -> None:
    """
    Create `folder`, which is `root` or below it, and check that no other user can write to it.

    :raises ParameterError: if other users can write there: engines are code.
    :raises OSError: if it cannot be created.
    """
    old = os.umask(0o077)
    try:
        folder.mkdir(parents=True, exist_ok=True)
    finally:
        os.umask(old)
    check_private(folder, root)


def check_private(path: Path, root: Path) -> None:
    """
    Check that no other user can replace the engine at `path` below `root`.

    :raises ParameterError: if one can.
    """
    for each in (path, *path.parents):
        mode, owner = each.stat().st_mode, each.stat().st_uid
        if each == root or root in each.parents:
            if owner not in (os.geteuid(), 0):
                raise ParameterError(
                    f'The engine cache {root} is not secure.',
                    cause=f'{each} belongs to another user, and engines contain executable code.',
                    remedy='Set engine_cache_dir to a folder that you own.',
                )
            risky = bool(mode & 0o022)
        else:  # Above the cache, folders such as /tmp are safe: the sticky bit protects our files.
            risky = bool(mode & stat.S_IWOTH) and not mode & stat.S_ISVTX
        if risky:
            raise ParameterError(
                f'The engine cache {root} is not secure.',
                cause=f'Other users can write to {each}, and engines contain executable code.',
                remedy=f'Run `chmod go-w {each}`, or set engine_cache_dir to your own folder.',
            )
