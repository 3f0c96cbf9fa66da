"""Hashes, folder locks and permission checks of files shared between processes."""

from collections.abc import Iterator
from contextlib import contextmanager
import fcntl
import grp
import os
from pathlib import Path
import pwd
import shlex
import stat
import time

from trt_ros.errors import ParameterError
from trt_ros.progress import Reporter

LOCK = '.lock'
_UID_MAP = Path('/proc/self/uid_map')
_OVERFLOW_UID = Path('/proc/sys/kernel/overflowuid')


@contextmanager
def locked(folder: Path, report: Reporter) -> Iterator[None]:
    """Lock `folder` against other processes and threads; cancellable while waiting."""
    with os.fdopen(os.open(folder / LOCK, os.O_CREAT | os.O_RDWR, 0o600), 'rb') as file:
        while True:
            try:
                fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
                break
            except BlockingIOError:
                report('waiting for another node or process that builds or downloads a model')
                time.sleep(0.1)
        yield  # Closing the file unlocks.


def make_private(folder: Path, root: Path) -> None:
    """Create `folder`, at or below `root`; raise ParameterError if others can write to it."""
    old = os.umask(0o077)
    try:
        folder.mkdir(parents=True, exist_ok=True)
    finally:
        os.umask(old)
    check_private(folder, root)


def check_private(path: Path, root: Path) -> None:
    """Raise ParameterError if another user can replace the engine at `path` below `root`."""
    instead = 'set engine_cache_dir to a folder that only you can change'
    _check(path, root, f'The engine cache {root}', 'engines contain executable code', instead)


def check_trusted(path: Path) -> None:
    """Raise ParameterError if another user can replace an engine, its sidecar or a plugin."""
    why = 'engines, their sidecars and plugins are executable code'
    instead = 'copy the file to a folder that only you can change'
    _check(path, None, f'The file {path}', why, instead)


def _check(path: Path, root: Path | None, what: str, why: str, instead: str) -> None:
    for each in _components(path):
        risk = _risk(each, is_own=root in (each, *each.parents))
        if risk:
            raise ParameterError(
                f'{what} is not secure.',
                cause=f'{risk}, and {why}.',
                remedy=f'{_remedy(each)}, or {instead}.',
            )


def _components(path: Path) -> Iterator[Path]:
    """Yield a path and every folder and symbolic link that leads to it."""
    paths, seen = [path.absolute()], set()
    while paths:
        last = paths.pop()
        for each in (last, *last.parents):
            if each in seen:
                continue
            seen.add(each)
            yield each
            if each.is_symlink():
                paths.append(each.parent / os.readlink(each))


def _risk(path: Path, *, is_own: bool) -> str:
    """
    Return how another user can change a file, or replace what is in a folder; '' if none can.

    :param is_own: whether the folder is of the engine cache: others may not even add files, and
        it has no group.
    """
    status = path.lstat()
    is_hidden_root = not is_own and stat.S_ISDIR(status.st_mode) and _hides_root(status.st_uid)
    if status.st_uid not in (os.geteuid(), 0) and not is_hidden_root:
        return f'{path} belongs to another user'
    if stat.S_ISLNK(status.st_mode):
        return ''
    # The sticky bit of folders such as /tmp protects the files of others.
    is_shared = stat.S_ISDIR(status.st_mode) and status.st_mode & stat.S_ISVTX and not is_own
    writable = status.st_mode & stat.S_IWOTH or (
        status.st_mode & stat.S_IWGRP and (is_own or not _is_private_group(status.st_gid))
    )
    return f'Other users can write to {path}' if writable and not is_shared else ''


def _hides_root(uid: int) -> bool:
    """Return whether files of the host's root may have this owner, as in rootless containers."""
    if uid != int(_OVERFLOW_UID.read_text()):
        return False
    return sum(int(line.split()[2]) for line in _UID_MAP.read_text().splitlines()) < 2**32 - 1


def _is_private_group(gid: int) -> bool:
    """Return whether a group is root's, or the one that Linux creates for each user."""
    try:
        group, user = grp.getgrgid(gid), pwd.getpwuid(os.geteuid())
    except KeyError:
        return False
    is_named = gid == 0 or (gid == user.pw_gid and group.gr_name == user.pw_name)
    return is_named and not set(group.gr_mem) - {user.pw_name, 'root'}


def _remedy(path: Path) -> str:
    name = shlex.quote(str(path))
    if path.lstat().st_uid not in (os.geteuid(), 0):
        return f'Run `sudo chown {os.geteuid()} {name}`'
    return f'Run `chmod go-w {name}`'
