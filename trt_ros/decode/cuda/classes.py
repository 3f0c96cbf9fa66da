"""GPU decoder of classifiers: arguments for the kernel of classes.cu, and its result."""

import ctypes
from ctypes import c_int, c_void_p
from dataclasses import dataclass

import numpy as np

from trt_ros.decode.cuda.decoder import (
    COUNTERS_NBYTES,
    DATA_OFFSET,
    FLOATS,
    Address,
    Launch,
    Output,
    Reader,
    has_nonfinite,
)
from trt_ros.results.classes import Classification
from trt_ros.vision.letterbox import Letterbox


class ClassesArgs(ctypes.Structure):
    """Arguments of the kernel; classes.cu: struct Classes."""

    _fields_ = [
        ('scores', c_void_p),
        ('result', c_void_p),
        ('target', c_void_p),
        ('count', c_int),
    ]


@dataclass(frozen=True)
class GpuClasses:
    """Decoder of `count` class scores to probabilities."""

    scores: Output
    count: int

    scratch_nbytes = COUNTERS_NBYTES  # Unused.

    @property
    def is_supported(self) -> bool:
        """Whether the kernel can read this dtype."""
        return self.scores.dtype in FLOATS and self.count > 0

    def result_nbytes(self, image_wh: tuple[int, int]) -> int:
        """Return the bytes of host memory for the result: header and scores."""
        return DATA_OFFSET + 4 * self.count

    def launches(
        self, letterbox: Letterbox, address: Address, *, request: int, scratch: int, result: int
    ) -> tuple[Launch, ...]:
        """Return the kernel to launch for an image, see `GpuDecoder`."""
        args = ClassesArgs(self.scores.at(address), result, result + DATA_OFFSET, self.count)
        return (Launch(f'classify_{self.scores.dtype}', (1, 1, 1), (1024, 1, 1), args),)

    def reader(self, memory: np.ndarray, image_wh: tuple[int, int]) -> Reader:
        """Return a function that reads the scores, see `GpuDecoder`."""
        scores = memory[DATA_OFFSET : self.result_nbytes(image_wh)].view(np.float32)
        return lambda: (Classification(scores.copy()), has_nonfinite(memory))
