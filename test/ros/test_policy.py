"""A policy node that walks a simulated robot through topics."""

import itertools

from diagnostic_msgs.msg import DiagnosticArray
from geometry_msgs.msg import PoseStamped
import numpy as np
import onnxruntime
import pytest
from rosgraph_msgs.msg import Clock
from sensor_msgs.msg import Image, JointState
from std_msgs.msg import Float64MultiArray
from std_srvs.srv import SetBool

from support.backends import ON_CPU
from support.bundles import diffusion_policy
from support.go1 import JOINTS, PARAMETERS, PERIOD, POLICIES, Go1
from support.ros_messages import stamped, values_of
from support.save_network import save_network
from trt_ros.exporting.lerobot import node_parameters
from trt_ros.runtime.pipeline import Pipeline

DISTANCE = 8.018  # In 10 s, as measured in one process with ONNX Runtime.


@pytest.fixture
def go1(start_node, peer, backend):
    """Start a policy node and the robot that it walks."""
    pytest.importorskip('mujoco', reason='no simulator: pip install mujoco')
    if not POLICIES.is_dir():
        pytest.skip(f'no policies in {POLICIES}')

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

        robot = Go1(peer, peer.inbox(kind, topic), positions, parameters['use_sim_time'])
        robot.parameters = parameters
        return node, robot

    return start


def test_a_policy_walks_a_robot_through_topics(go1):
    node, robot = go1()
    assert (
        'input obs: velocity, turn, gravity, q, dq, last, command, one after another' in node.log
    )
    robot.walk(10)
    assert robot.distance == pytest.approx(DISTANCE, rel=0.02), node.log
    assert robot.upright > 0.99


@pytest.fixture
def flood(start_active, start_node, backend, tmp_path):
    """Start a camera and a detector that keeps the device of the network busy."""
    import cv2

    size, boxes, layer_count = 640, 100, 60  # Some milliseconds on a large GPU.
    layers = ' '.join(
        f'x{number + 1} = Conv <pads = [1, 1, 1, 1]> (x{number}, w)'
        for number in range(layer_count)
    )
    nodes = (
        f'x0 = Conv <pads = [1, 1, 1, 1]> (images, first) {layers} '
        f'mean = ReduceMean <axes = [1, 2, 3], keepdims = 0> (x{layer_count}) '
        'output0 = Mul(mean, zeros)'
    )
    path = save_network(
        tmp_path / 'flood.onnx',
        nodes,
        {'images': (1, 3, size, size)},
        {'output0': (1, 6, boxes)},
        constants={
            'first': np.zeros((64, 3, 3, 3), np.float32),
            'w': np.zeros((64, 64, 3, 3), np.float32),
            'zeros': np.zeros((1, 6, boxes), np.float32),
        },
    )
    picture = str(tmp_path / 'picture.png')
    cv2.imwrite(picture, np.zeros((size, size, 3), np.uint8))
    given = {'backend': backend, 'decoder': 'yolov8', 'qos_reliability': 'auto', 'qos_depth': 1}
    start_active('flood', 'detector', path, **given, frames_in_flight=2)
    start_node('image_source', 'trt_ros.nodes.image_source', source=picture, rate_hz=500.0)


@pytest.mark.gpu
@pytest.mark.alone
@pytest.mark.parametrize('backend', ['tensorrt_rtx'])
def test_a_robot_walks_in_real_time_beside_a_flood_of_its_gpu(go1, flood, peer):
    node, robot = go1(use_sim_time=False, deadline=0.0)
    missed = robot.walk_in_real_time(10)
    inbox = peer.inbox(DiagnosticArray, '/diagnostics')

    def values(name):
        return values_of(inbox.wait_for(lambda each: each.status[0].name == f'{name}: image'))

    walker, other = values('walker'), values('flood')
    holds = {key: value for key, value in walker.items() if key.startswith('holds')}
    print(f'{robot.distance:.3f} m, {missed} commands missed, {holds}')
    print({key: walker[key] for key in walker if key.startswith(('latency', 'infer'))})
    print('flood:', {key: other[key] for key in ('rate in (Hz)', 'rate out (Hz)')})
    assert float(other['rate out (Hz)']) < 0.9 * float(other['rate in (Hz)']), 'no flood'
    assert robot.distance == pytest.approx(DISTANCE, rel=0.02), node.log
    assert robot.upright > 0.99


@ON_CPU
def test_lost_observations_slow_the_robot_down_but_do_not_fell_it(go1):
    node, robot = go1()
    rng = np.random.default_rng(0)
    robot.walk(5, is_lost=lambda step: step > 0 and rng.random() < 0.3)
    print(f'30 % lost: {robot.distance:.3f} m, upright {robot.upright:.3f}')
    assert robot.distance > 0.45 * DISTANCE and robot.upright > 0.95, node.log


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
        values = values_of(inbox.messages[-1])
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
    robot.stand()  # It did not move meanwhile, though the policy ran.
    seen = len(inbox.messages)  # Commands may still be on their way.
    peer.wait_until(lambda: len(inbox.messages) > seen, 'diagnostics')
    before = robot.distance
    robot.walk(2)
    print(f'after the jumps: {robot.distance - before:.3f} m in 2 s')
    assert robot.distance - before > 0.8 and robot.upright > 0.95, node.log


FRANKA = [f'fr3_joint{number}' for number in range(1, 8)]


