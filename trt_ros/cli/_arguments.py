"""Types of command line arguments."""

from __future__ import annotations

from argparse import ArgumentTypeError
from math import isfinite


def finite(text: str) -> float:
    """Parse a finite number."""
    value = float(text)
    if not isfinite(value):
        raise ArgumentTypeError(f'{text} is not a finite number')
    return value


def fraction(text: str) -> float:
    """Parse a number from 0 to 1."""
    value = float(text)
    if not 0 <= value <= 1:
        raise ArgumentTypeError(f'{text} is not between 0 and 1')
    return value


def positive(text: str) -> int:
    """Parse an integer above 0."""
    value = int(text)
    if value < 1:
        raise ArgumentTypeError(f'{text} is not above 0')
    return value
