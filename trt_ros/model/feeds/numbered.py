"""Inputs that depend on the number of the run since the last reset alone."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
import re

import numpy as np

from trt_ros.errors import ParameterError, TensorMismatchError
from trt_ros.model.feeds.base import Binding, Feed, Given
from trt_ros.tensors import Shape, TensorSpec, as_tensor
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
        """Return a line for the log."""
        return f'{name}: {self.kind} of shape {self.spec.shape}'

    @property
    def full_shape(self) -> Shape:
        """Shape of the network input."""
        return self.spec.shape

    def initial(self) -> int:
        """Return the number of the first run."""
        return self.first

    def stage(self, given: Given) -> tuple[np.ndarray, Sequence[Letterbox]]:
        """Return the values of the run; see Feed.stage."""
        return as_tensor(self.spec, self.values(given.memory)), ()

    def keep(self, outputs: Mapping[str, np.ndarray], memory: int, staged: np.ndarray) -> int:
        """Return the number of the next run."""
        return memory + 1


@dataclass(frozen=True)
class CounterFeed(NumberedFeed):
    """The number of the run, in all elements; `largest` of the dtype stays."""

    largest: int
    kind = 'counter'
    form = 'counter:FIRST'

    @classmethod
    def parse(cls, text: str, source: str) -> tuple[tuple[str, ...], tuple[str, ...]]:
        """Return the first number as written, and no topics; see Feed.parse."""
        if not re.fullmatch(r'-?\d{1,19}', source):
            raise ParameterError(
                f'The counter of the binding {text!r} in inputs does not begin with an integer.',
                remedy='Write counter:0.',
            )
        return (source,), ()

    @classmethod
    def bind(cls, binding: Binding, spec: TensorSpec, outputs: Sequence[TensorSpec]) -> Feed:
        """Return the feed; raises TensorMismatchError when the input cannot hold FIRST."""
        limits = _limits(spec.dtype)
        first = int(binding.sources[0])
        if limits is None or not limits[0] <= first <= limits[1]:
            raise TensorMismatchError(
                f'The network input {spec} cannot hold the counter {first}.',
                remedy='Bind a number in the range of an integer or floating-point input.',
            )
        return cls(with_ones(spec), first, limits[1])

    def values(self, number: int) -> np.ndarray:
        """Return the number in all elements."""
        return np.full(self.spec.shape, min(number, self.largest), np.int64)


def with_ones(spec: TensorSpec) -> TensorSpec:
    """Return a network input whose dynamic dimensions are 1."""
    return replace(spec, shape=tuple(1 if size < 0 else size for size in spec.shape))


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
