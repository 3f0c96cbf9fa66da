"""Frame slots: memory, stream and captured graphs of one frame in flight."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from contextlib import ExitStack
from operator import lt
import time
from typing import Any, NamedTuple

import numpy as np

from trt_ros.cuda.calls import CudaError
from trt_ros.cuda.device import Event, Stream
from trt_ros.cuda.graphs import Graph
from trt_ros.cuda.memory import DeviceBuffer, PinnedBuffer, copy_async, fill_async
from trt_ros.errors import BackendError, TensorMismatchError
from trt_ros.runtime.gpu.batch_buffers import (
    HEADER_NBYTES,
    BatchBuffers,
    CapturedGraph,
    FrameAddresses,
    Piece,
    SlotMemory,
    Stage,
    StageSequence,
    aligned,
)
from trt_ros.runtime.gpu.preprocess import Geometry, request_view
from trt_ros.runtime.gpu.shared_resources import SharedResources
from trt_ros.runtime.gpu.slots import chunks
from trt_ros.runtime.gpu.waiting import Run
from trt_ros.vision.frame import Frame
from trt_ros.vision.thresholds import Thresholds

#: Larger images are copied in pieces of this size: the transfer of one overlaps the next copy.
CHUNK_NBYTES = 1 << 20

DeviceAddress = Callable[[int, int], int]  # (host address, nbytes) to the GPU's address, or 0.


def cut_into_pieces(
    sizes: Sequence[int], offsets: Sequence[int], chunk_nbytes: int, *, send: bool
) -> tuple[Piece, ...]:
    """
    Cut images into pieces; each but the last is sent by itself, the first with the header.

    :param offsets: offset of each image in the pinned buffer.
    :param send: False where the GPU reads the pinned buffer directly.
    """
    found = [
        (index, start, stop)
        for index, size in enumerate(sizes)
        for start, stop in chunks(size, chunk_nbytes)
    ]
    pieces = []
    for number, (index, start, stop) in enumerate(found):
        pinned = offsets[index] + start
        first = pinned if number else 0
        is_sent = send and number < len(found) - 1
        sent = (first, pinned + stop - start - first) if is_sent else (0, 0)
        pieces.append(Piece(index, start, stop, pinned, sent))
    return tuple(pieces)


def address_of(frame: Frame) -> int:
    """Return the host address of a frame's bytes."""
    address: int = frame.data.ctypes.data
    return address


class Launched(NamedTuple):
    """
    A batch of frames that `FrameSlot.start` has launched; valid until the slot's next start.

    :param zero_copy: whether the GPU reads the frames directly from registered memory.
    :param host_copy_seconds: time to copy the frames and to enqueue transfers.
    """

    buffers: BatchBuffers
    captured: CapturedGraph
    zero_copy: bool
    host_copy_seconds: float

    def read(self, frames: Sequence[Frame]) -> list[tuple[Any, bool]]:
        """
        Return the GPU decoder's result of each frame and whether outputs had non-finite values.

        Call after `FrameSlot.wait`, and only if `buffers` has a decoder.
        """
        decoder, captured = self.buffers.decoder, self.captured
        assert decoder is not None
        view = captured.memory.results.view
        return [
            decoder.read(view[part], frame.wh) for part, frame in zip(captured.results, frames)
        ]

    def outputs(self) -> dict[str, np.ndarray]:
        """Return views of the raw outputs, for a CPU decoder; the slot reuses their memory."""
        return self.buffers.outputs(self.captured.memory.results.view)


