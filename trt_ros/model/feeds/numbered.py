"""Inputs that depend on the number of the run since the last reset: counters, and noise."""

from collections.abc import Sequence
from dataclasses import dataclass
import math
import re
from typing import Any

import numpy as np

from trt_ros.errors import ParameterError, TensorMismatchError
from trt_ros.model.feeds.base import Binding, Feed, Given, invalid_setting
from trt_ros.tensors import Arrays, TensorSpec, as_tensor
from trt_ros.vision.letterbox import Letterbox


@dataclass(frozen=True)
class NumberedFeed(Feed):
    """A function of the number of the run, from `first` after a reset; dynamic sizes are 1."""

    spec: TensorSpec
    first: int
    has_memory = True

    def values(self, number: int) -> np.ndarray:
        """Return the values of a run, of any dtype and the shape of `spec`."""
        raise NotImplementedError

    def describe(self, name: str) -> str:
        return f'{name}: {self.kind} of shape {self.spec.shape}'

    def initial(self) -> int:
        return self.first

    def stage(self, given: Given) -> tuple[np.ndarray, Sequence[Letterbox]]:
        return as_tensor(self.spec, self.values(given.memory)), ()

    def keep(self, outputs: Arrays, memory: int, staged: np.ndarray) -> int:
        return memory + 1


@dataclass(frozen=True)
class CounterFeed(NumberedFeed):
    """The number of the run, in all elements; `largest` of the dtype stays."""

    largest: int
    kind = 'counter'
    form = 'counter:FIRST'

    @classmethod
    def parse(cls, text: str, source: str) -> tuple[tuple[str, ...], tuple[str, ...]]:
        if not re.fullmatch(r'-?\d{1,19}', source):
            raise ParameterError(
                f'The counter of the binding {text!r} in inputs does not begin with an integer.',
                remedy='Write counter:0.',
            )
        return (source,), ()

    @classmethod
    def bind(cls, binding: Binding, spec: TensorSpec, outputs: Sequence[TensorSpec]) -> Feed:
        limits = _limits(spec.dtype)
        first = int(binding.sources[0])
        if limits is None or not limits[0] <= first <= limits[1]:
            raise TensorMismatchError(
                f'The network input {spec} cannot hold the counter {first}.',
                remedy='Bind a number in the range of an integer or floating-point input.',
            )
        return cls(spec.with_ones(), first, limits[1])

    def values(self, number: int) -> np.ndarray:
        return np.full(self.spec.shape, min(number, self.largest), np.int64)


def _limits(dtype: str) -> tuple[int, int] | None:
    """Return the range of a dtype within int64; None if it is not a number."""
    if dtype == 'bfloat16' or np.dtype(dtype).kind == 'f':
        largest = int(np.finfo('float32' if dtype == 'bfloat16' else dtype).max)
        low, high = -largest, largest
    elif np.dtype(dtype).kind in 'iu':
        low, high = int(np.iinfo(dtype).min), int(np.iinfo(dtype).max)
    else:
        return None
    return max(low, -(1 << 63)), min(high, (1 << 63) - 1)


SEED = 'seed'
#: Bits of a uniform number by dtype: as many as all numbers below 1 have without rounding.
UNIFORM_BITS = {'float32': 24, 'float16': 11, 'bfloat16': 8, 'float64': 24}
DISTRIBUTIONS = ('normal', 'uniform')
_MASK = 0xFFFFFFFF


