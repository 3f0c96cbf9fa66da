"""Messages of tensors: the tensor lists of Isaac ROS, and the multi-arrays of std_msgs."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from importlib import import_module
import math
import re

import numpy as np
from rclpy.node import Node
from rclpy.publisher import Publisher
from std_msgs import msg as std_msgs
from std_msgs.msg import Header

from trt_ros.errors import BadFrameError, ParameterError
from trt_ros.ros.dds.cdr import read_stamp
from trt_ros.ros.dds.cdr_dlpack import read_dlpack_list, write_dlpack_list
from trt_ros.ros.dds.cdr_multiarray import (
    MULTI_ARRAYS,
    multi_array_name,
    read_multi_array,
    write_multi_array,
)
from trt_ros.ros.dds.cdr_tensors import TensorListView, read_tensor_list, write_tensor_list
from trt_ros.ros.dds.transport import serialized_publish
from trt_ros.tensors import TensorSpec

FORMATS = ('auto', 'isaac', 'isaac5', 'multiarray')
_ISAAC = {'isaac': 'isaac_ros_tensor_list_interfaces', 'isaac5': 'isaac_ros_tensor_msgs'}
_REMEDIES = {
    'isaac': 'Set tensor_format to multiarray or auto; or build the messages with the workspace, '
    'from its root: colcon build --base-paths src '
    'src/trt_ros/standalone/interfaces/isaac_ros_tensor_list_interfaces, and source it again. '
    "NVIDIA's isaac_ros_common has the same package.",
    'isaac5': 'Set tensor_format to multiarray or auto; or install isaac_ros_tensor_msgs of Isaac '
    'ROS 5 and source its workspace.',
}

Stamp = tuple[int, int]
#: Creates a publisher of a message type on a topic below the node's name.
MakePublisher = Callable[[type, str], Publisher]
Publish = Callable[[Mapping[str, np.ndarray], Header], None]


class TensorFormat:
    """
    The messages in which tensors are received and published.

    :ivar name: one of FORMATS.
    :ivar has_header: whether the messages have a stamp.
    """

    name: str
    has_header = True

    def topic(self, base: str, name: str) -> str:
        """Return the topic of the tensor `name` among several tensors below the topic `base`."""
        raise NotImplementedError

    def message_type(self, node: Node, topic: str, spec: TensorSpec) -> type:
        """
        Return the message type of a subscription.

        :param spec: the network input that the topic feeds.
        """
        raise NotImplementedError

    def stamp_of(self, node: Node) -> Callable[[np.ndarray], Stamp]:
        """Return the function that returns the stamp of a message on arrival."""
        raise NotImplementedError

    def reader(
        self, message_type: type, spec: TensorSpec
    ) -> Callable[[np.ndarray], TensorListView]:
        """
        Return the function that reads a message, as views into it.

        :param spec: as for message_type().
        """
        raise NotImplementedError

    def advertise(
        self, node: Node, make_publisher: MakePublisher, outputs: Sequence[TensorSpec]
    ) -> Publish:
        """
        Create the publishers of a network's outputs; return the function that publishes them.

        :raises ParameterError: when an output cannot be published.
        """
        raise NotImplementedError


class TensorLists(TensorFormat):
    """
    One message with a header for all tensors, as in Isaac ROS.

    :ivar type: the class of TensorList.
    :ivar read: reads a serialized message, (N,) uint8; see read_tensor_list().
    """

    def __init__(
        self,
        name: str,
        message_type: type,
        read: Callable[[np.ndarray], TensorListView],
        write: Callable[[Mapping[str, np.ndarray], Stamp, str], np.ndarray],
    ) -> None:
        self.name, self.type, self.read, self._write = name, message_type, read, write

    def topic(self, base: str, name: str) -> str:
        """Return `base`: all tensors are in one message."""
        return base

    def message_type(self, node: Node, topic: str, spec: TensorSpec) -> type:
        """Return the class of TensorList."""
        return self.type

    def stamp_of(self, node: Node) -> Callable[[np.ndarray], Stamp]:
        """Return the function that reads the stamp of the header."""
        return read_stamp

    def reader(
        self, message_type: type, spec: TensorSpec
    ) -> Callable[[np.ndarray], TensorListView]:
        """Return the function that reads a TensorList."""
        return self.read

    def advertise(
        self, node: Node, make_publisher: MakePublisher, outputs: Sequence[TensorSpec]
    ) -> Publish:
        """Create the publisher of ~/tensors."""
        publish = serialized_publish(node, make_publisher(self.type, 'tensors'))

        def publish_all(tensors: Mapping[str, np.ndarray], header: Header) -> None:
            stamp = header.stamp.sec, header.stamp.nanosec
            publish(self._write(tensors, stamp, header.frame_id))

        return publish_all


class MultiArrays(TensorFormat):
    """One topic per tensor, with a std_msgs multi-array without a header."""

    name = 'multiarray'
    has_header = False

    def topic(self, base: str, name: str) -> str:
        """Return the topic of a tensor below `base`."""
        return f'{base}/{topic_name(name)}'

    def message_type(self, node: Node, topic: str, spec: TensorSpec) -> type:
        """Return the published type, if it is a multi-array, else that of `spec`."""
        published = [info.topic_type for info in node.get_publishers_info_by_topic(topic)]
        names = [
            f'{each}MultiArray'
            for each in MULTI_ARRAYS
            if f'std_msgs/msg/{each}MultiArray' in published
        ]
        name = names[0] if names else multi_array_name(spec.dtype)
        message_type: type = getattr(std_msgs, name)
        return message_type

    def stamp_of(self, node: Node) -> Callable[[np.ndarray], Stamp]:
        """Return the time of arrival, in node time: the message has no stamp."""
        clock = node.get_clock()

        def now(message: np.ndarray) -> Stamp:
            seconds, nanoseconds = clock.now().seconds_nanoseconds()
            return int(seconds), int(nanoseconds)

        return now

    def reader(
        self, message_type: type, spec: TensorSpec
    ) -> Callable[[np.ndarray], TensorListView]:
        """Return the function that reads a multi-array as a list of one tensor of any name."""
        dtype = MULTI_ARRAYS[message_type.__name__.removesuffix('MultiArray')]

        def read(message: np.ndarray) -> TensorListView:
            tensor = read_multi_array(message, dtype, spec.name)
            return TensorListView((0, 0), '', {spec.name: as_shaped(tensor, spec)})

        return read

    def advertise(
        self, node: Node, make_publisher: MakePublisher, outputs: Sequence[TensorSpec]
    ) -> Publish:
        """Create a publisher of ~/tensors/OUTPUT per output."""
        names = {spec.name: topic_name(spec.name) for spec in outputs}
        if len(set(names.values())) < len(names):
            raise ParameterError(
                f'Several outputs have one topic: {", ".join(names)}.',
                remedy='Choose one of them with the parameter outputs.',
            )
        publishers = {
            spec.name: serialized_publish(
                node,
                make_publisher(
                    getattr(std_msgs, multi_array_name(spec.dtype)), f'tensors/{names[spec.name]}'
                ),
            )
            for spec in outputs
        }

        def publish_each(tensors: Mapping[str, np.ndarray], header: Header) -> None:
            for name, tensor in tensors.items():
                publishers[name](write_multi_array(tensor))

        return publish_each


def open_format(name: str) -> TensorFormat:
    """
    Return a format by its name; auto is the first of isaac, isaac5 and multiarray installed.

    :raises ParameterError: when its messages are not installed.
    """
    if name == 'multiarray':
        return MultiArrays()
    for each in _ISAAC if name == 'auto' else (name,):
        try:
            message_type = import_module(f'{_ISAAC[each]}.msg').TensorList
        except ImportError as error:
            if name != 'auto':
                raise ParameterError(
                    f'Package {_ISAAC[each]} is not installed.',
                    cause=str(error),
                    remedy=_REMEDIES[each],
                ) from error
            continue
        if each == 'isaac':
            return TensorLists(each, message_type, read_tensor_list, write_tensor_list)
        return TensorLists(each, message_type, read_dlpack_list, write_dlpack_list)
    return MultiArrays()


def topic_name(tensor: str) -> str:
    """
    Return a valid topic name for a tensor: other characters become underscores.

    >>> topic_name('/model/out:0'), topic_name('443')
    ('model_out_0', 'tensor_443')
    """
    name = re.sub('[^A-Za-z0-9]+', '_', tensor).strip('_')
    return name if name[:1].isalpha() else f'tensor_{name}'.rstrip('_')


def as_shaped(tensor: np.ndarray, spec: TensorSpec) -> np.ndarray:
    """
    Return a vector in the shape of a network input, if it has as many elements.

    Publishers often leave the layout of a multi-array empty. A dynamic dimension is inferred;
    several are 1 but the first.
    """
    if tensor.ndim != 1 or len(spec.shape) == 1:
        return tensor
    shape = [1 if size < 0 else size for size in spec.shape]
    if spec.is_dynamic:
        shape[spec.shape.index(-1)] = -1
    known = math.prod(size for size in shape if size > 0)
    is_fitting = tensor.size % known == 0 if -1 in shape else tensor.size == known
    return tensor.reshape(shape) if is_fitting and 0 not in shape else tensor


def tensor_of(view: TensorListView, name: str, *, or_only: bool) -> np.ndarray:
    """
    Return a tensor of a message by its name.

    :param or_only: whether the only tensor of a message may have any name.
    :raises BadFrameError: 'missing tensor'.
    """
    if name in view.tensors:
        return view.tensors[name]
    if or_only and len(view.tensors) == 1:
        return next(iter(view.tensors.values()))
    raise BadFrameError(
        'missing tensor',
        f'The message has no tensor {name!r}.',
        cause=f'Its tensors are {", ".join(view.tensors) or "none"}.',
        remedy='Write INPUT=tensor:TOPIC#TENSOR in inputs.',
    )
