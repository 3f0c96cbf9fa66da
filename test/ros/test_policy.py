"""A policy node that walks a simulated robot through topics."""

from __future__ import annotations

import pytest

pytest.importorskip('rclpy')
pytest.importorskip('vision_msgs')
pytest.importorskip('onnxruntime')

import numpy as np
from rosgraph_msgs.msg import Clock
from sensor_msgs.msg import JointState
from std_msgs.msg import Bool, Float64MultiArray
from std_srvs.srv import SetBool

from support.go1 import JOINTS, PARAMETERS, PERIOD, POLICIES, Go1
from support.ros_messages import diagnostics, stamped

pytestmark = pytest.mark.ros
DISTANCE = 8.018  # In 10 s, as measured in one process with ONNX Runtime.


@pytest.fixture
def go1(start_node, peer):
    """Start a policy node and the robot that it walks."""
    pytest.importorskip('mujoco', reason='no simulator: pip install mujoco')
    if not POLICIES.is_dir():
        pytest.skip(f'no policies in {POLICIES}')
    started = []

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
        started.append(node)
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

        robot = Go1(peer, peer.inbox(kind, topic), positions)
        robot.parameters = parameters
        return node, robot

    yield start
    for node in started:
        node.stop()  # The next one has the same topics.


def test_a_policy_walks_a_robot_through_topics(go1):
    node, robot = go1()
    assert (
        'input obs: velocity, turn, gravity, q, dq, last, command, one after another' in node.log
    )
    robot.walk(10)
    assert robot.distance == pytest.approx(DISTANCE, rel=0.02), node.log
    assert robot.upright > 0.99


@pytest.mark.parametrize('lost', [0.1, 0.3])
def test_lost_observations_slow_the_robot_down_but_do_not_fell_it(go1, lost):
    node, robot = go1()
    rng = np.random.default_rng(0)
    robot.walk(10, is_lost=lambda step: step > 0 and rng.random() < lost)
    print(f'{lost:.0%} lost: {robot.distance:.3f} m, upright {robot.upright:.3f}')
    assert robot.distance > 0.9 * DISTANCE and robot.upright > 0.95, node.log


def test_a_trajectory_ends_and_a_respawned_node_waits_for_enable(go1, start_node, peer):
    pytest.importorskip('trajectory_msgs')
    node, robot = go1(output='joint_trajectory')
    robot.walk(1)
    last = robot.commands.messages[-1]
    (point,) = last.points
    stamp, end = last.header.stamp, point.time_from_start
    ends = stamp.sec + end.sec + 1e-9 * (stamp.nanosec + end.nanosec)
    # The clock may reach the node after the sensors, as topics have no common order.
    assert robot.time - PERIOD <= ends + 1e-6 and ends <= robot.time + 1e-6
    node.kill()
    again = start_node('walker', 'trt_ros.nodes.policy', **robot.parameters, require_enable=True)
    again.wait_for_log('Started: active.')
    robot.wait_for_subscriptions()
    count = len(robot.commands.messages)
    robot.publish_clock()
    robot.publish_sensors()
    # An answer of the same thread, after the message.
    assert peer.call(SetBool, '/walker/enable', data=False).success
    assert len(robot.commands.messages) == count
    assert peer.call(SetBool, '/walker/enable', data=True).success
    robot.walk(2)
    assert robot.upright > 0.95, again.log


def test_a_simulation_that_stops_gets_no_commands_and_one_that_jumps_is_followed(go1, peer):
    node, robot = go1(rate_hz=50.0, max_age=0.1)
    wait_for = diagnostics(peer, 'walker')
    robot.publish_sensors()
    wait_for(**{f'{topic}: frames received': '1' for topic in ('imu', 'odom', 'joint_states')})
    robot.walk(3)
    assert robot.distance > 1.5, node.log
    count = len(robot.commands.messages)
    for _ in range(20):  # The clock stands still.
        robot.publish_sensors()
    wait_for(**{'imu: frames received': str(1 + 150 + 20)})
    assert len(robot.commands.messages) <= count + 1

    def has_recovered(reason):
        def attempt():
            robot.publish_sensors()
            robot.publish_clock()
            robot.steps += 1
            held = node.log.rfind(f'Holding: {reason}')
            return 0 < held < node.log.rfind('Executing actions.')

        return attempt

    robot.time_offset += 5
    peer.wait_until(has_recovered('stale observations'), 'a hold and actions after it')
    robot.time_offset -= 8
    peer.wait_until(has_recovered('time jumped back'), 'a hold and actions after it')
    before = robot.distance
    robot.walk(2)
    print(f'after the jumps: {robot.distance - before:.3f} m in 2 s')
    assert robot.distance - before > 0.8 and robot.upright > 0.95, node.log


