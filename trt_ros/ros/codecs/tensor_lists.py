"""Messages with all tensors in one list, as in Isaac ROS."""

from collections.abc import Callable, Mapping, Sequence

import numpy as np
from rclpy.node import Node
from std_msgs.msg import Header

from trt_ros.ros.codecs.codec import Codec, Content, Stamp
from trt_ros.ros.codecs.tensors import MakePublisher, Publish, TensorFormat
from trt_ros.ros.dds.cdr_tensors import TensorListView
from trt_ros.ros.dds.transport import serialized_publish
from trt_ros.tensors import TensorSpec

Read = Callable[[np.ndarray], TensorListView]


class TensorListCodec(Codec):
    """
    Tensor lists of one topic.

    :param message_type: the class of TensorList.
    :param read: reads a serialized message, (N,) uint8; see read_tensor_list().
    """

    def __init__(self, node: Node, topic: str, message_type: type, read: Read) -> None:
        super().__init__(node, topic)
        self.message_type, self._read = message_type, read

    def reader(self) -> Callable[[np.ndarray], Content]:
        """Return the function that reads a list; see Codec.reader."""

        def read(message: np.ndarray) -> Content:
            view = self._read(message)
            return Content(view.tensors, view.frame_id, view.stamp)

        return read


class TensorLists(TensorFormat):
    """One message with a header for all tensors; the parameters are those of TensorListCodec."""

    def __init__(
        self,
        name: str,
        message_type: type,
        read: Read,
        write: Callable[[Mapping[str, np.ndarray], Stamp, str], np.ndarray],
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

        def publish_all(tensors: Mapping[str, np.ndarray], header: Header) -> None:
            stamp = header.stamp.sec, header.stamp.nanosec
            publish(self._write(tensors, stamp, header.frame_id))

        return publish_all
