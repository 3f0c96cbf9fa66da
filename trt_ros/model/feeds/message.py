"""Inputs that are numbers of ROS messages: joints, velocities, orientations, forces."""

from collections.abc import Mapping, Sequence
import re

from trt_ros.errors import ParameterError
from trt_ros.model.feeds.base import Binding
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
        """Return the number of elements that are named; see Feed.size_of."""
        fields = parse_fields(binding.tensor)
        sizes = [3 if name == GRAVITY else len(elements) for name, elements in fields]
        count = binding.settings.get(HISTORY, '1')
        return sum(sizes) * int(count) if all(sizes) and count.isdecimal() else None

    @classmethod
    def serves_others(cls, sources: Sequence[str]) -> bool:
        """Return False: a message has no names of network inputs."""
        return False
