"""A tensor node whose network takes joints, a body and a command, as a walking policy does."""

from builtin_interfaces.msg import Time
from diagnostic_msgs.msg import DiagnosticArray
from geometry_msgs.msg import Quaternion, TwistStamped
from nav_msgs.msg import Odometry
import numpy as np
import pytest
from rclpy.qos import DurabilityPolicy, QoSProfile
from rosgraph_msgs.msg import Clock
from sensor_msgs.msg import Imu, JointState
from std_msgs.msg import Float32, Float32MultiArray

from support.backends import ON_CPU
from support.ros_messages import follow_clock, stamped
from support.save_network import save_texts

INPUTS = (
    'q=joints:joint_states#position[knee,hip]?default=0.5,0.25&scale=2',
    'dq=joints:joint_states#velocity[knee,hip]?clip=-1,1',
    'gravity=imu:imu#gravity',
    'command=twist:cmd_vel#linear[x,y],angular[z]',
    'velocity=odometry:odom#linear',
)
#: In the text format of ONNX.
NETWORKS = {
    'policy': '(float[1, 2] q, float[1, 2] dq, float[1, 3] gravity, float[1, 3] command, '
    'float[1, 3] velocity) => (float[1, 13] action) '
    '{ action = Concat <axis = 1> (q, dq, gravity, command, velocity) }',
    'guided': '(float[1, 2] q, float[1, 1] gain, float[1, 2] prompt) => (float[1, 5] action) '
    '{ action = Concat <axis = 1> (q, gain, prompt) }',
}


@pytest.fixture(scope='module')
def models(tmp_path_factory):
    return save_texts(tmp_path_factory.mktemp('models'), NETWORKS)


@ON_CPU
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


@ON_CPU
def test_held_messages_start_no_run_and_stay(start, peer, publisher):
    latched = QoSProfile(depth=1, durability=DurabilityPolicy.TRANSIENT_LOCAL)
    node = start(
        'tensor',
        'guided',
        'guided',
        inputs=[
            'q=joints:joint_states#position[a,b]',
            'gain=number:gain?held=true&initial=0.5',
            'prompt=tensor:prompt?held=true',
        ],
        tensor_format='multiarray',
    )
    assert 'input gain: number on /gain, held' in node.log
    joints = publisher(JointState, '/joint_states')
    actions = peer.inbox(Float32MultiArray, '/guided/tensors/action')
    second = 0

    def step():
        nonlocal second
        second += 1
        joints.publish(stamped(JointState(name=['a', 'b'], position=[1.0, 2.0]), second))

    def wait_for(*expected):
        def is_there():
            step()
            return any(list(each.data) == [1, 2, *expected] for each in actions.messages)

        peer.wait_until(is_there, f'the action {expected}')

    step()
    node.wait_for_log('There is no message on /prompt yet, which inputs holds')
    # Published once, before the node can know the publisher: it is kept for it.
    prompt = peer.publisher(Float32MultiArray, '/prompt', latched)
    prompt.publish(Float32MultiArray(data=[7.0, 8.0]))
    wait_for(0.5, 7, 8)
    gain = publisher(Float32, '/gain')
    gain.publish(Float32(data=0.25))
    wait_for(0.25, 7, 8)
    prompt.publish(Float32MultiArray(data=[9.0, 8.0, 7.0]))  # Of another shape.
    peer.wait_until(lambda: step() or 'prompt came as (3)' in node.log, 'an error in the log')
    prompt.publish(Float32MultiArray(data=[9.0, 8.0]))
    wait_for(0.25, 9, 8)


@ON_CPU
@pytest.mark.parametrize('settings', ['', '?held=true&initial=0'])
def test_a_type_with_a_stamp_that_comes_later_is_sampled(start, peer, publisher, settings):
    inputs = [
        'q=joints:joint_states#position[a,b]',
        'gain=number:gain?held=true&initial=0.5',
        f'prompt=twist:cmd_vel#linear[x,y]{settings}',
    ]
    node = start(
        'tensor', 'retyped', 'guided', inputs=inputs, rate_hz=20.0, tensor_format='multiarray'
    )
    joints, command = publisher(JointState, '/joint_states'), publisher(TwistStamped, '/cmd_vel')
    actions = peer.inbox(Float32MultiArray, '/retyped/tensors/action')
    wanted = stamped(TwistStamped(), 1)
    wanted.twist.linear.x = 0.75

    def is_there():
        joints.publish(stamped(JointState(name=['a', 'b'], position=[1.0, 2.0]), 1))
        command.publish(wanted)
        return any(list(each.data) == [1, 2, 0.5, 0.75, 0] for each in actions.messages)

    peer.wait_until(is_there, 'the command of a type with a stamp')
    node.stop()


def test_a_topic_of_another_type_beside_images_is_warned_about(start_node, peer):
    peer.publisher(JointState, '/held_states')
    remap = ('-r', 'detections:=/held_states')
    overlay = start_node('mistyped_overlay', 'trt_ros.nodes.overlay', *remap, autostart=True)
    overlay.wait_for_log('but this node subscribes to vision_msgs/msg/Detection2DArray')


@ON_CPU
def test_a_held_message_is_used_up_to_its_age_and_not_ahead_of_the_clock(start, peer, publisher):
    node = start(
        'tensor',
        'guided',
        'guided',
        inputs=[
            'q=joints:joint_states#position[a,b]',
            'gain=number:gain?held=true&initial=0.5&max_age=1000',
            'prompt=twist:cmd_vel#linear[x,y]?held=true&max_age=1000',
        ],
        tensor_format='multiarray',
        use_sim_time=True,
    )
    joints, clock = publisher(JointState, '/joint_states'), publisher(Clock, '/clock')
    actions = peer.inbox(Float32MultiArray, '/guided/tensors/action')
    gain, command = publisher(Float32, '/gain'), publisher(TwistStamped, '/cmd_vel')

    def show(seconds):
        clock.publish(Clock(clock=Time(sec=seconds)))

    def send_command(seconds):
        wanted = stamped(TwistStamped(), seconds)
        wanted.twist.linear.x = 0.75
        command.publish(wanted)

    def wait(seconds, condition, what):
        def attempt():
            show(seconds)
            joints.publish(stamped(JointState(name=['a', 'b'], position=[1.0, 2.0]), seconds))
            return condition()

        peer.wait_until(attempt, what)

    def wait_for(seconds, *expected):
        def is_last():
            return actions.messages and list(actions.messages[-1].data)[2:] == [*expected]

        wait(seconds, is_last, f'the action at {seconds} s')

    follow_clock(peer, lambda: show(5000), 5000)
    gain.publish(Float32(data=0.25))  # It gets the time of its arrival.
    send_command(5000)
    wait_for(5000, 0.25, 0.75, 0.0)
    wait_for(5900, 0.25, 0.75, 0.0)
    wait(6100, lambda: 'The message held of /cmd_vel is 1100.000 s old' in node.log, 'an error')
    send_command(8000)
    wait_for(8000, 0.5, 0.75, 0.0)  # With the initial gain.
    wait(5000, lambda: 'of /cmd_vel is 3000.000 s ahead of the clock' in node.log, 'an error')
