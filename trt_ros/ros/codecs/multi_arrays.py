"""The multi-arrays of std_msgs: one topic per tensor, without a header."""

from collections.abc import Callable, Mapping, Sequence

import numpy as np
from rclpy.node import Node
from std_msgs import msg as std_msgs
from std_msgs.msg import Header

from trt_ros.errors import ParameterError
from trt_ros.ros.codecs.codec import Codec, Content
from trt_ros.ros.codecs.tensors import MakePublisher, Publish, TensorFormat, topic_name
from trt_ros.ros.dds.cdr_multiarray import (
    MULTI_ARRAYS,
    multi_array_name,
    read_multi_array,
    write_multi_array,
)
from trt_ros.ros.dds.transport import serialized_publish
from trt_ros.tensors import TensorSpec


class MultiArrayCodec(Codec):
    """
    Multi-arrays of one topic, of any dtype.

    :param spec: the network input that they feed.
    """

    has_names = False
    has_stamp = False
    message_types = tuple(getattr(std_msgs, f'{name}MultiArray') for name in MULTI_ARRAYS)

    def __init__(self, node: Node, topic: str, spec: TensorSpec) -> None:
        super().__init__(node, topic)
        self._spec, self.message_type = spec, getattr(std_msgs, multi_array_name(spec.dtype))

    def reader(self) -> Callable[[np.ndarray], Content]:
        """Return the function that reads an array of the input's name; see Codec.reader."""
        spec, dtype = (
            self._spec,
            MULTI_ARRAYS[self.message_type.__name__.removesuffix('MultiArray')],
        )

        def read(message: np.ndarray) -> Content:
            tensor = read_multi_array(message, dtype, spec.name)
            return Content({spec.name: tensor}, '', (0, 0))

        return read


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
