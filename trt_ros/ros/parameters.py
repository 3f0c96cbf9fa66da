"""A node's parameters: one frozen dataclass declares, documents, checks and holds them."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from contextlib import suppress
from dataclasses import Field, dataclass, field, fields
import difflib
from typing import Any, get_type_hints

from rcl_interfaces.msg import FloatingPointRange, IntegerRange, ParameterDescriptor
from rclpy.node import Node
from rclpy.parameter import Parameter
import yaml

from trt_ros.errors import ParameterError

# What a field may be annotated with: ROS's type, Python's, the type of the entries.
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


def param(
    default: Any,
    description: str,
    *,
    between: tuple[float, float] | None = None,
    or_zero: bool = False,
    choices: Sequence[str] = (),
    mutable: bool = False,
    read_only: bool = False,
) -> Any:
    """
    A field of a parameter class.

    :param between: smallest and largest value, both allowed.
    :param or_zero: 0 is allowed too, below the smallest.
    :param mutable: takes effect at once, in any state; the others are set before configure.
    :param read_only: decided when the process starts.
    """
    return field(
        default=default,
        metadata={
            'description': description,
            'between': between,
            'or_zero': or_zero,
            'choices': tuple(choices),
            'mutable': mutable,
            'read_only': read_only,
        },
    )


@dataclass(frozen=True)
class Specification:
    """One parameter, as the field of the parameter class says it."""

    name: str
    default: Any
    type_: Parameter.Type
    description: str
    python_type: type
    entry_type: type | None
    between: tuple[float, float] | None = None
    or_zero: bool = False
    choices: tuple[str, ...] = ()
    mutable: bool = False
    read_only: bool = False

    @classmethod
    def of(cls, each: Field, hint: Any) -> Specification:
        """Read a dataclass field with `param` metadata, or with as much of it as is there."""
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
        """The range or the choices in words; '' where anything of the type goes."""
        if self.between:
            return f'{"0.0, or " if self.or_zero else ""}{self.between[0]} to {self.between[1]}'
        return ', '.join(self.choices)

    def convert(self, value: Any) -> Any:
        """
        Bring a value into the field's own type: an integer serves as a number, a list as a tuple.

        :raises ParameterError: when it is of another type.
        """
        wrong_type = ParameterError(
            f'{self.name} is {value!r}, but should be {self.type_.name.lower()}.'
        )
        if self.entry_type is None:
            return _as_type(value, self.python_type, wrong_type)
        if isinstance(value, (str, bytes)) or not hasattr(value, '__iter__'):
            raise wrong_type
        return tuple(_as_type(entry, self.entry_type, wrong_type) for entry in value)

    def check(self, value: Any) -> Any:
        """
        Convert a value, and see that it is allowed.

        :raises ParameterError: when it is not, or of another type.
        """
        checked = self.convert(value)
        if self.choices and checked not in self.choices:
            raise ParameterError(
                f'{self.name} is {checked!r}.', remedy=f'Choose one of {self.allowed}.'
            )
        if self.between and not (
            self.between[0] <= checked <= self.between[1] or (self.or_zero and checked == 0)
        ):
            raise ParameterError(f'{self.name} is {checked}.', remedy=f'Give {self.allowed}.')
        return checked

    def to_parameter(self, value: Any) -> Parameter:
        return Parameter(self.name, self.type_, list(value) if isinstance(value, tuple) else value)

    def descriptor(self) -> ParameterDescriptor:
        descriptor = ParameterDescriptor(
            description=self.description,
            read_only=self.read_only,
            type=self.type_.value,
            additional_constraints=f'One of {self.allowed}.'
            if self.choices
            else f'{self.allowed}.'
            if self.or_zero
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


def _as_type(value: Any, wanted: type, error: ParameterError) -> Any:
    # A bool is an int in Python, but nobody means True by 1.0.
    if wanted is float and isinstance(value, int) and not isinstance(value, bool):
        return float(value)
    if not isinstance(value, wanted) or (wanted is int and isinstance(value, bool)):
        raise error
    return value


def specifications(cls: type) -> dict[str, Specification]:
    """All parameters of a parameter class by name, in their order."""
    hints = get_type_hints(cls)
    return {each.name: Specification.of(each, hints[each.name]) for each in fields(cls)}


def declare(node: Node, cls: type) -> None:
    """
    Declare every parameter of `cls`, with what the command line or a file gives it.

    :raises ParameterError: when one of these has the wrong type or is not allowed.
    """
    for each in specifications(cls).values():
        # First of any type, so that an integer may stand for a number, then fixed.
        given = node.declare_parameter(
            each.name, None, ParameterDescriptor(dynamic_typing=True)
        ).value
        value = each.default if given is None else each.check(given)
        node.set_parameters([each.to_parameter(value)])
        node.set_descriptor(each.name, each.descriptor())
    if hasattr(node, 'add_pre_set_parameters_callback'):  # Humble has it not.
        node.add_pre_set_parameters_callback(
            lambda given: _without_same(node, _promoted(given, cls))
        )
    for name in getattr(node, '_parameter_overrides', {}):
        if not node.has_parameter(name) and not name.startswith('qos_overrides.'):
            node.get_logger().warning(
                f'There is no parameter {name!r}; it is ignored. '
                + meant(name, specifications(cls))
            )


def meant(name: str, known: Iterable[str]) -> str:
    """Return the question whether one of the nearest known names was meant; '' without any."""
    close = difflib.get_close_matches(name, list(known), n=3, cutoff=0.75)
    return f'Did you mean {" or ".join(map(repr, close))}? ' if close else ''


def _promoted(given: list[Parameter], cls: type) -> list[Parameter]:
    """Turn integers into the numbers they stand for, before rclpy compares types."""
    known = specifications(cls)
    promoted = []
    for each in given:
        specification = known.get(each.name)
        if specification and specification.type_ != each.type_:
            with suppress(ParameterError):  # rclpy refuses it and says why.
                each = specification.to_parameter(specification.convert(each.value))
        promoted.append(each)
    return promoted


def _without_same(node: Node, given: list[Parameter]) -> list[Parameter]:
    """
    Leave out read-only parameters that keep their value: rclpy refuses to set them at all.

    rclpy also refuses an empty list; something harmless then takes their place.
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
    """Tell whether two parameters have the same type and value; NaN is the same as NaN."""
    return one.type_ == other.type_ and repr(_plain(one.value)) == repr(_plain(other.value))


