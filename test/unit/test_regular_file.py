"""Reading of regular files only, with a size limit."""

import os
from pathlib import Path
import socket

import pytest

from trt_ros.errors import ParameterError
from trt_ros.regular_file import check_output_file, open_regular, read_regular


def test_an_empty_file_is_read(tmp_path):
    (tmp_path / 'file').touch()
    assert read_regular(tmp_path / 'file', 10) == b''


def test_a_file_of_the_maximum_size_is_read_and_one_byte_more_is_refused(tmp_path):
    path = tmp_path / 'file'
    path.write_bytes(b'12345')
    assert read_regular(path, 5) == b'12345'
    with pytest.raises(OSError, match='more than 4 bytes'):
        read_regular(path, 4)


def test_a_symbolic_link_to_a_file_is_followed(tmp_path):
    (tmp_path / 'file').write_bytes(b'x')
    (tmp_path / 'link').symlink_to('file')
    assert read_regular(tmp_path / 'link', 1) == b'x'


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


def test_the_check_of_an_output_keeps_a_link_to_a_file_to_come(tmp_path):
    (tmp_path / 'link.json').symlink_to('new.json')
    check_output_file(tmp_path / 'link.json')
    assert (tmp_path / 'link.json').is_symlink() and not (tmp_path / 'new.json').exists()
