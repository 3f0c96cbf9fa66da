"""Messages of commands: trajectories, arrays, velocities and joint commands."""

from __future__ import annotations

from abc import ABC, abstractmethod
from array import array
from collections.abc import Mapping, Sequence
import math
from typing import Any, ClassVar, NamedTuple

from geometry_msgs.msg import Twist
import numpy as np
from rclpy.duration import Duration
from rclpy.serialization import serialize_message
from std_msgs.msg import Float64MultiArray, Header

from trt_ros.errors import ParameterError
from trt_ros.ros.message_types import message_class

#: Fields of joints, by the kinds of bundles; `twist` is that of a body.
JOINT_FIELDS = ('position', 'velocity', 'effort', 'kp', 'kd')
FIELDS = (*JOINT_FIELDS, 'twist')


class _Template(NamedTuple):
    """
    A serialized message whose numbers are replaced.

    :param end: of its float64, which begin after the four bytes of the encapsulation.
    :param places: of the numbers among them, and `numbers`: their indices in the rows.
    """

    message: np.ndarray
    has_stamp: bool
    end: int
    places: np.ndarray
    numbers: np.ndarray


class Command(ABC):
    """
    Commands as messages of one type.

    :param fields: what the elements of a row are, one of FIELDS per joint or body.
    :param joints: names of the joints of each field, in the order of the elements.
    :param order: index of each joint that is published, in that order.
    :param period: seconds from one row to the next.
    :ivar topic: of the messages.
    :ivar damping: damping to command instead of positions, for `hold: damping`.
    :cvar allowed: fields that the messages have.
    :cvar has_gains: whether they also have gains that no field gives, and damping.
    """

    allowed: ClassVar[Sequence[str]] = JOINT_FIELDS
    needs_joints: ClassVar[bool] = True
    has_gains: ClassVar[bool] = False
    topic: str
    type: Any

    def __init__(
        self, fields: Sequence[str], joints: Sequence[str], order: Sequence[int], period: float
    ) -> None:
        refused = [field for field in fields if field not in self.allowed]
        if refused:
            raise ParameterError(
                f'output_fields has {", ".join(refused)}, which messages of {self.topic} lack.',
                remedy=f'Use {", ".join(self.allowed)}, or set another output.',
            )
        if self.needs_joints and not joints:
            raise ParameterError(
                f'joints is empty, but messages of {self.topic} have names.',
                remedy='Set joints to the names in the order of the network.',
            )
        self._fields, self._period, self._order = tuple(fields), period, list(order)
        self._names = [joints[index] for index in order] if joints else []
        self._templates: dict[tuple[int, bool], _Template] = {}

    @abstractmethod
    def message(self, rows: np.ndarray, stamp: Any, *, is_damping: bool = False) -> Any:
        """Return the message of commands from a time on: (N, size) float64."""

    def serialized(
        self, rows: np.ndarray, stamp_ns: int, *, is_damping: bool = False
    ) -> np.ndarray:
        """Return the serialized message of `message`, (N,) uint8: a copy with other numbers."""
        key = len(rows), is_damping
        template = self._templates.get(key)
        if template is None:
            template = self._templates[key] = self._template(rows.shape, is_damping)
        message = template.message.copy()
        if template.has_stamp:
            message[4:12].view('<u4')[:] = divmod(stamp_ns, 10**9)
        message[4 : template.end].view('<f8')[template.places] = rows.reshape(-1)[template.numbers]
        return message

    def _template(self, shape: tuple[int, ...], is_damping: bool) -> _Template:
        """Find where the numbers of rows are: those of a message of numbers that stand out."""
        numbers = 1e300 * (1 + np.arange(math.prod(shape)))
        made = self.message(numbers.reshape(shape), Header().stamp, is_damping=is_damping)
        message = np.frombuffer(serialize_message(made), np.uint8)
        end = 4 + (len(message) - 4) // 8 * 8
        found = message[4:end].view('<f8')
        places = np.flatnonzero(np.isin(found, numbers))
        return _Template(
            message, hasattr(made, 'header'), end, places, np.searchsorted(numbers, found[places])
        )

    def _parts(self, rows: np.ndarray) -> dict[str, np.ndarray]:
        """Return (N, joints) per field, in the order that is published."""
        parts = np.split(rows, len(self._fields), axis=1)
        return {field: part[:, self._order] for field, part in zip(self._fields, parts)}


def _doubles(values: np.ndarray) -> array[float]:
    # rclpy checks each element of a list, but takes an array as it is.
    return array('d', np.ascontiguousarray(values, np.float64).tobytes())


