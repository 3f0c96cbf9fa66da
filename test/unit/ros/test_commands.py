"""Messages of commands, and the parameters that decide on them."""

import sys

import numpy as np
import pytest

pytest.importorskip('rclpy')

from builtin_interfaces.msg import Time
from rclpy.serialization import deserialize_message

from trt_ros.errors import ParameterError, TensorMismatchError
from trt_ros.model.bundle import Port
from trt_ros.nodes.policy import PolicyParameters
from trt_ros.nodes.policy_parameters import CommandParameters
from trt_ros.ros.commands import OUTPUTS
from trt_ros.tensors import TensorSpec

STAMP = Time(sec=3)
ROWS = np.array([[1.0, 2.0, 5.0, 6.0], [3.0, 4.0, 7.0, 8.0]])


def message_of(made, rows=ROWS, **options):
    """Return the message of commands, which the serialized one is equal to."""
    message = made.message(rows, STAMP, **options)
    for stamp in (5, 3):  # The second is made of the first.
        found = made.serialized(rows, stamp * 10**9, **options)
    assert deserialize_message(found.tobytes(), made.type) == message
    return message


def specs(**shapes):
    return [TensorSpec(name, shape, 'float32', 'output') for name, shape in shapes.items()]


def test_a_trajectory_ends_with_its_last_point():
    pytest.importorskip('trajectory_msgs')
    made = OUTPUTS['joint_trajectory'](('position', 'velocity'), ('a', 'b'), (1, 0), 0.5)
    message = message_of(made)
    assert message.joint_names == ['b', 'a'] and message.header.stamp == STAMP
    points = [
        (each.time_from_start.sec + 1e-9 * each.time_from_start.nanosec, *each.positions)
        for each in message.points
    ]
    assert points == [(0.5, 2, 1), (1.0, 4, 3)]
    assert [list(each.velocities) for each in message.points] == [[6, 5], [8, 7]]


def test_multi_arrays_have_the_order_of_the_controller():
    made = OUTPUTS['multi_array'](('effort',), (), (2, 0), 0.1)
    assert list(message_of(made, np.array([[1.0, 2.0, 3.0]])).data) == [3, 1]


@pytest.mark.parametrize(
    ('row', 'linear', 'angular'),
    [
        ([1, 2], [1, 0, 0], [0, 0, 2]),
        ([1, 2, 3], [1, 2, 0], [0, 0, 3]),
        ([1, 2, 3, 4, 5, 6], [1, 2, 3], [4, 5, 6]),
    ],
)
def test_twists_have_two_three_or_six_numbers(row, linear, angular):
    made = OUTPUTS['twist'](('twist',), (), range(len(row)), 0.1)
    found = message_of(made, np.array([row], np.float64))
    assert [found.linear.x, found.linear.y, found.linear.z] == linear
    assert [found.angular.x, found.angular.y, found.angular.z] == angular


def test_joint_commands_have_gains_and_dampen():
    pytest.importorskip('isaac_ros_deploy_interfaces')
    given = (('position', 'kp'), ('a', 'b'), (0, 1), 0.1)
    made = OUTPUTS['joint_command'](*given, damping=2.0)
    found = message_of(made)
    assert (found.names, [*found.position], [*found.kp]) == (['a', 'b'], [1, 2], [5, 6])
    found = message_of(made, is_damping=True)
    assert ([*found.kp], [*found.kd], [*found.effort]) == ([0, 0], [2, 2], [0, 0])
    made = OUTPUTS['joint_command_trajectory'](*given, gains={'kd': np.array([0.5, 1.5])})
    found = message_of(made)
    assert (found.horizon, found.step_dt.nanosec, [*found.position]) == (2, 1e8, [1, 2, 3, 4])
    assert ([*found.kp], [*found.kd]) == ([5, 6, 7, 8], [0.5, 1.5, 0.5, 1.5])


METADATA = {'joint_names': 'a, b', 'default_joint_pos': '0.5,-1', 'kp': '[20, 10]', 'kd': '0.5'}


def test_metadata_gives_joints_pose_and_gains():
    given, lines = CommandParameters(output='joint_command').of_metadata(METADATA)
    assert given == {
        'joints': ('a', 'b'),
        'action_offset': (0.5, -1.0),
        'kp': (20.0, 10.0),
        'kd': (0.5,),
    }
    assert lines[0] == 'joints: joint_names of the metadata, 2 values'
    own = CommandParameters(output='joint_command', joints=('x',), output_fields=('kp',))
    assert set(own.of_metadata(METADATA)[0]) == {'action_offset', 'kd'}
    given, lines = CommandParameters(output='multi_array').of_metadata(METADATA)
    assert 'kp' not in given
    assert 'kp of the metadata: not published, multi_array has no gains' in lines
    assert CommandParameters(output='twist').of_metadata(METADATA) == ({}, [])
    with pytest.raises(ParameterError, match='metadata kd of the network cannot be read'):
        CommandParameters().of_metadata({'kd': '[1, "stiff"]'})


