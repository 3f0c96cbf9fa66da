"""Node parameters as frozen dataclasses: declaration, documentation, validation and values."""

from collections.abc import Collection
from contextlib import suppress
from typing import Any

from rcl_interfaces.msg import FloatingPointRange, IntegerRange, ParameterDescriptor
from rclpy.node import Node
from rclpy.parameter import Parameter
import yaml

from trt_ros.errors import ParameterError, meant, printable
from trt_ros.parameter_field import Specification, specifications

# Beside `read`, where nodes look for them.
from trt_ros.parameter_field import mutable_param as mutable_param
from trt_ros.parameter_field import param as param
from trt_ros.parameter_field import with_default as with_default
from trt_ros.ros.releases import convert_parameters, parameter_overrides


def to_parameter(each: Specification, value: Any) -> Parameter:
    """Return a value as a ROS parameter."""
    return Parameter(each.name, _type(each), list(value) if isinstance(value, tuple) else value)


def _type(each: Specification) -> Parameter.Type:
    return Parameter.Type[each.type_name.upper()]


def _constraint(each: Specification) -> str:
    """Return the allowed values as a sentence; '' if every value of the type is allowed."""
    start = 'One of ' if each.choices else '' if each.lengths else 'From '
    return f'{start}{each.allowed}.' if each.allowed else ''


def _descriptor(each: Specification) -> ParameterDescriptor:
    descriptor = ParameterDescriptor(
        description=each.description,
        read_only=each.read_only,
        type=_type(each).value,
        additional_constraints=_constraint(each)
        if each.choices or each.or_zero or each.names or each.lengths
        else '',
    )
    if each.between and each.python_type is int:
        descriptor.integer_range = [
            IntegerRange(from_value=each.between[0], to_value=each.between[1], step=1)
        ]
    elif each.between and each.python_type is float:
        low = 0.0 if each.or_zero else each.between[0]
        descriptor.floating_point_range = [
            FloatingPointRange(from_value=low, to_value=each.between[1])
        ]
    return descriptor


def declare(node: Node, cls: type) -> None:
    """
    Declare every parameter of `cls` with its value from the command line, a file or the default.

    :raises ParameterError: when a value has the wrong type or is not allowed.
    """
    for each in specifications(cls).values():
        # With a dynamic type first, so that an integer may stand for a float; fixed afterwards.
        given = node.declare_parameter(
            each.name, None, ParameterDescriptor(dynamic_typing=True)
        ).value
        value = each.default if given is None else each.check(given)
        node.set_parameters([to_parameter(each, value)])
        node.set_descriptor(each.name, _descriptor(each))
    convert_parameters(node, lambda given: _without_same(node, _promoted(given, cls)))
    for name in parameter_overrides(node):
        if not node.has_parameter(name) and not name.startswith('qos_overrides.'):
            text = f'Unknown parameter {name!r} is ignored. {meant(name, specifications(cls))}'
            node.get_logger().warning(printable(text))


def _promoted(given: list[Parameter], cls: type) -> list[Parameter]:
    """Convert integers to floats where needed, before rclpy compares types."""
    known = specifications(cls)
    promoted = []
    for each in given:
        specification = known.get(each.name)
        if specification and _type(specification) != each.type_:
            with suppress(ParameterError):  # rclpy then refuses it with a reason.
                each = to_parameter(specification, specification.convert(each.value))
        promoted.append(each)
    return promoted


def _without_same(node: Node, given: list[Parameter]) -> list[Parameter]:
    """
    Remove read-only parameters that keep their value, which rclpy refuses to set at all.

    rclpy also refuses an empty list; `use_sim_time` with its present value then replaces it.
    """
    left = [
        each
        for each in given
        if not (
            node.has_parameter(each.name)
            and node.describe_parameter(each.name).read_only
            and is_same(each, node.get_parameter(each.name))
        )
    ]
    return left or [node.get_parameter('use_sim_time')] if given else given


def is_same(one: Parameter, other: Parameter) -> bool:
    """Return whether two parameters have the same type and value; NaN equals NaN."""
    return one.type_ == other.type_ and repr(_plain(one.value)) == repr(_plain(other.value))


def _plain(value: Any) -> Any:
    return (
        value if isinstance(value, (str, bytes)) or not hasattr(value, '__iter__') else list(value)
    )


def read(node: Node, cls: type) -> Any:
    """Read the declared parameters into a `cls`; raise ParameterError for bad values."""
    return cls(
        **{
            each.name: each.check(node.get_parameter(each.name).value)
            for each in specifications(cls).values()
        }
    )


def changes_of(node: Node, cls: type, given: list[Parameter], state: str) -> dict[str, Any]:
    """Return the values of `cls` that change in a lifecycle state, or raise ParameterError."""
    known, changes = specifications(cls), {}
    for each in given:
        # Those that keep their value are given in a file written by `ros2 param dump`.
        if each.name not in known or is_same(each, node.get_parameter(each.name)):
            continue
        changes[each.name] = known[each.name].check(each.value)
        if state != 'unconfigured' and not known[each.name].mutable:
            raise ParameterError(
                f'{each.name} cannot change while {state}.',
                remedy='Clean up the node, set the parameter, and configure it again.',
            )
    return changes


def yaml_text(cls: type, node_name: str, without: Collection[str] = ()) -> str:
    """Return a parameter file with defaults and descriptions, but for the names in `without`."""
    rest = ' inference.yaml has the rest.' if without else ''
    written = [each for each in specifications(cls).values() if each.name not in without]
    # ROS refuses files without a value.
    nothing = '' if any(each.default != () for each in written) else ' {}'
    lines = [
        f'# Parameters of the {node_name} node with their defaults.{rest}',
        '# Written by `python tools/generated_files.py`.',
        '/**:',
        f'  ros__parameters:{nothing}',
    ]
    for each in written:
        lines.append(f'    # {each.description} {_constraint(each)}'.rstrip())
        # launch_ros refuses files with empty lists when it loads components.
        comment = '# ' if each.default == () else ''
        lines.append(f'    {comment}{each.name}: {yaml_value(each.default)}')
    return '\n'.join(lines) + '\n'


def yaml_value(value: Any) -> str:
    """Return a value as in a parameter file, on one line."""
    plain = list(value) if isinstance(value, tuple) else value
    return yaml.safe_dump(plain, default_flow_style=True).splitlines()[0]
