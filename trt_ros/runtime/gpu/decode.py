"""Decoders that run on the GPU: arguments for the kernels of decode.cu, and their results."""

from __future__ import annotations

from collections.abc import Callable
import ctypes
from ctypes import c_double, c_float, c_int, c_void_p
from dataclasses import dataclass
from typing import Any, NamedTuple, Protocol

import numpy as np

from trt_ros.cuda.kernels import Size
from trt_ros.runtime.gpu.tensorrt_context import item_nbytes
from trt_ros.vision.detections import Detections
from trt_ros.vision.grid import line
from trt_ros.vision.letterbox import Letterbox
from trt_ros.vision.results import ClassMask
from trt_ros.vision.scores import check_range

MAX_DETECTIONS = 1024  # decode.cu: MAX_DETECTIONS
MAX_CANDIDATES, MAX_CLASSES = 1 << 20, 1 << 12  # decode.cu: bits of a key
HEADER_NBYTES = 16  # decode.cu: struct Result
MASK_OFFSET = 256  # Behind the header, aligned.

# In the order of decode.cu's enums.
_FORMS = {'corners': 0, 'centres': 1, 'grid': 2}
_ACTIVATIONS = {'none': 0, 'sigmoid': 1, 'softmax': 2}
_INTEGERS = {'int32': 1, 'int64': 2}
_SCORES = 3
_FLOATS = ('float32', 'float16', 'bfloat16')

Address = Callable[[str], int]  # Name of an output to its GPU address for one image.


class Launch(NamedTuple):
    """Launch of one kernel of decode.cu."""

    function: str
    grid: Size
    block: Size
    argument: ctypes.Structure


class GpuDecoder(Protocol):
    """A decoder of the outputs of one image on the GPU."""

    @property
    def scratch_nbytes(self) -> int:
        """Bytes of GPU scratch memory; zeroed once, every frame leaves its counters at zero."""
        ...

    def result_nbytes(self, image_wh: tuple[int, int]) -> int:
        """Return the bytes of host memory for the result of an image of this size."""
        ...

    def launches(
        self, letterbox: Letterbox, address: Address, *, request: int, scratch: int, result: int
    ) -> tuple[Launch, ...]:
        """
        Return the kernels to launch for an image, in order.

        :param address: returns the GPU address of an output.
        :param request: GPU address of a `RequestArgs`.
        :param scratch: GPU address of the scratch memory.
        :param result: GPU address of the host memory for the result.
        """
        ...

    def read(self, memory: np.ndarray, image_wh: tuple[int, int]) -> tuple[Any, bool]:
        """
        Return a copy of the result in `memory`, which the next frame overwrites.

        :param memory: (result_nbytes,) uint8.
        :returns: the decoder's result, and whether any output value was NaN or infinite.
        :raises ScoreRangeError: when a score is outside 0 to 1.
        """
        ...


class HeadArgs(ctypes.Structure):
    """Arguments of the box kernels; decode.cu: struct Head."""

    _fields_ = [
        *(
            (name, c_void_p)
            for name in (
                'boxes',
                'scores',
                'objectness',
                'labels',
                'count',
                'request',
                'counters',
                'keys',
                'result',
            )
        ),
        *(
            (name, c_int)
            for name in (
                'capacity',
                'limit',
                'rows',
                'classes',
                'per_row',
                'box_row',
                'box_column',
                'score_row',
                'score_column',
                'label_row',
                'label_kind',
                'count_kind',
                'form',
                'activation',
                'background',
                'uses_nms',
            )
        ),
        ('box_width', c_float),
        ('box_height', c_float),
        ('input_width', c_int),
        ('input_height', c_int),
        ('levels', c_int),
        ('strides', c_int * 4),
        ('scale_x', c_float),
        ('scale_y', c_float),
        ('pad_x', c_float),
        ('pad_y', c_float),
        ('image_width', c_int),
        ('image_height', c_int),
    ]


class OutputSlice(NamedTuple):
    """
    A strided slice of a network output.

    :param start: offset of the first element, in elements.
    :param row: elements from one row to the next.
    :param column: elements from one column to the next.
    """

    output: str
    dtype: str
    start: int
    row: int
    column: int = 1

    def at(self, address: Address) -> int:
        """Return the GPU address of the first element."""
        return address(self.output) + self.start * item_nbytes(self.dtype)


