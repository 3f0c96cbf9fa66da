"""Arithmetic of array inputs, declared in their bindings."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, replace

import numpy as np

from trt_ros.errors import TensorMismatchError
from trt_ros.model.feeds.base import invalid_setting
from trt_ros.model.feeds.constant import read_value
from trt_ros.tensors import Arrays, TensorSpec, is_finite

_OPERATIONS: Mapping[str, Callable[[np.ndarray, np.ndarray], object]] = {
    'default': lambda x, value: np.subtract(x, value, out=x),
    'scale': lambda x, value: np.multiply(x, value, out=x),
    'offset': lambda x, value: np.add(x, value, out=x),
    'clip': lambda x, value: np.clip(x, value[0], value[1], out=x),
}
#: Settings of bindings, in the order in which they apply.
ARITHMETIC = tuple(_OPERATIONS)


@dataclass(frozen=True, eq=False)
class Arithmetic:
    """
    `clip((x - default) * scale + offset)` per element, in float64.

    :param values: by setting, of shapes that are broadcast with x; those of `clip` begin with 2.
    """

    values: Arrays

    @classmethod
    def parse(cls, settings: Mapping[str, str], spec: TensorSpec) -> Arithmetic | None:
        """Return the arithmetic of an input's binding, None without any, or raise."""
        given = [name for name in ARITHMETIC if name in settings]
        if not given:
            return None
        if spec.dtype != 'bfloat16' and np.dtype(spec.dtype).kind != 'f':
            raise TensorMismatchError(
                f'{given[0]} is set for the network input {spec}.',
                cause='It is for floating-point inputs.',
                remedy='Leave it out, or export the network with a floating-point input.',
            )
        wide = replace(spec, dtype='float64')
        is_same = settings.get('clip', '').count(',') == 1  # For all elements.
        shape = (2,) if is_same else (2, *spec.shape)
        limits = TensorSpec(f'{spec.name} (clip)', shape, 'float64', 'input')
        values = {
            name: read_value(settings[name], limits if name == 'clip' else wide) for name in given
        }
        for name, value in values.items():
            if name != 'clip' and not is_finite(value):
                remedy = 'Use finite numbers: the input would be NaN or infinite in every run.'
                raise invalid_setting(name, spec.name, settings[name], remedy)
        low, high = values.get('clip', np.array([-np.inf, np.inf]))
        if not np.all(low < high):
            remedy = 'Write clip=LOW,HIGH with LOW below HIGH, or all LOW, then all HIGH.'
            raise invalid_setting('clip', spec.name, settings['clip'], remedy)
        return cls(values)

    def __call__(self, array: np.ndarray) -> np.ndarray:
        """Return the result, float64 of the shape of `array`; raises TensorMismatchError."""
        value = array.astype(np.float64)
        for name, operand in self.values.items():
            try:
                _OPERATIONS[name](value, operand)
            except ValueError as error:
                raise TensorMismatchError(
                    f'{name} is of the shape {operand.shape}, but the array {array.shape}.',
                    remedy=f'Give {name} one number, or one per element.',
                ) from error
        return value

    def __str__(self) -> str:
        """Return the names of the settings, for the log."""
        return ', '.join(self.values)
