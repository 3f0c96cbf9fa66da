"""GPU decoders of results per pixel: arguments for the kernels of dense.cu, and their results."""

from __future__ import annotations

import ctypes
from ctypes import c_double, c_int, c_void_p
from dataclasses import dataclass

import numpy as np

from trt_ros.runtime.gpu.decode import (
    COUNTERS_NBYTES,
    DATA_OFFSET,
    FLOATS,
    HEADER_NBYTES,
    Address,
    Launch,
    OutputSlice,
)
from trt_ros.vision.grid import line
from trt_ros.vision.letterbox import Letterbox
from trt_ros.vision.results import ClassMask


class Axis(ctypes.Structure):
    """Cell coordinates along one axis; dense.cu: struct Axis."""

    _fields_ = [('origin', c_double), ('pitch', c_double), ('low', c_int), ('high', c_int)]


class ArgmaxArgs(ctypes.Structure):
    """Arguments of the mask kernels; dense.cu: struct Argmax."""

    _fields_ = [
        *((name, c_void_p) for name in ('cells', 'counters', 'result', 'mask')),
        *(
            (name, c_int)
            for name in (
                'classes',
                'cell_step',
                'line_step',
                'class_step',
                'width',
                'height',
                'pitch',
                'wide',
            )
        ),
        ('rows', Axis),
        ('columns', Axis),
    ]


@dataclass(frozen=True)
class GpuArgmax:
    """
    Decoder of C scores per cell, which finds the best class of every image pixel.

    :param grid_hw: number of cells.
    :param channels_first: whether scores are (C, h, w), else (h, w, C).
    """

    scores: OutputSlice
    classes: int
    grid_hw: tuple[int, int]
    channels_first: bool

    scratch_nbytes = COUNTERS_NBYTES

    @property
    def is_supported(self) -> bool:
        """Whether the kernels can read this dtype and number of classes."""
        return self.scores.dtype in FLOATS and 1 < self.classes <= 1 << 16

    @property
    def dtype(self) -> type[np.uint8] | type[np.uint16]:
        """Dtype of the mask, as on the CPU."""
        return np.uint8 if self.classes <= 256 else np.uint16

    def _pitch(self, width: int) -> int:
        return -(-width // 4) * 4

    def result_nbytes(self, image_wh: tuple[int, int]) -> int:
        """Return the bytes of host memory for the result: header and mask."""
        width, height = image_wh
        return DATA_OFFSET + height * self._pitch(width) * self.dtype().itemsize

    def launches(
        self, letterbox: Letterbox, address: Address, *, request: int, scratch: int, result: int
    ) -> tuple[Launch, ...]:
        """Return the kernels to launch for an image, see `GpuDecoder`."""
        (rows, columns), (width, height) = self.grid_hw, letterbox.image_wh
        steps = (
            (1, columns, rows * columns)
            if self.channels_first
            else (self.classes, columns * self.classes, 1)
        )
        args = ArgmaxArgs(
            self.scores.at(address),
            scratch,
            result,
            result + DATA_OFFSET,
            self.classes,
            *steps,
            width,
            height,
            self._pitch(width),
            self.dtype is np.uint16,
            Axis(*line(letterbox, 1, rows)),
            Axis(*line(letterbox, 0, columns)),
        )
        blocks = (-(-width // 128), -(-height // 8), 1)
        return (
            Launch(f'argmax_{self.scores.dtype}', blocks, (32, 8, 1), args),
            Launch('finish', (1, 1, 1), (1, 1, 1), args),
        )

    def read(self, memory: np.ndarray, image_wh: tuple[int, int]) -> tuple[ClassMask, bool]:
        """Return the mask and whether outputs had non-finite values, see `GpuDecoder`."""
        width, height = image_wh
        mask = memory[DATA_OFFSET : self.result_nbytes(image_wh)].view(self.dtype)
        return (
            ClassMask(mask.reshape(height, self._pitch(width))[:, :width].copy()),
            bool(memory[:HEADER_NBYTES].view(np.int32)[2]),
        )
