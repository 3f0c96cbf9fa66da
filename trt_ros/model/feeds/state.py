"""Inputs that are outputs of the previous run."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace

import numpy as np

from trt_ros.errors import ParameterError
from trt_ros.model.feeds.base import Binding, Feed, Given, empty_source
from trt_ros.tensors import TensorSpec, host_dtype
from trt_ros.vision.letterbox import Letterbox


@dataclass(frozen=True)
class StateFeed(Feed):
    """
    An output of the previous run; zeros in the first run and after a reset.

    :param spec: the network input, of fixed shape.
    """

    spec: TensorSpec
    output: str
    kind = 'state'
    form = 'state:OUTPUT'
    has_memory = True

    @classmethod
    def parse(cls, text: str, source: str) -> tuple[tuple[str, ...], tuple[str, ...]]:
        """Return the name of the output, which may contain any character; see Feed.parse."""
        if not source:
            raise empty_source(text)
        return (source,), ()

    @classmethod
    def output_of(cls, sources: Sequence[str]) -> str:
        """Return the output that becomes the state."""
        return sources[0]

    @classmethod
    def bind(cls, binding: Binding, spec: TensorSpec, outputs: Sequence[TensorSpec]) -> Feed:
        """
        Return the feed of a state, whose input has a fixed shape: a dynamic batch counts as 1.

        :raises ParameterError: when the output is not of the input's shape and dtype.
        """
        source = next(each for each in outputs if each.name == binding.sources[0])
        shape = (1, *spec.shape[1:]) if spec.shape[:1] == (-1,) else spec.shape
        fits = len(shape) == len(source.shape) and all(
            -1 in pair or pair[0] == pair[1] for pair in zip(shape, source.shape)
        )
        if -1 in shape or not fits or spec.dtype != source.dtype:
            raise ParameterError(
                f'The state {spec} cannot come from the output {source}.',
                cause='A state has a fixed shape, which its output has too, and the same dtype.',
                remedy='Export the network so, or bind the input to a tensor topic.',
            )
        return cls(replace(spec, shape=shape), source.name)

    def describe(self, name: str) -> str:
        """Return a line for the log."""
        return f'{name}: state, output {self.output} of the previous run'

    def initial(self) -> np.ndarray:
        """Return zeros."""
        return np.zeros(self.spec.shape, host_dtype(self.spec))

    def stage(self, given: Given) -> tuple[np.ndarray, Sequence[Letterbox]]:
        """Return the output of the previous run; see Feed.stage."""
        return given.memory, ()

    def keep(self, outputs: Mapping[str, np.ndarray]) -> np.ndarray:
        """Return a copy of the output."""
        return np.array(outputs[self.output])