def _plain(value: Any) -> Any:
    return (
        value if isinstance(value, (str, bytes)) or not hasattr(value, '__iter__') else list(value)
    )


def read(node: Node, cls: type) -> Any:
    """
    Read what was declared into a `cls`.

    :raises ParameterError: when the values do not go together.
    """
    return cls(
        **{
            each.name: each.check(node.get_parameter(each.name).value)
            for each in specifications(cls).values()
        }
    )


def yaml_text(cls: type, node_name: str) -> str:
    """Write a parameter file with all defaults, explained."""
    lines = [
        f'# Parameters of the {node_name} node with their defaults.',
        f'# Written from {cls.__module__}.{cls.__qualname__} by `python -m trt_ros.nodes`.',
        '/**:',
        '  ros__parameters:',
    ]
    for each in specifications(cls).values():
        allowed = (
            f' One of {each.allowed}.'
            if each.choices
            else (f' From {each.allowed}.' if each.between else '')
        )
        lines.append(f'    # {each.description}{allowed}')
        # launch_ros refuses a file with an empty list when it loads components.
        unsaid = '# ' if each.default == () else ''
        lines.append(f'    {unsaid}{each.name}: {_yaml_value(each.default)}')
    return '\n'.join(lines) + '\n'


def markdown_table(cls: type) -> str:
    """Write the parameters as a Markdown table; ● marks those that change while active."""
    lines = ['| parameter | default | allowed | at run time | meaning |', '|---|---|---|---|---|']
    for each in specifications(cls).values():
        lines.append(
            ' | '.join(
                (
                    f'| `{each.name}`',
                    f'`{_yaml_value(each.default)}`',
                    each.allowed,
                    '●' if each.mutable else '',
                    f'{each.description} |',
                )
            )
        )
    return '\n'.join(lines) + '\n'


def _yaml_value(value: Any) -> str:
    plain = list(value) if isinstance(value, tuple) else value
    return yaml.safe_dump(plain, default_flow_style=True).splitlines()[0]
