"""GPU decoders: what they have in common, and results of boxes in host memory."""

from collections.abc import Callable, Mapping
import ctypes
from ctypes import c_float, c_int, c_void_p
from dataclasses import dataclass
import itertools
from typing import Any, NamedTuple, Protocol

import numpy as np

from trt_ros.results.boxes import Detections
from trt_ros.results.poses import Poses
from trt_ros.tensors import Shape, item_nbytes
from trt_ros.vision.letterbox import Letterbox
from trt_ros.vision.scores import check_range

HEADER_NBYTES = 16  # common.cu: struct Result
COUNTERS_NBYTES = 256  # common.cu: struct Counters, aligned
DATA_OFFSET = 256  # Values per pixel behind the header, aligned.
FLOATS = ('float32', 'float16', 'bfloat16')

#: Returns a copy of a result, and whether any output value was NaN or infinite.
Reader = Callable[[], tuple[Any, bool]]


def fields(kind: type[Any], names: str) -> list[tuple[str, type]]:
    """Return fields of one type of a `ctypes.Structure`."""
    return [(name, kind) for name in names.split()]


class Launch(NamedTuple):
    """Launch of one kernel of decode.cu."""

    function: str
    grid: tuple[int, int, int]
    block: tuple[int, int, int]
    argument: ctypes.Structure


class Addresses(NamedTuple):
    """
    GPU addresses of the memory for one image.

    :param output: returns the address of an output by its name.
    :param request: see `write_request`.
    :param result: host memory for the result.
    """

    output: Callable[[str], int]
    request: int
    scratch: int
    result: int


class GpuDecoder(Protocol):
    """A decoder of the outputs of one image on the GPU."""

    @property
    def is_supported(self) -> bool:
        """Whether the kernels can read these dtypes and sizes."""
        ...

    @property
    def scratch_nbytes(self) -> int:
        """Bytes of GPU scratch memory; zeroed once, every frame leaves its counters at zero."""
        ...

    def result_nbytes(self, image_wh: tuple[int, int]) -> int:
        """Return the bytes of host memory for the result of an image of this size."""
        ...

    def launches(self, letterbox: Letterbox, at: Addresses) -> tuple[Launch, ...]:
        """Return the kernels to launch for an image, in order."""
        ...

    def reader(self, memory: np.ndarray, image_wh: tuple[int, int]) -> Reader:
        """
        Return a function that reads the result of each frame, which the next one overwrites.

        The function raises ScoreRangeError when a score is outside 0 to 1.

        :param memory: (result_nbytes,) uint8.
        """
        ...


class Output(NamedTuple):
    """An output of a network, whose elements follow each other."""

    name: str
    dtype: str

    def at(self, at: Addresses, start: int = 0) -> int:
        """Return the GPU address of element `start`."""
        return at.output(self.name) + start * item_nbytes(self.dtype)


@dataclass(frozen=True)
class Outputs:
    """Shapes and dtypes of the outputs of a network, for images of `input_hw`."""

    shapes: Mapping[str, Shape]
    dtypes: Mapping[str, str]
    input_hw: tuple[int, int]

    def __getitem__(self, name: str) -> Output:
        return Output(name, self.dtypes[name])


def has_nonfinite(memory: np.ndarray) -> bool:
    """Return whether a result's header counts non-finite values among the outputs."""
    return bool(memory[:HEADER_NBYTES].view(np.int32)[2])


