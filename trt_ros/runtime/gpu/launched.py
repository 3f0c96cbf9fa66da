"""The last run of a slot, which most runs repeat."""

from collections.abc import Sequence
from dataclasses import dataclass
from functools import cached_property
from typing import NamedTuple

import numpy as np

from trt_ros.runtime.gpu.batch_buffers import BatchBuffers
from trt_ros.runtime.gpu.captured_graph import CapturedGraph
from trt_ros.runtime.gpu.staging import Piece, Source
from trt_ros.tensors import Arrays
from trt_ros.vision.letterbox import Letterbox
from trt_ros.vision.thresholds import Thresholds

Key = tuple[object, ...]


@dataclass(frozen=True)
class Launched:
    """
    A run, whose memory is valid until the slot's next start.

    :param letterboxes: placement of each image that has a result of its own.
    :param zero_copy_frames: number of these, where nothing is copied on the host; else 0.
    """

    buffers: BatchBuffers
    captured: CapturedGraph
    letterboxes: Sequence[Letterbox]
    zero_copy_frames: int

    @cached_property
    def outputs(self) -> Arrays:
        """Views of the raw outputs, for a CPU decoder; the slot reuses their memory."""
        return self.buffers.outputs(self.captured.memory.results.view)


class LastRun(NamedTuple):
    """
    The last run, whose thresholds are in the slot's memory; most runs repeat it.

    :param images: key of its images; `key` is that of all its sources.
    :param pieces: the copies of its images.
    :param tensors: pinned memory of its tensors; None where they need more than a copy to there.
    """

    thresholds: Thresholds
    images: Key
    key: Key
    launched: Launched
    pieces: Sequence[Piece]
    tensors: Arrays | None

    def takes(self, thresholds: Thresholds, tensors: Arrays) -> bool:
        """Copy tensors into the pinned memory; return False for those of another kind of run."""
        if thresholds is not self.thresholds or self.tensors is None:
            return False
        for name, memory in self.tensors.items():
            tensor = tensors[name]
            if (
                type(tensor) is not np.ndarray
                or tensor.shape != memory.shape
                or tensor.dtype != memory.dtype
            ):
                return False
            memory[...] = tensor
        return True


def memory_of(
    captured: CapturedGraph, sources: Sequence[Source], tensors: Arrays
) -> Arrays | None:
    """
    Return the pinned memory of small tensors that come as they are; None for others.

    :param sources: those of images, and of the tensors in their order.
    """
    first = len(sources) - len(tensors)
    if not all(each.is_small_tensor and each.data is not None for each in sources[first:]):
        return None
    offsets = {each.index - first: each.pinned for each in captured.pieces}
    view = captured.memory.pinned.view
    return {
        name: view[offsets[i] : offsets[i] + tensor.nbytes]
        .view(tensor.dtype)
        .reshape(tensor.shape)
        for i, (name, tensor) in enumerate(tensors.items())
    }
