"""A run that a slot has launched."""

from collections.abc import Sequence
from dataclasses import dataclass
from functools import cached_property

import numpy as np

from trt_ros.runtime.gpu.batch_buffers import BatchBuffers
from trt_ros.runtime.gpu.captured_graph import CapturedGraph
from trt_ros.tensors import Arrays
from trt_ros.vision.letterbox import Letterbox
from trt_ros.vision.thresholds import Thresholds


@dataclass(frozen=True)
class Launched:
    """
    A run, whose memory is valid until the slot's next start; most runs repeat the last one.

    :param thresholds: those in its memory; `key` is that of its sources.
    :param letterboxes: placement of each image that has a result of its own.
    :param zero_copy: whether nothing is copied on the host.
    :param tensors: pinned memory of its tensors, if to copy them to there is all that an equal run
        needs; else none.
    :param tensor_count: number of its tensors, with those that the graph does not take.
    """

    buffers: BatchBuffers
    captured: CapturedGraph
    thresholds: Thresholds
    key: tuple[object, ...]
    letterboxes: Sequence[Letterbox]
    zero_copy: bool
    tensors: Arrays
    tensor_count: int

    def takes(self, tensors: Arrays) -> bool:
        """Copy tensors into the pinned memory; return False for those of another kind of run."""
        if len(tensors) != self.tensor_count:
            return False
        for name, memory in self.tensors.items():
            tensor = tensors.get(name)
            if (
                type(tensor) is not np.ndarray
                or tensor.shape != memory.shape
                or tensor.dtype != memory.dtype
            ):
                return False
            memory[...] = tensor
        return bool(self.tensors)

    @cached_property
    def outputs(self) -> Arrays:
        """Views of the raw outputs, for a CPU decoder; the slot reuses their memory."""
        return self.buffers.outputs(self.captured.memory.results.view)
