"""Files of the engine cache: private, locked."""

from contextlib import nullcontext
import os
import subprocess
import sys
import threading

import pytest

from trt_ros.engine import files
from trt_ros.engine.files import LOCK, check_private, check_trusted, locked, make_private
from trt_ros.errors import ParameterError
from trt_ros.progress import CancelledError, Reporter


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


needs_root = pytest.mark.skipif(os.geteuid() != 0, reason='only root can give files away')


WRITABLE, FOREIGN = 'Other users can write to {},', '{} belongs to another user'


@pytest.mark.parametrize(
    ('name', 'mode', 'owner', 'group', 'problem'),
    [
        ('net', 0o755, -1, -1, ''),  # To read is allowed.
        ('net', 0o775, -1, -1, WRITABLE),
        ('net', 0o757, -1, -1, WRITABLE),
        ('cache', 0o775, -1, -1, WRITABLE),
        ('cache', 0o1757, -1, -1, WRITABLE),
        ('cache', 0o700, 12345, -1, FOREIGN),
        ('shared', 0o1777, -1, -1, ''),
        ('shared', 0o777, -1, -1, WRITABLE),
        ('shared', 0o775, -1, -1, ''),  # Of the group of the user alone.
        ('shared', 0o775, -1, 12345, WRITABLE),
        ('shared', 0o755, 12345, -1, FOREIGN),
    ],
)
def test_folders_that_others_can_change_are_not_private(
    tmp_path, name, mode, owner, group, problem
):
    if os.geteuid() != 0 and (owner, group) != (-1, -1):
        pytest.skip('only root can give files away')
    root = tmp_path / 'shared' / 'cache'
    (root / 'net').mkdir(parents=True)
    for each in (root / 'net', root, root.parent):
        each.chmod(0o700)
    (path,) = tmp_path.rglob(name)
    os.chown(path, owner, group)
    path.chmod(mode)
    expected = (
        pytest.raises(ParameterError, match=problem.format(path)) if problem else nullcontext()
    )
    with expected:
        check_private(root / 'net', root)


@needs_root
def test_root_of_the_host_has_no_name_in_a_rootless_container(tmp_path):
    root = tmp_path / 'host' / 'cache'
    root.mkdir(parents=True, mode=0o700)
    overflow = int(files._OVERFLOW_UID.read_text())
    os.chown(tmp_path / 'host', overflow, -1)
    with pytest.raises(ParameterError, match='belongs to another user'):
        check_private(root, root)
    code = (
        'import sys; from pathlib import Path; from trt_ros.engine.files import check_private\n'
        'check_private(*[Path(sys.argv[1])] * 2)'
    )
    command = ['unshare', '--user', '--map-root-user', sys.executable, '-S', '-c', code, str(root)]
    path = {**os.environ, 'PYTHONPATH': os.pathsep.join(sys.path)}

    def errors():
        return subprocess.run(command, env=path, text=True, capture_output=True).stderr

    if 'unshare: ' in (said := errors()):
        pytest.skip(said)
    assert said == ''
    os.chown(root, overflow, -1)
    assert 'cache belongs to another user' in errors()  # Only folders above.


@needs_root
def test_link_of_another_user_is_not_trusted(tmp_path):
    tmp_path.chmod(0o1777)
    (tmp_path / 'net').touch(0o600)
    (tmp_path / 'link').symlink_to(tmp_path / 'net')
    (tmp_path / 'second').symlink_to('link')
    check_trusted(tmp_path / 'second')
    os.chown(tmp_path / 'link', 12345, -1, follow_symlinks=False)
    with pytest.raises(ParameterError, match=r'link belongs to another user') as caught:
        check_trusted(tmp_path / 'second')
    assert f'chown {os.geteuid()} ' in caught.value.remedy


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
    assert seen == ['waiting for another node or process that builds or downloads a model']
    with locked(tmp_path, Reporter()):
        pass
