"""Commands of a policy node of two joints: failures, chunks, bundles, first commands."""

from pathlib import Path

from diagnostic_msgs.msg import DiagnosticStatus
import numpy as np
import pytest
from rosgraph_msgs.msg import Clock
from sensor_msgs.msg import JointState
from std_msgs.msg import Bool, Float64MultiArray
from std_srvs.srv import SetBool

from support.bundles import write_bundle
from support.ros_messages import diagnostics, follow_clock, stamped
from support.ros_nodes import own_topics
from support.save_network import save_network

HORIZON = 5
NODES = Path(__file__).parents[1] / 'support/nodes'


@pytest.fixture(scope='module')
def models(tmp_path_factory):
    """Return the paths of policies whose action is the position of two joints."""
    folder = tmp_path_factory.mktemp('models')
    inputs, outputs = {'q': (1, 2)}, {'action': (1, 2)}
    kinds = {'q': 'state/joint/position', 'action': 'target/joint/position', 'kp': 'kp'}
    names = {'element_names': [['a', 'b']]}
    mirror = {
        'nodes': 'action = Identity(q) kp = Identity(gains)',
        'inputs': inputs,
        'outputs': {**outputs, 'kp': (1, 2)},
        'constants': {'gains': np.ones((1, 2), np.float32)},
        'ports': {name: {'kind': kind, **names} for name, kind in kinds.items()},
    }
    size, layers = 1024, ' '.join(f'x{i + 1} = MatMul(x{i}, w)' for i in range(12))
    return {
        'mirror': save_network(folder / 'mirror.onnx', 'action = Identity(q)', inputs, outputs),
        'chunks': save_network(
            folder / 'chunks.onnx',
            'action = Add(q, plan)',
            inputs,
            {'action': (1, HORIZON, 2)},
            constants={'plan': np.arange(2 * HORIZON, dtype=np.float32).reshape(1, HORIZON, 2)},
        ),
        'pair': save_network(
            folder / 'pair.onnx', 'action = Max(q, other)', {'q': (1, 2), 'other': (1, 2)}, outputs
        ),
        'slow': save_network(
            folder / 'slow.onnx',
            f'x0 = MatMul(q, first) {layers} action = MatMul(x12, last)',
            inputs,
            outputs,
            constants={
                'first': np.ones((2, size), np.float32),
                'w': np.ones((size, size), np.float32) / size,
                'last': np.ones((size, 2), np.float32),
            },
        ),
        'bundle': str(
            write_bundle(
                folder,
                {'policy': mirror},
                inputs={'policy': ['q']},
                outputs={'policy': ['action', 'kp']},
                configs={'frequency': 25},
            )
        ),
    }


class Arm:
    """A node that commands two joints, with the clock and the topics that it gets."""

    def __init__(self, node, peer):
        self.node, self.peer, self.now = node, peer, 10.0
        node.wait_for_log('Started: active.')
        self.commands = peer.inbox(Float64MultiArray, f'/{node.name}/commands')
        publishers = [
            peer.publisher(kind, f'/{node.name}/{topic}' if topic != 'clock' else '/clock')
            for kind, topic in ((JointState, 'joint_states'), (Clock, 'clock'), (Bool, 'estop'))
        ]
        self._states, self._clock, self.estop = publishers

    def wait_for_subscriptions(self):
        is_simulated = self.node.get('use_sim_time')
        for publisher in (self._states, self.estop, *([self._clock] if is_simulated else [])):
            self.peer.wait_until(publisher.get_subscription_count, publisher.topic_name)
        if is_simulated:
            follow_clock(self.peer, lambda: self.tick(0), self.now)

    def observe(self, a, b, names=('a', 'b')):
        positions = [a, b][: len(names)]
        self._states.publish(stamped(JointState(name=names, position=positions), self.now))

    def tick(self, seconds=0.02):
        self.now = round(self.now + seconds, 6)
        message = Clock()
        message.clock.sec, message.clock.nanosec = divmod(round(1e9 * self.now), 10**9)
        self._clock.publish(message)

    def enable(self, is_enabled):
        service = f'/{self.node.name}/enable'
        return self.peer.call(SetBool, service, data=is_enabled).success

    def expect(self, publish, *expected):
        """Wait for the command after a message."""
        count, polls = len(self.commands.messages), 0
        publish()

        def has_come():
            nonlocal polls
            polls += 1
            if polls % 50 == 0:
                self.tick(0)  # Messages of the clock may be lost.
            return len(self.commands.messages) > count

        self.peer.wait_until(has_come, f'command {count}: {self.node.log}')
        assert list(self.commands.messages[-1].data) == pytest.approx(expected)

    def recover(self, a, b):
        log = self.node.log
        self.expect(lambda: self.observe(a, b), b, a)
        self.peer.wait_until(
            lambda: self.node.log.count('Executing') > log.count('Executing'), 'actions'
        )


