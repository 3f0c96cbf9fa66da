"""Reserved ROS domains."""

import fcntl
import os
import random
import tempfile

from demo.domain import reserved_domain
import pytest


@pytest.mark.parametrize('is_taken', [False, True])
def test_a_lock_that_its_last_holder_removes_meanwhile_is_not_held(
    monkeypatch, tmp_path, is_taken
):
    monkeypatch.setattr(tempfile, 'tempdir', str(tmp_path))
    lock_file, removed = fcntl.flock, []

    def flock(file, operation):
        if not removed:
            removed.append(file.name)
            os.unlink(file.name)
            if is_taken:  # By another process.
                open(file.name, 'w').close()
        lock_file(file, operation)

    monkeypatch.setattr(fcntl, 'flock', flock)
    monkeypatch.setattr(random, 'sample', lambda numbers, count: list(numbers))
    with reserved_domain() as number:
        assert number == 2
