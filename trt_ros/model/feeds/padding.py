"""Arrays of changing sizes, padded to a fixed shape."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, replace
import math
from operator import gt
import re
from typing import Any

import numpy as np

from trt_ros.errors import CapacityError, ParameterError
from trt_ros.model.feeds.base import lacks_setting
from trt_ros.model.feeds.constant import read_value
from trt_ros.tensors import MAX_ELEMENTS, TensorSpec, write_tensor

#: Setting: the fixed sizes of an input's dynamic dimensions.
CAPACITY = 'capacity'
#: Setting: the value of the elements behind the end of an array.
PAD = 'pad'
_SIZES = re.compile(r'\d{1,9}( *, *\d{1,9})*')


@dataclass(frozen=True, eq=False)
class Padding:
    """The fixed shape of an input of arrays of other sizes, and the value behind their ends."""

    spec: TensorSpec
    value: np.ndarray

    @classmethod
    def parse(cls, settings: Mapping[str, str], spec: TensorSpec) -> Padding | None:
        """Return the padding of an input's binding, None without any, or raise."""
        text = settings.get(CAPACITY)
        if text is None:
            return None
        sizes = list(map(int, text.split(','))) if _SIZES.fullmatch(text) else []
        dynamic = spec.shape.count(-1)
        if not dynamic or len(sizes) != dynamic or min(sizes) < 1:
            raise ParameterError(
                f'{CAPACITY} of the network input {spec} is {text!r}.',
                cause=f'The number of its dynamic dimensions (?) is {dynamic}.',
                remedy=f'Write {CAPACITY}={",".join(["1"] * (dynamic - 1) + ["64"])}: a positive '
                'integer for each of them, 1 for a batch.'
                if dynamic
                else f'Leave {CAPACITY} out.',
            )
        rest = iter(sizes)
        shape = tuple(next(rest) if size < 0 else size for size in spec.shape)
        if math.prod(shape) > MAX_ELEMENTS:
            raise ParameterError(
                f'{CAPACITY} of the network input {spec} is {text!r}, which is too large.',
                cause=f'The limit is {MAX_ELEMENTS} elements per input.',
                remedy='Set less.',
            )
        return cls.of(replace(spec, shape=shape), settings)

    @classmethod
    def of(cls, spec: TensorSpec, settings: Mapping[str, str]) -> Padding:
        """Return the padding to the shape of `spec`; raise ParameterError if that is dynamic."""
        if spec.is_dynamic:
            raise lacks_setting(PAD, spec.name, CAPACITY, ', the size to fill up to')
        one = TensorSpec(f'{spec.name} ({PAD})', (), spec.dtype, 'input')
        return cls(spec, read_value(settings.get(PAD, '0'), one))

    def taken(self, spec: TensorSpec) -> TensorSpec:
        """
        Return the input as runs take it.

        Of several dynamic dimensions, those of a capacity of 1 are 1; of a fixed shape, the last
        one above 1 is dynamic.
        """
        shape = list(spec.shape)
        if shape.count(-1) > 1:
            sizes = zip(shape, self.spec.shape)
            shape = [1 if room == 1 else size for size, room in sizes]
        elif shape and not spec.is_dynamic:
            shape[max(range(len(shape)), key=lambda axis: (shape[axis] > 1, axis))] = -1
        return replace(spec, shape=tuple(shape))

    def check(self, array: np.ndarray) -> None:
        """Raise CapacityError if an array is larger than the fixed shape."""
        if any(map(gt, array.shape, self.spec.shape)):
            raise CapacityError(
                f'{self.spec.name} came as ({", ".join(map(str, array.shape))}), which is more '
                f'than its capacity of ({", ".join(map(str, self.spec.shape))}).',
                remedy=f'Send less, or set a larger {CAPACITY} in inputs.',
            )

    def write(self, target: np.ndarray, array: np.ndarray) -> None:
        """Convert an array that `check` accepts into memory, the padding behind its end."""
        for axis, (size, room) in enumerate(zip(array.shape, target.shape)):
            if size < room:
                target[(slice(None),) * axis + (slice(size, None),)] = self.value
        part: Any = (*map(slice, array.shape), ...)
        write_tensor(target[part], self.spec, array)
