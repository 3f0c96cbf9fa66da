"""Interface of the decoders that run on the GPU with the kernels of decode.cu."""

from collections.abc import Callable, Mapping
import ctypes
from dataclasses import dataclass
from typing import Any, NamedTuple, Protocol

import numpy as np

from trt_ros.tensors import Shape, item_nbytes
from trt_ros.vision.letterbox import Letterbox

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
