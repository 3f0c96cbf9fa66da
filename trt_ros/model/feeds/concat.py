"""Inputs that are joined from several parts, each with a binding of its own."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
import math

import numpy as np

from trt_ros.errors import ParameterError, TensorMismatchError
from trt_ros.model.feeds.base import Binding, Feed, empty_source
from trt_ros.model.feeds.tensor import TensorFeed
from trt_ros.tensors import Arrays, TensorSpec, as_tensor


@dataclass(frozen=True)
class ConcatFeed(Feed):
    """The elements of several parts of the network input `spec`, one after another."""

    spec: TensorSpec
    parts: tuple[str, ...]
    kind = 'concat'
    form = 'concat:PART,PART'

    @classmethod
    def parse(cls, text: str, source: str) -> tuple[tuple[str, ...], tuple[str, ...]]:
        parts = tuple(part.strip() for part in source.split(','))
        if not all(parts):
            raise empty_source(text)
        if len(set(parts)) < len(parts):
            raise ParameterError(
                f'The binding {text!r} in inputs has a part twice.',
                remedy='Give each part a name and a binding of its own.',
            )
        return parts, ()

    @classmethod
    def bind(cls, binding: Binding, spec: TensorSpec, outputs: Sequence[TensorSpec]) -> Feed:
        shape = (*map(abs, spec.shape[:1]), *spec.shape[1:])
        return cls(replace(spec, shape=shape), binding.sources)

    def joined(self, feeds: Mapping[str, Feed]) -> Feed:
        """Return the feed; raises TensorMismatchError when a part has no fixed size."""
        for part in self.parts:
            shape = feeds[part].full_shape or getattr(feeds[part].array, 'shape', None)
            if shape is None or min(shape, default=1) < 0:
                raise TensorMismatchError(
                    f'The part {part!r} of the network input {self.spec} has no fixed size.',
                    remedy='Name its elements in inputs, as in linear[x,y,z].',
                )
        return self

    def describe(self, name: str) -> str:
        return f'{name}: {", ".join(self.parts)}, one after another'

    def concatenate(self, staged: Arrays) -> np.ndarray:
        """Return the network's input from those of its parts, of any dtype."""
        flat = np.concatenate([staged[part].reshape(-1) for part in self.parts])
        return as_tensor(self.spec, flat.reshape(self.spec.shape))


class PartsOfInputs:
    """The feeds whose network inputs are joined from parts, of all `feeds`."""

    def __init__(self, feeds: Mapping[str, Feed]) -> None:
        self._joined = {name: each for name, each in feeds.items() if isinstance(each, ConcatFeed)}
        self._parts = {part for feed in self._joined.values() for part in feed.parts}
        #: Parts that are arrays as they come, converted when they are joined.
        self.plain = {
            part
            for part in self._parts
            if isinstance(feed := feeds[part], TensorFeed)
            and not (feed.has_memory or feed.padding)
        }

    def without_joined(self, feeds: Mapping[str, Feed]) -> dict[str, Feed]:
        """Return the feeds that are staged one by one."""
        return {name: feed for name, feed in feeds.items() if name not in self._joined}

    def join(self, staged: Arrays) -> Arrays:
        """Return the network's inputs from what was staged."""
        if not self._joined:
            return staged
        inputs = {name: array for name, array in staged.items() if name not in self._parts}
        return inputs | {name: feed.concatenate(staged) for name, feed in self._joined.items()}


def sizes_of_parts(
    spec: TensorSpec, parts: Sequence[str], known: Mapping[str, int | None]
) -> dict[str, int]:
    """Return the number of elements of each part, of which one may be unknown; or raise."""
    count = math.prod((*map(abs, spec.shape[:1]), *spec.shape[1:]))
    unknown = [part for part in parts if known[part] is None]
    found = {part: known[part] or 0 for part in parts}
    rest = count - sum(found.values())
    if len(unknown) > 1 or count < 0:
        raise TensorMismatchError(
            f'The sizes of the parts {", ".join(unknown or parts)} of the network input {spec} '
            'are unknown.',
            remedy='Name their elements in inputs, as in linear[x,y,z].'
            if count >= 0
            else 'Export the network with fixed sizes.',
        )
    if unknown and rest > 0:
        found[unknown[0]] = rest
    elif rest or unknown:
        sizes = ', '.join(f'{part} {size or "?"}' for part, size in found.items())
        raise TensorMismatchError(
            f'The network takes {spec}, but its parts have {count - rest} elements.',
            cause=f'They are {sizes}.',
            remedy='Bind as many elements as the network input has, in its order.',
        )
    return found
