"""What a network's input or output looks like: name, shape, dtype, mode."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass
import math
from typing import Literal

import numpy as np

from trt_ros.errors import ModelError

#: What metadata says of the NMS that was cut off a network, as JSON: what is left are its boxes
#: and scores, and a decoder does what it did.
CUT_NMS = 'trt_ros.cut_nms'
MAX_ELEMENTS = 1 << 28  # Of an input: 1 GiB of float32.


@dataclass(frozen=True)
class TensorSpec:
    """
    One input or output of a network.

    :param shape: dimensions, -1 where dynamic.
    :param dtype: NumPy's name ('float32', 'float16', 'uint8', 'int64', 'bool', ..), or 'bfloat16'.
    :param mode: 'input' or 'output'.
    """

    name: str
    shape: tuple[int, ...]
    dtype: str
    mode: Literal['input', 'output']

    @property
    def is_dynamic(self) -> bool:
        return any(size < 0 for size in self.shape)

    def accepts(self, tensor: np.ndarray) -> bool:
        """Tell whether dtype (uint16 for the bits of bfloat16) and shape fit."""
        dtype = 'uint16' if self.dtype == 'bfloat16' else self.dtype
        return (
            tensor.dtype.name == dtype
            and len(tensor.shape) == len(self.shape)
            and all(want in (-1, have) for want, have in zip(self.shape, tensor.shape))
        )

    def __str__(self) -> str:
        shape = ', '.join('?' if size < 0 else str(size) for size in self.shape)
        return f'{self.name} ({shape}) {self.dtype}'


def refuse_large(specs: Iterable[TensorSpec]) -> None:
    """
    Check that inputs are of a size that can be allocated; dynamic dimensions count as 1.

    :raises ModelError: when one is not.
    """
    for spec in specs:
        if math.prod(size for size in spec.shape if size >= 0) > MAX_ELEMENTS:
            raise ModelError(
                f'The input {spec} is too large.',
                cause=f'An input may have at most {MAX_ELEMENTS} elements.',
                remedy='Set a smaller input_size, or export with smaller inputs.',
            )
