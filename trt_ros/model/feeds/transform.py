"""Inputs that are transforms between coordinate frames."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
import math
import re

import numpy as np

from trt_ros.errors import ParameterError, TensorMismatchError, meant
from trt_ros.model.feeds.arithmetic import ARITHMETIC, Arithmetic
from trt_ros.model.feeds.base import INITIAL, Binding, Feed
from trt_ros.model.feeds.constant import read_value
from trt_ros.model.feeds.message import parse_fields
from trt_ros.model.feeds.tensor import TensorFeed
from trt_ros.tensors import TensorSpec

#: The numbers of a transform, one behind the other, and the names of a field's elements.
FIELDS: Mapping[str, tuple[str, ...]] = {
    'matrix': tuple(map(str, range(16))),
    'translation': ('x', 'y', 'z'),
    'rotation': ('x', 'y', 'z', 'w'),
}
_FRAME = re.compile(r'[A-Za-z0-9_./-]+')


@dataclass(frozen=True)
class TransformFeed(TensorFeed):
    """Numbers of the transforms from frames to a target frame, one frame after another."""

    target: str = ''
    frames: tuple[str, ...] = ()
    indices: tuple[int, ...] = ()
    kind = 'tf'
    form = 'tf:TARGET,FRAME#FIELD[ELEMENT,..]'
    settings = (INITIAL, *ARITHMETIC)

    @classmethod
    def parse(cls, text: str, source: str) -> tuple[tuple[str, ...], tuple[str, ...]]:
        """Return the source, and no topics; see Feed.parse."""
        frames = [each.strip() for each in source.partition('#')[0].split(',')]
        if len(frames) < 2 or not all(map(_FRAME.fullmatch, frames)):
            raise ParameterError(
                f'The binding {text!r} in inputs has no two frames.',
                cause='A transform leads to a target frame, from each of the frames after it.',
                remedy='Write INPUT=tf:base_link,camera or the like.',
            )
        _indices(source.partition('#')[2])
        return (source,), ()

    @classmethod
    def serves_others(cls, sources: Sequence[str]) -> bool:
        """Return False: transforms have no names of network inputs."""
        return False

    @classmethod
    def bind(cls, binding: Binding, spec: TensorSpec, outputs: Sequence[TensorSpec]) -> Feed:
        """Return the feed; raises TensorMismatchError when the input takes another size."""
        frames, _, fields = binding.sources[0].partition('#')
        target, *others = (each.strip() for each in frames.split(','))
        indices = _indices(fields)
        count = len(indices) * len(others)
        known = math.prod(size for size in spec.shape if size > 0)
        if count % known if spec.is_dynamic else count != known:
            raise TensorMismatchError(
                f'The network input {spec} is bound to {count} numbers.',
                cause=f'{len(indices)} numbers of each of the frames {", ".join(others)}.',
                remedy=f'Choose another field ({", ".join(FIELDS)}), elements or frames.',
            )
        first = binding.settings.get(INITIAL)
        return cls(
            spec,
            Arithmetic.parse(binding.settings, spec),
            None if first is None else read_value(first, spec),
            target=target,
            frames=tuple(others),
            indices=indices,
        )

    @property
    def details(self) -> str:
        """Frames, and the treatment of the numbers; see Feed.details."""
        return f', {", ".join(self.frames)} to {self.target}{super().details}'

    def describe(self, name: str) -> str:
        """Return a line for the log."""
        return f'{name}: transforms{self.details}'

    def numbers(
        self, matrix: np.ndarray, translation: np.ndarray, rotation: np.ndarray
    ) -> np.ndarray:
        """
        Return the numbers of a transform that the input gets, float64.

        :param matrix: of the rotation, (3, 3); `rotation`: the same as x, y, z, w.
        :param translation: (3,) in meters.
        """
        whole = np.eye(4)
        whole[:3, :3], whole[:3, 3] = matrix, translation
        found: np.ndarray = np.concatenate([whole.ravel(), translation, rotation])
        return found[list(self.indices)]


def _indices(fields: str) -> tuple[int, ...]:
    found: list[int] = []
    for field, elements in parse_fields(fields or 'matrix'):
        names = FIELDS.get(field)
        if names is None or not set(elements) <= set(names):
            raise ParameterError(
                f'A transform in inputs has no {field}{list(elements) if names else ""}.',
                remedy=f'{meant(field, FIELDS)}Write one of '
                f'{", ".join(f"{name}[{values[0]},..]" for name, values in FIELDS.items())}.',
            )
        start = sum(len(FIELDS[name]) for name in list(FIELDS)[: list(FIELDS).index(field)])
        found += [start + names.index(each) for each in elements or names]
    return tuple(found)
