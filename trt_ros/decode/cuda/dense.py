"""GPU decoders of results per pixel: arguments for the kernels of dense.cu, and their results."""

from collections.abc import Callable, Mapping
import ctypes
from ctypes import c_double, c_float, c_int, c_void_p
from dataclasses import dataclass
import itertools
from typing import Any

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
    fields,
    has_nonfinite,
)
from trt_ros.families.image import PictureHead, enlarged
from trt_ros.results.arrays import Depth, Picture
from trt_ros.results.masks import ClassMask, mask_dtype
from trt_ros.vision.grid import line, taps
from trt_ros.vision.letterbox import Letterbox

TILE = 64  # queries.cu: SUM_TILE


class Axis(ctypes.Structure):
    """Cell coordinates along one axis; dense.cu: struct Axis."""

    _fields_ = [('origin', c_double), ('pitch', c_double), ('low', c_int), ('high', c_int)]


class DenseArgs(ctypes.Structure):
    """Arguments of the kernels of results per pixel; dense.cu: struct Dense."""

    _fields_ = [
        *fields(c_void_p, 'cells counters result pixels confidence peaks'),
        *fields(
            c_int,
            'classes cell_step line_step class_step grid_width grid_height width height pitch '
            'wide blends_rows blends_columns',
        ),
        ('rows', Axis),
        ('columns', Axis),
        *fields(c_float, 'gain offset'),
    ]


