"""The transport below rclpy on other middlewares, where these are installed."""

import os
import subprocess
import sys

import pytest

CHECK = """
import rclpy
from rclpy.utilities import get_rmw_implementation_identifier
from trt_ros.ros.dds.transport import usable_rcl

rclpy.init()
node = rclpy.create_node('check')
rcl = usable_rcl(node)
print(get_rmw_implementation_identifier(), rcl is not None and rcl.knows_gids, flush=True)
node.destroy_node()
rclpy.shutdown()
"""


@pytest.mark.parametrize('middleware', ['rmw_cyclonedds_cpp', 'rmw_zenoh_cpp'])
def test_messages_bypass_rclpy_or_one_line_says_why(middleware, domain_id):
    done = subprocess.run(
        [sys.executable, '-c', CHECK],
        env=os.environ | {'RMW_IMPLEMENTATION': middleware, 'ROS_DOMAIN_ID': str(domain_id)},
        capture_output=True,
        text=True,
    )
    name, _, is_direct = done.stdout.strip().partition(' ')
    if name != middleware:
        pytest.skip(f'{middleware} is not installed')
    assert done.returncode == 0, done.stderr
    assert is_direct == 'True' or done.stderr.count('go through rclpy, which is slower') == 1