@pytest.fixture
def start(start_node, peer, models):
    def start(name, model='mirror', program='trt_ros.nodes.policy', **parameters):
        parameters = {
            'inputs': ['q=joints:joint_states#position[a,b]'],
            'joints': ['a', 'b'],
            'command_joints': ['b', 'a'],
            'blend_seconds': 0.0,
            'deadline': 0.1,
            'use_sim_time': True,
            'max_age': 0.1,
            'backend': 'onnxruntime',
            **parameters,
        }
        node = start_node(
            name,
            program,
            *own_topics(name, 'joint_states', 'estop'),
            autostart=True,
            output='multi_array',
            model_path=models[model],
            qos_reliability='reliable',
            qos_depth=50,
            **{key: value for key, value in parameters.items() if value is not None},
        )
        arm = Arm(node, peer)
        arm.wait_for_subscriptions()
        return arm

    return start


def test_each_failure_is_held_in_the_next_tick_and_left_with_a_good_run(start, peer):
    arm = start('arm', upper_limits=[2.0], max_jump=1.0)
    node = arm.node
    arm.recover(0.5, 0.25)
    bad = {
        'non-finite values': lambda: arm.observe(np.nan, 0.0),
        'missing joint': lambda: arm.observe(0.5, 0.25, ['a']),
    }
    for reason, publish in bad.items():
        publish()
        node.wait_for_log(f'was dropped ({reason})')
        arm.expect(arm.tick, 0.25, 0.5)
        node.wait_for_log(f'Holding: {reason}.')
        arm.recover(0.5, 0.25)
    arm.expect(lambda: arm.observe(1.75, 0.25), 0.25, 0.5)
    node.wait_for_log('Holding: jump of the action.')
    arm.recover(1.25, 0.25)
    arm.expect(lambda: arm.observe(2.125, 0.25), 0.25, 2.0)  # Clipped.
    arm.expect(lambda: arm.estop.publish(Bool(data=True)), 0.25, 2.0)
    node.wait_for_log('Holding: emergency stop.')
    assert not arm.enable(True)
    arm.estop.publish(Bool(data=False))
    peer.wait_until(lambda: arm.enable(True), 'enable')
    arm.recover(1.5, 0.25)
    count = len(arm.commands.messages)
    arm.tick(0.1)  # As old as observations may be.
    arm.expect(arm.tick, 0.25, 1.5)
    assert len(arm.commands.messages) == count + 1
    node.wait_for_log('Holding: stale observations.')
    arm.recover(1.25, 0.5)
    found = diagnostics(peer, 'arm')(**{'clipped values': '1', 'holding': 'no'})
    holds = {each.key: each.value for each in found.values if each.key.startswith('holds: ')}
    reasons = (*bad, 'jump of the action', 'emergency stop', 'stale observations')
    assert holds == {f'holds: {reason}': '1' for reason in reasons}
    arm.expect(lambda: node.change('deactivate'), 0.5, 1.25)
    node.wait_for_log('Holding: deactivated.')
    assert node.change('activate')
    arm.wait_for_subscriptions()
    arm.estop.publish(Bool(data=True))
    peer.wait_until(lambda: not arm.enable(True), 'the emergency stop')
    assert node.change('deactivate') and node.change('activate')
    assert not arm.enable(True), 'the emergency stop lasts'

    def stops_while_inactive():
        arm.estop.publish(Bool(data=False))
        peer.wait_until(lambda: arm.enable(True), 'enable')
        assert node.change('deactivate')
        arm.estop.publish(Bool(data=True))
        assert node.change('activate')
        return not arm.enable(True)

    peer.wait_until(stops_while_inactive, 'an emergency stop while inactive')


def test_a_lost_gpu_is_held_and_the_node_that_follows_waits_for_enable(start, peer, backend):
    program, given = NODES / 'failing_policy.py', {'require_enable': True, 'backend': backend}
    lost = start('lost', program=program, **given)
    assert lost.enable(True)
    lost.recover(0.5, 0.25)
    wait_for = diagnostics(peer, 'lost')
    lost.expect(lambda: lost.observe(1000.0, 0.0), 0.25, 0.5)
    lost.node.wait_for_log('Holding: lost GPU.')
    peer.wait_until(lambda: lost.node.state == 'unconfigured', 'everything to be released')
    status = wait_for(**{'holds: lost GPU': '1'})
    assert status.level == DiagnosticStatus.ERROR and 'GPU' in status.message
    assert not any('jitter' in each.key for each in status.values), 'of one command'
    count = len(lost.commands.messages)
    lost.observe(0.5, 0.25)
    lost.node.stop()
    assert len(lost.commands.messages) == count
    # As a launch file that respawns it.
    again = start('lost', program=program, **given)
    again.observe(0.75, 0.5)
    again.tick()
    assert again.enable(False) and not again.commands.messages
    assert again.enable(True)

    def follows():  # The first command may be of the observation before.
        again.observe(0.5, 0.25)
        return again.commands.messages and list(again.commands.messages[-1].data) == [0.25, 0.5]

    peer.wait_until(follows, 'commands')