class Franka:
    """A policy node of an arm, and the targets that it answers with."""

    def __init__(self, start_active, peer, backend):
        times = {'blend_seconds': 0.0, 'max_age': 60.0, 'deadline': 60.0}
        model, given = POLICIES / 'franka/franka_reach.yaml', {'output': 'multi_array', **times}
        start_active('franka', 'policy', model, backend=backend, **given)
        self._peer = peer
        self._commands = peer.inbox(Float64MultiArray, '/franka/commands')
        self._states, self._targets = (
            peer.publisher(kind, topic)
            for kind, topic in ((JointState, 'joint_states'), (PoseStamped, 'target_pose'))
        )
        self._network = onnxruntime.InferenceSession(str(POLICIES / 'franka' / 'policy.onnx'))

    def command(self, q, target):
        """
        Return the joint targets for positions at rest, and for a pose (x, y, z, qw, .., qz).

        They are those of the network for this very state: one published twice has two answers.
        """
        given = dict(joint_pos=q, joint_vel=0 * q, target_pos=target[:3], target_rot=target[3:])
        inputs = {name: np.array([value], np.float32) for name, value in given.items()}
        (want,) = self._network.run(['joint_targets'], inputs)
        state = JointState(name=FRANKA[::-1], position=q[::-1], velocity=[0.0] * 7)
        pose, count, polls = PoseStamped(), len(self._commands.messages), itertools.count()
        position, rotation = pose.pose.position, pose.pose.orientation
        position.x, position.y, position.z = target[:3]
        rotation.w, rotation.x, rotation.y, rotation.z = target[3:]

        def has_command():
            if next(polls) % 20 == 0:  # The first target may come after its state.
                now = self._peer.node.get_clock().now().to_msg()
                state.header.stamp = pose.header.stamp = now
                self._targets.publish(pose)
                self._states.publish(state)
            last = self._commands.messages[count:][-1:]
            return last and np.allclose(last[0].data, want[0], rtol=0, atol=1e-3)

        self._peer.wait_until(has_command, 'the targets of the network for this state')
        return np.array(self._commands.messages[-1].data)


@pytest.fixture
def franka(start_active, peer, backend):
    if not POLICIES.is_dir():
        pytest.skip(f'no policies in {POLICIES}')
    return Franka(start_active, peer, backend)


def hand_of_franka(q):
    """Return the pose of the hand, (4, 4): the modified Denavit-Hartenberg parameters."""
    pose = np.eye(4)
    turns = np.deg2rad([0, -90, 90, 90, -90, 90, 90, 0])
    lengths = [0, 0, 0, 0.0825, -0.0825, 0, 0.088, 0]
    offsets = [0.333, 0, 0.316, 0, 0.384, 0, 0, 0.107]
    for a, d, alpha, angle in zip(lengths, offsets, turns, [*q, -np.pi / 4]):
        c, s, ca, sa = np.cos(angle), np.sin(angle), np.cos(alpha), np.sin(alpha)
        pose = pose @ [
            [c, -s, 0, a],
            [s * ca, c * ca, -sa, -d * sa],
            [s * sa, c * sa, ca, d * ca],
            [0, 0, 0, 1],
        ]
    return pose


def test_an_arm_that_follows_the_targets_of_its_network_reaches_the_pose(franka):
    q = np.array([0.0, -0.569, 0.0, -2.81, 0.0, 3.037, 0.741])
    for goal in ([0.5, 0.0, 0.4], [0.45, 0.2, 0.3], [0.6, -0.2, 0.25]):
        began = np.linalg.norm(hand_of_franka(q)[:3, 3] - goal)
        for _ in range(100):  # An arm lags: it goes a part of the way per period.
            q += 0.4 * (franka.command(q, [*goal, 0.0, 1.0, 0.0, 0.0]) - q)
            hand = hand_of_franka(q)
            distance = np.linalg.norm(hand[:3, 3] - goal)
            cosine = (np.trace(hand[:3, :3] @ np.diag([1, -1, -1])) - 1) / 2
            turn = np.arccos(np.clip(cosine, -1, 1))
            if distance < 0.02 and turn < np.deg2rad(10):
                break
        print(f'{began:.3f} -> {distance:.4f} m, {np.rad2deg(turn):.1f} degrees')
        assert distance < 0.02 < 0.1 < began and turn < np.deg2rad(10)


def test_chunks_of_a_diffusion_policy_are_executed_as_lerobot_does(start_active, peer, tmp_path):
    path = diffusion_policy(tmp_path)
    parameters = node_parameters(path, ['camera'], 2, {'action_rate_hz': 10.0, 'chunk_actions': 2})
    given = {**parameters['policy']['ros__parameters'], 'output': 'multi_array'}
    given |= {'blend_seconds': 0.0, 'max_age': 60.0, 'use_sim_time': True}
    start_active('arm', 'policy', given.pop('model_path'), **given)
    commands = peer.inbox(Float64MultiArray, '/arm/commands')
    diagnostics = peer.inbox(DiagnosticArray, '/diagnostics')
    clocks, cameras, states = [
        peer.connected(kind, topic)
        for kind, topic in ((Clock, 'clock'), (Image, 'camera'), (JointState, 'joint_states'))
    ]
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
                counts = [
                    values_of(each)['frames published'] for each in diagnostics.messages[-1:]
                ]
                return counts == [str(count)]

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
