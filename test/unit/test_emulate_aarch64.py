"""The script that runs tests emulated ends with the exit status of pytest."""

import os
from pathlib import Path
import subprocess

import pytest

SCRIPT = Path(__file__).parents[2] / 'tools/emulate_aarch64.sh'
# As proot 5.1 does where a process that a test left behind ends last, with 0.
PROOT = """#!/bin/bash
while [ "$1" != /bin/bash ]; do shift; done
"${@//\\/usr\\/bin\\/python3/PYTHON}"
exit 0
"""


@pytest.mark.parametrize(('python', 'status'), [('true', 0), ('exit 5;', 2), ('false', 1)])
def test_status_is_that_of_pytest(tmp_path, python, status):
    (tmp_path / 'proot').write_text(PROOT.replace('PYTHON', python))
    (tmp_path / 'proot').chmod(0o755)
    (tmp_path / 'trt_ros_test/aarch64').mkdir(parents=True)
    (tmp_path / 'trt_ros_test/aarch64/ready').touch()
    environment = os.environ | {
        'PATH': f'{tmp_path}:{os.environ["PATH"]}',
        'XDG_CACHE_HOME': str(tmp_path),
    }
    done = subprocess.run([SCRIPT, 'test/unit'], env=environment, capture_output=True, text=True)
    assert done.returncode == status, done.stderr
