"""Nodes in a container of rclcpp_components; called by the plugin in cpp/, which embeds Python."""

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from rcl_interfaces.msg import Parameter as ParameterMessage
from rclpy.logging import get_logger
from rclpy.node import Node
from rclpy.parameter import Parameter
from rclpy.serialization import deserialize_message
from rclpy.utilities import get_default_context

from trt_ros.container import loading
from trt_ros.errors import TrtRosError, log_text
from trt_ros.process_memory import (
    freeze_garbage_collector,
    release_freed_memory,
    tune_embedded_python,
)
from trt_ros.ros.dds.container_images import CONTAINER_IMAGES, ContainerImages, image_node_name
from trt_ros.ros.process import REFUSED, log_through_ros
from trt_ros.ros.spinner import Spinner

PACKAGE = 'trt_ros'


class EmbeddedNode:
    """
    A node in a C++ container, spun in a thread of its own from start() until close().

    :param images: functions that subscribe to images of C++ nodes by pointer.
    :ivar name, namespace: of the node.
    :ivar image_node: name of the node that `images` subscribes with.
    :raises LoadError: when the plugin does not exist, or its constructor raises.
    """

    def __init__(self, plugin: str, options: Mapping[str, Any], images: ContainerImages) -> None:
        cls = loading.find_component(PACKAGE, plugin, allow_modules=False)
        self._node: Node = loading.construct(cls, {**options, CONTAINER_IMAGES: images})
        self.name, self.namespace = self._node.get_name(), self._node.get_namespace()
        self._spinner = Spinner(self.name, self._node.get_logger())
        self.image_node = image_node_name(self.name)

    def start(self) -> None:
        """Spin the node."""
        self._spinner.executor.add_node(self._node)

    def close(self) -> None:
        """Destroy the node; errors are logged."""
        self._spinner.destroy(self._node)
        self._spinner.close()
        freeze_garbage_collector()  # Reference cycles keep a lifecycle node in the ROS graph.
        release_freed_memory()


def load(
    plugin: str,
    arguments: Sequence[str],
    parameters: Sequence[bytes],
    options: Mapping[str, bool],
    images: ContainerImages,
) -> EmbeddedNode:
    """Construct a node from options of rclcpp and serialized parameters, or raise LoadError."""
    context = get_default_context()
    if not context.ok():
        tune_embedded_python()
        # Neither logging nor signal handlers, which are rclcpp's here.
        context.init(_arguments_of_process(), initialize_logging=False)
        log_through_ros()
    overrides = [deserialize_message(each, ParameterMessage) for each in parameters]
    keywords = {
        **options,
        'cli_args': list(arguments),
        'parameter_overrides': [Parameter.from_parameter_msg(each) for each in overrides],
    }
    assert loading.INTRA_PROCESS in keywords
    try:
        return EmbeddedNode(plugin, keywords, images)
    except loading.LoadError as error:
        cause = error.__cause__
        if cause is None:
            raise
        if not isinstance(cause, (TrtRosError, *REFUSED)):
            get_logger(PACKAGE).error(f'Failed to load {plugin}. {log_text(cause)}')
        # rclcpp adds the rest of the text.
        raise loading.LoadError(loading.error_text(cause)) from cause


def shut_down() -> None:
    """Shut down rclpy before exit without finalizing Python: Fast DDS would wait for nodes."""
    freeze_garbage_collector()
    get_default_context().try_shutdown()


def _arguments_of_process() -> list[str]:
    """Return the arguments of the container: sys.argv is empty where Python is embedded."""
    return Path('/proc/self/cmdline').read_text(errors='surrogateescape').split('\0')[1:-1]
