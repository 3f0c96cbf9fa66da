"""Histories of arrays: the last values of an input, as one array."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, replace
import math

import numpy as np

from trt_ros.errors import ParameterError, TensorMismatchError
from trt_ros.model.feeds.base import invalid_setting, lacks_setting
from trt_ros.model.feeds.padding import CAPACITY
from trt_ros.tensors import MAX_ELEMENTS, TensorSpec

#: Setting: the number of values that an input gets, that of the run included.
HISTORY = 'history'
#: Settings of a history, and their choices; the first one is the default.
CHOICES: Mapping[str, tuple[str, str]] = {
    'order': ('oldest', 'newest'),
    'fill': ('first', 'zeros'),
}


@dataclass(frozen=True)
class History:
    """
    The place of the last values in a network input.

    :param count: number of values.
    :param shape: of the network input; a dynamic batch is 1.
    :param is_oldest_first: whether the newest value is the last one.
    :param is_filled: whether the first value stands for those before it; else zeros.
    """

    count: int
    shape: tuple[int, ...]
    is_oldest_first: bool
    is_filled: bool

    @classmethod
    def parse(cls, settings: Mapping[str, str], spec: TensorSpec) -> History | None:
        """Return the history of an input's binding, or None; raise ParameterError if invalid."""
        text = settings.get(HISTORY)
        for name, choices in CHOICES.items():
            found = settings.get(name, choices[0])
            if found not in choices:
                remedy = f'Set it to {" or ".join(choices)}.'
                raise invalid_setting(name, spec.name, found, remedy)
            if text is None and name in settings:
                raise lacks_setting(name, spec.name, HISTORY, ', the number of values')
        if text is None:
            return None
        count = int(text) if text.isdecimal() and len(text) < 10 else 0
        if not 0 < count <= MAX_ELEMENTS:
            remedy = f'Set it to a number of values, from 1 to {MAX_ELEMENTS}.'
            raise invalid_setting(HISTORY, spec.name, text, remedy)
        if CAPACITY in settings:
            raise ParameterError(
                f'The network input {spec.name!r} has both {HISTORY} and {CAPACITY}.',
                cause='The values of a history have one size.',
                remedy='Leave one of them out.',
            )
        first = spec.shape[:1] if len(spec.shape) > 1 else ()
        shape = tuple(map(abs, first)) + spec.shape[len(first) :]  # A dynamic batch is 1.
        is_oldest_first, is_filled = (
            settings.get(name, choices[0]) == choices[0] for name, choices in CHOICES.items()
        )
        return cls(count, shape, is_oldest_first, is_filled)

    def value(self, spec: TensorSpec) -> TensorSpec:
        """
        Return one value of the history of a network input.

        The values follow each other on the first axis behind a batch of 1; where that is the only
        one, their elements do.

        :raises TensorMismatchError: when the input has no place for so many values.
        """
        shape, count = self.shape, self.count
        batch = shape[:1] if len(shape) > 1 and shape[0] == 1 else ()
        rest = shape[len(batch) :]
        if min(shape, default=0) > 0 and len(rest) == 1 and rest[0] % count == 0:
            return replace(spec, shape=(*batch, rest[0] // count))
        if min(shape, default=0) > 0 and len(rest) > 1 and rest[0] == count:
            return replace(spec, shape=(*batch, *rest[1:]))
        form = f'(1, {count}, D), ({count}, D)' if len(rest) > 1 else f'(1, {count} * D)'
        raise TensorMismatchError(
            f'The network input {spec} cannot be a history of {count} values.',
            cause='The size of a value cannot be known.'
            if min(shape, default=1) < 0
            else f'A history is of the shape {form}; a batch is 1.'
            if len(rest) > 1
            else f'{rest[0] if rest else 1} elements are no multiple of {count}.',
            remedy=f'Set another {HISTORY}, or export the network with an input of such a shape.',
        )

    def pushed(self, past: np.ndarray | None, value: np.ndarray) -> np.ndarray:
        """Return the history after one more converted value; `past` is None before the first."""
        row = value.reshape(1, -1)
        if past is None:
            one = row if self.is_filled else np.zeros_like(row)
            rows = one.repeat(self.count, axis=0)
        else:
            rows = past.reshape(self.count, -1)
        parts = (rows[1:], row) if self.is_oldest_first else (row, rows[:-1])
        return np.asarray(np.concatenate(parts).reshape(self.shape))

    @property
    def offset(self) -> int:
        """Place of the newest value, in elements."""
        size = math.prod(self.shape)
        return size - size // self.count if self.is_oldest_first else 0

    def __str__(self) -> str:
        order = CHOICES['order'][not self.is_oldest_first]
        return f'history of {self.count}, {order} first'
