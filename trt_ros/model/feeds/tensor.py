"""Inputs that are arrays of messages or programs."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

from trt_ros.errors import ParameterError, TensorMismatchError
from trt_ros.model.feeds.base import MAX_AGE, Binding, Feed, Given, parse_topic
from trt_ros.tensors import TensorSpec, host_dtype
from trt_ros.vision.letterbox import Letterbox


@dataclass(frozen=True)
class TensorFeed(Feed):
    """An array of the shape of `spec`, converted to its dtype."""

    spec: TensorSpec
    kind = 'tensor'
    form = 'tensor:TOPIC#TENSOR'
    settings = (MAX_AGE,)

    @classmethod
    def parse(cls, text: str, source: str) -> tuple[tuple[str, ...], tuple[str, ...]]:
        """Return 'TOPIC' or 'TOPIC#TENSOR', and the topic; see Feed.parse."""
        topic, number_sign, name = (part.strip() for part in source.partition('#'))
        if number_sign and not name:
            raise ParameterError(
                f'The binding {text!r} in inputs has an empty tensor name.',
                remedy='Write TOPIC#TENSOR, or TOPIC alone.',
            )
        topic = parse_topic(text, topic)
        return (f'{topic}{number_sign}{name}',), (topic,)

    @classmethod
    def serves_others(cls, sources: Sequence[str]) -> bool:
        """Return whether the tensor has no name: each input takes that of its own name."""
        return '#' not in sources[0]

    @classmethod
    def bind(cls, binding: Binding, spec: TensorSpec, outputs: Sequence[TensorSpec]) -> Feed:
        """
        Return the feed of a tensor.

        :raises TensorMismatchError: when the input takes strings.
        """
        if spec.dtype == 'object':
            raise TensorMismatchError(
                f'The network input {spec.name} takes strings, which no message of tensors has.',
                remedy='Export the part of the network that takes numbers.',
            )
        return cls(spec)

    def describe(self, name: str) -> str:
        """Return a line for the log."""
        return f'tensor {self.spec}'

    @property
    def array(self) -> TensorSpec:
        """The network input."""
        return self.spec

    def stage(self, given: Given) -> tuple[np.ndarray, Sequence[Letterbox]]:
        """Return the array converted to the network's dtype; see Feed.stage."""
        assert given.array is not None
        target = np.empty(given.array.shape, host_dtype(self.spec))
        write_tensor(target, self.spec, given.array)
        return target, ()


def checked_tensor(spec: TensorSpec, value: Any) -> np.ndarray:
    """
    Return an array that can become a tensor.

    :raises TensorMismatchError: when it has another shape, or values that would change.
    """
    if not isinstance(value, np.ndarray):
        raise TensorMismatchError(
            f'The network input {spec} takes an array, but got {type(value).__name__}.'
        )
    if len(value.shape) != len(spec.shape) or any(
        size not in (-1, actual) for size, actual in zip(spec.shape, value.shape)
    ):
        raise TensorMismatchError(
            f'The network takes {spec}, but {spec.name} came as '
            f'({", ".join(map(str, value.shape))}) {value.dtype}.'
        )
    if not _is_convertible(spec.dtype, value):
        raise TensorMismatchError(
            f'The network takes {spec}, but {spec.name} came as {value.dtype}.',
            cause='The conversion would change the values.',
            remedy=f'Send {spec.dtype}.',
        )
    return value


def _is_convertible(dtype: str, value: np.ndarray) -> bool:
    """Return whether `value` can become `dtype`: floats of any size, integers that fit, bool."""
    kind = value.dtype.kind
    if dtype == 'bfloat16' or np.dtype(dtype).kind == 'f':
        return kind in 'fiub'
    wanted = np.dtype(dtype)
    if wanted.kind == 'b':
        return kind in 'bu'
    if kind not in 'iub':
        return False
    if np.can_cast(value.dtype, wanted) or value.size == 0:
        return True
    limits = np.iinfo(wanted)
    return bool(value.min() >= limits.min and value.max() <= limits.max)


def write_tensor(target: np.ndarray, spec: TensorSpec, value: np.ndarray) -> None:
    """
    Convert an array that `split_inputs` returned into memory of the input's shape.

    :param target: of `host_dtype(spec)`, C-contiguous.
    :param value: of the same shape, any strides and byte order.
    :raises TensorMismatchError: when a finite value is beyond the range of the input's dtype.
    """
    try:
        with np.errstate(over='raise'):
            if spec.dtype != 'bfloat16':
                np.copyto(target, value, casting='unsafe')
                return
            bits = np.ascontiguousarray(value, np.float32).view(np.uint32)
    except FloatingPointError as error:
        raise TensorMismatchError(
            f'The network takes {spec}, but {spec.name} came as {value.dtype}.',
            cause=f'A value is beyond the range of {spec.dtype}.',
            remedy=f'Send values in the range of {spec.dtype}, or export a wider input.',
        ) from error
    # Round to nearest even; NaN stays NaN.
    rounded = (bits + 0x7FFF + ((bits >> 16) & 1)) >> 16
    np.copyto(target, np.where(value != value, 0x7FC0, rounded), casting='unsafe')
