"""The multi-arrays of std_msgs: one topic per tensor, without a header."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence

import numpy as np
from rclpy.node import Node
from std_msgs import msg as std_msgs
from std_msgs.msg import Header

from trt_ros.errors import ParameterError
from trt_ros.ros.codecs.codec import Codec, Content, Serialized, Stamp
from trt_ros.ros.codecs.tensors import MakePublisher, Publish, TensorFormat, topic_name
from trt_ros.ros.dds.cdr_multiarray import (
    MULTI_ARRAYS,
    multi_array_name,
    read_multi_array,
    write_multi_array,
)
from trt_ros.ros.dds.transport import serialized_publish
from trt_ros.tensors import TensorSpec, as_shaped


class MultiArrayCodec(Codec):
    """
    Multi-arrays of one topic, of any dtype.

    :param spec: the network input that they feed.
    """

    has_stamp = False
    follows_type = True

    def __init__(self, node: Node, topic: str, spec: TensorSpec) -> None:
        super().__init__(node, topic)
        self._spec, self.message_type = spec, getattr(std_msgs, multi_array_name(spec.dtype))

    def follow_type(self) -> type:
        """Return the present type as long as it is published, else the published one."""
        published = {
            info.topic_type for info in self.node.get_publishers_info_by_topic(self.topic)
        }
        names = [
            name for each in MULTI_ARRAYS if _ros_type(name := f'{each}MultiArray') in published
        ]
        if names and self.message_type.__name__ not in names:
            self.message_type = getattr(std_msgs, names[0])
        return self.message_type

    def stamp_of(self, message: Serialized) -> Stamp:
        """Return the time of arrival, in node time: the message has no stamp."""
        seconds, nanoseconds = self.node.get_clock().now().seconds_nanoseconds()
        return int(seconds), int(nanoseconds)

    def reader(self) -> Callable[[np.ndarray], Content]:
        """Return the function that reads an array of the input's name; see Codec.reader."""
        spec, dtype = (
            self._spec,
            MULTI_ARRAYS[self.message_type.__name__.removesuffix('MultiArray')],
        )

        def read(message: np.ndarray) -> Content:
            tensor = read_multi_array(message, dtype, spec.name)
            return Content({spec.name: as_shaped(tensor, spec)}, '', (0, 0))

        return read


def _ros_type(name: str) -> str:
    return f'std_msgs/msg/{name}'


class MultiArrays(TensorFormat):
    """One topic per tensor, with a std_msgs multi-array without a header."""

    name = 'multiarray'

    def topic(self, base: str, name: str) -> str:
        """Return the topic of a tensor below `base`."""
        return f'{base}/{topic_name(name)}'

    def codec(self, node: Node, topic: str, spec: TensorSpec) -> MultiArrayCodec:
        """Return the codec of a topic."""
        return MultiArrayCodec(node, topic, spec)

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
