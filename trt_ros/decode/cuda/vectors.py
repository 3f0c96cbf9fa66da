"""GPU decoders of classes, text, keypoints of one object, and lanes."""

import ctypes
from ctypes import c_double, c_float, c_int, c_void_p
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
    box_views,
    boxes_nbytes,
    fields,
    has_nonfinite,
    poses_reader,
)
from trt_ros.decode.points import SMOOTHING
from trt_ros.results.classes import Classification
from trt_ros.results.text import Text
from trt_ros.vision.letterbox import Letterbox


class ClassesArgs(ctypes.Structure):
    """Arguments of the kernel; classes.cu: struct Classes."""

    _fields_ = [*fields(c_void_p, 'scores result target'), *fields(c_int, 'count stride')]


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
        return aligned(self.result_nbytes((0, 0)))

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
        return aligned(STEP.itemsize * self.steps)

    def launch(self, at: Addresses, rows: int) -> Launch:
        scores = self.scores.at(at)
        args = ClassesArgs(scores, at.result, at.result, self.count, self.row_nbytes)
        grid = self.steps, rows, 1
        return Launch(f'read_text_{self.scores.dtype}', grid, (1024, 1, 1), args)

    def reader(self, memory: np.ndarray, image_wh: tuple[int, int]) -> Reader:
        steps = memory[: STEP.itemsize * self.steps].view(STEP)

        def read() -> tuple[Text, bool]:
            return Text.of_steps(steps['symbol'], steps['score']), bool(steps['bad'].any())

        return read


# In the order of the enum of points.cu.
FORMS = ('values', 'bins', 'heatmaps', 'row cells', 'best cells', 'curves')
MAX_OBJECTS, MAX_PLACES = 32, 128  # points.cu: OBJECTS_MAX, PLACES_MAX
POINTS_PER_BLOCK = 8

Pair = tuple[float, float]


class PointsArgs(ctypes.Structure):
    """Arguments of the kernel; points.cu: struct Points."""

    _fields_ = [
        ('outputs', c_void_p * 4),
        *fields(c_void_p, 'request result counters found'),
        *fields(c_int, 'form objects points is_y_first has_labels values'),
        *fields(c_int * 2, 'sizes counts least'),
        ('steps', c_double * 2),
        ('weights', c_double * len(SMOOTHING)),
        ('places', c_float * MAX_PLACES * 2),
        ('top', c_float),
        ('box', c_float * 4),
        *fields(c_float, 'scale_x scale_y pad_x pad_y'),
        *fields(c_int, 'image_width image_height'),
    ]


@dataclass(frozen=True)
class GpuPoints:
    """Decoder of keypoints of `objects`, 1 unless they are lanes; fields as in points.cu."""

    form: str
    parts: tuple[Output | None, ...]
    objects: int
    points: int
    steps: Pair
    sizes: tuple[int, int] = (0, 0)
    is_y_first: bool = False
    values: int = 3
    has_labels: bool = False
    counts: tuple[int, int] = (0, 0)
    least: tuple[int, int] = (0, 0)
    places: tuple[tuple[float, ...], ...] = ()
    top: float = 0.0

    @property
    def is_supported(self) -> bool:
        """Whether the kernel can read these dtypes and sizes."""
        dtypes = {part.dtype for part in self.parts if part is not None}
        return (
            len(dtypes) == 1
            and dtypes <= set(FLOATS)
            and 0 < self.objects <= MAX_OBJECTS
            and self.points > 0
            and all(len(places) <= MAX_PLACES for places in self.places)
        )

    @property
    def scratch_nbytes(self) -> int:
        """Bytes of GPU scratch memory: counters and keypoints."""
        return COUNTERS_NBYTES + 12 * self.objects * self.points

    def result_nbytes(self, image_wh: tuple[int, int]) -> int:
        """Return the bytes of host memory for the result: boxes and keypoints."""
        return boxes_nbytes(self.objects, 3 * self.points)

    def launches(self, letterbox: Letterbox, at: Addresses) -> tuple[Launch, ...]:
        """Return the kernel to launch for an image, see `GpuDecoder`."""
        height, width = letterbox.input_hw
        (box,) = letterbox.to_image(np.array([[0, 0, width, height]], np.float32)).tolist()
        args = PointsArgs(
            (c_void_p * 4)(*(part and part.at(at) for part in self.parts)),
            at.request,
            at.result,
            at.scratch,
            at.scratch + COUNTERS_NBYTES,
            FORMS.index(self.form),
            self.objects,
            self.points,
            self.is_y_first,
            self.has_labels,
            self.values,
            self.sizes,
            self.counts,
            self.least,
            self.steps,
            tuple(SMOOTHING.tolist()),
            tuple((c_float * MAX_PLACES)(*places) for places in self.places),
            self.top,
            tuple(box),
            *letterbox.scale_xy,
            *letterbox.pad_xy,
            *letterbox.image_wh,
        )
        dtype = next(part.dtype for part in self.parts if part is not None)
        blocks = -(-self.objects * self.points // POINTS_PER_BLOCK)
        return (Launch(f'points_{dtype}', (blocks, 1, 1), (256, 1, 1), args),)

    def reader(self, memory: np.ndarray, image_wh: tuple[int, int]) -> Reader:
        """Return a function that reads the objects, see `GpuDecoder`."""
        return poses_reader(box_views(memory, self.objects, 3 * self.points))
