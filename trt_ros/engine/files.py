"""Files that other processes read at the same time, or that a power cut may hit."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
import fcntl
import hashlib
import os
from pathlib import Path
import shutil
import stat
import threading
import time
from typing import IO

from trt_ros.errors import ParameterError
from trt_ros.progress import Reporter
from trt_ros.regular_file import open_regular

PART = '.part'  # Suffix of what is being written; a leftover is swept by the next writer.
LOCK = '.lock'


def sha256_of(file: IO[bytes]) -> str:
    """Hash from here to the end."""
    digest = hashlib.sha256()
    while chunk := file.read(1 << 20):
        digest.update(chunk)
    return digest.hexdigest()


def sha256_of_file(path: Path) -> str:
    with open_regular(path) as file:
        return sha256_of(file)


def write_atomically(path: Path, source: IO[bytes]) -> None:
    """Put what is left of `source` at `path`: whole and on the disk, or not at all."""
    part = path.with_name(f'.{path.name}.{os.getpid()}.{threading.get_native_id()}{PART}')
    try:
        with os.fdopen(os.open(part, os.O_CREAT | os.O_WRONLY | os.O_TRUNC, 0o600), 'wb') as file:
            shutil.copyfileobj(source, file, 1 << 20)
            file.flush()
            os.fsync(file.fileno())
        os.replace(part, path)
    finally:
        part.unlink(missing_ok=True)
    folder = os.open(path.parent, os.O_RDONLY)
    try:
        os.fsync(folder)
    finally:
        os.close(folder)


@contextmanager
def locked(folder: Path, report: Reporter) -> Iterator[None]:
    """Hold `folder` against other processes and threads; cancellable while it waits."""
    with os.fdopen(os.open(folder / LOCK, os.O_CREAT | os.O_RDWR, 0o600), 'rb') as file:
        while True:
            try:
                fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
                break
            except BlockingIOError:
                report('waiting for another process that builds this model')
                time.sleep(0.1)
        yield  # Closing the file unlocks.


def make_private(folder: Path, root: Path) -> None:
    """
    Make `folder`, below or equal to `root`, and see that nobody else can write in between.

    :raises ParameterError: when others can write there: engines are code.
    :raises OSError: when it cannot be made.
    """
    old = os.umask(0o077)
    try:
        folder.mkdir(parents=True, exist_ok=True)
    finally:
        os.umask(old)
    check_private(folder, root)


def check_private(path: Path, root: Path) -> None:
    """:raises ParameterError: when others could put another engine at `path` below `root`."""
    for each in (path, *path.parents):
        mode, owner = each.stat().st_mode, each.stat().st_uid
        if each == root or root in each.parents:
            if owner not in (os.geteuid(), 0):
                raise ParameterError(
                    f'The engine cache {root} is not safe.',
                    cause=f'{each} belongs to another user, and an engine is code that runs.',
                    remedy='Set engine_cache_dir to a folder of your own.',
                )
            risky = bool(mode & 0o022)
        else:  # Above the cache, /tmp and its like are fine: the sticky bit guards what is ours.
            risky = bool(mode & stat.S_IWOTH) and not mode & stat.S_ISVTX
        if risky:
            raise ParameterError(
                f'The engine cache {root} is not safe.',
                cause=f'Others can write {each}, and an engine is code that runs.',
                remedy=f'chmod go-w {each}, or set engine_cache_dir to a folder of your own.',
            )
