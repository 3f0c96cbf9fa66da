"""What survives a power cut: data before its name, the name before success is reported."""

from __future__ import annotations

import io
import os
from pathlib import Path

import pytest

from trt_ros.engine.files import write_atomically


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


def test_a_file_is_on_the_disk_before_it_gets_its_name_and_the_name_before_the_call_returns(
        tmp_path, steps):
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
