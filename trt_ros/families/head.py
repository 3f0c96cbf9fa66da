"""Base class of the heads, which decode the outputs of a network by a reading of its family."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
import itertools
from typing import Any, Generic, TypeVar

import numpy as np

from trt_ros.errors import TensorMismatchError
from trt_ros.families.match import Reading, fitted
from trt_ros.tensors import Arrays, Shape
from trt_ros.vision.letterbox import Letterbox
from trt_ros.vision.thresholds import DEFAULT_THRESHOLDS, Thresholds

ResultT_co = TypeVar('ResultT_co', covariant=True)


@dataclass(frozen=True)
class Head(ABC, Generic[ResultT_co]):
    """
    Base class of the heads, which decode the outputs of one network.

    :param remedy: remedy of outputs of other shapes, one sentence.
    """

    reading: Reading[Any]
    remedy: str = ''
    _found: dict[Any, Any] = field(default_factory=dict, init=False, repr=False, compare=False)

    @property
    def class_count(self) -> int | None:
        """Number of classes; None: the network leaves it open, or has none."""
        return self.reading.class_count

    @property
    def takes_batches(self) -> bool:
        """Whether each output has an axis for the images of a batch."""
        return self.reading.takes_batches

    @property
    def counts_background(self) -> bool:
        """
        Return whether class 0 is the background where it is named first.

        It is asked only for a network of an unknown number of classes; a known number decides.
        """
        return False

    @property
    def keypoint_count(self) -> int | None:
        """Number of keypoints per object; None: the network leaves it open, or has none."""
        return self.reading.keypoint_count

    @property
    def finds_instances(self) -> bool:
        """Whether the result is `Instances`: objects with one mask each."""
        return False

    @property
    def takes_regions(self) -> bool:
        """Whether the input shows one object, which may be a region of an image."""
        return False

    @property
    def region_scale(self) -> float:
        """Factor on the regions that the network is trained with."""
        return 1.0

    @property
    def proposes_regions(self) -> bool:
        """Whether the result has regions for a further network."""
        return False

    @property
    def own_class_names(self) -> tuple[str, ...]:
        """Names of the classes, if they are equal for all networks of the family; else ()."""
        return ()

    @property
    def classes_by_output(self) -> Mapping[str, int | None]:
        """Numbers of classes of class masks by output, None: unknown; empty for other results."""
        return {}

    def names_by_output(self, class_names: Sequence[str]) -> dict[str, tuple[str, ...]]:
        """Divide the class names of all outputs, in order, among the outputs of masks."""
        names = iter(class_names)
        return {
            output: tuple(itertools.islice(names, count)) if class_names else ()
            for output, count in self.classes_by_output.items()
        }

    def with_confidence(self) -> Head[ResultT_co] | None:
        """Return the head that computes the confidence of each pixel, too; None if none does."""
        return None

    def __call__(
        self, outputs: Arrays, letterbox: Letterbox, thresholds: Thresholds = DEFAULT_THRESHOLDS
    ) -> ResultT_co:
        """
        Decode the outputs for one image into the task's result, in pixels of that image.

        Tasks without boxes ignore the thresholds.

        :param outputs: one array per output, batch size 1; float16 is decoded in float32.
        :param thresholds: limits of the results; scores equal to or above `score` pass.
        :raises TensorMismatchError: when an output is missing or of another shape.
        """
        return self.decode(outputs, letterbox, thresholds)

    @abstractmethod
    def decode(self, outputs: Arrays, letterbox: Letterbox, thresholds: Thresholds) -> ResultT_co:
        """Return the result; one per head, see `__call__`."""

    @property
    def output_name(self) -> str:
        """Name of the first output."""
        return self.names[0]

    @property
    def names(self) -> list[str]:
        """Names of the outputs, in the order of the layout."""
        return [part.spec.name for part in self.reading.parts]

    def resolve(self, outputs: Arrays, input_hw: tuple[int, int]) -> Any:
        """Return what `_fit` finds in the shapes of outputs of one image; or raise."""
        shapes = {name: require_output(outputs, name).shape for name in self.names}
        key = (input_hw, *shapes.values())
        if key not in self._found:
            batches = [
                shapes[part.spec.name][:1]
                for part in self.reading.parts
                if part.out.axes[0] == 'B'
            ]
            is_one = all(batch == (1,) for batch in batches)
            self._found[key] = self._fit(shapes, input_hw) if is_one else None
        if self._found[key] is None:
            raise self.mismatch(outputs, input_hw)
        return self._found[key]

    def _fit(self, shapes: Mapping[str, Shape], input_hw: tuple[int, int]) -> Any:
        """Return what the decoder needs to know about shapes; None if they do not fit."""
        return fitted(self.reading, shapes, input_hw)

    def arrays(self, outputs: Arrays, input_hw: tuple[int, int]) -> list[np.ndarray]:
        """Return the outputs of one image, in order, without their batch axes; or raise."""
        self.resolve(outputs, input_hw)
        return [
            np.asarray(
                outputs[part.spec.name][0] if part.out.axes[0] == 'B' else outputs[part.spec.name]
            )
            for part in self.reading.parts
        ]

    def cells(self, outputs: Arrays, input_hw: tuple[int, int]) -> np.ndarray:
        """Return the values of the first output for one image: (C, h, w); or raise."""
        found = self.arrays(outputs, input_hw)[0]
        if not found.size:
            raise self.mismatch(outputs, input_hw)
        if found.ndim == 2:
            return found[np.newaxis]
        is_last = not self.reading.parts[0].out.has_channels_first
        return found.transpose(2, 0, 1) if is_last else found

    def mismatch(self, outputs: Arrays, input_hw: tuple[int, int]) -> TensorMismatchError:
        """Return the error of outputs that the reading does not fit."""
        seen = ', '.join(f'{name} {np.shape(outputs[name])}' for name in self.names)
        height, width = input_hw
        return TensorMismatchError(
            f'The outputs do not fit the decoder: expected '
            f'{self.reading.layout.describe(input_hw)}, got {seen} for images of '
            f'{width}x{height}.',
            remedy=self.remedy,
        )


def require_output(outputs: Arrays, name: str) -> np.ndarray:
    """Return an output, or raise TensorMismatchError if it is missing."""
    if name not in outputs:
        raise TensorMismatchError(
            f'Output {name!r} does not exist.',
            cause=f'The outputs are {", ".join(outputs) or "none"}.',
        )
    return np.asarray(outputs[name])
