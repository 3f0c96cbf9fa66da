"""Node parameters as frozen dataclasses: declaration, documentation, validation and values."""

from __future__ import annotations

from collections.abc import Collection, Mapping
from contextlib import suppress
from dataclasses import Field, dataclass, field, fields
from typing import Any, get_type_hints

from rcl_interfaces.msg import FloatingPointRange, IntegerRange, ParameterDescriptor
from rclpy.node import Node
from rclpy.parameter import Parameter
import yaml

from trt_ros.errors import ParameterError, meant, printable
from trt_ros.parameter_field import param as param  # Beside `read`, where nodes look for it.

# Allowed annotations: ROS type, Python type, and type of the entries.
_TYPES = {
    bool: (Parameter.Type.BOOL, bool, None),
    int: (Parameter.Type.INTEGER, int, None),
    float: (Parameter.Type.DOUBLE, float, None),
    str: (Parameter.Type.STRING, str, None),
    tuple[bool, ...]: (Parameter.Type.BOOL_ARRAY, tuple, bool),
    tuple[int, ...]: (Parameter.Type.INTEGER_ARRAY, tuple, int),
    tuple[float, ...]: (Parameter.Type.DOUBLE_ARRAY, tuple, float),
    tuple[str, ...]: (Parameter.Type.STRING_ARRAY, tuple, str),
}


@dataclass(frozen=True)
class Specification:
    """The specification of one parameter, from a field of a parameter class."""

    name: str
    default: Any
    type_: Parameter.Type
    description: str
    python_type: type
    entry_type: type | None
    between: tuple[float, float] | None = None
    or_zero: bool = False
    choices: tuple[str, ...] = ()
    names: Mapping[str, int] = field(default_factory=dict)
    mutable: bool = False
    read_only: bool = False

    @classmethod
    def of(cls, each: Field, hint: Any) -> Specification:
        """Create a specification from a dataclass field with (part of) the metadata of param()."""
        type_, python_type, entry_type = _TYPES[hint]
        return cls(
            each.name,
            each.default,
            type_,
            python_type=python_type,
            entry_type=entry_type,
            **each.metadata,
        )

    @property
    def allowed(self) -> str:
        """The range or the choices in words; '' if every value of the type is allowed."""
        if self.between:
            named = ''.join(f'{name}, or ' for name in self.names)
            zero = '0.0, or ' if self.or_zero else ''
            return f'{named}{zero}{self.between[0]} to {self.between[1]}'
        return ', '.join(self.choices)

    def convert(self, value: Any) -> Any:
        """
        Convert a value to the field's type: integers to floats, lists to tuples, names to values.

        One string stands for a list of it, and an integer in such a list for its digits.

        :raises ParameterError: when the value has another type.
        """
        if self.entry_type is str:
            value = _as_strings(value)
        if isinstance(value, str):
            value = self.names.get(value, value)
        wrong_type = ParameterError(
            f'{self.name} is {value!r}, but must be of type {self.type_.name.lower()}.',
            remedy='Quote it: YAML reads y, no, on and 1.0 without quotes as a bool or number.'
            if str in (self.python_type, self.entry_type)
            else f'Set it to {self.allowed}.'
            if self.allowed
            else '',
        )
        if self.entry_type is None:
            return _as_type(value, self.python_type, wrong_type)
        if isinstance(value, (str, bytes)) or not hasattr(value, '__iter__'):
            raise wrong_type
        return tuple(_as_type(entry, self.entry_type, wrong_type) for entry in value)

    def check(self, value: Any) -> Any:
        """
        Convert a value, and check that it is allowed.

        :raises ParameterError: when it is not allowed or has another type.
        """
        checked = self.convert(value)
        if self.choices and checked not in self.choices:
            raise ParameterError(
                f'{self.name} is {checked!r}.', remedy=f'Choose one of {self.allowed}.'
            )
        if self.between and not (
            self.between[0] <= checked <= self.between[1] or (self.or_zero and checked == 0)
        ):
            raise ParameterError(f'{self.name} is {checked}.', remedy=f'Set it to {self.allowed}.')
        return checked

    def to_parameter(self, value: Any) -> Parameter:
        """Return a value as a ROS parameter."""
        return Parameter(self.name, self.type_, list(value) if isinstance(value, tuple) else value)

    def descriptor(self) -> ParameterDescriptor:
        """Return the ROS descriptor."""
        descriptor = ParameterDescriptor(
            description=self.description,
            read_only=self.read_only,
            type=self.type_.value,
            additional_constraints=f'One of {self.allowed}.'
            if self.choices
            else f'{self.allowed}.'
            if self.or_zero or self.names
            else '',
        )
        if self.between and self.type_ == Parameter.Type.INTEGER:
            descriptor.integer_range = [
                IntegerRange(from_value=self.between[0], to_value=self.between[1], step=1)
            ]
        elif self.between:
            low = 0.0 if self.or_zero else self.between[0]
            descriptor.floating_point_range = [
                FloatingPointRange(from_value=low, to_value=self.between[1])
            ]
        return descriptor


