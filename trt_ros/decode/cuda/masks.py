"""GPU decoder of instances: arguments for the kernels of masks.cu, and their results."""

from collections.abc import Sequence
import ctypes
from ctypes import c_double, c_int, c_void_p

import numpy as np

from trt_ros.decode.cuda.boxes import GpuBoxes
from trt_ros.decode.cuda.decoder import (
    COEFFICIENTS,
    Addresses,
    HeadArgs,
    Launch,
    Output,
    Reader,
    boxes_nbytes,
    fields,
    laid_out,
)
from trt_ros.decode.cuda.dense import Axis
from trt_ros.results.masks import LazyMasks, PaintedInstances, mask_dtype
from trt_ros.tensors import item_nbytes, widen
from trt_ros.vision.grid import line, taps
from trt_ros.vision.letterbox import Letterbox
from trt_ros.vision.masks import instance_masks, whole_masks, windows_of

MAX_COEFFICIENTS = 256  # masks.cu: COEFFICIENTS_MAX
TILE_WIDTH, TILE_HEIGHT = 64, 32  # masks.cu
PLACEMENT_NBYTES = 32


class MasksArgs(ctypes.Structure):
    """Arguments of the kernels of instances; masks.cu: struct Masks."""

    _fields_ = [
        *fields(
            c_void_p,
            'prototypes coefficients counters instances result placement kept_prototypes bounds '
            'owners labels',
        ),
        *fields(c_int, 'row_step column_step channels lines cells width height pitch wide'),
        *fields(c_double, 'scale_x scale_y pad_x pad_y'),
        ('rows', Axis),
        ('columns', Axis),
    ]


class GpuInstances(GpuBoxes):
    """
    Decoder of boxes with masks: of prototypes, whose coefficients are the extras of each box, or
    of one plane per row.

    The GPU paints the objects of every pixel. Single masks are computed on the CPU where they are
    needed.
    """

    @property
    def prototypes(self) -> Output:
        """Prototypes (extra_count, rows, columns), or one plane per row."""
        tensors = self.places.tensors
        return self.outputs[(tensors.get('prototypes') or tensors['masks']).output]

    @property
    def grid_hw(self) -> tuple[int, int]:
        """Size of the prototypes."""
        rows, columns = self.outputs.shapes[self.prototypes.name][-2:]
        return rows, columns

    extra_kind = COEFFICIENTS

    @property
    def extra_floats(self) -> int:
        return self.extra_count or 4

    @property
    def _planes(self) -> int:
        return self.extra_count or self.capacity

    @property
    def is_supported(self) -> bool:
        return (
            super().is_supported
            and self.prototypes.dtype == self.dtype
            and self.extra_count <= MAX_COEFFICIENTS
        )

    @property
    def label_dtype(self) -> type[np.generic]:
        """Dtype of the painted labels."""
        return np.uint16 if 'label' in self._slices[0] else mask_dtype(self.places.classes + 1)

    def _parts(self, image_wh: tuple[int, int]) -> tuple[dict[str, int], int, int]:
        """Return the offsets in the result, its size, and the pixels per line."""
        (width, height), (rows, columns) = image_wh, self.grid_hw
        pitch = -(-width // 8) * 8
        sizes = {
            'boxes': self.boxes_nbytes,
            'placement': PLACEMENT_NBYTES,
            'prototypes': self._planes * rows * columns * item_nbytes(self.dtype),
            'owners': 2 * pitch * height,
            'labels': np.dtype(self.label_dtype).itemsize * pitch * height,
        }
        return (*laid_out(sizes), pitch)

    def result_nbytes(self, image_wh: tuple[int, int]) -> int:
        """Return the bytes of host memory: boxes, prototypes and two values per pixel."""
        return self._parts(image_wh)[1]

    def launches(self, letterbox: Letterbox, at: Addresses) -> tuple[Launch, ...]:
        boxes = super().launches(letterbox, at)
        head = boxes[0].argument
        assert isinstance(head, HeadArgs)
        (rows, columns), (width, height) = self.grid_hw, letterbox.image_wh
        parts, _, pitch = self._parts(letterbox.image_wh)
        args = MasksArgs(
            self.prototypes.at(at),
            head.levels[0].extras,
            head.counters,
            head.instances,
            at.result,
            at.result + parts['placement'],
            at.result + parts['prototypes'],
            at.result + boxes_nbytes(self.capacity, 0),
            at.result + parts['owners'],
            at.result + parts['labels'],
            head.extra_row,
            head.extra_column,
            self.extra_count,
            rows,
            columns,
            width,
            height,
            pitch,
            self.label_dtype is np.uint16,
            *letterbox.scale_xy,
            *letterbox.pad_xy,
            Axis(*line(letterbox, 1, rows)),
            Axis(*line(letterbox, 0, columns)),
        )
        dtype, threads = self.dtype, (256, 1, 1)
        keep = 'keep' if self.extra_count else 'keep_planes'
        tiles = (-(-width // TILE_WIDTH), -(-height // TILE_HEIGHT), 1)
        return (
            *boxes,
            Launch(f'paint_{dtype}', tiles, threads, args),
            Launch(f'{keep}_{dtype}', (256, 1, 1), threads, args),
            Launch('finish_masks', (1, 1, 1), (1, 1, 1), args),
        )

    def reader(self, memory: np.ndarray, image_wh: tuple[int, int]) -> Reader:
        (width, height), views = image_wh, self.views(memory)
        parts, _, pitch = self._parts(image_wh)
        numbers = memory[parts['placement'] :][:PLACEMENT_NBYTES].view(np.float64)
        dtype = self.dtype
        kind = 'uint16' if dtype == 'bfloat16' else dtype
        count = self._planes * self.grid_hw[0] * self.grid_hw[1] * item_nbytes(dtype)
        all_prototypes = memory[parts['prototypes'] :][:count].view(kind)
        all_prototypes = all_prototypes.reshape(self._planes, *self.grid_hw)

        def pixels(part: str, of: type[np.generic]) -> np.ndarray:
            nbytes = np.dtype(of).itemsize * height * pitch
            return memory[parts[part] :][:nbytes].view(of).reshape(height, pitch)[:, :width]

        owner_of, label_of = pixels('owners', np.uint16), pixels('labels', self.label_dtype)

        def read() -> tuple[PaintedInstances, bool]:
            boxes = views.boxes()
            extras = views.extras[: len(boxes)].copy()
            kept = all_prototypes[: self.extra_count or len(boxes)].copy()
            scale_x, scale_y, pad_x, pad_y = numbers.tolist()
            letterbox = Letterbox(
                (scale_x, scale_y), (pad_x, pad_y), image_wh, self.outputs.input_hw
            )
            if self.extra_count:
                windows = np.ceil(boxes.xyxy - 0.5).astype(np.int32)  # Pixel centers inside.
            else:
                windows = windows_of(extras, *taps(letterbox, self.grid_hw))

            def compute() -> Sequence[np.ndarray]:
                cells = widen(kept) if dtype == 'bfloat16' else kept
                if not self.extra_count:
                    return whole_masks(cells, letterbox, windows)
                with np.errstate(invalid='ignore', over='ignore'):
                    return instance_masks(cells, extras, letterbox, windows)

            found = PaintedInstances(
                boxes,
                LazyMasks(len(boxes), compute),
                windows[:, :2],
                image_wh,
                np.array(owner_of),
                np.array(label_of),
            )
            return found, views.has_nonfinite()

        return read