def test_gains_of_parameters_are_published():
    pytest.importorskip('isaac_ros_deploy_interfaces')
    parameters = CommandParameters(
        output='joint_command', joints=('a', 'b'), command_joints=('b', 'a'), kp=(1.0, 2.0)
    )
    columns = parameters.columns(specs(action=(1, 2)), ('position',))
    found = parameters.command(columns, 0.1).message(ROWS[:, :2], STAMP)
    assert (found.names, [*found.kp], [*found.kd]) == (['b', 'a'], [2, 1], [])


def test_actions_are_scaled_moved_and_measured():
    parameters = CommandParameters(
        joints=('a', 'b'), action_scale=(0.5,), action_offset=(1.0, -1.0), blend_seconds=0.0
    )
    columns = parameters.columns(specs(action=(1, 3, 2), kp=(1, 3, 2)), ('position', 'kp'))
    chunk = np.arange(6, dtype=np.float32).reshape(1, 3, 2)
    found = columns.actions({'action': chunk, 'kp': chunk, 'other': chunk})
    assert found.tolist() == [[1, -0.5, 0, 1], [2, 0.5, 2, 3], [3, 1.5, 4, 5]]
    assert columns.horizon == 3
    assert columns.measured(['b', 'c', 'a'], [1, 2, 3]).tolist() == [3, 1, 0, 0]
    assert columns.measured(['b'], [1]) is None
    with pytest.raises(TensorMismatchError, match='The actions of 2 joints came as'):
        columns.actions({'action': chunk, 'kp': chunk[:, :1]})


def test_a_bundle_gives_fields_and_joints_that_the_messages_have():
    outputs = specs(kd=(1, 2), target=(1, 2), kp=(1, 2))
    kinds = {'kd': 'kd', 'target': 'target/joint/position', 'kp': 'kp'}
    known = {each.name: Port(each, kinds[each.name], ('a', 'b')) for each in outputs}
    chosen, given = CommandParameters(output='joint_trajectory').of_bundle(outputs, known)
    assert [each.name for each in chosen] == ['target']
    assert given == {'output_fields': ('position',), 'joints': ('a', 'b')}
    chosen, given = CommandParameters(output='joint_command').of_bundle(outputs, known)
    assert given['output_fields'] == ('kd', 'position', 'kp')
    with pytest.raises(ParameterError, match='but output is twist'):
        CommandParameters(output='twist').of_bundle(outputs, known)


@pytest.mark.parametrize(
    ('given', 'problem'),
    [
        ({'action_scale': (1.0, 2.0, 3.0)}, 'action_scale has 3 numbers'),
        ({'joints': ('a', 'b', 'c')}, 'but joints has 3 names'),
        ({'joints': ()}, 'joints is empty'),
        ({'command_joints': ('c',)}, "command_joints has 'c'"),
        ({'command_joints': ('b', 'b')}, 'has a name twice'),
        ({'joints': ('a', 'a')}, 'has a name twice'),
        ({'lower_limits': (2.0,), 'upper_limits': (1.0,)}, 'lower_limits is'),
        ({'hold': 'pose'}, 'there is no pose'),
        ({'hold': 'pose', 'hold_pose': (3.0,), 'upper_limits': (2.0,)}, 'beyond the limits'),
        ({'hold': 'damping'}, 'hold is damping'),
        ({'joints': (), 'blend_seconds': 1.0}, 'blend_seconds is 1'),
        ({'output_fields': ('positon',)}, "Did you mean 'position'"),
        ({'output_fields': ('kp',)}, 'output_fields has kp'),
        ({'kp': (1.0,)}, 'kp is set, but output is multi_array'),
    ],
)
def test_contradictions_are_refused(given, problem):
    defaults = {'joints': ('a', 'b'), 'blend_seconds': 0.0, 'output': 'multi_array'}
    if 'joints is empty' in problem or 'fields has kp' in problem:
        pytest.importorskip('trajectory_msgs')
        defaults['output'] = 'joint_trajectory'
    parameters = CommandParameters(**{**defaults, **given})
    outputs = specs(action=(1, 2))
    with pytest.raises(ParameterError, match=problem):
        fields = parameters.fields_of(outputs)
        columns = parameters.columns(outputs, fields)
        parameters.command(columns, 0.1)
        parameters.safety_options(columns)


def test_the_time_between_two_samples_is_no_age():
    parameters = PolicyParameters(joints=('a', 'b'), rate_hz=2.0, max_age=0.25)
    columns = parameters.columns(specs(action=(1, 2)), ('position',))
    assert parameters.safety_options(columns).max_age == 0.75


def test_a_missing_message_package_is_named(monkeypatch):
    monkeypatch.setitem(sys.modules, 'isaac_ros_deploy_interfaces.msg', None)
    with pytest.raises(ParameterError, match='isaac_ros_deploy_interfaces/msg/'):
        OUTPUTS['joint_command'](('position',), ('a',), (0,), 0.1)
