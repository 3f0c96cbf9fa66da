"""Inputs that are outputs of the previous run."""

from collections.abc import Sequence
from dataclasses import dataclass, field
import math
from typing import Any

import numpy as np

from trt_ros.errors import ParameterError, TensorMismatchError
from trt_ros.model.feeds.base import INITIAL, Binding, Feed, Given
from trt_ros.model.feeds.constant import read_value
from trt_ros.tensors import Arrays, Shape, TensorSpec
from trt_ros.vision.letterbox import Letterbox


@dataclass(frozen=True)
class StateFeed(Feed):
    """An output of the previous run, of fixed shape; `first` in the first run after a reset."""

    spec: TensorSpec
    output: str
    first: np.ndarray = field(compare=False)
    kind = 'state'
    form = 'state:OUTPUT'
    settings = (INITIAL,)
    is_name = True
    has_memory = True

    @classmethod
    def output_of(cls, sources: Sequence[str]) -> str:
        return sources[0]

    @classmethod
    def size_of(cls, binding: Binding, outputs: Sequence[TensorSpec]) -> int | None:
        shape = next(each.shape for each in outputs if each.name == binding.sources[0])
        return math.prod(map(abs, shape))

    @classmethod
    def bind(cls, binding: Binding, spec: TensorSpec, outputs: Sequence[TensorSpec]) -> Feed:
        """Return the feed of a state; a dynamic dimension, the batch on any axis, is 1."""
        source = next(each for each in outputs if each.name == binding.sources[0])
        if not cls.can_be(spec, source):
            raise ParameterError(
                f'The state {spec} cannot come from the output {source}.',
                cause='A state and its output have the same shape, with one dynamic dimension at '
                'most (the batch, which is 1), and the same dtype.',
                remedy='Export the network so, or bind the input to a tensor topic.',
            )
        spec = spec.with_ones()
        return cls(spec, source.name, read_value(binding.settings.get(INITIAL, '0'), spec))

    @staticmethod
    def can_be(spec: TensorSpec, output: TensorSpec) -> bool:
        """Return whether an input can be the state that an output gives."""
        return (
            spec.shape.count(-1) <= 1
            and spec.dtype == output.dtype
            and len(spec.shape) == len(output.shape)
            and all(-1 in pair or pair[0] == pair[1] for pair in zip(spec.shape, output.shape))
        )

    def refuse_other_shape(self, shape: Shape) -> None:
        """Raise TensorMismatchError if an output of a run has another shape than the state."""
        if shape != self.spec.shape:
            raise TensorMismatchError(
                f'The output {self.output} became {shape}, but is the state {self.spec}.',
                cause='The size of a state is the same in all runs.',
                remedy='Export the network with a state of a fixed size.',
            )

    def describe(self, name: str) -> str:
        return f'{name}: state, output {self.output} of the previous run'

    def initial(self) -> np.ndarray:
        return self.first

    def stage(self, given: Given) -> tuple[np.ndarray, Sequence[Letterbox]]:
        return given.memory, ()

    def keep(self, outputs: Arrays, memory: Any, staged: np.ndarray) -> np.ndarray:
        """Return the output; raises TensorMismatchError when it has another shape."""
        output = outputs[self.output]
        self.refuse_other_shape(output.shape)
        return output
