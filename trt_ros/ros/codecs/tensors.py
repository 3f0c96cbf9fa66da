"""Base class of the formats of tensors, each with codec and publishers."""

from collections.abc import Callable, Mapping, Sequence
import re

import numpy as np
from rclpy.node import Node
from rclpy.publisher import Publisher
from std_msgs.msg import Header

from trt_ros.errors import BadFrameError
from trt_ros.ros.codecs.codec import Codec
from trt_ros.tensors import TensorSpec

#: Creates a publisher of a message type on a topic below the node's name.
MakePublisher = Callable[[type, str], Publisher]
Publish = Callable[[Mapping[str, np.ndarray], Header], None]


class TensorFormat:
    """
    The messages in which tensors are received and published.

    :ivar name: as the parameter tensor_format.
    """

    name: str

    def topic(self, base: str, name: str) -> str:
        """Return the topic of the tensor `name` among several tensors below the topic `base`."""
        raise NotImplementedError

    def codec(self, node: Node, topic: str, spec: TensorSpec) -> Codec:
        """
        Return the codec of a topic, whose values are arrays by name, as views into the messages.

        :param spec: the network input that the topic feeds.
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


def topic_name(tensor: str) -> str:
    """
    Return a valid topic name for a tensor: other characters become underscores.

    >>> topic_name('/model/out:0'), topic_name('443')
    ('model_out_0', 'tensor_443')
    """
    name = re.sub('[^A-Za-z0-9]+', '_', tensor).strip('_')
    return name if name[:1].isalpha() else f'tensor_{name}'.rstrip('_')


def tensor_of(tensors: Mapping[str, np.ndarray], name: str, *, or_only: bool) -> np.ndarray:
    """
    Return a tensor of a message by its name.

    :param or_only: whether the only tensor of a message may have any name.
    :raises BadFrameError: 'missing tensor'.
    """
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
