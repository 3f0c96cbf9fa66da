"""Copies to, from and on the GPU: of small arrays, of rows, and of images in host memory."""

from __future__ import annotations

from collections.abc import Sequence
import ctypes
from ctypes import c_int, c_size_t, c_uint, c_uint64, c_void_p
from dataclasses import dataclass

from trt_ros.cuda.calls import driver_call, failure
from trt_ros.cuda.kernels import Kernels
from trt_ros.cuda.memory import copy_async

Copy = tuple[int, int, int]  # (target, source, nbytes).
#: Copies up to this size are done by a kernel, up to so many at once.
SMALL_COPY_NBYTES, SMALL_COPIES = 1 << 14, 16
_ANYWHERE = 4  # CU_MEMORYTYPE_UNIFIED: an address on the host or a GPU.
_FETCH_THREADS = 512


class CopyArgs(ctypes.Structure):
    """Arguments of the kernel of small copies; copy.cu: struct Copies."""

    _fields_ = [
        ('targets', c_void_p * SMALL_COPIES),
        ('sources', c_void_p * SMALL_COPIES),
        ('nbytes', c_uint * SMALL_COPIES),
    ]


def copy_all(kernels: Kernels, copies: Sequence[Copy], stream: int) -> None:
    """
    Enqueue copies between addresses of the GPU, those of mapped host memory included.

    Small ones come first, at the same time; the others follow in their order.

    :param kernels: those of preprocess.cu.
    """
    small = [each for each in copies if 0 < each[2] <= SMALL_COPY_NBYTES]
    for start in range(0, len(small), SMALL_COPIES):
        some = small[start : start + SMALL_COPIES]
        args = CopyArgs(*map(tuple, zip(*some)))
        kernels.launch('copy_small', (len(some), 1, 1), (1024, 1, 1), args, stream)
    for each in copies:
        if each[2] > SMALL_COPY_NBYTES:
            copy_async(*each, stream)


@dataclass(frozen=True)
class Blocks:
    """The bytes of an image that are read: `count` times `nbytes`, every `period` from `first`."""

    first: int
    period: int
    nbytes: int
    count: int


class RowsCopy(ctypes.Structure):
    """A copy of blocks to one another's end; CUDA_MEMCPY2D of the driver."""

    _fields_ = [
        *(
            (f'{end}_{name}', kind)
            for end in ('source', 'target')
            for name, kind in (
                *(('x', c_size_t), ('y', c_size_t), ('kind', c_int)),
                *(('host', c_void_p), ('address', c_uint64)),
                *(('array', c_void_p), ('step', c_size_t)),
            )
        ),
        ('nbytes', c_size_t),
        ('rows', c_size_t),
    ]

    @classmethod
    def of(cls, target: int, blocks: Blocks) -> RowsCopy:
        """Return the copy of blocks to an address of the host or a GPU."""
        return cls(
            source_x=blocks.first,
            source_kind=_ANYWHERE,
            source_step=blocks.period,
            target_kind=_ANYWHERE,
            target_address=target,
            target_step=blocks.nbytes,
            nbytes=blocks.nbytes,
            rows=blocks.count,
        )

    def enqueue(self, source: int, stream: int) -> None:
        """Enqueue the copy from an address of the host or a GPU."""
        self.source_address = source
        copy = driver_call('cuMemcpy2DAsync_v2', 2)
        status = copy(ctypes.addressof(self), stream)
        if status:
            raise failure(status, f'copy {self.rows} rows of {self.nbytes} bytes')


class FetchArgs(ctypes.Structure):
    """Arguments of the kernel that fetches images; copy.cu: struct Fetch."""

    _fields_ = [
        ('target', c_void_p),
        ('source', c_void_p),
        ('first', c_uint64),
        ('period', c_uint64),
        ('nbytes', c_uint64),
    ]


def fetch(kernels: Kernels, target: int, source: int, blocks: Blocks, stream: int) -> None:
    """
    Enqueue a copy of an image from mapped host memory to the GPU.

    :param source: GPU address of the address of the image, which may differ in each run.
    """
    args = FetchArgs(target, source, blocks.first, blocks.period, blocks.nbytes)
    grid = (-(-blocks.nbytes // (4 * _FETCH_THREADS)), blocks.count, 1)
    kernels.launch('fetch', grid, (_FETCH_THREADS, 1, 1), args, stream)
