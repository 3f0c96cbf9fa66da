"""From a LoadNode request to a node: find its class, read its options, construct it."""

from __future__ import annotations

from contextlib import suppress
from importlib import import_module
from importlib.metadata import entry_points
import inspect
from operator import attrgetter
import re

from ament_index_python import get_resource, has_resource
from composition_interfaces.srv import LoadNode
from rclpy.lifecycle import LifecycleNode
from rclpy.node import Node
from rclpy.parameter import Parameter

from trt_ros.container.spinner import Thrown

ENTRY_POINTS = 'rclpy_components'
AMENT_RESOURCE = 'rclcpp_components'  # What `ros2 component types` lists, Python or not.
PLACE = re.compile(r'[\w.]+:[\w.]+')  # module:Class

#: Extra argument: the keyword of rclpy.node.Node that honours it.
NODE_KEYWORDS = {
    'forward_global_arguments': 'use_global_arguments',
    'enable_rosout': 'enable_rosout',
    'start_parameter_services': 'start_parameter_services',
    'enable_logger_service': 'enable_logger_service',
}
#: Extra argument that becomes an attribute of the node: its transport looks at it.
INTRA_PROCESS = 'use_intra_process_comms'
#: Extra argument without either: the only value that rclpy can give.
FIXED_IN_RCLPY = {
    'enable_topic_statistics': False,
    'start_parameter_event_publisher': True,
    'use_clock_thread': False,
}


class LoadError(Exception):
    """Why a component was not loaded; the text is rclcpp's where rclcpp has one."""


def find_component(package: str, plugin: str, *, allow_modules: bool) -> type[Node]:
    """
    Find the class of a component.

    :param plugin: `package::Class`, as the entry point is named, or `module:Class`.
    :param allow_modules: whether `module:Class` may be any; to import a module is to run it.
    :raises LoadError: no such package, no such plugin, or it cannot be imported.
    """
    if PLACE.fullmatch(plugin):
        if not allow_modules:
            raise LoadError(
                f'Failed to load library: {plugin} is not a registered component; the parameter '
                'allow_modules of the container lets it load any Python module'
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
    """
    Return what `package` lists in the ament index: a class name and where it is, each.

    Of a component in C++ that is a library, of one in Python `module:Class`.
    """
    if not package or not has_resource(AMENT_RESOURCE, package):
        raise LoadError('Could not find requested resource in ament index')
    lines = get_resource(AMENT_RESOURCE, package)[0].splitlines()
    entries = [line.split(';') for line in lines if line]
    if any(len(entry) != 2 for entry in entries):
        raise LoadError('Invalid resource entry')
    return dict(entries)


def import_class(place: str) -> type[Node]:
    if not PLACE.fullmatch(place):
        raise LoadError(
            f'Failed to load library: {place} is not a Python component; '
            'load it into the container of rclcpp_components'
        )
    module_name, name = place.split(':')
    try:
        module = import_module(module_name)
    except Thrown as error:
        raise LoadError(f'Failed to load library: {describe(error)}') from error
    try:
        cls = attrgetter(name)(module)
    except AttributeError as error:
        raise LoadError('Failed to find class with the requested plugin name.') from error
    if not (isinstance(cls, type) and issubclass(cls, Node)):
        raise LoadError(f'Failed to load library: {place} is not an rclpy Node')
    return cls


def node_options(request: LoadNode.Request) -> dict[str, object]:
    """
    Turn a request into keyword arguments for rclpy.node.Node, and INTRA_PROCESS.

    :raises LoadError: for an extra argument that cannot be honoured.
    """
    rules = list(request.remap_rules)
    if request.node_name:
        rules.append(f'__node:={request.node_name}')
    if request.node_namespace:
        rules.append(f'__ns:={request.node_namespace}')
    options = {
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


def construct(cls: type[Node], options: dict[str, object]) -> Node:
    """
    Construct a component; one that fails half-way leaves nothing behind.

    :param options: of node_options().
    :raises LoadError: when its constructor throws.
    """
    is_intra_process = options.pop(INTRA_PROCESS)
    try:
        inspect.signature(cls).bind(**options)
    except (TypeError, ValueError):
        cls = with_options(cls, options)
        options = {}
    node = cls.__new__(cls)
    setattr(node, INTRA_PROCESS, is_intra_process)  # First: a constructor may make publishers.
    try:
        node.__init__(**options)
    except Thrown as error:
        with suppress(Thrown):  # It may not even have become a Node.
            node.destroy_node()
        raise LoadError(f'Component constructor threw an exception: {describe(error)}') from error
    return node


def with_options(cls: type[Node], options: dict[str, object]) -> type[Node]:
    """
    Give options to a class whose constructor takes none, as most Python nodes are written.

    The method resolution order becomes `cls`, Handover, Node: the class's own call of
    super().__init__('name') arrives at Handover, which adds the options.
    """
    base = LifecycleNode if issubclass(cls, LifecycleNode) else Node

    class Handover(base):
        def __init__(self, *args: object, **kwargs: object) -> None:
            super().__init__(*args, **{**kwargs, **options})

    return type(cls.__name__, (cls, Handover), {'__module__': cls.__module__})


def describe(error: BaseException) -> str:
    return str(error) or repr(error)