def test_a_run_beyond_its_deadline_is_dropped(start):
    arm = start('slow', 'slow', deadline=0.0001, use_sim_time=False, max_age=60.0)
    arm.observe(1.0, 1.0)
    arm.node.wait_for_log('was dropped (late run). A run took')
    arm.node.wait_for_log('Holding: late run.')
    assert not arm.commands.messages


def test_chunks_are_executed_at_their_rate_and_end_in_the_hold(start, peer):
    arm = start('chunks', 'chunks')
    wait_for = diagnostics(peer, 'chunks')
    arm.observe(0.5, 0.0)
    wait_for(**{'frames published': '1'})
    arm.expect(arm.tick, 3.0, 2.5)
    for step in (2, 3, 4, 4):
        arm.expect(arm.tick, 2 * step + 1, 2 * step + 0.5)
    arm.node.wait_for_log('Holding: no actions left.')
    arm.observe(1.5, 0.0)  # A plan from now on, whose first action is for now.
    wait_for(**{'frames published': '2'})
    arm.expect(arm.tick, 3.0, 3.5)


def test_commands_begin_at_the_measured_pose_after_enable(start, peer):
    arm = start(
        'gentle',
        action_offset=[1.0],
        blend_seconds=0.5,
        require_enable=True,
        max_age=1.0,
        deadline=60.0,  # A late run would begin the way again.
    )
    assert arm.enable(True)

    def observed():
        arm.tick(0)  # Before it, observations are ahead of the clock.
        arm.observe(0.25, 0.5)
        return arm.commands.messages

    peer.wait_until(observed, 'a command')
    assert list(arm.commands.messages[0].data) == [0.5, 0.25]
    for part in (0.5, 1.0, 1.0):
        arm.tick(0.25)

        def is_there(part=part):
            arm.observe(0.25, 0.5)
            return list(arm.commands.messages[-1].data) == pytest.approx([0.5 + part, 0.25 + part])

        peer.wait_until(is_there, f'{part} of the way')


def test_a_silent_topic_beside_another_is_held_after_its_max_age(start, peer):
    inputs = ['q=joints:joint_states#position[a,b]', 'other=joints:other#position[a,b]']
    arm = start('pair', 'pair', inputs=inputs, rate_hz=50.0, max_age=60.0, deadline=60.0)
    other = peer.connected(JointState, '/other')
    last = arm.now
    # Once: a later one might not be sampled before it is too old, which is another reason.
    other.publish(stamped(JointState(name=['a', 'b'], position=[0.0, 0.0]), last))

    def commands(value):
        arm.observe(value, value)
        arm.tick(0.005)  # 5 s of the clock in a minute.
        return arm.commands.messages and list(arm.commands.messages[-1].data) == [value, value]

    peer.wait_until(lambda: commands(0.5), 'a command', pause=0.06)
    arm.tick(20.0)
    peer.wait_until(lambda: commands(0.75), 'a command with an old message', pause=0.06)
    arm.tick(last + 61.0 - arm.now)
    peer.wait_until(
        lambda: arm.tick(0) or 'Holding: stale observations.' in arm.node.log, arm.node.log
    )


def test_a_first_pose_that_is_incomplete_is_reported(start):
    arm = start('partial', blend_seconds=0.5)
    arm.observe(0.25, 0.5, ['a'])
    arm.node.wait_for_log('/partial/joint_states lacks positions that the first command begins at')


def test_a_bundle_says_what_its_inputs_and_outputs_are(start):
    given = dict.fromkeys(['inputs', 'joints', 'command_joints'])
    arm = start('bundled', 'bundle', max_age=60.0, deadline=60.0, **given)
    assert 'input q: joints on /bundled/joint_states#position[a,b]' in arm.node.log
    assert 'sampled at 25 Hz' in arm.node.log
    assert 'commands: position on ~/commands, 25 Hz' in arm.node.log

    def has_command():
        arm.observe(0.5, 0.25)
        arm.tick(0.04)
        return arm.commands.messages

    arm.peer.wait_until(has_command, 'a command')
    assert list(arm.commands.messages[0].data) == [0.5, 0.25]
