"""Dataclass field of a parameter, for nodes and the command line."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import field
from typing import Any


def param(
    default: Any,
    description: str,
    *,
    between: tuple[float, float] | None = None,
    or_zero: bool = False,
    choices: Sequence[str] = (),
    names: Mapping[str, int] | None = None,
    mutable: bool = False,
    read_only: bool = False,
) -> Any:
    """
    Define a field of a parameter class.

    :param between: minimum and maximum, inclusive.
    :param or_zero: whether 0 is also allowed, below the minimum.
    :param names: words that stand for values of an integer.
    :param mutable: whether changes take effect at once, in any state; other parameters can only be
        set before configure.
    :param read_only: whether the value is fixed when the process starts.
    """
    return field(
        default=default,
        metadata={
            'description': description,
            'between': between,
            'or_zero': or_zero,
            'choices': tuple(choices),
            'names': dict(names or {}),
            'mutable': mutable,
            'read_only': read_only,
        },
    )
