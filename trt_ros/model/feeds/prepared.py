"""Images that are preprocessed on the CPU: held ones, and histories."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from operator import is_
from typing import Any

import numpy as np

from trt_ros.model.feeds.base import Binding, Given
from trt_ros.model.feeds.history import HISTORY, History
from trt_ros.model.feeds.image import ImageFeed
from trt_ros.model.feeds.tensor import HeldFeed, HistoryFeed, TensorFeed
from trt_ros.tensors import Shape, TensorSpec
from trt_ros.vision.frame import Frame


def is_prepared(binding: Binding | None) -> bool:
    """Return whether a binding to images is that of an array, see `prepared`."""
    return binding is not None and (binding.is_held or HISTORY in binding.settings)


@dataclass(frozen=True)
class PreparedFeed(TensorFeed):
    """An array that runs give as images; `spec` is that of the images of one run."""

    image: ImageFeed = field(kw_only=True)

    def zeros(self) -> Any:
        return [self.image.example()] * self.image.image_count

    def staged(self, frames: Sequence[Frame]) -> np.ndarray:
        """Return preprocessed images in the shape of `spec`."""
        return self.image.stage(Given(1, frames))[0].reshape(self.spec.shape)


@dataclass(frozen=True)
class HeldImageFeed(PreparedFeed, HeldFeed):
    """Images that stay the same in many runs, and then cost nothing."""

    def check(self, value: Any) -> np.ndarray:
        """Return the preprocessed images; the same object for the same frames."""
        frames = self.image.frames_of(self.spec.name, value)
        for _, last, array in self._last:
            if all(map(is_, frames, last)):
                return array
        array = self.staged(frames)
        array.flags.writeable = False
        self._last[:] = [(None, frames, array)]
        return array


@dataclass(frozen=True)
class ImageHistoryFeed(PreparedFeed, HistoryFeed):
    """The images of the last runs."""

    def check(self, value: Any) -> np.ndarray:
        return self.staged(self.image.frames_of(self.spec.name, value))


def prepared(
    image: ImageFeed, settings: Mapping[str, str], spec: TensorSpec, stack: Shape
) -> PreparedFeed:
    """Return the feed of a binding that `is_prepared`, of the feed and stack of its images."""
    shape = (*(stack or (1,)), *image.preprocess.shape[1:])
    spec = replace(spec, shape=shape)
    if spec.dtype == 'bfloat16':  # Rounded later.
        image = replace(image, preprocess=replace(image.preprocess, dtype='float32'))
    history = History.parse(settings, spec)
    if history is None:
        return HeldImageFeed(spec, image=image)
    return ImageHistoryFeed(history.value(spec), image=image, history=history)
