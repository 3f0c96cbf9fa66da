"""Images, tensors and thresholds that a run brings to the GPU, and their transfers."""

from collections.abc import Callable, Hashable, Sequence
from contextlib import AbstractContextManager
import ctypes
from ctypes import c_float, c_int
from dataclasses import dataclass
import math
import queue
import threading
from typing import TypeVar

import numpy as np

from trt_ros.cuda.copies import Blocks, RowsCopy
from trt_ros.cuda.memory import PinnedBuffer, copy_async
from trt_ros.decode.cuda.decoder import fields
from trt_ros.model.feeds.padding import Padding
from trt_ros.tensors import TensorSpec, address_of, numpy_dtype, write_tensor
from trt_ros.vision.frame import Frame
from trt_ros.vision.thresholds import Thresholds

Item = TypeVar('Item')

DeviceAddress = Callable[[int, int], int]  # (host address, nbytes) to the GPU's address, or 0.
#: Images and tensors up to this size are transferred by the graph, larger ones once copied.
SMALL_NBYTES = 1 << 16
REQUEST_NBYTES = 32


class RequestArgs(ctypes.Structure):
    """Parameters that may differ between frames of a graph, before the table of scores."""

    _fields_ = [
        *fields(c_float, 'score_threshold iou_threshold'),
        *fields(c_int, 'max_detections class_agnostic table_size'),
        ('reserved', c_int * 3),
    ]


