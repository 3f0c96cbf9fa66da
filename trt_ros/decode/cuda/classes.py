"""GPU decoders of classes and text: arguments for the kernels of classes.cu, and their results."""

import ctypes
from ctypes import c_int, c_void_p
from dataclasses import dataclass

import numpy as np

from trt_ros.decode.cuda.decoder import (
    COUNTERS_NBYTES,
    DATA_OFFSET,
    FLOATS,
    Addresses,
    Launch,
    Output,
    Reader,
    aligned,
    has_nonfinite,
)
from trt_ros.results.classes import Classification
from trt_ros.results.text import Text
from trt_ros.vision.letterbox import Letterbox


class ClassesArgs(ctypes.Structure):
    """Arguments of the kernel; classes.cu: struct Classes."""

    _fields_ = [
        ('scores', c_void_p),
        ('result', c_void_p),
        ('target', c_void_p),
        ('count', c_int),
        ('stride', c_int),
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

    def launches(self, letterbox: Letterbox, at: Addresses) -> tuple[Launch, ...]:
        """Return the kernel to launch for an image, see `GpuDecoder`."""
        return (self.launch(at, 1),)

    @property
    def row_nbytes(self) -> int:
        """Bytes of the result of one row of several."""
        return aligned(DATA_OFFSET + 4 * self.count)

    def launch(self, at: Addresses, rows: int) -> Launch:
        """Return the launch that decodes the scores of several images; see `row_nbytes`."""
        scores, target = self.scores.at(at), at.result + DATA_OFFSET
        args = ClassesArgs(scores, at.result, target, self.count, self.row_nbytes)
        return Launch(f'classify_{self.scores.dtype}', (rows, 1, 1), (1024, 1, 1), args)

    def reader(self, memory: np.ndarray, image_wh: tuple[int, int]) -> Reader:
        """Return a function that reads the scores, see `GpuDecoder`."""
        scores = memory[DATA_OFFSET : self.result_nbytes(image_wh)].view(np.float32)
        return lambda: (Classification(scores.copy()), has_nonfinite(memory))


#: classes.cu: struct Step
STEP = np.dtype([('score', np.float32), ('symbol', np.int32), ('bad', np.int32)])


@dataclass(frozen=True)
class GpuText(GpuClasses):
    """Decoder of the scores of `count` symbols at each of `steps` steps of a line."""

    steps: int

    def result_nbytes(self, image_wh: tuple[int, int]) -> int:
        """Return the bytes of host memory for the result: the best symbol of each step."""
        return self.row_nbytes

    @property
    def row_nbytes(self) -> int:
        """Bytes of the result of one row of several."""
        return aligned(STEP.itemsize * self.steps)

    def launch(self, at: Addresses, rows: int) -> Launch:
        """Return the launch that decodes the scores of several images; see `row_nbytes`."""
        scores = self.scores.at(at)
        args = ClassesArgs(scores, at.result, at.result, self.count, self.row_nbytes)
        grid = self.steps, rows, 1
        return Launch(f'read_text_{self.scores.dtype}', grid, (1024, 1, 1), args)

    def reader(self, memory: np.ndarray, image_wh: tuple[int, int]) -> Reader:
        """Return a function that reads the symbols, see `GpuDecoder`."""
        steps = memory[: STEP.itemsize * self.steps].view(STEP)

        def read() -> tuple[Text, bool]:
            return Text.of_steps(steps['symbol'], steps['score']), bool(steps['bad'].any())

        return read
