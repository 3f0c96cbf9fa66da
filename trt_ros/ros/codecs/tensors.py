"""Formats of tensors with codecs and publishers: tensor lists of Isaac ROS, multi-arrays."""

from collections.abc import Callable, Sequence
import re

import numpy as np
from rclpy.node import Node
from rclpy.publisher import Publisher
from std_msgs import msg as std_msgs
from std_msgs.msg import Header

from trt_ros.errors import BadFrameError, ParameterError
from trt_ros.ros.codecs.codec import Codec, Content, Stamp
from trt_ros.ros.dds.cdr_multiarray import (
    MULTI_ARRAYS,
    multi_array_name,
    read_multi_array,
    write_multi_array,
)
from trt_ros.ros.dds.transport import serialized_publish
from trt_ros.tensors import Arrays, TensorSpec

#: Creates a publisher of a message type on a topic below the node's name.
MakePublisher = Callable[[type, str], Publisher]
Publish = Callable[[Arrays, Header], None]


def topic_name(tensor: str) -> str:
    """
    Return a valid topic name for a tensor: other characters become underscores.

    >>> topic_name('/model/out:0'), topic_name('443')
    ('model_out_0', 'tensor_443')
    """
    name = re.sub('[^A-Za-z0-9]+', '_', tensor).strip('_')
    return name if name[:1].isalpha() else f'tensor_{name}'.rstrip('_')


def topic_names(tensors: Sequence[str]) -> dict[str, str]:
    """Return the topic name of each tensor; raise ParameterError if two have the same."""
    names = {tensor: topic_name(tensor) for tensor in tensors}
    if len(set(names.values())) < len(names):
        raise ParameterError(
            f'Several outputs have one topic: {", ".join(tensors)}.',
            cause='Characters other than letters and digits become underscores.',
            remedy='Choose one of them with the parameter outputs, or rename them in the model.',
        )
    return names


def tensor_of(tensors: Arrays, name: str, *, or_only: bool) -> np.ndarray:
    """Return a tensor of a message by its name, or the only one; or raise BadFrameError."""
    if name in tensors:
        return tensors[name]
    if or_only and len(tensors) == 1:
        return next(iter(tensors.values()))
    raise BadFrameError(
        'missing tensor',
        f'The message has no tensor {name!r}.',
        cause=f'Its tensors are {", ".join(tensors) or "none"}.',
        remedy='Write INPUT=tensor:TOPIC#TENSOR in inputs.',
    )


class MultiArrayCodec(Codec):
    """Multi-arrays of one topic, of any dtype, which feed one network input."""

    has_names = False
    has_stamp = False
    message_types = tuple(getattr(std_msgs, f'{name}MultiArray') for name in MULTI_ARRAYS)

    def __init__(self, node: Node, topic: str, spec: TensorSpec) -> None:
        super().__init__(node, topic)
        self._spec, self.message_type = spec, getattr(std_msgs, multi_array_name(spec.dtype))

    def reader(self) -> Callable[[np.ndarray], Content]:
        spec = self._spec
        dtype = MULTI_ARRAYS[self.message_type.__name__.removesuffix('MultiArray')]

        def read(message: np.ndarray) -> Content:
            tensor = read_multi_array(message, dtype, spec.name)
            return Content({spec.name: tensor}, '', (0, 0))

        return read


class MultiArrays:
    """One topic per tensor, with a std_msgs multi-array without a header; see TensorFormat."""

    name = 'multiarray'

    def topic(self, base: str, name: str) -> str:
        """Return the topic of the tensor `name` among several below the topic `base`."""
        return f'{base}/{topic_name(name)}'

    def codec(self, node: Node, topic: str, spec: TensorSpec) -> MultiArrayCodec:
        """Return the codec of a topic that feeds an input: arrays by name, views into messages."""
        return MultiArrayCodec(node, topic, spec)

    def advertise(
        self, node: Node, make_publisher: MakePublisher, outputs: Sequence[TensorSpec]
    ) -> Publish:
        """Create a publisher of ~/tensors/OUTPUT per output; return what publishes outputs."""
        names = topic_names([spec.name for spec in outputs])
        publishers = {}
        for spec in outputs:
            kind = getattr(std_msgs, multi_array_name(spec.dtype))
            publisher = make_publisher(kind, f'tensors/{names[spec.name]}')
            publishers[spec.name] = serialized_publish(node, publisher)

        def publish_each(tensors: Arrays, header: Header) -> None:
            for name, tensor in tensors.items():
                publishers[name](write_multi_array(tensor))

        return publish_each


Read = Callable[[np.ndarray], Content]


class TensorListCodec(Codec):
    """Tensor lists of one topic, read by a function such as read_tensor_list()."""

    def __init__(self, node: Node, topic: str, message_type: type, read: Read) -> None:
        super().__init__(node, topic)
        self.message_type, self._read = message_type, read

    def reader(self) -> Callable[[np.ndarray], Content]:
        return self._read


class TensorLists:
    """One message with a header for all tensors; the parameters are those of TensorListCodec."""

    def __init__(
        self,
        name: str,
        message_type: type,
        read: Read,
        write: Callable[[Arrays, Stamp, str], np.ndarray],
    ) -> None:
        self.name, self._type, self._read, self._write = name, message_type, read, write

    def topic(self, base: str, name: str) -> str:
        """Return `base`: all tensors are in one message."""
        return base

    def codec(self, node: Node, topic: str, spec: TensorSpec | None = None) -> TensorListCodec:
        """Return the codec of a topic."""
        return TensorListCodec(node, topic, self._type, self._read)

    def advertise(
        self, node: Node, make_publisher: MakePublisher, outputs: Sequence[TensorSpec]
    ) -> Publish:
        """Create the publisher of ~/tensors."""
        publish = serialized_publish(node, make_publisher(self._type, 'tensors'))

        def publish_all(tensors: Arrays, header: Header) -> None:
            stamp = header.stamp.sec, header.stamp.nanosec
            publish(self._write(tensors, stamp, header.frame_id))

        return publish_all


#: The messages of tensors, by the parameter tensor_format.
TensorFormat = MultiArrays | TensorLists
