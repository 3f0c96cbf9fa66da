"""Regular files, read with a size limit, and written as a whole."""

import io
import os
from pathlib import Path
import socket
import threading

import pytest

from support.scripts import run_script
from trt_ros.errors import ParameterError
from trt_ros.regular_file import (
    Blob,
    check_output_file,
    open_regular,
    read_regular,
    write_atomically,
)


def test_a_file_of_at_most_the_maximum_size_is_read_also_by_a_link(tmp_path):
    path, link = tmp_path / 'file', tmp_path / 'link'
    path.touch()
    assert read_regular(path, 10) == b''
    path.write_bytes(b'12345')
    link.symlink_to('file')
    assert read_regular(path, 5) == read_regular(link, 5) == b'12345'
    with pytest.raises(OSError, match='more than 4 bytes'):
        read_regular(path, 4)


def test_pipes_sockets_devices_and_folders_are_refused_at_once(tmp_path):
    os.mkfifo(tmp_path / 'pipe')
    with socket.socket(socket.AF_UNIX) as listener:
        listener.bind(str(tmp_path / 'socket'))
    for path in (tmp_path / 'pipe', tmp_path / 'socket', Path('/dev/zero')):
        with pytest.raises(OSError, match='Not a regular file'):
            open_regular(path)
    with pytest.raises(IsADirectoryError):
        open_regular(tmp_path)


@pytest.mark.parametrize(
    ('name', 'cause'),
    [
        ('gone/out.json', 'The folder .*gone does not exist'),
        ('', 'It is a folder'),
        ('x' * 300, 'File name too long'),
        (f'{"x" * 300}/out.json', 'The folder .* does not exist'),
    ],
)
def test_a_file_that_cannot_be_written_is_refused(tmp_path, name, cause):
    with pytest.raises(ParameterError, match=f'(?s)cannot be written.*Cause: {cause}'):
        check_output_file(tmp_path / name)


def test_the_check_of_an_output_leaves_no_trace(tmp_path):
    check_output_file(tmp_path / 'new.json')
    assert not (tmp_path / 'new.json').exists()
    (tmp_path / 'old.json').write_text('content')
    check_output_file(tmp_path / 'old.json')
    assert (tmp_path / 'old.json').read_text() == 'content'
    os.mkfifo(tmp_path / 'pipe')
    check_output_file(tmp_path / 'pipe')
    (tmp_path / 'link.json').symlink_to('new.json')
    check_output_file(tmp_path / 'link.json')
    assert (tmp_path / 'link.json').is_symlink() and not (tmp_path / 'new.json').exists()


def test_a_full_disk_leaves_no_part_of_a_text(tmp_path):
    code = (
        'import resource, sys; from pathlib import Path\n'
        'from trt_ros.errors import ParameterError; from trt_ros.regular_file import write_text\n'
        'resource.setrlimit(resource.RLIMIT_FSIZE, (100_000, 100_000))\n'
        'path = Path(sys.argv[1])\n'
        'write_text(path, chr(233))\n'
        'assert path.read_bytes() == b"\\xc3\\xa9"\n'
        'try: write_text(path, 200_000 * "x", "Choose another one.")\n'
        'except ParameterError as error: print(error)'
    )
    said = run_script(code, tmp_path / 'a.json', LC_ALL='POSIX', PYTHONUTF8='0').stdout
    assert said.endswith(
        'a.json cannot be written.\nCause: File too large\nRemedy: Choose another one.\n'
    )
    assert not list(tmp_path.iterdir())


def test_private_file_is_synced_before_rename_and_folder_before_return(tmp_path):
    steps = []

    def sync(fd):
        path = Path(os.readlink(f'/proc/self/fd/{fd}'))
        folder = path if path.is_dir() else path.parent
        steps.append((path, os.fstat(fd).st_size, os.listdir(folder)))

    path = tmp_path / 'net.engine'
    path.write_bytes(b'an older and longer one')
    old = os.umask(0)
    try:
        write_atomically(path, io.BytesIO(b'plan'), sync)
    finally:
        os.umask(old)
    (part, nbytes, before), (folder, _, after) = steps
    assert part.parent == tmp_path and part.name.endswith('.part')
    assert (nbytes, sorted(before)) == (4, [part.name, 'net.engine'])
    assert (folder, after) == (tmp_path, ['net.engine'])
    assert path.read_bytes() == b'plan' and path.stat().st_mode & 0o777 == 0o600


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
