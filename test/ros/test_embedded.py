"""The Python side of the plugin for C++ containers, without the plugin."""

import os
from pathlib import Path
import subprocess
import sys

from support.waiting import DEADLINE_SECONDS

CHECKOUT = Path(__file__).parents[2]


def test_nodes_are_loaded_with_the_options_of_rclcpp(domain_id, tmp_path):
    path = [str(CHECKOUT), str(CHECKOUT / 'test'), os.environ.get('PYTHONPATH', '')]
    done = subprocess.run(
        [sys.executable, str(CHECKOUT / 'test/support/nodes/embedded_host.py')],
        env={
            **os.environ,
            'PYTHONPATH': os.pathsep.join(path),
            'ROS_DOMAIN_ID': str(domain_id),
            'ROS_LOG_DIR': str(tmp_path),
        },
        text=True,
        capture_output=True,
        timeout=DEADLINE_SECONDS,
    )
    assert done.returncode == 0, done.stderr
    lines = done.stdout.splitlines()
    assert lines[0] == 'front /robot _front_images'
    assert lines[1] == 'unknown: Failed to find class with the requested plugin name.'
    assert lines[2].startswith('wrong type: ') and 'qos_depth' in lines[2]
    assert lines[-2:] == ['detector 0.125', 'done']
    assert 'Traceback' not in done.stderr