@pytest.fixture(scope='module')
def mirror(tmp_path_factory):
    """Return a network whose action is the position of two joints."""
    from onnx import helper

    from support.save_network import save_network

    path = tmp_path_factory.mktemp('models') / 'mirror.onnx'
    node = helper.make_node('Identity', ['q'], ['action'])
    return save_network(path, [node], {'q': (1, 2)}, {'action': (1, 2)})


def test_each_failure_is_held_in_the_next_tick_and_left_with_a_good_run(start_node, peer, mirror):
    node = start_node(
        'arm',
        'trt_ros.nodes.policy',
        autostart=True,
        backend='onnxruntime',
        model_path=mirror,
        inputs=['q=joints:joint_states#position[a,b]'],
        joints=['a', 'b'],
        command_joints=['b', 'a'],
        output='multi_array',
        upper_limits=[2.0],
        max_jump=1.0,
        max_age=0.1,
        blend_seconds=0.0,
        use_sim_time=True,
        qos_reliability='reliable',
        qos_depth=50,
    )
    node.wait_for_log('Started: active.')
    commands = peer.inbox(Float64MultiArray, '/arm/commands')
    publishers = [
        peer.publisher(kind, topic)
        for kind, topic in ((JointState, 'joint_states'), (Clock, 'clock'), (Bool, 'estop'))
    ]
    for publisher in publishers:
        peer.wait_until(publisher.get_subscription_count, publisher.topic_name)
    states, clock, estop = publishers
    now = 10.0

    def command_after(publish, *expected):
        count = len(commands.messages)
        publish()
        commands.wait_for(lambda _: len(commands.messages) > count, f'command {count}: {node.log}')
        assert list(commands.messages[-1].data) == list(expected)

    def observe(a, b, names=('a', 'b')):
        positions = [a, b][: len(names)]
        states.publish(stamped(JointState(name=names, position=positions), now))

    def tick(seconds=0.02):
        nonlocal now
        now = round(now + seconds, 6)
        message = Clock()
        message.clock.sec, message.clock.nanosec = divmod(round(1e9 * now), 10**9)
        clock.publish(message)

    def recover(a, b):
        count = node.log.count('Executing actions.')
        command_after(lambda: observe(a, b), b, a)
        peer.wait_until(lambda: node.log.count('Executing actions.') > count, 'actions')

    tick(0)
    recover(0.5, 0.25)
    bad = {
        'non-finite values': lambda: observe(np.nan, 0.0),
        'missing joint': lambda: observe(0.5, 0.25, ['a']),
    }
    for reason, publish in bad.items():
        publish()
        node.wait_for_log(f'was dropped ({reason})')
        command_after(tick, 0.25, 0.5)
        node.wait_for_log(f'Holding: {reason}.')
        recover(0.5, 0.25)
    command_after(lambda: observe(1.75, 0.25), 0.25, 0.5)
    node.wait_for_log('Holding: jump of the action.')
    recover(1.25, 0.25)
    command_after(lambda: observe(2.125, 0.25), 0.25, 2.0)  # Clipped.
    command_after(lambda: estop.publish(Bool(data=True)), 0.25, 2.0)
    node.wait_for_log('Holding: emergency stop.')
    assert not peer.call(SetBool, '/arm/enable', data=True).success
    estop.publish(Bool(data=False))
    peer.wait_until(lambda: peer.call(SetBool, '/arm/enable', data=True).success, 'enable')
    recover(1.5, 0.25)
    count = len(commands.messages)
    tick(0.1)  # As old as observations may be.
    command_after(tick, 0.25, 1.5)
    assert len(commands.messages) == count + 1
    node.wait_for_log('Holding: stale observations.')
    recover(1.25, 0.5)
    found = diagnostics(peer, 'arm')(**{'clipped values': '1', 'holding': 'no'})
    holds = {each.key: each.value for each in found.values if each.key.startswith('holds: ')}
    assert holds == {
        f'holds: {reason}': '1'
        for reason in (*bad, 'jump of the action', 'emergency stop', 'stale observations')
    }
    command_after(lambda: node.change('deactivate'), 0.5, 1.25)
    node.wait_for_log('Holding: deactivated.')
