"""Component classes and options of LoadNode requests, and the construction of nodes from them."""

from contextlib import suppress
from importlib import import_module
from importlib.metadata import entry_points
import inspect
from operator import attrgetter
import re
from typing import Any

from ament_index_python import get_resource, has_resource
from composition_interfaces.srv import LoadNode
from rclpy.lifecycle import LifecycleNode
from rclpy.node import Node
from rclpy.parameter import Parameter

from trt_ros.errors import printable
from trt_ros.ros.dds.container_images import CONTAINER_IMAGES
from trt_ros.ros.spinner import Thrown

ENTRY_POINTS = 'rclpy_components'
AMENT_RESOURCE = 'rclcpp_components'  # Listed by `ros2 component types`, for C++ and Python.
PLACE = re.compile(r'[\w.]+:[\w.]+')  # module:Class
NAME = re.compile(r'\w[\w-]*')  # Of a package.

#: Extra arguments, and the keywords of rclpy.node.Node that implement them.
NODE_KEYWORDS = {
    'forward_global_arguments': 'use_global_arguments',
    'enable_rosout': 'enable_rosout',
    'start_parameter_services': 'start_parameter_services',
    'enable_logger_service': 'enable_logger_service',
}
INTRA_PROCESS = 'use_intra_process_comms'
#: Options that become attributes of the node, which trt_ros.ros.dds.transport reads.
NODE_ATTRIBUTES = INTRA_PROCESS, CONTAINER_IMAGES
#: Extra arguments without a counterpart in rclpy, and the only value that rclpy supports.
FIXED_IN_RCLPY = {
    'enable_topic_statistics': False,
    'start_parameter_event_publisher': True,
    'use_clock_thread': False,
}


class LoadError(Exception):
    """A component that could not be loaded; the message is rclcpp's where rclcpp has one."""


def find_component(package: str, plugin: str, *, allow_modules: bool) -> type[Node]:
    """
    Return the class of a component, or raise LoadError.

    :param plugin: `package::Class`, the name of the entry point, or `module:Class`.
    :param allow_modules: whether any `module:Class` is accepted; importing a module runs its code.
    """
    if PLACE.fullmatch(plugin):
        if not allow_modules:
            raise LoadError(
                f'Failed to load library: {plugin} is not a registered component; set the '
                'parameter allow_modules of the container to load any Python module'
            )
        return import_class(plugin)
    known = {
        point.name: point.value
        for point in entry_points(group=ENTRY_POINTS)
        if point.name.startswith(f'{package}::')
    } or ament_components(package)
    if plugin not in known:
        raise LoadError('Failed to find class with the requested plugin name.')
    return import_class(known[plugin])


def ament_components(package: str) -> dict[str, str]:
    """Return the components of a package by class name, or raise; Python's as `module:Class`."""
    # A package name that is a path would be read outside the index.
    if not NAME.fullmatch(package) or not has_resource(AMENT_RESOURCE, package):
        raise LoadError('Could not find requested resource in ament index')
    lines = get_resource(AMENT_RESOURCE, package)[0].splitlines()
    entries = [line.split(';') for line in lines if line]
    if any(len(entry) != 2 for entry in entries):
        raise LoadError('Invalid resource entry')
    return dict(entries)


def import_class(place: str) -> type[Node]:
    """Return the node class at `module:Class`, or raise LoadError."""
    if not PLACE.fullmatch(place):
        raise LoadError(
            f'Failed to load library: {place} is not a Python component; '
            'load it into the container of rclcpp_components'
        )
    module_name, name = place.split(':')
    try:
        module = import_module(module_name)
    except Thrown as error:
        raise LoadError(f'Failed to load library: {error_text(error)}') from error
    try:
        cls = attrgetter(name)(module)
    except AttributeError as error:
        raise LoadError('Failed to find class with the requested plugin name.') from error
    if not (isinstance(cls, type) and issubclass(cls, Node)):
        raise LoadError(f'Failed to load library: {place} is not an rclpy Node')
    return cls


def node_options(request: LoadNode.Request) -> dict[str, Any]:
    """Return the keyword arguments of rclpy.node.Node for a request, and INTRA_PROCESS."""
    rules = list(request.remap_rules)
    if request.node_name:
        rules.append(f'__node:={request.node_name}')
    if request.node_namespace:
        rules.append(f'__ns:={request.node_namespace}')
    options: dict[str, Any] = {
        'cli_args': ['--ros-args', *(part for rule in rules for part in ('-r', rule))],
        'use_global_arguments': False,
        'parameter_overrides': [Parameter.from_parameter_msg(p) for p in request.parameters],
        INTRA_PROCESS: False,
    }
    for argument in map(Parameter.from_parameter_msg, request.extra_arguments):
        name, value = argument.name, argument.value
        if name not in {INTRA_PROCESS, *NODE_KEYWORDS, *FIXED_IN_RCLPY}:
            raise LoadError(f"Extra component argument '{name}' is not supported")
        if argument.type_ is not Parameter.Type.BOOL:
            raise LoadError(f"Extra component argument '{name}' must be a boolean")
        if name not in FIXED_IN_RCLPY:
            options[NODE_KEYWORDS.get(name, name)] = value
        elif FIXED_IN_RCLPY[name] != value:
            raise LoadError(
                f"Extra component argument '{name}' is not supported: "
                f'in rclpy it is always {str(not value).lower()}'
            )
    return options


def construct(cls: type[Node], options: dict[str, Any]) -> Node:
    """Construct a component; raises LoadError after destroying it when its constructor raises."""
    attributes = {name: options.pop(name) for name in NODE_ATTRIBUTES if name in options}
    try:
        inspect.signature(cls).bind(**options)
    except (TypeError, ValueError):
        cls = with_options(cls, options)
        options = {}
    node = cls.__new__(cls)
    for name, value in attributes.items():  # First: the constructor may create publishers.
        setattr(node, name, value)
    try:
        cls.__init__(node, **options)
    except Thrown as error:
        with suppress(Thrown):  # Node.__init__ may not have run.
            node.destroy_node()
        raise LoadError(
            f'Component constructor threw an exception: {error_text(error)}'
        ) from error
    return node


def with_options(cls: type[Node], options: dict[str, Any]) -> type[Node]:
    """
    Return a subclass that passes options to a class whose constructor takes none.

    Most Python nodes are written that way. The method resolution order becomes `cls`,
    OptionsAdapter, Node: the class's own call of super().__init__('name') reaches OptionsAdapter,
    which adds the options.
    """
    base: Any = LifecycleNode if issubclass(cls, LifecycleNode) else Node

    class OptionsAdapter(base):  # type: ignore[misc]  # Chosen at run time.
        def __init__(self, *args: object, **kwargs: object) -> None:
            super().__init__(*args, **{**kwargs, **options})

    return type(cls.__name__, (cls, OptionsAdapter), {'__module__': cls.__module__})


def error_text(error: BaseException) -> str:
    """Return the message of an error; its repr where it has none."""
    return printable(str(error) or repr(error), lines=True)
