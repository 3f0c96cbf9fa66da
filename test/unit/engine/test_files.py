"""Files of the engine cache: whole after a power cut, private, locked."""

from __future__ import annotations

import hashlib
import io
import os
from pathlib import Path
import threading

import pytest

from trt_ros.engine.files import (
    LOCK,
    check_private,
    locked,
    make_private,
    sha256_of_file,
    write_atomically,
)
from trt_ros.errors import ParameterError
from trt_ros.progress import CancelledError, Reporter


@pytest.fixture
def steps(monkeypatch):
    """Record what reaches the disk, in order: ('fsync', path) and ('rename', path)."""
    found = []
    fsync, replace = os.fsync, os.replace

    def recorded_fsync(fd):
        found.append(('fsync', Path(os.readlink(f'/proc/self/fd/{fd}'))))
        fsync(fd)

    def recorded_replace(source, target):
        found.append(('rename', Path(target)))
        replace(source, target)

    monkeypatch.setattr(os, 'fsync', recorded_fsync)
    monkeypatch.setattr(os, 'replace', recorded_replace)
    return found


def test_file_is_synced_before_rename_and_folder_before_return(tmp_path, steps):
    path = tmp_path / 'net.engine'
    write_atomically(path, io.BytesIO(b'plan'))
    (first, part), second, third = steps
    assert first == 'fsync' and part.parent == tmp_path and part.name.endswith('.part')
    assert second == ('rename', path)
    assert third == ('fsync', tmp_path)
    assert path.read_bytes() == b'plan'


def test_all_bytes_are_written_before_the_file_is_synced(tmp_path, monkeypatch):
    sizes, fsync = [], os.fsync

    def recorded(fd):
        sizes.append(os.fstat(fd).st_size)
        fsync(fd)

    monkeypatch.setattr(os, 'fsync', recorded)
    write_atomically(tmp_path / 'net.engine', io.BytesIO(b'x' * 5000))
    assert sizes[0] == 5000


def test_a_write_that_fails_leaves_the_old_file_and_nothing_else(tmp_path):
    path = tmp_path / 'net.engine'
    path.write_bytes(b'old')

    class Broken(io.BytesIO):
        def read(self, size=-1):
            raise OSError('the source broke')

    with pytest.raises(OSError, match='the source broke'):
        write_atomically(path, Broken())
    assert path.read_bytes() == b'old'
    assert list(tmp_path.iterdir()) == [path]


def test_written_file_is_private_and_replaces_existing(tmp_path):
    path = tmp_path / 'net.engine'
    path.write_bytes(b'an older and longer one')
    old = os.umask(0)
    try:
        write_atomically(path, io.BytesIO(b'plan'))
    finally:
        os.umask(old)
    assert path.stat().st_mode & 0o777 == 0o600
    assert path.read_bytes() == b'plan'


def test_a_file_is_hashed_whole(tmp_path):
    data = bytes(range(256)) * 10_000  # Longer than one read.
    (tmp_path / 'plan').write_bytes(data)
    assert sha256_of_file(tmp_path / 'plan') == hashlib.sha256(data).hexdigest()


def test_private_folders_are_made_with_their_parents_and_may_exist(tmp_path):
    root = tmp_path / 'cache'
    old = os.umask(0o022)
    try:
        for _ in range(2):
            make_private(root / 'net' / 'fp16', root)
        assert os.umask(0o022) == 0o022  # As it was.
    finally:
        os.umask(old)
    for each in (root, root / 'net', root / 'net/fp16'):
        assert each.stat().st_mode & 0o777 == 0o700


@pytest.mark.parametrize('bit', [0o020, 0o002])
def test_group_or_world_writable_folder_is_not_private(tmp_path, bit):
    folder = tmp_path / 'cache' / 'net'
    folder.mkdir(parents=True)
    for each in (folder, folder.parent):
        each.chmod(0o755)
    check_private(folder, tmp_path / 'cache')  # To read is allowed.
    for each in (folder, folder.parent):
        each.chmod(0o755 | bit)
        with pytest.raises(ParameterError, match=f'Other users can write to {each},'):
            check_private(folder, tmp_path / 'cache')
        each.chmod(0o755)


@pytest.mark.parametrize(('mode', 'is_safe'), [(0o1777, True), (0o777, False), (0o775, True)])
def test_only_world_writable_parent_without_sticky_bit_is_unsafe(tmp_path, mode, is_safe):
    root = tmp_path / 'shared' / 'cache'
    root.mkdir(parents=True, mode=0o700)
    (tmp_path / 'shared').chmod(mode)
    if is_safe:
        check_private(root, root)
    else:
        with pytest.raises(ParameterError, match=r'Other users can write to .*shared,'):
            check_private(root, root)


@pytest.mark.skipif(os.geteuid() != 0, reason='only root can give files away')
def test_folder_of_another_user_is_not_private(tmp_path):
    root = tmp_path / 'cache'
    root.mkdir(mode=0o700)
    check_private(root, root)
    os.chown(root, 12345, -1)
    with pytest.raises(ParameterError, match='belongs to another user'):
        check_private(root, root)


def test_lock_is_held_until_block_ends_and_waiting_is_cancellable(tmp_path):
    cancelled, seen = threading.Event(), []

    def told(progress):
        seen.append(progress.phase)
        cancelled.set()

    with locked(tmp_path, Reporter(seen.append)):
        assert seen == []
        assert (tmp_path / LOCK).stat().st_mode & 0o777 == 0o600
        with pytest.raises(CancelledError), locked(tmp_path, Reporter(told, cancelled)):
            pass
    assert seen == ['waiting for another node or process that is building this model']
    with locked(tmp_path, Reporter()):
        pass


def test_lock_is_acquired_after_release(tmp_path):
    held = locked(tmp_path, Reporter())
    held.__enter__()
    with locked(tmp_path, Reporter(lambda progress: held.__exit__(None, None, None))):
        pass
