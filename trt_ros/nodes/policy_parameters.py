"""Parameters of the commands of a policy, and of its safety."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

from trt_ros.errors import ParameterError, TensorMismatchError, counted, meant
from trt_ros.model.bundle import Port
from trt_ros.model.kinds import field_of
from trt_ros.policy.chunks import MODES
from trt_ros.policy.metadata import commands_of
from trt_ros.policy.safety import HOLDS, SafetyOptions
from trt_ros.ros.commands import FIELDS, OUTPUTS, Command
from trt_ros.ros.parameters import param
from trt_ros.tensors import Arrays, TensorSpec

LARGEST = 1e6
#: Rate of the checks where neither actions nor samples have one.
DEFAULT_RATE_HZ = 50.0


@dataclass(frozen=True)
class Columns:
    """
    The elements of an action: one or several fields of the same joints.

    :param names: of the network outputs, one per field.
    :param fields: of `ros.commands.FIELDS`.
    :param joints: names in the order of the network; () without names.
    :param count: joints per field.
    :param horizon: actions per run, as far as the network says so.
    :param scale: of all elements, (fields * count,), as `offset` is.
    """

    names: tuple[str, ...]
    fields: tuple[str, ...]
    joints: tuple[str, ...]
    count: int
    horizon: int
    scale: np.ndarray
    offset: np.ndarray

    def zeros(self) -> np.ndarray:
        """Return zeros, one per element."""
        return np.zeros(self.count * len(self.fields))

    def is_of(self, *fields: str) -> np.ndarray:
        """Return whether each element is of one of these fields, (size,) bool."""
        return np.repeat([field in fields for field in self.fields], self.count)

    def actions(self, outputs: Arrays) -> np.ndarray:
        """Return the actions of a run, (horizon, size) float64, or raise TensorMismatchError."""
        found = [outputs[name] for name in self.names]
        rows = [each.reshape(-1, self.count) for each in found if each.size % self.count == 0]
        if len({len(each) for each in rows}) != 1 or len(rows) < len(found):
            raise TensorMismatchError(
                f'The actions of {self.count} joints came as '
                f'{", ".join(str(each.shape) for each in found)}.'
            )
        joined = rows[0] if len(rows) == 1 else np.concatenate(rows, axis=1)
        actions: np.ndarray = joined * self.scale  # float64
        actions += self.offset
        return actions

    def measured(self, names: Sequence[str], positions: Sequence[float]) -> np.ndarray | None:
        """Return measured positions as an action, the rest 0; None where a joint is missing."""
        by_name = dict(zip(names, positions))
        if any(joint not in by_name for joint in self.joints):
            return None
        found = self.zeros()
        found[self.is_of('position')] = [by_name[joint] for joint in self.joints]
        return found


@dataclass(frozen=True)
class CommandParameters:
    """Commands of a policy, and its safety."""

    hold: str = param(
        'last',
        'Command while the policy fails: the last one, damping alone (joint_command), or the way '
        'to hold_pose; velocities and efforts are 0.',
        choices=HOLDS,
    )
    hold_pose: tuple[float, ...] = param(
        (),
        'Positions for `hold: pose`, one per joint; empty uses action_offset.',
        between=(-LARGEST, LARGEST),
    )
    hold_damping: float = param(1.0, 'Gain kd for `hold: damping`.', between=(0.0, LARGEST))
    max_age: float = param(
        0.2,
        'Maximum age in seconds of the newest observation, after which the hold is commanded; '
        'with rate_hz that of each topic without ?max_age.',
        between=(0.001, 60.0),
    )
    deadline: float = param(
        0.0,
        'Maximum duration of a run in seconds, after which the hold is commanded; 0.0 is that of '
        'the actions of a run.',
        zero_or=(0.0001, 60.0),
    )
    max_jump: float = param(
        0.0,
        'Maximum change of a command from one to the next; beyond it the hold is commanded; 0.0 '
        'sets no limit.',
        zero_or=(1e-6, LARGEST),
    )
    blend_seconds: float = param(
        1.0,
        'Duration in seconds of the way from the measured pose (`joint_states`) or the hold to '
        'the actions, and to hold_pose.',
        between=(0.0, 60.0),
    )
    require_enable: bool = param(
        False, 'Whether commands wait for the service `~/enable` after each activation.'
    )
    output: str = param(
        'joint_trajectory',
        'Messages of the commands: trajectory_msgs/JointTrajectory, std_msgs/Float64MultiArray '
        '(`~/commands`), geometry_msgs/Twist (`cmd_vel`), or JointCommand or '
        'JointCommandTrajectory of isaac_ros_deploy_interfaces.',
        choices=tuple(OUTPUTS),
    )
    output_fields: tuple[str, ...] = param(
        (),
        'Meaning of each network output in `outputs`: position, velocity, effort, kp, kd or '
        'twist; empty takes one output as positions, or as twist.',
    )
    joints: tuple[str, ...] = param(
        (), 'Names of the joints in the order of the network; multi_array and twist need none.'
    )
    command_joints: tuple[str, ...] = param(
        (),
        'Names of the joints in the order of the commands, as the controller lists them; empty '
        'keeps that of `joints`.',
    )
    action_scale: tuple[float, ...] = param(
        (),
        'Factor of the actions: one number, or one per joint; empty keeps them.',
        between=(-LARGEST, LARGEST),
    )
    action_offset: tuple[float, ...] = param(
        (),
        'Sum added to the scaled actions, such as the default pose: one number, or one per joint.',
        between=(-LARGEST, LARGEST),
    )
    kp: tuple[float, ...] = param(
        (),
        'Position gains of joint_command and joint_command_trajectory: one number, or one per '
        "joint; empty uses those of the network's outputs or metadata.",
        between=(0.0, LARGEST),
    )
    kd: tuple[float, ...] = param((), 'Damping gains, as kp.', between=(0.0, LARGEST))
    lower_limits: tuple[float, ...] = param(
        (),
        'Minimum of the commands, one number or one per joint; values beyond it are clipped and '
        'counted; empty sets no limit.',
        between=(-LARGEST, LARGEST),
    )
    upper_limits: tuple[float, ...] = param(
        (), 'Maximum of the commands, as lower_limits.', between=(-LARGEST, LARGEST)
    )
    action_rate_hz: float = param(
        0.0,
        'Rate in Hz of the actions of a chunk, and of the checks of a policy; 0.0 uses rate_hz, '
        'or 50 without one.',
        zero_or=(0.1, 1000.0),
    )
    chunk_mode: str = param(
        'newest',
        'Actions where the chunks of several runs overlap: those of the newest chunk, the '
        'weighted mean of all of them, or those committed while the run took place, going over '
        'to the newest.',
        choices=MODES,
    )
    chunk_actions: int = param(
        0,
        'Number of actions of a chunk that are executed before a newer chunk is taken; 0 takes '
        'each chunk.',
        between=(0, 1000),
    )
    trajectory_points: int = param(
        1,
        'Maximum number of points of a joint_trajectory or joint_command_trajectory: the present '
        'action and those that follow it in the chunk.',
        between=(1, 1000),
    )

    def of_bundle(
        self, outputs: Sequence[TensorSpec], known: Mapping[str, Port]
    ) -> tuple[Sequence[TensorSpec], dict[str, Any]]:
        """Return the outputs that are commanded, and the parameters that a bundle gives."""
        if self.output_fields or not all(known.get(spec.name) for spec in outputs):
            return outputs, {}
        ports = [known[spec.name] for spec in outputs]
        if not any(port.kind for port in ports):
            return outputs, {}
        allowed = OUTPUTS[self.output].allowed
        found = {
            spec: field
            for spec, port in zip(outputs, ports)
            if (field := field_of(spec.name, port.kind)) in allowed
        }
        if self.output == 'multi_array':
            found = dict([*found.items()][:1])
        if not found:
            raise ParameterError(
                f'The outputs are {", ".join(port.kind for port in ports)}, but output is '
                f'{self.output}.',
                remedy=f'Set another output: its fields are {", ".join(allowed)}.',
            )
        given: dict[str, Any] = {'output_fields': tuple(found.values())}
        if not self.joints:
            given['joints'] = known[next(iter(found)).name].element_names
        return tuple(found), given

    def of_metadata(self, metadata: Mapping[str, str]) -> tuple[dict[str, Any], list[str]]:
        """Return the parameters that are empty but in a network's metadata, and log lines."""
        found: dict[str, Any] = {}
        lines = []
        for name, (key, values) in commands_of(metadata).items():
            if self.output == 'twist' or getattr(self, name) or name in self.output_fields:
                continue
            if name in ('kp', 'kd') and not self._has_gains:
                lines.append(f'{key} of the metadata: not published, {self.output} has no gains')
                continue
            found[name] = values
            lines.append(f'{name}: {key} of the metadata, {counted(len(values), "value")}')
        return found, lines

    @property
    def _has_gains(self) -> bool:
        return OUTPUTS[self.output].has_gains

    def command_rate(self) -> float:
        """Return the rate of actions and checks in Hz."""
        rate_hz: float = getattr(self, 'rate_hz', 0.0)
        return self.action_rate_hz or rate_hz or DEFAULT_RATE_HZ

    def fields_of(self, outputs: Sequence[TensorSpec]) -> tuple[str, ...]:
        """Return the meaning of each output; raise ParameterError when it is unknown."""
        fields = self.output_fields
        if not fields and len(outputs) == 1:
            return ('twist' if self.output == 'twist' else 'position',)
        unknown = [field for field in fields if field not in FIELDS]
        if unknown or len(fields) != len(outputs) or len(set(fields)) < len(fields):
            raise ParameterError(
                f'output_fields is {list(fields)}, but the outputs are '
                f'{", ".join(spec.name for spec in outputs)}.',
                cause=f'{meant(unknown[0], FIELDS)}The fields are {", ".join(FIELDS)}.'
                if unknown
                else 'Each output has one field of its own.',
                remedy='Choose outputs by their names in outputs, and set one field for each, '
                'as in position, kp, kd.',
            )
        return fields

    def columns(self, outputs: Sequence[TensorSpec], fields: tuple[str, ...]) -> Columns:
        """Return the elements of an action; raise ParameterError if their numbers differ."""
        counts = {spec.shape[-1] if spec.shape else 1 for spec in outputs}
        count = len(self.joints) or max(counts)
        if counts - {count, -1} or count < 1:
            raise ParameterError(
                f'The outputs are {"; ".join(map(str, outputs))}, but joints has '
                f'{counted(len(self.joints), "name")}.',
                cause='The last dimension of an output is the joints.',
                remedy='Set joints to their names, one per element.',
            )
        horizon = outputs[0].shape[-2] if len(outputs[0].shape) > 1 else 1
        rest = count * (len(fields) - 1)
        scale = self._of_joints('action_scale', count, 1.0)
        offset = self._of_joints('action_offset', count, 0.0)
        return Columns(
            tuple(spec.name for spec in outputs),
            fields,
            self.joints,
            count,
            max(horizon, 1),
            np.append(scale, np.ones(rest)),
            np.append(offset, np.zeros(rest)),
        )

    def _of_joints(self, name: str, count: int, default: float) -> np.ndarray:
        """Return a parameter as one number per joint."""
        values = getattr(self, name)
        if len(values) not in (0, 1, count):
            raise ParameterError(
                f'{name} has {counted(len(values), "number")}.',
                remedy=f'Set one number, or {count}: one per joint.',
            )
        return np.broadcast_to(np.array(values or [default], np.float64), count)

    def command(self, columns: Columns, period: float) -> Command:
        """Return the messages; raises ParameterError when they cannot hold the fields."""
        joints = self.joints
        order: Sequence[int] = range(columns.count)
        if self.command_joints:
            unknown = [name for name in self.command_joints if name not in joints]
            if unknown:
                raise ParameterError(
                    f'command_joints has {unknown[0]!r}, which joints lacks.',
                    remedy=f'{meant(unknown[0], joints)}Use names of joints.',
                )
            order = [joints.index(name) for name in self.command_joints]
        if len(set(joints)) < len(joints) or len(set(order)) < len(order):
            raise ParameterError('joints or command_joints has a name twice.')
        gains = [name for name in ('kp', 'kd') if getattr(self, name)]
        if gains and (not self._has_gains or gains[0] in columns.fields):
            raise ParameterError(
                f'{gains[0]} is set, but output is {self.output}.',
                cause='The network gives gains.'
                if self._has_gains
                else 'Its messages have no gains: the controller has them.',
                remedy=f'Leave {gains[0]} empty'
                + ('.' if self._has_gains else ', or set output to joint_command.'),
            )
        given: dict[str, Any] = {}
        if self._has_gains:
            given['damping'] = self.hold_damping
            given['gains'] = {name: self._of_joints(name, columns.count, 0.0) for name in gains}
        made = OUTPUTS[self.output](columns.fields, joints, order, period, **given)
        if self.hold == 'damping' and not self._has_gains:
            raise ParameterError(
                f'hold is damping, but messages of {made.topic} have no gains.',
                remedy='Set hold to last or pose, or output to joint_command.',
            )
        return made

    def safety_options(self, columns: Columns) -> SafetyOptions:
        """Return the limits of the commands; raises ParameterError where they contradict."""
        count, size = columns.count, columns.count * len(columns.fields)
        rate_hz: float = getattr(self, 'rate_hz', 0.0)
        low, high = np.full(size, -np.inf), np.full(size, np.inf)
        low[:count] = self._of_joints('lower_limits', count, -np.inf)
        high[:count] = self._of_joints('upper_limits', count, np.inf)
        if (low > high).any():
            raise ParameterError(
                f'lower_limits is {list(self.lower_limits)}, but upper_limits is '
                f'{list(self.upper_limits)}.',
                remedy='Set each minimum to no more than its maximum.',
            )
        pose = None
        if self.hold == 'pose':
            name = 'hold_pose' if self.hold_pose else 'action_offset'
            if 'position' not in columns.fields or not getattr(self, name):
                raise ParameterError(
                    'hold is pose, but there is no pose.',
                    cause='Neither hold_pose nor action_offset is set.'
                    if 'position' in columns.fields
                    else f'The commands are {", ".join(columns.fields)}.',
                    remedy='Set hold_pose, or hold to last.',
                )
            pose = np.full(size, np.nan)
            pose[columns.is_of('position')] = self._of_joints(name, count, 0.0)
            if ((pose < low) | (pose > high)).any():
                raise ParameterError(
                    f'{name} is {list(getattr(self, name))}, which is beyond the limits.',
                    cause='hold is pose, and each command is within the limits.',
                    remedy='Correct hold_pose, lower_limits or upper_limits.',
                )
        if self.blend_seconds and 'position' in columns.fields and not columns.joints:
            raise ParameterError(
                f'blend_seconds is {self.blend_seconds:g}, but joints is empty.',
                cause='The first commands begin at the measured positions, which have names.',
                remedy='Set joints, or blend_seconds to 0.0.',
            )
        return SafetyOptions(
            # Between two samples, no observation is newer.
            max_age=self.max_age + (1 / rate_hz if rate_hz else 0.0),
            max_jump=self.max_jump,
            blend_seconds=self.blend_seconds,
            require_enable=self.require_enable,
            low=low,
            high=high,
            at_rest=columns.is_of('velocity', 'effort', 'twist'),
            pose=pose,
        )
