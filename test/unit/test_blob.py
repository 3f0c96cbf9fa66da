"""Files written as a whole, and data of libraries kept for the next process."""

import io
import os
from pathlib import Path
import threading

import pytest

from trt_ros.regular_file import Blob, write_atomically


def test_file_is_synced_before_rename_and_folder_before_return(tmp_path):
    steps = []

    def sync(fd):
        path = Path(os.readlink(f'/proc/self/fd/{fd}'))
        folder = path if path.is_dir() else path.parent
        steps.append((path, os.fstat(fd).st_size, os.listdir(folder)))

    path = tmp_path / 'net.engine'
    write_atomically(path, io.BytesIO(b'plan'), sync)
    (part, nbytes, before), (folder, _, after) = steps
    assert part.parent == tmp_path and part.name.endswith('.part')
    assert (nbytes, before) == (4, [part.name])
    assert (folder, after) == (tmp_path, ['net.engine'])
    assert path.read_bytes() == b'plan'


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


def test_blob_is_read_whole_or_not_at_all(tmp_path):
    blob = Blob(tmp_path / 'kernels')
    assert blob.load() is None
    assert not blob.save(b'') and not blob.path.exists()
    assert blob.save(b'kernels') and blob.load() == b'kernels'
    assert not blob.save(b'kernels')  # Nothing new, nothing written.
    blob.path.write_bytes(blob.path.read_bytes()[:-1])
    assert blob.load() is None
    assert blob.save(b'kernels') and blob.load() == b'kernels'
    assert [path.name for path in tmp_path.iterdir()] == ['kernels']


def test_blob_that_cannot_be_written_warns(tmp_path, caplog):
    assert not Blob(tmp_path / 'gone' / 'kernels').save(b'x')
    assert 'Cannot write' in caplog.text


def test_two_nodes_of_one_process_may_keep_their_kernels_at_once(tmp_path, caplog):
    blob, together = Blob(tmp_path / 'kernels'), threading.Barrier(2)
    texts = [bytes([number]) * 100_000 for number in range(2)]

    def keep(text):
        for _ in range(20):
            together.wait()
            blob.save(text)

    threads = [threading.Thread(target=keep, args=(text,)) for text in texts]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert blob.load() in texts
    assert caplog.messages == []