def aligned(nbytes: int) -> int:
    """Return `nbytes` rounded up to a multiple of 256."""
    return -(-nbytes // 256) * 256


def laid_out(sizes: Mapping[str, int]) -> tuple[dict[str, int], int]:
    """Return the aligned offsets of parts of a memory by name, and its size."""
    ends = list(itertools.accumulate(map(aligned, sizes.values()), initial=0))
    return dict(zip(sizes, ends)), ends[-1]


class BoxViews(NamedTuple):
    """
    Views of a result of boxes in host memory, of which each frame fills the first entries.

    :param header: (4,) int32, see common.cu: struct Result.
    :param xyxy: (capacity, 4) float32; `scores`: (capacity,) float32; `labels`: (capacity,) int32.
    :param extras: (capacity, extra_floats) float32.
    """

    header: np.ndarray
    xyxy: np.ndarray
    scores: np.ndarray
    labels: np.ndarray
    extras: np.ndarray

    def has_nonfinite(self) -> bool:
        """Return whether any output value was NaN or infinite."""
        return bool(self.header.item(2))

    def boxes(self) -> Detections:
        """Return copies of the boxes."""
        # Few and plain steps: the result waits for them.
        count = self.header.item(0)
        scores = self.scores[:count].copy()
        if count and not (scores.item(0) <= 1 and scores.item(-1) >= 0):  # Best first.
            scores = check_range(scores)
        return Detections(self.xyxy[:count].copy(), scores, self.labels[:count].copy())

    def read(self) -> tuple[Detections, bool]:
        """Return the boxes and whether outputs had non-finite values."""
        return self.boxes(), self.has_nonfinite()


def boxes_nbytes(capacity: int, extra_floats: int) -> int:
    """Return the bytes of the header and of the arrays of boxes in a result."""
    return HEADER_NBYTES + (24 + 4 * extra_floats) * capacity


def box_views(memory: np.ndarray, capacity: int, extra_floats: int) -> BoxViews:
    """Return views of a result of boxes; `memory`: uint8, at least as long as `boxes_nbytes`."""
    floats = memory[: boxes_nbytes(capacity, extra_floats)].view(np.float32)
    header, xyxy, scores, labels, extras = np.split(
        floats, HEADER_NBYTES // 4 + capacity * np.array([0, 4, 5, 6])
    )
    return BoxViews(
        header.view(np.int32),
        xyxy.reshape(capacity, 4),
        scores,
        labels.view(np.int32),
        extras.reshape(capacity, extra_floats),
    )


def poses_reader(views: BoxViews, *, is_padded: bool = False) -> Callable[[], tuple[Poses, bool]]:
    """Return a reader of boxes with keypoints, three extras each; `is_padded`: some are unused."""

    def read() -> tuple[Poses, bool]:
        boxes = views.boxes()
        keypoints = (
            views.extras[: len(boxes)].reshape(len(boxes), views.extras.shape[1] // 3, 3).copy()
        )
        keypoints[..., 2] = check_range(keypoints[..., 2], is_padded=is_padded)
        return Poses(boxes, keypoints), views.has_nonfinite()

    return read


MAX_LEVELS, MAX_PRIORS = 4, 6  # boxes.cu: struct Head, struct Level

# In the order of the enums of boxes.cu.
FORMS = {'corners': 0, 'centers': 1, 'rotated': 2, 'offsets': 3, 'sides': 4}
UNITS = {'stride': 0, 'prior': 1, 'pixel': 2}
SIZES = {'exp': 0, 'linear': 1, 'squared': 2, 'tanh': 3}
ACTIVATIONS = {'none': 0, 'sigmoid': 1, 'softmax': 2, 'maybe_sigmoid': 3}
INTEGERS = {'int32': 1, 'int64': 2}
SCORES = 3
ANGLE, KEYPOINTS_2, KEYPOINTS_3, COEFFICIENTS = 1, 2, 3, 4


class LevelArgs(ctypes.Structure):
    """Outputs and grid of one stride; boxes.cu: struct Level."""

    _fields_ = [
        *fields(c_void_p, 'boxes sizes scores objectness extras'),
        *fields(c_int, 'first across cells per_cell'),
        ('strides', c_float * 2),
        ('priors', c_float * 2 * MAX_PRIORS),
    ]


class HeadArgs(ctypes.Structure):
    """Arguments of the box kernels; boxes.cu: struct Head."""

    _fields_ = [
        ('levels', LevelArgs * MAX_LEVELS),
        *fields(
            c_void_p,
            'labels count request result counters keys top sorted boxes_sorted shapes_sorted kept '
            'instances mask histogram',
        ),
        *fields(
            c_int,
            'pitch shift capacity places rows classes level_count row_classes box_row box_column '
            'extra_row extra_column score_row score_column objectness_row label_row label_kind '
            'label_offset count_kind extra_count extra_kind form activation uses_nms',
        ),
        *fields(c_float, 'box_width box_height'),
        *fields(
            c_int,
            'bins planes box_plane is_y_first unit size_code limits_objectness has_points is_peak',
        ),
        *fields(c_float, 'place pixel gain size_gain power class_power'),
        ('limits', c_float * 2),
        *fields(c_float, 'scale_x scale_y scale_area pad_x pad_y'),
        *fields(c_int, 'has_one_scale image_width image_height'),
    ]