@dataclass(frozen=True)
class NoiseFeed(NumberedFeed):
    """'normal' or 'uniform' (0 to below 1) random numbers per run; a reset repeats them."""

    distribution: str
    seed: int
    kind = 'noise'
    form = 'noise:normal'
    settings = (SEED,)

    @classmethod
    def parse(cls, text: str, source: str) -> tuple[tuple[str, ...], tuple[str, ...]]:
        if source not in DISTRIBUTIONS:
            raise ParameterError(
                f'Unknown distribution {source!r} of the binding {text!r} in inputs.',
                remedy='Write noise:normal or noise:uniform.',
            )
        return (source,), ()

    @classmethod
    def bind(cls, binding: Binding, spec: TensorSpec, outputs: Sequence[TensorSpec]) -> Feed:
        seed = binding.settings.get(SEED, '0')
        if not (seed.isdecimal() and len(seed) <= 20 and int(seed) < 1 << 64):
            remedy = 'Set it to an integer from 0 to 2**64 - 1.'
            raise invalid_setting(SEED, spec.name, seed, remedy)
        if spec.dtype not in UNIFORM_BITS:
            raise TensorMismatchError(
                f'The network input {spec} cannot hold noise.',
                cause=f'Noise is of {", ".join(UNIFORM_BITS)}.',
                remedy='Bind the input to a tensor topic, or export it as float32.',
            )
        return cls(spec.with_ones(), 0, binding.sources[0], int(seed))

    def values(self, number: int) -> np.ndarray:
        """Return the numbers of a run, float32; those of float16 and bfloat16 are rounded."""
        count = math.prod(self.spec.shape)
        blocks = np.arange(-(-count // 4), dtype=np.uint64)
        counter = (blocks, 0, number & _MASK, number >> 32)
        words = philox(counter, (self.seed & _MASK, self.seed >> 32))
        if self.distribution == 'uniform':
            bits = UNIFORM_BITS[self.spec.dtype]
            scale = np.float32(2.0**-bits)
            found = [(word >> (32 - bits)).astype(np.float32) * scale for word in words]
        else:
            found = [*_normal(words[0], words[1]), *_normal(words[2], words[3])]
        return np.stack(found, axis=-1).reshape(-1)[:count].reshape(self.spec.shape)


def philox(counter: Sequence[Any], key: Sequence[int]) -> tuple[Any, ...]:
    """Return 4 random words of 32 bits per counter: Philox4x32-10 (Salmon et al., SC 2011)."""
    a, b, c, d = counter
    low, high = key
    for _ in range(10):
        left, right = a * 0xD2511F53, c * 0xCD9E8D57
        a, b, c, d = (right >> 32) ^ b ^ low, right & _MASK, (left >> 32) ^ d ^ high, left & _MASK
        low, high = (low + 0x9E3779B9) & _MASK, (high + 0xBB67AE85) & _MASK
    return a, b, c, d


def _normal(first: np.ndarray, second: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    """
    Return two standard normal numbers per pair of words, by Box and Muller.

    Of operations that IEEE 754 rounds exactly, in the order of generate.cu.
    """
    f = np.float32
    # The logarithm of (0, 1]: 2**exponent times sqrt(1/2) to sqrt(2), whose part is 2 atanh(s).
    bits = ((first >> 8) + 1).astype(f).view(np.int32)
    exponent = (bits - 0x3F3504F3) >> 23
    part = (bits - (exponent << 23)).view(f)
    s = (part - f(1)) / (part + f(1))
    series = _polynomial(s * s, f(2) / f(9), f(2) / f(7), f(2) / f(5), f(2) / f(3), f(2)) * s
    log = (24 - exponent).astype(f) * f(math.log(2)) - series
    radius = np.sqrt(f(2) * log)
    # The angle: a quarter, and at most 1/8 of the circle to either side.
    turn = (second >> 8).astype(np.int32)
    quarter = (turn + (1 << 21)) >> 22
    angle = (turn - (quarter << 22)).astype(f) * f(math.pi / (1 << 23))
    z = angle * angle
    of = [f((-1) ** (n // 2)) / f(math.factorial(n)) for n in range(10)]
    cos = _polynomial(z, of[8], of[6], of[4], of[2], f(1))
    sin = _polynomial(z, of[9], of[7], of[5], of[3], f(1)) * angle
    is_odd = quarter & 1 == 1
    x, y = np.where(is_odd, sin, cos), np.where(is_odd, cos, sin)
    x, y = np.where((quarter + 1) & 2, -x, x), np.where(quarter & 2, -y, y)
    return radius * x, radius * y


def _polynomial(z: np.ndarray, *factors: np.float32) -> np.ndarray:
    total: np.ndarray = factors[0] * z + factors[1]
    for factor in factors[2:]:
        total = total * z + factor
    return total