def header_nbytes(thresholds: Thresholds, class_count: int = 0) -> int:
    """Return the bytes of a request in a slot, for up to `class_count` chosen classes."""
    table, _ = thresholds.class_table()
    return -(-(REQUEST_NBYTES + 4 * max(len(table), class_count)) // 256) * 256


def write_request(memory: np.ndarray, thresholds: Thresholds) -> None:
    """Write the request into pinned bytes, (header_nbytes,) uint8 or more."""
    table, others = thresholds.class_table()
    request = RequestArgs.from_buffer(memory.data)
    request.score_threshold, request.iou_threshold = others, thresholds.iou
    request.max_detections = thresholds.max_detections
    request.class_agnostic = thresholds.class_agnostic
    request.table_size = len(table)
    if len(table):
        memory[REQUEST_NBYTES : REQUEST_NBYTES + table.nbytes].view(np.float32)[:] = table


def chunks(nbytes: int, chunk_nbytes: int) -> tuple[tuple[int, int], ...]:
    """
    Cut a copy into pieces, so that the transfer of one overlaps the copy of the next.

    >>> chunks(10, 4)
    ((0, 4), (4, 8), (8, 10))

    :returns: (start, stop) in bytes, in order, without gaps; at least one, also for 0 bytes.
    """
    starts = range(0, max(nbytes, 1), chunk_nbytes)
    return tuple((start, min(start + chunk_nbytes, nbytes)) for start in starts)


class Source:
    """
    The bytes of one image of a run.

    :ivar key: what a captured graph depends on, beside the buffers.
    :ivar nbytes: bytes on the GPU.
    :ivar data: 1-D uint8; None where the bytes need a conversion.
    :ivar is_small_tensor: whether the graph copies it from pinned memory into the network's input.
    :ivar is_on_gpu: whether `send` writes the bytes on the GPU, without pinned memory.
    """

    __slots__ = ('_address', 'data', 'key', 'nbytes')
    key: Hashable
    data: np.ndarray | None
    is_small_tensor = False
    is_on_gpu = False

    def __init__(self, frame: Frame) -> None:
        self.key, self.nbytes, self.data = frame.layout, frame.nbytes, frame.data
        self._address: int | None = None

    @property
    def address(self) -> int:
        """Host address of the bytes; 0 where they need a conversion."""
        if self._address is None:
            self._address = 0 if self.data is None else address_of(self.data)
        return self._address

    def copy(self, target: np.ndarray, start: int, stop: int) -> None:
        """Copy bytes `start` to `stop` into `target`, uint8 of that size."""
        assert self.data is not None
        target[:] = self.data[start:stop]

    def copy_blocks(self, target: np.ndarray, start: int, stop: int, blocks: Blocks) -> None:
        """Copy bytes `start` to `stop` of the blocks alone, which are whole ones."""
        assert self.data is not None
        nbytes = blocks.nbytes
        parts: np.ndarray = np.ndarray(
            (blocks.count, nbytes), np.uint8, self.data, blocks.first, (blocks.period, 1)
        )
        target.reshape(-1, nbytes)[:] = parts[start // nbytes : stop // nbytes]

    def send(self, target: int, stream: int) -> None:
        """Enqueue the transfer of all bytes to a GPU address, without pinned memory."""
        copy_async(target, self.address, self.nbytes, stream)


class TensorSource(Source):
    """A run's tensor, as split_inputs() returns it, padded and converted."""

    __slots__ = ('_padding', '_spec', '_value', 'is_small_tensor')

    def __init__(
        self, spec: TensorSpec, value: np.ndarray, padding: Padding | None = None
    ) -> None:
        dtype = numpy_dtype(spec.dtype)
        self._padding = padding
        size = value.size if padding is None else math.prod(padding.spec.shape)
        self.nbytes = size * dtype.itemsize
        self.is_small_tensor = self.nbytes <= SMALL_NBYTES
        is_plain = (
            padding is None
            and value.dtype == dtype
            and spec.dtype != 'bfloat16'
            and value.flags.c_contiguous
        )
        self.key, self.data, self._address = is_plain, None, None
        if is_plain:
            self.data = value.reshape(-1).view(np.uint8)
        self._spec, self._value = spec, value

    def copy(self, target: np.ndarray, start: int, stop: int) -> None:
        """Copy bytes `start` to `stop` into `target`; all of them where they are converted."""
        if self.data is not None:
            super().copy(target, start, stop)
        elif self._padding is not None:
            values = target.view(numpy_dtype(self._spec.dtype)).reshape(self._padding.spec.shape)
            self._padding.write(values, self._value)
        else:
            values = target.view(numpy_dtype(self._spec.dtype)).reshape(self._value.shape)
            write_tensor(values, self._spec, self._value)


def zero_copy_addresses(
    sources: Sequence[Source], device_address: DeviceAddress | None
) -> tuple[int, ...]:
    """Return the GPU address of each source in registered memory; 0 for the others."""
    if device_address is None:
        return (0,) * len(sources)
    return tuple(
        [
            0
            if source.is_small_tensor or source.data is None
            else device_address(source.address, source.nbytes)
            for source in sources
        ]
    )


@dataclass(frozen=True)
class Piece:
    """
    Bytes `start` to `stop` of source `index`, copied to pinned memory as one.

    :param pinned: offset of the target in the pinned buffer.
    :param send: (GPU address, offset in the pinned buffer, bytes) to transfer once copied; 0 bytes
        where the graph does it, or where kernels read the pinned buffer.
    """

    index: int
    start: int
    stop: int
    pinned: int
    send: tuple[int, int, int]
    blocks: Blocks | None = None


@dataclass(frozen=True)
class Part:
    """
    A source in the plan of transfers.

    :param nbytes: of all, or of its `blocks`.
    :param pinned: offset in the pinned buffer.
    :param target: GPU address; 0 where the graph reads the source in place.
    :param is_zero_copy: whether it comes to `target` without pinned memory.
    """

    nbytes: int
    pinned: int
    target: int
    is_zero_copy: bool
    can_be_cut: bool
    blocks: Blocks | None = None

    @property
    def rows(self) -> RowsCopy | None:
        """The copy of its blocks to `target`, if it has some."""
        return None if self.blocks is None else RowsCopy.of(self.target, self.blocks)

    def cuts(self, chunk_nbytes: int) -> Sequence[tuple[int, int]]:
        """Return (start, stop) of its pieces of about `chunk_nbytes`, of whole blocks."""
        if not self.can_be_cut:
            return [(0, self.nbytes)]
        unit = 1 if self.blocks is None else self.blocks.nbytes
        return chunks(self.nbytes, max(chunk_nbytes // unit, 1) * unit)


@dataclass(frozen=True)
class Transfers:
    """
    The transfers of a run to the GPU.

    :param pieces: copies to pinned memory, most of them transferred at once.
    :param in_graph: (GPU address, offset in the pinned buffer, bytes) of those in the graph.
    """

    pieces: tuple[Piece, ...]
    in_graph: tuple[tuple[int, int, int], ...]


def plan_transfers(
    parts: Sequence[Part], header: int, header_nbytes: int, chunk_nbytes: int
) -> Transfers:
    """
    Plan the transfers of a run.

    Large parts are cut: the transfer of a piece overlaps the copy of the next one. The last piece,
    small parts and the header are transferred in the graph, which costs no call; but a header
    that lies before the first piece on both sides is transferred with it.

    :param header: GPU address of the header, whose source is the start of the pinned buffer; 0
        where kernels read it in place.
    """
    cuts = [
        (index, start, stop)
        for index, part in enumerate(parts)
        if not part.is_zero_copy
        for start, stop in part.cuts(chunk_nbytes)
    ]
    pieces: list[Piece] = []
    in_graph: list[tuple[int, int, int]] = []
    if header:
        in_graph.append((header, 0, header_nbytes))
    for number, (index, start, stop) in enumerate(cuts):
        part = parts[index]
        pinned = part.pinned + start
        send = (part.target + start, pinned, stop - start) if part.target else (0, 0, 0)
        is_in_graph = number == len(cuts) - 1 or part.nbytes <= SMALL_NBYTES
        if in_graph and (is_in_graph or in_graph[-1] == (header, 0, header_nbytes)):
            # Other small parts may not be copied yet when a large one is.
            target, offset, nbytes = in_graph[-1]
            if send[:2] == (target + nbytes, offset + nbytes):
                in_graph.pop()
                send = (target, offset, nbytes + send[2])
        if send[2] and is_in_graph:
            in_graph.append(send)
            send = (0, 0, 0)
        pieces.append(Piece(index, start, stop, pinned, send, part.blocks))
    return Transfers(tuple(pieces), tuple(in_graph))


class CopyThreadPool:
    """Threads that share a large copy, in a CUDA context; NumPy releases the GIL meanwhile."""

    def __init__(self, threads: int, context: AbstractContextManager[None]) -> None:
        self._jobs: queue.SimpleQueue[Callable[[], None] | None] = queue.SimpleQueue()
        self._done: queue.SimpleQueue[BaseException | None] = queue.SimpleQueue()
        self._busy = threading.Lock()
        self._threads = [
            threading.Thread(target=self._work, args=(context,), name=f'copy {index}', daemon=True)
            for index in range(threads)
        ]
        for thread in self._threads:
            thread.start()

    def run(self, do: Callable[[Item], None], pieces: Sequence[Item]) -> None:
        """Call `do` with every piece on all threads; raises the exception of one at the end."""
        rest = iter(pieces)  # Threads may share it: next() is atomic under the GIL.

        def share() -> None:
            for piece in rest:
                do(piece)

        threads = min(len(self._threads), len(pieces) - 1)
        if threads <= 0:
            share()
            return
        with self._busy:  # Two frames at once would take each other's results.
            for _ in range(threads):
                self._jobs.put(share)
            try:
                share()
            finally:
                errors = [self._done.get() for _ in range(threads)]
            for error in errors:
                if error is not None:
                    raise error

    def _work(self, context: AbstractContextManager[None]) -> None:
        while (job := self._jobs.get()) is not None:
            try:
                with context:
                    job()
                failed: BaseException | None = None
            except BaseException as error:
                failed = error
            job = None  # It references the frame, whose memory its owner waits to reuse.
            self._done.put(failed)
            failed = None

    def close(self) -> None:
        """Stop the threads; may be called twice."""
        for _ in self._threads:
            self._jobs.put(None)
        for thread in self._threads:
            thread.join()
        self._threads.clear()


def copy_pieces(
    sources: Sequence[Source],
    pieces: Sequence[Piece],
    pinned: PinnedBuffer,
    stream: int,
    threads: CopyThreadPool,
) -> None:
    """Copy pieces of sources into pinned memory, and send each to the GPU as soon as it is."""
    view, host = pinned.view, pinned.ptr

    def copy(piece: Piece) -> None:
        start, stop = piece.start, piece.stop
        target = view[piece.pinned : piece.pinned + stop - start]
        source = sources[piece.index]
        if piece.blocks is None:
            source.copy(target, start, stop)
        else:
            source.copy_blocks(target, start, stop, piece.blocks)
        address, offset, nbytes = piece.send
        if nbytes:
            copy_async(address, host + offset, nbytes, stream)

    if len(pieces) == 1 or all(piece.stop - piece.start <= SMALL_NBYTES for piece in pieces):
        for piece in pieces:
            copy(piece)
    else:
        threads.run(copy, pieces)
