"""A tensor node whose network takes joints, a body and a command, as a walking policy does."""

from __future__ import annotations

import numpy as np
import pytest

pytest.importorskip('rclpy')
pytest.importorskip('vision_msgs')
pytest.importorskip('onnx')
pytest.importorskip('onnxruntime')

from diagnostic_msgs.msg import DiagnosticArray
from geometry_msgs.msg import Quaternion, TwistStamped
from nav_msgs.msg import Odometry
from rosgraph_msgs.msg import Clock
from sensor_msgs.msg import Imu, JointState
from std_msgs.msg import Float32MultiArray

from support.backends import ON_CPU
from support.ros_messages import stamped

pytestmark = pytest.mark.ros

INPUTS = (
    'q=joints:joint_states#position[knee,hip]?default=0.5,0.25&scale=2',
    'dq=joints:joint_states#velocity[knee,hip]?clip=-1,1',
    'gravity=imu:imu#gravity',
    'command=twist:cmd_vel#linear[x,y],angular[z]',
    'velocity=odometry:odom#linear',
)


@pytest.fixture(scope='module')
def models(tmp_path_factory):
    from onnx import helper

    from support.save_network import save_network

    names = {'q': 2, 'dq': 2, 'gravity': 3, 'command': 3, 'velocity': 3}
    path = tmp_path_factory.mktemp('models') / 'policy.onnx'
    nodes = [helper.make_node('Concat', list(names), ['action'], axis=1)]
    inputs = {name: (1, size) for name, size in names.items()}
    return {'policy': save_network(path, nodes, inputs, {'action': (1, 13)})}


@pytest.mark.parametrize('backend', [ON_CPU], indirect=True)
def test_a_policy_takes_joints_a_body_and_a_command(start, peer, publisher):
    clock = peer.publisher(Clock, '/clock')
    node = start(
        'tensor',
        'walker',
        'policy',
        inputs=list(INPUTS),
        rate_hz=10.0,
        use_sim_time=True,
        tensor_format='multiarray',
    )
    assert 'input q: joints on /joint_states#position[knee,hip]' in node.log
    assert 'input command: twist on /cmd_vel#linear[x,y],angular[z]' in node.log
    joints = publisher(JointState, '/joint_states')
    imu, command = publisher(Imu, '/imu'), publisher(TwistStamped, '/cmd_vel')
    odometry = publisher(Odometry, '/odom')
    actions = peer.inbox(Float32MultiArray, '/walker/tensors/action')

    def publish(names):
        positions, velocities = [0.1, 0.2, 0.3], [0.0, -5.0, 0.5]
        state = stamped(JointState(name=names, position=positions, velocity=velocities), 1)
        joints.publish(state)
        turned = stamped(Imu(orientation=Quaternion(x=1.0, w=0.0)), 1)  # Upside down.
        imu.publish(turned)
        wanted = stamped(TwistStamped(), 1)
        wanted.twist.linear.x, wanted.twist.angular.z = 0.75, -0.5
        command.publish(wanted)
        moved = stamped(Odometry(), 1)
        moved.twist.twist.linear.y = 0.125
        odometry.publish(moved)

    seconds = 0

    def tick():
        nonlocal seconds
        seconds += 1
        message = Clock()
        message.clock.sec = seconds
        clock.publish(message)

    def wait(condition, what, names):
        def attempt():
            publish(names)
            tick()
            return condition()

        peer.wait_until(attempt, what)

    wait(lambda: actions.messages, 'an action', ['hip', 'knee', 'toe'])
    q, dq = (np.array([0.2, 0.1]) - [0.5, 0.25]) * 2, [-1.0, 0.0]
    expected = [*q, *dq, 0.0, 0.0, 1.0, 0.75, 0.0, -0.5, 0.0, 0.125, 0.0]
    np.testing.assert_allclose(actions.messages[0].data, expected, rtol=1e-6, atol=1e-7)
    node.wait_for_log('No network input takes these joints of /joint_states: toe')
    inbox = peer.inbox(DiagnosticArray, '/diagnostics')

    def dropped():
        values = [each for array in inbox.messages for each in array.status[0].values]
        return any('missing joint' in each.key for each in values)

    wait(dropped, 'dropped messages', ['hip', 'foot', 'toe'])
    assert "The message has no joint 'knee'" in node.log


@pytest.mark.parametrize('backend', [ON_CPU], indirect=True)
def test_messages_without_a_stamp_do_not_meet_by_equal_stamps(start_node, models, backend):
    node = start_node(
        'walker',
        'trt_ros.nodes.tensor',
        autostart=True,
        backend=backend,
        model_path=models['policy'],
        inputs=list(INPUTS),
    )
    node.wait_for_log("Messages of 'cmd_vel' have no stamp")