@dataclass(frozen=True)
class GpuBoxes:
    """
    Decoder of boxes and scores; fields as in decode.cu's `Head`.

    :param select: 'columns' and 'rows' find the best class of each of `rows` boxes, whose scores
        are contiguous per class or per box; with 'each', every score is a candidate.
    :param uses_nms: whether boxes of one class suppress each other.
    :param normalised: whether boxes are 0 to 1 of the input instead of pixels.
    :param limit: maximum number of boxes, whatever the request asks for.
    """

    select: str
    rows: int
    classes: int
    boxes: OutputSlice
    scores: OutputSlice
    form: str = 'centres'
    objectness: OutputSlice | None = None
    labels: OutputSlice | None = None
    count: OutputSlice | None = None
    activation: str = 'none'
    background: int = 0
    uses_nms: bool = True
    normalised: bool = False
    limit: int = MAX_DETECTIONS
    strides: tuple[int, ...] = ()

    @property
    def per_row(self) -> int:
        """Candidates per row."""
        return self.classes if self.select == 'each' else 1

    @property
    def is_supported(self) -> bool:
        """Whether the kernels can read these dtypes and sizes."""
        labels, count = self.labels, self.count
        return (
            self.scores.dtype in _FLOATS
            and self.boxes.dtype == self.scores.dtype
            and 0 < self.rows * self.per_row <= MAX_CANDIDATES
            and 0 < self.classes <= MAX_CLASSES
            and len(self.strides) <= 4
            and (
                labels is None
                or (
                    not self.uses_nms
                    and (labels.dtype in _INTEGERS or labels.dtype == self.scores.dtype)
                )
            )
            and (count is None or count.dtype in _INTEGERS)
        )

    @property
    def scratch_nbytes(self) -> int:
        """Bytes of GPU scratch memory: two counters, and one key per candidate."""
        return 8 + 8 * self.rows * self.per_row

    def result_nbytes(self, image_wh: tuple[int, int]) -> int:
        """Return the bytes of host memory for the result: header, boxes, scores and labels."""
        return HEADER_NBYTES + 24 * MAX_DETECTIONS

    def launches(
        self, letterbox: Letterbox, address: Address, *, request: int, scratch: int, result: int
    ) -> tuple[Launch, ...]:
        """Return the kernels to launch for an image, see `GpuDecoder`."""
        height, width = letterbox.input_hw
        size = (width, height) if self.normalised else (1, 1)
        labels, count = self.labels, self.count
        args = HeadArgs(
            self.boxes.at(address),
            self.scores.at(address),
            self.objectness and self.objectness.at(address),
            labels and labels.at(address),
            count and count.at(address),
            request,
            scratch,
            scratch + 8,
            result,
            MAX_DETECTIONS,
            self.limit,
            self.rows,
            self.classes,
            self.per_row,
            self.boxes.row,
            self.boxes.column,
            self.scores.row,
            self.scores.column,
            labels.row if labels else 0,
            _INTEGERS.get(labels.dtype, _SCORES) if labels else 0,
            _INTEGERS[count.dtype] if count else 0,
            _FORMS[self.form],
            _ACTIVATIONS[self.activation],
            self.background,
            self.uses_nms,
            *size,
            width,
            height,
            len(self.strides),
            (c_int * 4)(*(*self.strides, 0, 0, 0, 0)[:4]),
            *letterbox.scale_xy,
            *letterbox.pad_xy,
            *letterbox.image_wh,
        )
        per_block = {'columns': 32, 'rows': 8, 'each': 256}[self.select]
        blocks = -(-self.rows * self.per_row // per_block)
        dtype = self.scores.dtype
        return (
            Launch(f'select_{self.select}_{dtype}', (blocks, 1, 1), (32, 8, 1), args),
            Launch(f'suppress_{dtype}', (1, 1, 1), (1024, 1, 1), args),
        )

    def read(self, memory: np.ndarray, image_wh: tuple[int, int]) -> tuple[Detections, bool]:
        """Return the detections and whether outputs had non-finite values, see `GpuDecoder`."""
        count, _, nonfinite, _ = memory[:HEADER_NBYTES].view(np.int32).tolist()
        numbers = (
            memory[HEADER_NBYTES : HEADER_NBYTES + 24 * MAX_DETECTIONS]
            .view(np.float32)
            .reshape(6, MAX_DETECTIONS)
        )
        return Detections(
            numbers[:4].reshape(-1, 4)[:count].copy(),
            check_range(numbers[4, :count].copy()),
            numbers[5, :count].view(np.int32).copy(),
        ), nonfinite > 0


class Axis(ctypes.Structure):
    """Cell coordinates along one axis; decode.cu: struct Axis."""

    _fields_ = [('origin', c_double), ('pitch', c_double), ('low', c_int), ('high', c_int)]


class ArgmaxArgs(ctypes.Structure):
    """Arguments of the mask kernels; decode.cu: struct Argmax."""

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

    scratch_nbytes = 8  # The counters.

    @property
    def is_supported(self) -> bool:
        """Whether the kernels can read this dtype and number of classes."""
        return self.scores.dtype in _FLOATS and 1 < self.classes <= 1 << 16

    @property
    def dtype(self) -> type[np.uint8] | type[np.uint16]:
        """Dtype of the mask, as on the CPU."""
        return np.uint8 if self.classes <= 256 else np.uint16

    def _pitch(self, width: int) -> int:
        return -(-width // 4) * 4

    def result_nbytes(self, image_wh: tuple[int, int]) -> int:
        """Return the bytes of host memory for the result: header and mask."""
        width, height = image_wh
        return MASK_OFFSET + height * self._pitch(width) * self.dtype().itemsize

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
            result + MASK_OFFSET,
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
        mask = memory[MASK_OFFSET : self.result_nbytes(image_wh)].view(self.dtype)
        return (
            ClassMask(mask.reshape(height, self._pitch(width))[:, :width].copy()),
            bool(memory[:HEADER_NBYTES].view(np.int32)[2]),
        )