def _as_strings(value: Any) -> Any:
    """Return a string or a list of them where integers are meant as text, as indices are."""
    if type(value) in (str, int):
        return [str(value)]
    if isinstance(value, bytes) or not hasattr(value, '__iter__'):
        return value
    return [str(each) if type(each) is int else each for each in value]


def _as_type(value: Any, wanted: type, error: ParameterError) -> Any:
    # A bool is an int in Python, but not a number here.
    if wanted is float and isinstance(value, int) and not isinstance(value, bool):
        return float(value)
    if not isinstance(value, wanted) or (wanted is int and isinstance(value, bool)):
        raise error
    return value


def specifications(cls: type) -> dict[str, Specification]:
    """Return all parameters of a parameter class by name, in order of definition."""
    hints = get_type_hints(cls)
    return {each.name: Specification.of(each, hints[each.name]) for each in fields(cls)}


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
        node.set_parameters([each.to_parameter(value)])
        node.set_descriptor(each.name, each.descriptor())
    if hasattr(node, 'add_pre_set_parameters_callback'):  # Missing in Humble.
        node.add_pre_set_parameters_callback(
            lambda given: _without_same(node, _promoted(given, cls))
        )
    for name in getattr(node, '_parameter_overrides', {}):
        if not node.has_parameter(name) and not name.startswith('qos_overrides.'):
            node.get_logger().warning(
                printable(
                    f'Unknown parameter {name!r} is ignored. ' + meant(name, specifications(cls))
                )
            )


def _promoted(given: list[Parameter], cls: type) -> list[Parameter]:
    """Convert integers to floats where needed, before rclpy compares types."""
    known = specifications(cls)
    promoted = []
    for each in given:
        specification = known.get(each.name)
        if specification and specification.type_ != each.type_:
            with suppress(ParameterError):  # rclpy then refuses it with a reason.
                each = specification.to_parameter(specification.convert(each.value))
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
    """
    Read the declared parameters into an instance of `cls`.

    :raises ParameterError: when a value is not allowed, or the values contradict each other.
    """
    return cls(
        **{
            each.name: each.check(node.get_parameter(each.name).value)
            for each in specifications(cls).values()
        }
    )


def yaml_text(cls: type, node_name: str, without: Collection[str] = ()) -> str:
    """Return a parameter file with defaults and descriptions, but for the names in `without`."""
    rest = ' inference.yaml has the rest.' if without else ''
    lines = [
        f'# Parameters of the {node_name} node with their defaults.{rest}',
        '# Written by `python -m trt_ros.nodes`.',
        '/**:',
        '  ros__parameters:',
    ]
    for each in specifications(cls).values():
        if each.name in without:
            continue
        allowed = (
            f' One of {each.allowed}.'
            if each.choices
            else (f' From {each.allowed}.' if each.between else '')
        )
        lines.append(f'    # {each.description}{allowed}')
        # launch_ros refuses files with empty lists when it loads components.
        comment = '# ' if each.default == () else ''
        lines.append(f'    {comment}{each.name}: {_yaml_value(each.default)}')
    return '\n'.join(lines) + '\n'


def markdown_rows(cls: type) -> dict[str, str]:
    """Return rows of a Markdown table by parameter; ● marks what may change while active."""
    return {
        each.name: ' | '.join(
            (
                f'| `{each.name}`',
                f'`{_yaml_value(each.default)}`',
                each.allowed,
                '●' if each.mutable else '',
                f'{each.description} |',
            )
        )
        for each in specifications(cls).values()
    }


def _yaml_value(value: Any) -> str:
    plain = list(value) if isinstance(value, tuple) else value
    return yaml.safe_dump(plain, default_flow_style=True).splitlines()[0]
