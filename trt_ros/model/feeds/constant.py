"""Inputs that are equal in all runs."""

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

from trt_ros.model.array_files import parse_path
from trt_ros.model.feeds.base import Binding, Feed, Given
from trt_ros.model.feeds.values import read_value
from trt_ros.tensors import Shape, TensorSpec
from trt_ros.vision.letterbox import Letterbox


@dataclass(frozen=True, eq=False)
class ConstantFeed(Feed):
    """A value that is equal in all runs, repeated for each image if `is_per_image`."""

    value: np.ndarray
    is_per_image: bool = True
    kind = 'constant'
    form = 'constant:VALUE'

    @classmethod
    def size_of(cls, binding: Binding, outputs: Sequence[TensorSpec]) -> int | None:
        """Return how many numbers are written; None for a single one or a file."""
        text = binding.sources[0]
        return text.count(',') + 1 if ',' in text and parse_path(text) is None else None

    @classmethod
    def bind(cls, binding: Binding, spec: TensorSpec, outputs: Sequence[TensorSpec]) -> Feed:
        """Return the feed of a number, of numbers, or of a .npy file; see read_value."""
        value = read_value(binding.sources[0], spec)
        value.flags.writeable = False
        return cls(value, is_per_image=spec.shape[:1] == (-1,) and len(value) == 1)

    def describe(self, name: str) -> str:
        """Return a line for the log."""
        return f'{name}: constant of shape {self.value.shape}'

    @property
    def full_shape(self) -> Shape | None:
        """Shape of the value; None where each image has it."""
        return None if self.is_per_image else self.value.shape

    def of(self, rows: int) -> np.ndarray:
        """Return the value of a run with this batch size."""
        return self.value.repeat(rows, axis=0) if self.is_per_image and rows > 1 else self.value

    def stage(self, given: Given) -> tuple[np.ndarray, Sequence[Letterbox]]:
        """Return the value of each row; see Feed.stage."""
        return self.of(given.rows), ()