class FrameSlot:
    """
    One frame in flight. Owns its stream, its memory and its graphs; borrows shared resources.

    Source memory of the frames may be reused once `start` has returned, except registered memory,
    which must not change until `wait` returns.

    :param chunk_nbytes: size of the pieces of a large image; default CHUNK_NBYTES.
    :ivar memory: memory for images and results; None before the first frame.
    :ivar in_flight: True from `start` until `wait` has returned.
    """

    def __init__(self, shared: SharedResources, chunk_nbytes: int | None = None) -> None:
        self.shared = shared
        self._chunk_nbytes = CHUNK_NBYTES if chunk_nbytes is None else chunk_nbytes
        with ExitStack() as undo:
            self.stream = Stream(shared.options.stream_priority)
            undo.callback(self.stream.close)
            self.done = Event(blocking_sync=shared.options.gpu_wait == 'block')
            undo.callback(self.done.close)
            self.memory: SlotMemory | None = None
            undo.callback(self._free_memory)
            self._buffers: dict[int, BatchBuffers] = {}
            undo.callback(self._close_buffers)
            self._owned = undo.pop_all()
        self.in_flight = False
        self._run: Run | None = None

    def buffers_for(self, count: int) -> BatchBuffers:
        """
        Return the buffers of the smallest batch of at least `count` images.

        :raises TensorMismatchError: when there is no such batch, or the engine rejects its shape.
        """
        batches = self.shared.batches
        batch = next((size for size in batches if size >= count), 0)
        if not batch:
            raise TensorMismatchError(
                f'{count} images exceed the maximum batch size of {batches[-1]}.'
            )
        if batch not in self._buffers:
            # Smaller batches use the memory of the largest.
            larger = self.buffers_for(batches[-1]) if batch < batches[-1] else None
            with ExitStack() as undo:
                buffers = BatchBuffers(self.shared, batch, larger)
                undo.callback(buffers.close)
                buffers.prepare(self.stream.handle)
                undo.pop_all()
            self._buffers[batch] = buffers
        return self._buffers[batch]

    def _close_buffers(self) -> None:
        while self._buffers:
            self._buffers.popitem()[1].close()

    def start(
        self,
        frames: Sequence[Frame],
        thresholds: Thresholds,
        device_address: DeviceAddress | None,
        after: Event | None,
    ) -> Launched:
        """
        Copy the frames to the GPU and launch their graph; returns while it runs.

        :param device_address: returns the GPU's address of registered memory; None without any.
        :param after: end of the previous frame, whose activation memory this one reuses.
        """
        launched = self._bring(frames, thresholds, device_address, after)
        if after is not None:
            self.stream.wait_for(after)
        self._run = self.shared.waiting.begin(launched.captured.times)
        launched.captured.graph.launch(self.stream.handle)
        self.done.record(self.stream.handle)
        self.in_flight = True
        return launched

    def wait(self) -> None:
        """Wait for the end of the launched frames; releases the GIL meanwhile."""
        self.shared.waiting.end(self._run, self.done)
        self.in_flight = False

    def stages_of(self, frames: Sequence[Frame], thresholds: Thresholds) -> list[Stage]:
        """Copy frames in and return their stages, to measure each; launches none of them."""
        launched = self._bring(frames, thresholds, None, None)
        return launched.buffers.stages(list(map(Geometry.of, frames)), launched.captured.addresses)

    def _bring(
        self,
        frames: Sequence[Frame],
        thresholds: Thresholds,
        device_address: DeviceAddress | None,
        after: Event | None,
    ) -> Launched:
        """Copy the frames to the GPU, except for the last transfer, which the graph does."""
        begin = time.perf_counter()
        buffers = self.buffers_for(len(frames))
        zero_copy: tuple[int, ...] = ()  # GPU addresses of the frames.
        if device_address is not None:
            addresses = tuple(device_address(address_of(frame), frame.nbytes) for frame in frames)
            if all(addresses):
                zero_copy = addresses
        in_place = self.shared.in_place
        # Graphs contain the addresses of frames that kernels read in place, not of copied frames.
        key = (
            *(
                (frame.width, frame.height, frame.step, frame.encoding, frame.is_bigendian)
                for frame in frames
            ),
            zero_copy if in_place else bool(zero_copy),
        )
        captured = buffers.captured.find(key)
        if captured is None:
            captured = self._open_graph(buffers, key, frames, zero_copy, after)
        memory = captured.memory
        request, image = memory.request, memory.image
        request.score_threshold, request.iou_threshold = thresholds.score, thresholds.iou
        request.max_detections = thresholds.max_detections
        if not zero_copy:
            self._copy(frames, captured.pieces, memory)
        elif image is not None:
            stream = self.stream.handle
            for frame, offset, size in zip(frames, captured.offsets, captured.sizes):
                copy_async(image.ptr + offset, address_of(frame), size, stream)
        return Launched(buffers, captured, bool(zero_copy), time.perf_counter() - begin)

    def _open_graph(
        self,
        buffers: BatchBuffers,
        key: tuple[object, ...],
        frames: Sequence[Frame],
        zero_copy: tuple[int, ...],
        after: Event | None,
    ) -> CapturedGraph:
        """Lay out memory for frames of these geometries, and capture their graph."""
        sizes = tuple(frame.nbytes for frame in frames)
        offsets, end = [], HEADER_NBYTES
        for size in sizes:
            offsets.append(end)
            end += aligned(size)
        geometries = tuple(map(Geometry.of, frames))
        results, results_end = [], 0
        for size in buffers.result_sizes(geometries):
            results.append(slice(results_end, results_end + size))
            results_end += size
        # Zero-copy frames need no pinned memory; pinning takes most of the time of a first frame.
        memory = self._grow_memory(HEADER_NBYTES if zero_copy else end, end, results_end)
        pinned, image = memory.pinned, memory.image
        targets = tuple(memory.results.device_ptr + part.start for part in results)
        pieces: tuple[Piece, ...] = ()
        if not zero_copy:
            pieces = cut_into_pieces(sizes, offsets, self._chunk_nbytes, send=image is not None)
        if image is None:
            images = zero_copy or tuple(pinned.device_ptr + offset for offset in offsets)
            addresses = FrameAddresses(images, pinned.device_ptr, (), targets)
        else:
            # The graph does the last transfer, together with the header if it is the only one.
            first, last = 0, HEADER_NBYTES
            if not zero_copy:
                first = pieces[-1].pinned if len(pieces) > 1 else 0
                last = pieces[-1].pinned + pieces[-1].stop - pieces[-1].start
            addresses = FrameAddresses(
                tuple(image.ptr + offset for offset in offsets),
                image.ptr,
                ((image.ptr + first, pinned.ptr + first, last - first),),
                targets,
            )
        if after is not None:
            self.stream.wait_for(after)
        stages = buffers.stages(geometries, addresses)
        return buffers.captured.get(
            key,
            make=lambda: CapturedGraph(
                self._capture(buffers, stages),
                memory,
                addresses,
                sizes,
                tuple(offsets),
                tuple(results),
                pieces,
            ),
        )

    def _capture(self, buffers: BatchBuffers, stages: list[Stage]) -> Graph | StageSequence:
        sequence = StageSequence([stage for _, stage in stages])
        if not self.shared.options.use_graph:
            return sequence
        stream = self.stream.handle
        if not buffers.is_warm:
            # TensorRT initialises on first use, which cannot be captured. Results are discarded.
            sequence.launch(stream)
            self.stream.synchronize()
            buffers.is_warm = True
        reason = buffers.execution.why_not_capturable(stream)
        if not reason:
            try:
                return Graph.capture(stream, sequence.launch)
            except (BackendError, CudaError) as error:
                if isinstance(error, CudaError) and error.is_sticky:
                    raise
                reason = str(error)
        self.shared.graph_fallbacks.append(reason)
        return sequence

    def _copy(self, frames: Sequence[Frame], pieces: Sequence[Piece], memory: SlotMemory) -> None:
        """Copy into pinned memory, and send each piece to the GPU as soon as it is copied."""
        view, pinned = memory.pinned.view, memory.pinned.ptr
        image = 0 if memory.image is None else memory.image.ptr
        stream = self.stream.handle

        def copy(piece: Piece) -> None:
            nbytes = piece.stop - piece.start
            view[piece.pinned : piece.pinned + nbytes] = frames[piece.index].data[
                piece.start : piece.stop
            ]
            first, count = piece.send
            if count:
                copy_async(image + first, pinned + first, count, stream)

        if len(pieces) == 1:
            copy(pieces[0])
        else:
            self.shared.copy_threads.run(copy, pieces)

    def _grow_memory(
        self, pinned_nbytes: int, image_nbytes: int, result_nbytes: int
    ) -> SlotMemory:
        """Return memory of at least these sizes; reallocates where the present one is smaller."""
        if self.shared.in_place:
            image_nbytes = 0
        memory, wanted = self.memory, (pinned_nbytes, image_nbytes, result_nbytes)
        present = (0, 0, 0)
        if memory is not None:
            image_now = 0 if memory.image is None else memory.image.nbytes
            present = (memory.pinned.nbytes, image_now, memory.results.nbytes)
        if memory is None or any(map(lt, present, wanted)):
            # Graphs contain the addresses of the memory that is freed here.
            for buffers in self._buffers.values():
                buffers.captured.clear()
            self._free_memory()
            memory = self.memory = self._allocate(*map(max, present, wanted))
        return memory

    def _allocate(self, pinned_nbytes: int, image_nbytes: int, result_nbytes: int) -> SlotMemory:
        account, image = self.shared.account, None
        with ExitStack() as undo:
            pinned = PinnedBuffer(aligned(pinned_nbytes), 'slots', account)
            undo.callback(pinned.close)
            pinned.view[:HEADER_NBYTES] = 0
            results = PinnedBuffer(result_nbytes, 'results', account)
            undo.callback(results.close)
            if not self.shared.in_place:
                image = DeviceBuffer(aligned(image_nbytes), 'slots', account)
                undo.callback(image.close)
                fill_async(image.ptr, 0, image.nbytes, self.stream.handle)
            undo.pop_all()
        return SlotMemory(pinned, image, results, request_view(pinned.view[:16]))

    def _free_memory(self) -> None:
        memory, self.memory = self.memory, None
        if memory is not None:
            for buffer in (memory.image, memory.pinned, memory.results):
                if buffer is not None:
                    buffer.close()

    def close(self) -> None:
        """Release everything; may be called twice."""
        self._owned.close()