class Trajectory(Command):
    """trajectory_msgs/JointTrajectory: points from one period after the stamp on."""

    allowed = ('position', 'velocity', 'effort')
    topic = '~/joint_trajectory'

    def __init__(self, *args: Any) -> None:
        remedy = 'sudo apt install ros-$ROS_DISTRO-trajectory-msgs.'
        self.type = message_class('trajectory_msgs/msg/JointTrajectory', remedy)
        self._point = message_class('trajectory_msgs/msg/JointTrajectoryPoint', remedy)
        super().__init__(*args)

    def message(self, rows: np.ndarray, stamp: Any, *, is_damping: bool = False) -> Any:
        message = self.type(joint_names=self._names)
        message.header.stamp = stamp
        parts = self._parts(rows)
        for index in range(len(rows)):
            point = self._point(time_from_start=_duration((index + 1) * self._period))
            for field, values in parts.items():
                name = {'position': 'positions', 'velocity': 'velocities'}.get(field, field)
                setattr(point, name, _doubles(values[index]))
            message.points.append(point)
        return message


class MultiArray(Command):
    """std_msgs/Float64MultiArray: one field, as forward_command_controller takes it."""

    needs_joints = False
    topic = '~/commands'
    type = Float64MultiArray

    def __init__(self, *args: Any) -> None:
        super().__init__(*args)
        if len(self._fields) > 1:
            raise ParameterError(
                f'output_fields has {", ".join(self._fields)}, but output is multi_array.',
                cause='A multi-array is one field.',
                remedy='Name one network output in outputs.',
            )

    def message(self, rows: np.ndarray, stamp: Any, *, is_damping: bool = False) -> Any:
        return Float64MultiArray(data=_doubles(rows[0][self._order]))


class BodyVelocity(Command):
    """geometry_msgs/Twist: (x, yaw), (x, y, yaw) or all six numbers."""

    allowed = ('twist',)
    needs_joints = False
    topic = 'cmd_vel'
    type = Twist

    def message(self, rows: np.ndarray, stamp: Any, *, is_damping: bool = False) -> Any:
        values = rows[0].tolist()
        if len(values) == 2:
            values.insert(1, 0.0)
        if len(values) == 3:
            values[2:2] = [0.0, 0.0, 0.0]
        message = Twist()
        (message.linear.x, message.linear.y, message.linear.z) = values[:3]
        (message.angular.x, message.angular.y, message.angular.z) = values[3:]
        return message


class JointCommand(Command):
    """isaac_ros_deploy_interfaces/JointCommand; `gains`: kp, kd, a value per network joint."""

    has_gains = True
    topic = '~/joint_command'
    name: ClassVar[str] = 'JointCommand'

    def __init__(
        self, *args: Any, damping: float = 0.0, gains: Mapping[str, np.ndarray] | None = None
    ) -> None:
        remedy = 'Install isaac_ros_deploy_interfaces of Isaac ROS and source its workspace, or '
        remedy += 'set output to joint_trajectory or multi_array.'
        self.type = message_class(f'isaac_ros_deploy_interfaces/msg/{self.name}', remedy)
        super().__init__(*args)
        self._damping = damping
        self._gains = {name: each[self._order] for name, each in (gains or {}).items()}

    def message(self, rows: np.ndarray, stamp: Any, *, is_damping: bool = False) -> Any:
        return self._filled(rows[:1], stamp, is_damping)

    def _filled(self, rows: np.ndarray, stamp: Any, is_damping: bool) -> Any:
        message = self.type(names=self._names)
        if hasattr(message, 'header'):
            message.header.stamp = stamp
        parts = self._parts(rows)
        for field, gains in self._gains.items():
            parts[field] = np.tile(gains, (len(rows), 1))
        if is_damping:
            zeros = np.zeros((len(rows), len(self._order)))
            parts |= {'velocity': zeros, 'effort': zeros, 'kp': zeros, 'kd': zeros + self._damping}
        for field, values in parts.items():
            setattr(message, field, _doubles(values.reshape(-1)))
        return message


class JointCommandTrajectory(JointCommand):
    """isaac_ros_deploy_interfaces/JointCommandTrajectory."""

    topic = '~/joint_command_trajectory'
    name = 'JointCommandTrajectory'

    def message(self, rows: np.ndarray, stamp: Any, *, is_damping: bool = False) -> Any:
        message = self._filled(rows, stamp, is_damping)
        message.step_dt, message.horizon = _duration(self._period), len(rows)
        return message


def _duration(seconds: float) -> Any:
    return Duration(nanoseconds=round(1e9 * seconds)).to_msg()


#: Class of the commands by the parameter `output`.
OUTPUTS: Mapping[str, type[Command]] = {
    'joint_trajectory': Trajectory,
    'multi_array': MultiArray,
    'twist': BodyVelocity,
    'joint_command': JointCommand,
    'joint_command_trajectory': JointCommandTrajectory,
}
