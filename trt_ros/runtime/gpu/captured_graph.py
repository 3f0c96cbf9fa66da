"""CUDA graphs captured for the images of a run, and what they read and write."""

from __future__ import annotations

from collections.abc import Callable
from contextlib import ExitStack
from dataclasses import dataclass, field
from typing import NamedTuple

import numpy as np

from trt_ros.cuda.copies import Blocks, Copy, RowsCopy
from trt_ros.cuda.device import Graph
from trt_ros.cuda.memory import Account, DeviceBuffer, PinnedBuffer
from trt_ros.decode.cuda.decoder import Reader, aligned
from trt_ros.profiling import mark
from trt_ros.runtime.gpu.preprocess import Geometry
from trt_ros.runtime.gpu.staging import REQUEST_NBYTES, Piece
from trt_ros.runtime.gpu.waiting import RunTimes

Stage = tuple[str, Callable[[int], None]]


@dataclass(frozen=True)
class RunAddresses:
    """
    Addresses that the captured work of a run reads and writes.

    :param images: GPU address of each image; may be fewer than the batch has.
    :param request: GPU address of the request, see `write_request`.
    :param copies: those to the GPU inside the graph, see `copy_all`.
    :param results: where the results of each image go, or else all raw outputs.
    :param maps: GPU address of the maps of the regions of one image; 0 for whole images.
    :param fetches: where each image goes, where its address is found, and the bytes of it.
    """

    images: tuple[int, ...]
    request: int
    copies: tuple[Copy, ...]
    results: tuple[int, ...]
    maps: int = 0
    fetches: tuple[tuple[int, int, Blocks], ...] = ()


class SlotMemory(NamedTuple):
    """Memory that a slot owns; `image` is None where kernels read images in place."""

    pinned: PinnedBuffer
    image: DeviceBuffer | None
    results: PinnedBuffer

    @classmethod
    def allocate(
        cls, account: Account, pinned_nbytes: int, image_nbytes: int, result_nbytes: int
    ) -> SlotMemory:
        """Allocate memory of these sizes; without `image` for 0 bytes."""
        image = None
        with ExitStack() as undo:
            pinned = PinnedBuffer(aligned(pinned_nbytes), 'slots', account)
            undo.callback(pinned.close)
            pinned.view[:REQUEST_NBYTES] = 0
            results = PinnedBuffer(result_nbytes, 'results', account)
            undo.callback(results.close)
            if image_nbytes:
                image = DeviceBuffer(aligned(image_nbytes), 'slots', account)
            undo.pop_all()
        return cls(pinned, image, results)

    @property
    def sizes(self) -> tuple[int, int, int]:
        """Bytes of the pinned memory, of the image and of the results."""
        image_nbytes = 0 if self.image is None else self.image.nbytes
        return self.pinned.nbytes, image_nbytes, self.results.nbytes

    def close(self) -> None:
        """Free the memory; may be called twice."""
        for buffer in (self.image, self.pinned, self.results):
            if buffer is not None:
                buffer.close()


class StageSequence:
    """Stages launched one by one, in place of a CUDA graph where none can be captured."""

    def __init__(self, stages: list[Stage]) -> None:
        self.stages = stages

    def launch(self, stream: int) -> None:
        """Enqueue all stages into `stream`; returns at once."""
        for name, stage in self.stages:
            with mark(name):
                stage(stream)

    def close(self) -> None:
        """Drop the stages; may be called twice."""
        self.stages = []


@dataclass(frozen=True, eq=False)
class CapturedGraph:
    """
    A CUDA graph captured for one combination of image geometries. Owns the graph.

    :param geometries: of the images, as the graph reads them.
    :param direct: index and GPU address of the other sources that need no pinned memory, and the
        copy of the rows that are read, None for all.
    :param words: index of each image that the graph fetches, where it finds the address, and the
        bytes of the image.
    :param is_of_one_image: whether a run depends on nothing but one such image.
    """

    graph: Graph | StageSequence
    memory: SlotMemory
    addresses: RunAddresses
    readers: tuple[Reader, ...]
    pieces: tuple[Piece, ...]
    geometries: tuple[Geometry, ...]
    direct: tuple[tuple[int, int, RowsCopy | None], ...]
    words: tuple[tuple[int, np.ndarray, int], ...]
    is_of_one_image: bool
    times: RunTimes = field(default_factory=RunTimes)

    def close(self) -> None:
        """Destroy the graph; may be called twice."""
        self.graph.close()
