"""Inputs that mark the part of a padded input that a run gave: masks and counts."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
import math
from typing import Any

import numpy as np

from trt_ros.errors import ParameterError, TensorMismatchError, meant
from trt_ros.model.feeds.base import Binding, Feed
from trt_ros.model.feeds.constant import read_value
from trt_ros.model.feeds.padding import CAPACITY, PAD, Padding
from trt_ros.model.feeds.tensor import TensorFeed
from trt_ros.tensors import TensorSpec, checked_tensor


@dataclass(frozen=True)
class RowsFeed(TensorFeed):
    """
    A function of the number of rows of a padded input in the same run.

    :param origin: name of the padded input.
    :param given: settings of the binding.
    :param rows: the input that runs give, and `axis` its dynamic dimension; None until `joined`.
    """

    origin: str = ''
    given: Mapping[str, str] = field(default_factory=dict)
    rows: TensorSpec | None = None
    axis: int = 0
    is_name = True

    parse = Feed.parse

    @classmethod
    def bind(cls, binding: Binding, spec: TensorSpec, outputs: Sequence[TensorSpec]) -> Feed:
        return cls(spec, origin=binding.sources[0], given=binding.settings)

    def joined(self, feeds: Mapping[str, Feed]) -> Feed:
        feed = feeds.get(self.origin)
        if not isinstance(feed, TensorFeed) or feed.padding is None or feed.origin:
            raise ParameterError(
                f'The {self.kind} {self.spec.name!r} is that of {self.origin!r}, which is not a '
                f'network input with a {CAPACITY}.',
                remedy=f'{meant(self.origin, feeds)}Name an input whose binding sets {CAPACITY}.',
            )
        axes = [axis for axis, size in enumerate(feed.spec.shape) if size < 0]
        if len(axes) != 1:
            raise ParameterError(
                f'The {self.kind} {self.spec.name!r} is that of {feed.spec}, in which '
                f'{len(axes)} sizes differ between runs.',
                remedy=f'Bind the input to a tensor, or set {CAPACITY} to 1 in other dimensions.',
            )
        spec = self.of_capacity(feed.padding.spec.shape[axes[0]])
        padding = Padding.of(spec, self.given)
        return replace(self, spec=spec, padding=padding, rows=feed.spec, axis=axes[0])

    def of_capacity(self, capacity: int) -> TensorSpec:
        """Return the network input in its fixed shape, or raise TensorMismatchError."""
        raise NotImplementedError

    def values(self, count: int) -> np.ndarray:
        """Return the array of a run with so many rows, not padded."""
        raise NotImplementedError

    def describe(self, name: str) -> str:
        return f'{name}: {self.kind} of the rows of {self.origin}'

    def check(self, value: Any) -> np.ndarray:
        assert self.rows is not None
        return self.values(checked_tensor(self.rows, value).shape[self.axis])


class MaskFeed(RowsFeed):
    """One element per row of a padded input, which differs between rows and padding."""

    kind = 'mask'
    form = 'mask:INPUT'
    settings = (PAD,)

    def of_capacity(self, capacity: int) -> TensorSpec:
        """Return the network input with one element per row: the last dynamic dimension."""
        shape = [*self.spec.with_ones().shape]
        if self.spec.is_dynamic:
            last = max(axis for axis, size in enumerate(self.spec.shape) if size < 0)
            shape[last] = max(capacity // max(math.prod(shape), 1), 1)
        if not math.prod(shape) == max(shape, default=1) == capacity:
            raise TensorMismatchError(
                f'The network input {self.spec} cannot be the mask of {capacity} rows.',
                cause=f'A mask has one element per row, and the {CAPACITY} is {capacity}.',
                remedy=f'Set another {CAPACITY}, or bind the input to a tensor.',
            )
        return replace(self.spec, shape=tuple(shape))

    def values(self, count: int) -> np.ndarray:
        shape = list(self.spec.shape)
        shape[int(np.argmax(shape))] = count
        return np.full(shape, PAD not in self.given, np.uint8)


class CountFeed(RowsFeed):
    """The number of rows of a padded input."""

    kind = 'count'
    form = 'count:INPUT'
    settings = ()

    def of_capacity(self, capacity: int) -> TensorSpec:
        """Return the network input with one element, which can hold the capacity."""
        spec = self.spec.with_ones()
        if math.prod(spec.shape) != 1:
            raise TensorMismatchError(
                f'The network input {self.spec} cannot be a count.',
                cause='A count is one number.',
                remedy='Bind the input to a tensor or to a mask.',
            )
        read_value(str(capacity), spec)
        return spec

    def values(self, count: int) -> np.ndarray:
        return np.full(self.spec.shape, count)
