"""Options as dataclass fields, for nodes, the command line and Python: types and validation."""

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field, fields
from functools import cache, partial
from math import inf
from numbers import Integral, Real
import os
from typing import Any, Literal, get_args, get_origin, get_type_hints

from trt_ros.errors import ParameterError, meant

#: Name of the ROS type, Python type, and type of the entries, by annotation.
_TYPES: Mapping[Any, tuple[str, type, type | None]] = {
    bool: ('bool', bool, None),
    int: ('integer', int, None),
    float: ('double', float, None),
    str: ('string', str, None),
    tuple[bool, ...]: ('bool_array', tuple, bool),
    tuple[int, ...]: ('integer_array', tuple, int),
    tuple[float, ...]: ('double_array', tuple, float),
    tuple[str, ...]: ('string_array', tuple, str),
}


def param(
    default: Any, description: str, zero_or: tuple[float, float] | None = None, **more: Any
) -> Any:
    """
    Define a field of an options class.

    :param zero_or: `between` of values other than 0.
    :param more: parameters of Specification by name.
    """
    if zero_or is not None:
        more |= {'between': zero_or, 'or_zero': True}
    return field(default=default, metadata={'description': description, **more})


#: Defines a field whose changes take effect at once, in any state.
mutable_param = partial(param, mutable=True)


def with_default(cls: type, name: str, default: Any) -> Any:
    """Define a field like the one of another options class, with another default."""
    (like,) = (each for each in fields(cls) if each.name == name)
    return field(default=default, metadata=like.metadata)


def refuse_unknown(kind: type, names: Iterable[str], noun: str = 'option') -> None:
    """Raise ParameterError for a name that is no option of a class."""
    known = [each.name for each in fields(kind) if each.init]
    for name in names:
        if name not in known:
            raise ParameterError(
                f'{kind.__name__} has no {noun} {name!r}.',
                remedy=meant(name, known).strip() or f'Use {", ".join(known)}.',
            )


@dataclass(frozen=True)
class Specification:
    """
    The specification of one option, from a field of an options class.

    :param between: minimum and maximum, inclusive; of a list: those of each entry.
    :param or_zero: whether 0 is also allowed, below the minimum.
    :param lengths: allowed lengths of a list of numbers.
    :param names: words that stand for values of an integer.
    :param mutable: whether changes take effect at once, in any state; other parameters can only be
        set before configure.
    :param read_only: whether the value is fixed when the process starts.
    """

    name: str
    default: Any
    type_name: str
    python_type: type
    entry_type: type | None
    description: str
    between: tuple[float, float] | None = None
    or_zero: bool = False
    lengths: tuple[int, ...] = ()
    choices: tuple[str, ...] = ()
    names: Mapping[str, int] = field(default_factory=dict)
    mutable: bool = False
    read_only: bool = False

    @property
    def allowed(self) -> str:
        """The range or the choices in words; '' if every value of the type is allowed."""
        if self.between is None:
            return ', '.join(self.choices)
        low, high = self.between
        numbers = f'{low} to {high}' if high < inf else f'{low} or above'
        if self.lengths:
            *others, last = filter(None, self.lengths)
            counts = f'{", ".join(map(str, others))} or {last}' if others else str(last)
            return f'{counts} numbers of {numbers}' + (', or none' if 0 in self.lengths else '')
        named = ''.join(f'{name}, or ' for name in self.names)
        return f'{named}{"0.0, or " if self.or_zero else ""}{numbers}'

    def convert(self, value: Any) -> Any:
        """
        Convert a value to the field's type: integers to floats, lists to tuples, names to values.

        One string stands for a list of it, and an integer in such a list for its digits.

        :raises ParameterError: when the value has another type.
        """
        is_list = hasattr(value, '__iter__') and not isinstance(value, (str, bytes, Mapping))
        if self.entry_type is str and type(value) in (str, int):
            is_list, value = True, [value]
        if self.entry_type is str and is_list:  # Integers are meant as text, as indices are.
            value = [str(each) if type(each) is int else each for each in value]
        if isinstance(value, str):
            value = self.names.get(value, value)
        wrong_type = ParameterError(
            f'{self.name} is {value!r}, but must be of type {self.type_name}.',
            remedy='Quote it: YAML reads y, no, on and 1.0 without quotes as a bool or number.'
            if str in (self.python_type, self.entry_type)
            else f'Set it to {self.allowed}.'
            if self.allowed
            else '',
        )
        if self.entry_type is None:
            return _as_type(value, self.python_type, wrong_type)
        if not is_list:
            raise wrong_type
        return tuple(_as_type(entry, self.entry_type, wrong_type) for entry in value)

    def check(self, value: Any) -> Any:
        """Return a value in the field's type; raise ParameterError if it is not allowed."""
        if value is None and self.default is None:
            return None
        checked = self.convert(value)
        if self.choices and checked not in self.choices:
            raise ParameterError(
                f'{self.name} is {checked!r}.', remedy=f'Choose one of {self.allowed}.'
            )
        entries = (checked,) if self.entry_type is None else checked
        low, high = self.between or (-inf, inf)
        if (self.lengths and len(entries) not in self.lengths) or not (
            self.between is None
            or all(low <= each <= high or (self.or_zero and each == 0) for each in entries)
        ):
            shown = checked if self.entry_type is None else list(checked)
            raise ParameterError(f'{self.name} is {shown}.', remedy=f'Set it to {self.allowed}.')
        return checked


def _as_type(value: Any, wanted: type, error: ParameterError) -> Any:
    kinds: Mapping[type, Any] = {int: Integral, float: Real, str: (str, os.PathLike)}
    # A bool is an int in Python, but not a number here.
    if not isinstance(value, kinds.get(wanted, wanted)) or (
        isinstance(value, bool) and wanted is not bool
    ):
        raise error
    return os.fspath(value) if wanted is str else wanted(value)


@cache
def specifications(cls: type) -> Mapping[str, Specification]:
    """Return all options of a class by name, in order of definition."""
    found, hints = {}, get_type_hints(cls)
    for each in fields(cls):
        if each.metadata:
            hint = hints[each.name]
            if type(None) in get_args(hint):
                hint = get_args(hint)[0]
            found[each.name] = Specification(
                each.name, each.default, *_TYPES[hint], **each.metadata
            )
    return found


def check_options(options: Any) -> None:
    """Convert the values of a frozen options class; raise ParameterError if one is not allowed."""
    for each in specifications(options.__class__).values():
        object.__setattr__(options, each.name, each.check(getattr(options, each.name)))


@cache
def _choices(cls: type) -> dict[str, tuple[str, ...]]:
    hints = get_type_hints(cls).items()
    return {name: get_args(hint) for name, hint in hints if get_origin(hint) is Literal}


def require_choices(declared: Any) -> None:
    """Check the fields that are one of several words; or raise ValueError."""
    for name, words in _choices(declared.__class__).items():
        value = getattr(declared, name)
        if value not in words:
            raise ValueError(
                f'{name} of {type(declared).__name__} is {value!r}. Choose one of '
                f'{", ".join(map(repr, words))}.'
            )