@dataclass(frozen=True)
class GpuDense:
    """
    Base class of the decoders of a grid of cells to one value per image pixel.

    :param cells: the values of the cells.
    :param classes: values per cell.
    :param grid_hw: number of cells.
    :param channels_first: whether cells are (C, h, w), else (h, w, C).
    """

    cells: Output
    classes: int
    grid_hw: tuple[int, int]
    channels_first: bool

    kernel = ''

    @property
    def scratch_nbytes(self) -> int:
        """Bytes of GPU scratch memory, see `GpuDecoder`."""
        return COUNTERS_NBYTES

    @property
    def dtype(self) -> type[np.generic]:
        """Dtype of the pixels, as on the CPU."""
        raise NotImplementedError

    @property
    def is_supported(self) -> bool:
        """Whether the kernels can read this dtype and number of classes."""
        return self.cells.dtype in FLOATS

    def _pitch(self, width: int) -> int:
        return -(-width // 4) * 4

    def result_nbytes(self, image_wh: tuple[int, int]) -> int:
        """Return the bytes of host memory for the result: header and pixels."""
        return DATA_OFFSET + self._pixels_nbytes(image_wh)

    def _pixels_nbytes(self, image_wh: tuple[int, int]) -> int:
        width, height = image_wh
        return height * self._pitch(width) * np.dtype(self.dtype).itemsize

    def launches(self, letterbox: Letterbox, at: Addresses) -> tuple[Launch, ...]:
        """Return the kernels to launch for an image, see `GpuDecoder`."""
        (rows, columns), (width, height) = self.grid_hw, letterbox.image_wh
        steps = (
            (1, columns, rows * columns)
            if self.channels_first
            else (self.classes, columns * self.classes, 1)
        )
        row_taps, column_taps = taps(letterbox, self.grid_hw)
        args = DenseArgs(
            self.cells.at(at),
            at.scratch,
            at.result,
            at.result + DATA_OFFSET,
            None,
            at.scratch + COUNTERS_NBYTES,
            self.classes,
            *steps,
            columns,
            rows,
            width,
            height,
            self._pitch(width),
            self.dtype is np.uint16,
            bool(row_taps.weights.any()),
            bool(column_taps.weights.any()),
            Axis(*line(letterbox, 1, rows)),
            Axis(*line(letterbox, 0, columns)),
        )
        blocks = (-(-width // 128), -(-height // 8), 1)
        return (
            Launch(f'{self.kernel}_{self.cells.dtype}', blocks, (32, 8, 1), args),
            Launch('finish', (1, 1, 1), (1, 1, 1), args),
        )

    def reader(self, memory: np.ndarray, image_wh: tuple[int, int]) -> Reader:
        """Return a function that reads the result, see `GpuDecoder`."""
        raise NotImplementedError

    def _pixels(self, memory: np.ndarray, image_wh: tuple[int, int]) -> np.ndarray:
        width, height = image_wh
        pixels = memory[DATA_OFFSET:][: self._pixels_nbytes(image_wh)].view(self.dtype)
        return pixels.reshape(height, self._pitch(width))[:, :width]


@dataclass(frozen=True)
class GpuArgmax(GpuDense):
    """Decoder of C scores per cell to the best class of every pixel, or the mask of one."""

    confidence: bool = False

    kernel = 'argmax'

    @property
    def is_supported(self) -> bool:
        return super().is_supported and 0 < self.classes < 1 << 16

    @property
    def _summarizes(self) -> bool:
        """Whether a kernel finds out whether the scores are probabilities."""
        return self.confidence or self.classes == 1

    @property
    def scratch_nbytes(self) -> int:
        """Bytes of GPU scratch memory: counters, and two numbers per cell."""
        rows, columns = self.grid_hw
        return COUNTERS_NBYTES + (8 * rows * columns if self._summarizes else 0)

    def _confidence_start(self, image_wh: tuple[int, int]) -> int:
        return aligned(super().result_nbytes(image_wh))

    def result_nbytes(self, image_wh: tuple[int, int]) -> int:
        if not self.confidence:
            return super().result_nbytes(image_wh)
        width, height = image_wh
        return self._confidence_start(image_wh) + height * self._pitch(width)

    def launches(self, letterbox: Letterbox, at: Addresses) -> tuple[Launch, ...]:
        found = super().launches(letterbox, at)
        args = found[0].argument
        assert isinstance(args, DenseArgs)
        if self.confidence:
            args.confidence = at.result + self._confidence_start(letterbox.image_wh)
        if not self._summarizes:
            return found
        blocks = (-(-self.grid_hw[0] * self.grid_hw[1] // 256), 1, 1)
        return (Launch(f'summarise_{self.cells.dtype}', blocks, (256, 1, 1), args), *found)

    @property
    def dtype(self) -> type[np.generic]:
        return mask_dtype(self.classes)

    def reader(self, memory: np.ndarray, image_wh: tuple[int, int]) -> Reader:
        pixels, confidence = self._pixels(memory, image_wh), None
        if self.confidence:
            width, height = image_wh
            lines = memory[self._confidence_start(image_wh) : self.result_nbytes(image_wh)]
            confidence = lines.reshape(height, self._pitch(width))[:, :width]

        def read() -> tuple[ClassMask, bool]:
            sure = None if confidence is None else np.array(confidence)
            mask = ClassMask(np.array(pixels), sure, self.classes == 1)
            return mask, has_nonfinite(memory)

        return read


class QueriesArgs(ctypes.Structure):
    """Arguments of the kernels of queries; queries.cu: struct Queries."""

    _fields_ = [
        *fields(c_void_p, 'logits masks counters probabilities scores'),
        *fields(c_int, 'queries classes cells'),
    ]


@dataclass(frozen=True)
class GpuQueries(GpuArgmax):
    """Decoder of queries with a class and a mask each, whose sums are the scores of cells."""

    outputs: tuple[Output, ...] = ()
    queries: int = 0

    @property
    def is_supported(self) -> bool:
        dtypes = {output.dtype for output in self.outputs}
        is_read = len(dtypes) == 1 and dtypes <= set(FLOATS)
        return super().is_supported and is_read and self.classes > 1 and self.queries > 0

    _summarizes = False  # They are probabilities.

    @property
    def scratch_nbytes(self) -> int:
        """Bytes of GPU scratch memory: counters, probabilities and scores."""
        cells = self.grid_hw[0] * self.grid_hw[1]
        return COUNTERS_NBYTES + 4 * self.classes * (self.queries + cells)

    def launches(self, letterbox: Letterbox, at: Addresses) -> tuple[Launch, ...]:
        logits, masks = self.outputs
        cells = self.grid_hw[0] * self.grid_hw[1]
        probabilities = at.scratch + COUNTERS_NBYTES
        scores = probabilities + 4 * self.classes * self.queries
        args = QueriesArgs(
            logits.at(at),
            masks.at(at),
            at.scratch,
            probabilities,
            scores,
            self.queries,
            self.classes,
            cells,
        )
        warps = (-(-self.queries // 8), 1, 1)
        tiles = (-(-cells // TILE), -(-self.classes // TILE), 1)
        return (
            Launch(f'weigh_queries_{logits.dtype}', warps, (256, 1, 1), args),
            Launch(f'sum_queries_{logits.dtype}', tiles, (256, 1, 1), args),
            *super().launches(letterbox, at._replace(output=lambda _: scores)),
        )


@dataclass(frozen=True)
class GpuGrids:
    """
    Decoder of several outputs of cells, each with a result of its own.

    :param grids: by output, in the order of the results.
    :param combine: returns the result of all.
    """

    grids: Mapping[str, GpuDense]
    combine: Callable[[Mapping[str, Any]], Any]

    @property
    def scratch_nbytes(self) -> int:
        """Bytes of GPU scratch memory, see `GpuDecoder`."""
        return sum(aligned(grid.scratch_nbytes) for grid in self.grids.values())

    @property
    def is_supported(self) -> bool:
        """Whether the kernels can read all outputs."""
        return all(grid.is_supported for grid in self.grids.values())

    def _starts(self, image_wh: tuple[int, int]) -> list[int]:
        sizes = (aligned(grid.result_nbytes(image_wh)) for grid in self.grids.values())
        return list(itertools.accumulate(sizes, initial=0))

    def result_nbytes(self, image_wh: tuple[int, int]) -> int:
        """Return the bytes of host memory for the results of all outputs."""
        return self._starts(image_wh)[-1]

    def launches(self, letterbox: Letterbox, at: Addresses) -> tuple[Launch, ...]:
        """Return the kernels to launch for an image, see `GpuDecoder`."""
        launches, scratch = list[Launch](), at.scratch
        for grid, start in zip(self.grids.values(), self._starts(letterbox.image_wh)):
            own = at._replace(scratch=scratch, result=at.result + start)
            launches += grid.launches(letterbox, own)
            scratch += aligned(grid.scratch_nbytes)
        return tuple(launches)

    def reader(self, memory: np.ndarray, image_wh: tuple[int, int]) -> Reader:
        """Return a function that reads the results, see `GpuDecoder`."""
        readers = {
            name: grid.reader(memory[start:], image_wh)
            for (name, grid), start in zip(self.grids.items(), self._starts(image_wh))
        }

        def read() -> tuple[Any, bool]:
            found = {name: read_grid() for name, read_grid in readers.items()}
            results = {name: result for name, (result, _) in found.items()}
            return self.combine(results), any(is_bad for _, is_bad in found.values())

        return read


@dataclass(frozen=True)
class GpuDepth(GpuDense):
    """Decoder of one depth per cell, interpolated at every image pixel."""

    kernel = 'interpolate'
    dtype = np.float32

    def reader(self, memory: np.ndarray, image_wh: tuple[int, int]) -> Reader:
        depths = self._pixels(memory, image_wh)
        return lambda: (Depth(np.array(depths)), has_nonfinite(memory))


@dataclass(frozen=True)
class GpuPicture(GpuDense):
    """Decoder of three colors per cell, interpolated at the pixels of an image or a larger one."""

    head: PictureHead
    input_hw: tuple[int, int]

    kernel = 'color'
    dtype = np.uint8

    def _enlarged(self, letterbox: Letterbox) -> Letterbox:
        return enlarged(letterbox, self.grid_hw[0])

    def _wh(self, image_wh: tuple[int, int]) -> tuple[int, int]:
        return self._enlarged(Letterbox((1.0, 1.0), (0.0, 0.0), image_wh, self.input_hw)).image_wh

    def result_nbytes(self, image_wh: tuple[int, int]) -> int:
        return DATA_OFFSET + 3 * self._pixels_nbytes(self._wh(image_wh))

    def launches(self, letterbox: Letterbox, at: Addresses) -> tuple[Launch, ...]:
        found = super().launches(self._enlarged(letterbox), at)
        args = found[0].argument
        assert isinstance(args, DenseArgs)
        args.gain, args.offset = self.head.gain, self.head.offset + 0.5
        return found

    def reader(self, memory: np.ndarray, image_wh: tuple[int, int]) -> Reader:
        width, height = self._wh(image_wh)
        shape = height, self._pitch(width), 3
        data = memory[DATA_OFFSET:][: shape[0] * shape[1] * 3]
        pixels = data.reshape(shape)[:, :width]
        return lambda: (Picture(np.array(pixels)), has_nonfinite(memory))
