"""Inputs that are numbers of ROS messages, or transforms between coordinate frames."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
import math
import re

import numpy as np

from trt_ros.errors import ParameterError, TensorMismatchError, counted, meant
from trt_ros.model.feeds.arithmetic import ARITHMETIC, Arithmetic
from trt_ros.model.feeds.base import INITIAL, Binding, Feed
from trt_ros.model.feeds.constant import read_value
from trt_ros.model.feeds.history import HISTORY
from trt_ros.model.feeds.tensor import TensorFeed
from trt_ros.tensors import TensorSpec

#: Field that is computed from the orientation, where a message has none of this name.
GRAVITY = 'gravity'
#: Setting of the kind `message`: the type of the messages.
TYPE = 'type'
_NUMBERS = ('Float32', 'Float64', 'Int32', 'Int64', 'Bool', 'Int8', 'Int16', 'UInt8', 'UInt16')
#: Types of the messages by kind of binding: that which is published, else the first.
MESSAGES: Mapping[str, tuple[str, ...]] = {
    'joints': ('sensor_msgs/msg/JointState',),
    'imu': ('sensor_msgs/msg/Imu',),
    'odometry': ('nav_msgs/msg/Odometry',),
    'pose': ('geometry_msgs/msg/PoseStamped',),
    'twist': ('geometry_msgs/msg/Twist', 'geometry_msgs/msg/TwistStamped'),
    'vector': ('geometry_msgs/msg/Vector3Stamped',),
    'wrench': ('geometry_msgs/msg/WrenchStamped',),
    'camera_info': ('sensor_msgs/msg/CameraInfo',),
    'number': tuple(f'std_msgs/msg/{name}' for name in (*_NUMBERS, 'UInt32', 'UInt64')),
    'range': ('sensor_msgs/msg/Range',),
    'scan': ('sensor_msgs/msg/LaserScan',),
    'message': (),
}
_FIELD = re.compile(r'\s*([A-Za-z0-9_.]+)\s*(?:\[([^][]*)\])?\s*(?:,|$)')


#: Name of each field, and its elements in their order; () takes all.
FieldNames = tuple[tuple[str, tuple[str, ...]], ...]


def parse_fields(text: str) -> FieldNames:
    """
    Parse the fields of a message whose numbers an input gets, one after another; '' takes all.

    >>> parse_fields('position[hip,knee],velocity')
    (('position', ('hip', 'knee')), ('velocity', ()))

    :raises ParameterError: when they are malformed.
    """
    if not text:
        return (('', ()),)
    found, at = [], 0
    while at < len(text):
        match = _FIELD.match(text, at)
        elements = () if match is None or match[2] is None else tuple(match[2].split(','))
        elements = tuple(map(str.strip, elements))
        if match is None or not all(elements) or text.endswith(','):
            raise ParameterError(
                f'Invalid fields {text!r} in inputs.',
                remedy='Write FIELD[ELEMENT,..] with commas between fields, such as '
                'position[hip,knee],velocity[hip,knee] or orientation[w,x,y,z].',
            )
        if len(set(elements)) < len(elements):
            raise ParameterError(
                f'The fields {text!r} in inputs have an element of {match[1]} twice.',
                cause='Each element is a number of its own.',
                remedy='List each element once.',
            )
        found.append((match[1], elements))
        at = match.end()
    return tuple(found)


class MessageFeed(TensorFeed):
    """Numbers of messages of a type, as an array of the shape of `spec`."""

    kind = 'message'
    form = 'message:TOPIC#FIELD[ELEMENT,..]?type=TYPE'
    settings = (*TensorFeed.settings, TYPE)

    @classmethod
    def parse(cls, text: str, source: str) -> tuple[tuple[str, ...], tuple[str, ...]]:
        """Return 'TOPIC#FIELDS', and the topic; see Feed.parse."""
        sources, topics = super().parse(text, source)
        parse_fields(sources[0].partition('#')[2])
        return sources, topics

    @classmethod
    def size_of(cls, binding: Binding, outputs: Sequence[TensorSpec]) -> int | None:
        fields = parse_fields(binding.tensor)
        sizes = [3 if name == GRAVITY else len(elements) for name, elements in fields]
        count = binding.settings.get(HISTORY, '1')
        return sum(sizes) * int(count) if all(sizes) and count.isdecimal() else None


#: The numbers of a transform, one behind the other, and the names of a field's elements.
FIELDS: Mapping[str, tuple[str, ...]] = {
    'matrix': tuple(map(str, range(16))),
    'translation': ('x', 'y', 'z'),
    'rotation': ('x', 'y', 'z', 'w'),
}
_FRAME = re.compile(r'[A-Za-z0-9_./-]+')


@dataclass(frozen=True)
class TransformFeed(TensorFeed):
    """Numbers of the transforms from frames to a target frame, one frame after another."""

    target: str = ''
    frames: tuple[str, ...] = ()
    indices: tuple[int, ...] = ()
    kind = 'tf'
    form = 'tf:TARGET,FRAME#FIELD[ELEMENT,..]'
    settings = (INITIAL, *ARITHMETIC)

    @classmethod
    def parse(cls, text: str, source: str) -> tuple[tuple[str, ...], tuple[str, ...]]:
        frames = [each.strip() for each in source.partition('#')[0].split(',')]
        if len(frames) < 2 or not all(map(_FRAME.fullmatch, frames)):
            raise ParameterError(
                f'The binding {text!r} in inputs has no two frames.',
                cause='A transform leads to a target frame, from each of the frames after it.',
                remedy='Write INPUT=tf:base_link,camera or the like.',
            )
        _indices(source.partition('#')[2])
        return (source,), ()

    @classmethod
    def bind(cls, binding: Binding, spec: TensorSpec, outputs: Sequence[TensorSpec]) -> Feed:
        frames, _, fields = binding.sources[0].partition('#')
        target, *others = (each.strip() for each in frames.split(','))
        indices = _indices(fields)
        count = len(indices) * len(others)
        known = math.prod(size for size in spec.shape if size > 0)
        if count % known if spec.is_dynamic else count != known:
            raise TensorMismatchError(
                f'The network input {spec} is bound to {counted(count, "number")}.',
                cause=f'{counted(len(indices), "number")} of each frame: {", ".join(others)}.',
                remedy=f'Choose another field ({", ".join(FIELDS)}), elements or frames.',
            )
        first = binding.settings.get(INITIAL)
        return cls(
            spec,
            Arithmetic.parse(binding.settings, spec),
            None if first is None else read_value(first, spec),
            target=target,
            frames=tuple(others),
            indices=indices,
        )

    @property
    def details(self) -> str:
        return f', {", ".join(self.frames)} to {self.target}{super().details}'

    def describe(self, name: str) -> str:
        return f'{name}: transforms{self.details}'

    def numbers(
        self, matrix: np.ndarray, translation: np.ndarray, rotation: np.ndarray
    ) -> np.ndarray:
        """
        Return the numbers of a transform that the input gets, float64.

        :param matrix: of the rotation, (3, 3); `rotation`: the same as x, y, z, w.
        :param translation: (3,) in meters.
        """
        whole = np.eye(4)
        whole[:3, :3], whole[:3, 3] = matrix, translation
        found: np.ndarray = np.concatenate([whole.ravel(), translation, rotation])
        return found[list(self.indices)]


def _indices(fields: str) -> tuple[int, ...]:
    found: list[int] = []
    for field, elements in parse_fields(fields or 'matrix'):
        names = FIELDS.get(field)
        if names is None or not set(elements) <= set(names):
            raise ParameterError(
                f'A transform in inputs has no {field}{list(elements) if names else ""}.',
                remedy=f'{meant(field, FIELDS)}Write one of '
                f'{", ".join(f"{name}[{values[0]},..]" for name, values in FIELDS.items())}.',
            )
        start = sum(len(FIELDS[name]) for name in list(FIELDS)[: list(FIELDS).index(field)])
        found += [start + names.index(each) for each in elements or names]
    return tuple(found)
