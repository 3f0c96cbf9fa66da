"""A policy node that walks a simulated robot through topics."""

from __future__ import annotations

import pytest

pytest.importorskip('rclpy')
pytest.importorskip('vision_msgs')
pytest.importorskip('onnxruntime')

from std_msgs.msg import Float64MultiArray

from support.go1 import JOINTS, PARAMETERS, POLICIES, Go1

pytestmark = pytest.mark.ros
DISTANCE = 8.018  # In 10 s, as measured in one process with ONNX Runtime.


@pytest.fixture
def go1(start_node, peer):
    """Start a policy node and the robot that it walks."""
    pytest.importorskip('mujoco', reason='no simulator: pip install mujoco')
    if not POLICIES.is_dir():
        pytest.skip(f'no policies in {POLICIES}')

    def start(**parameters):
        parameters = {
            'autostart': True,
            'output': 'multi_array',
            'backend': 'onnxruntime',
            'qos_reliability': 'reliable',
            'qos_depth': 50,
            **PARAMETERS,
            **parameters,
        }
        node = start_node('walker', 'trt_ros.nodes.policy', **parameters)
        node.wait_for_log('Started: active.')
        kind, topic, positions = (
            Float64MultiArray,
            '/walker/commands',
            lambda message: message.data,
        )
        if parameters['output'] == 'joint_trajectory':
            from trajectory_msgs.msg import JointTrajectory

            kind, topic = JointTrajectory, '/walker/joint_trajectory'

            def positions(message):
                assert message.joint_names == JOINTS
                return message.points[0].positions

        return node, Go1(peer, peer.inbox(kind, topic), positions)

    return start


def test_a_policy_walks_a_robot_through_topics(go1):
    node, robot = go1()
    assert (
        'input obs: velocity, turn, gravity, q, dq, last, command, one after another' in node.log
    )
    robot.walk(10)
    assert robot.distance == pytest.approx(DISTANCE, rel=0.02), node.log
    assert robot.upright > 0.99
