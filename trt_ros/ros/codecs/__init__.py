"""Registry of the codecs: one per kind of binding to a topic."""

from collections.abc import Callable, Mapping, Sequence
from typing import Any

from trt_ros.errors import ParameterError
from trt_ros.model.feeds.base import Binding
from trt_ros.model.feeds.message import MESSAGES
from trt_ros.ros.codecs.codec import Codec
from trt_ros.ros.codecs.images import image_codec
from trt_ros.ros.codecs.message import MessageCodec
from trt_ros.ros.codecs.tensors import MultiArrays, TensorFormat, TensorLists
from trt_ros.ros.dds.cdr_tensors import (
    read_dlpack_list,
    read_tensor_list,
    write_dlpack_list,
    write_tensor_list,
)
from trt_ros.ros.message_types import message_class

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


#: Returns the codec of a topic; the last argument are its bindings, and the array of each input.
OpenCodec = Callable[[Any, str, Sequence[tuple[Binding, Any]]], Codec]
#: Codecs by kind of binding, as of model.feeds.FEEDS.
CODECS: Mapping[str, OpenCodec] = {
    **dict.fromkeys(('image', 'images'), lambda node, topic, bound: image_codec(node, topic)),
    'tensor': lambda node, topic, bound: open_format(node.parameters.tensor_format).codec(
        node, topic, bound[0][1]
    ),
    **dict.fromkeys(MESSAGES, MessageCodec),
}


def open_format(name: str) -> TensorFormat:
    """Return a format, for auto the first installed; raises ParameterError without it."""
    if name == 'multiarray':
        return MultiArrays()
    for each in _ISAAC if name == 'auto' else (name,):
        try:
            message_type = message_class(f'{_ISAAC[each]}/msg/TensorList', _REMEDIES[each])
        except ParameterError:
            if name != 'auto':
                raise
            continue
        if each == 'isaac':
            return TensorLists(each, message_type, read_tensor_list, write_tensor_list)
        return TensorLists(each, message_type, read_dlpack_list, write_dlpack_list)
    return MultiArrays()
