"""A policy node that walks a simulated robot through topics."""

import pytest

pytest.importorskip('rclpy')
pytest.importorskip('vision_msgs')
pytest.importorskip('onnxruntime')

from diagnostic_msgs.msg import DiagnosticArray
from geometry_msgs.msg import PoseStamped
import numpy as np
from rosgraph_msgs.msg import Clock
from sensor_msgs.msg import Image, JointState
from std_msgs.msg import Float64MultiArray
from std_srvs.srv import SetBool

from support.backends import ON_CPU
from support.bundles import diffusion_policy
from support.go1 import JOINTS, PARAMETERS, PERIOD, POLICIES, Go1
from support.ros_messages import stamped
from trt_ros.exporting.lerobot import node_parameters
from trt_ros.runtime.pipeline import Pipeline

pytestmark = pytest.mark.ros
DISTANCE = 8.018  # In 10 s, as measured in one process with ONNX Runtime.


@pytest.fixture
def go1(start_node, peer, backend):
    """Start a policy node and the robot that it walks."""
    pytest.importorskip('mujoco', reason='no simulator: pip install mujoco')
    if not POLICIES.is_dir():
        pytest.skip(f'no policies in {POLICIES}')
    started = []

    def start(**parameters):
        parameters = {
            'autostart': True,
            'output': 'multi_array',
            'backend': backend,
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


@ON_CPU
@pytest.mark.parametrize('lost', [0.1, 0.3])
def test_lost_observations_slow_the_robot_down_but_do_not_fell_it(go1, lost):
    node, robot = go1()
    rng = np.random.default_rng(0)
    robot.walk(10, is_lost=lambda step: step > 0 and rng.random() < lost)
    print(f'{lost:.0%} lost: {robot.distance:.3f} m, upright {robot.upright:.3f}')
    assert robot.distance > 0.9 * DISTANCE and robot.upright > 0.95, node.log


@ON_CPU
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
    robot.steps += 1  # A second observation of the same time would be no set.
    robot.walk(2)
    assert robot.upright > 0.95, again.log


@ON_CPU
def test_a_simulation_that_stops_gets_no_commands_and_one_that_jumps_is_followed(go1, peer):
    node, robot = go1(rate_hz=50.0, max_age=0.1)
    inbox = peer.inbox(DiagnosticArray, '/diagnostics')

    def received():
        """Return the number of messages of the topic that the node has fewest of."""
        if not inbox.messages:
            return 0
        values = {each.key: each.value for each in inbox.messages[-1].status[0].values}
        topics = ('imu', 'odom', 'joint_states')
        return min(int(values.get(f'{topic}: frames received', 0)) for topic in topics)

    peer.wait_until(lambda: robot.publish_sensors() or received(), 'the first observations')
    robot.steps += 1  # The clock is known already.
    robot.walk(3)
    assert robot.distance > 1.5, node.log
    count, before = len(robot.commands.messages), len(inbox.messages)
    peer.wait_until(lambda: len(inbox.messages) > before, 'diagnostics')
    known = received()
    # The clock stands still.
    peer.wait_until(lambda: robot.publish_sensors() or received() >= known + 20, 'observations')
    assert len(robot.commands.messages) <= count + 1

    def jump(seconds, *reasons):
        known = len(node.log)
        robot.time_offset += seconds

        def holds():  # Without observations of the new time, which may come before it.
            robot.publish_clock()
            robot.steps += 1
            return any(f'Holding: {reason}' in node.log[known:] for reason in reasons)

        def acts():
            robot.publish_sensors()
            robot.publish_clock()
            robot.steps += 1
            return 'Executing actions.' in node.log[node.log.rfind('Holding: ') :]

        peer.wait_until(holds, f'a hold by {reasons}')
        peer.wait_until(acts, 'actions after it')

    jump(5, 'older than max_age', 'stale observations')
    jump(-8, 'time jumped back')
    before = robot.distance
    robot.walk(2)
    print(f'after the jumps: {robot.distance - before:.3f} m in 2 s')
    assert robot.distance - before > 0.8 and robot.upright > 0.95, node.log


def test_a_bundle_of_an_arm_gives_the_targets_of_its_network(start_node, peer, backend):
    if not POLICIES.is_dir():
        pytest.skip(f'no policies in {POLICIES}')
    import onnxruntime

    folder = POLICIES / 'franka'
    node = start_node(
        'franka',
        'trt_ros.nodes.policy',
        autostart=True,
        model_path=str(folder / 'franka_reach.yaml'),
        backend=backend,
        output='multi_array',
        blend_seconds=0.0,
        max_age=60.0,
        qos_reliability='reliable',
    )
    node.wait_for_log('Started: active.')
    commands = peer.inbox(Float64MultiArray, '/franka/commands')
    states, targets = (
        peer.publisher(kind, topic)
        for kind, topic in ((JointState, 'joint_states'), (PoseStamped, 'target_pose'))
    )
    names = [f'fr3_joint{number}' for number in range(1, 8)]
    state = JointState(name=names[::-1], position=np.linspace(0.7, 0.1, 7), velocity=[0.0] * 7)
    target = PoseStamped()
    target.pose.position.x, target.pose.position.z, target.pose.orientation.w = 0.5, 0.4, 1.0

    def has_command():
        state.header.stamp = target.header.stamp = peer.node.get_clock().now().to_msg()
        targets.publish(target)
        states.publish(state)
        return commands.messages

    peer.wait_until(has_command, 'a command')
    given = {
        'joint_pos': np.linspace(0.1, 0.7, 7),
        'joint_vel': np.zeros(7),
        'target_pos': [0.5, 0.0, 0.4],
        'target_rot': [1.0, 0.0, 0.0, 0.0],
    }
    session = onnxruntime.InferenceSession(str(folder / 'policy.onnx'))
    inputs = {name: np.array([value], np.float32) for name, value in given.items()}
    (want,) = session.run(['joint_targets'], inputs)
    np.testing.assert_allclose(commands.messages[0].data, want[0], atol=1e-3)


@ON_CPU
def test_chunks_of_a_diffusion_policy_are_executed_as_lerobot_does(
    start_node, peer, backend, tmp_path
):
    path = diffusion_policy(tmp_path)
    parameters = node_parameters(path, ['camera'], 2, {'action_rate_hz': 10.0, 'chunk_actions': 2})
    node = start_node(
        'arm',
        'trt_ros.nodes.policy',
        **parameters['policy']['ros__parameters'],
        autostart=True,
        backend=backend,
        output='multi_array',
        blend_seconds=0.0,
        max_age=60.0,
        qos_reliability='reliable',
        use_sim_time=True,
    )
    node.wait_for_log('Started: active.')
    commands = peer.inbox(Float64MultiArray, '/arm/commands')
    diagnostics = peer.inbox(DiagnosticArray, '/diagnostics')
    clocks, cameras, states = publishers = [
        peer.publisher(kind, topic)
        for kind, topic in ((Clock, 'clock'), (Image, 'camera'), (JointState, 'joint_states'))
    ]
    for each in publishers:
        peer.wait_until(each.get_subscription_count, each.topic_name)
    rng, chunk = np.random.default_rng(0), np.empty(0)
    with Pipeline.open(str(path), backend='onnxruntime') as pipeline:
        for step in range(5):
            time = 20 + 0.1 * step
            pixels, joints = rng.integers(0, 256, (8, 10, 3), np.uint8), rng.random(3)
            image = Image(width=10, height=8, step=30, encoding='bgr8', data=pixels.tobytes())
            cameras.publish(stamped(image, time))
            state = JointState(name=['ankle', 'hip', 'knee'], position=joints[[2, 0, 1]])
            states.publish(stamped(state, time))

            def has_run(count=step + 1):
                values = diagnostics.messages[-1].status[0].values if diagnostics.messages else []
                found = {each.key: each.value for each in values}
                return int(found.get('frames published', 0)) == count

            peer.wait_until(has_run, f'run {step}')
            count = len(commands.messages)
            clock = Clock(clock=state.header.stamp)
            peer.wait_until(
                lambda clock=clock, count=count: (
                    clocks.publish(clock) or len(commands.messages) > count
                ),
                'a command',
            )
            found = pipeline({'camera': pixels, 'state': joints[np.newaxis].astype(np.float32)})
            chunk = chunk[1:] if step % 2 else found['actions'][0]
            np.testing.assert_allclose(commands.messages[-1].data, chunk[0], atol=1e-5)
