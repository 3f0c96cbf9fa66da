"""One frame under way: its memory, its stream, and the ways that are captured for it."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from contextlib import ExitStack
from operator import lt
import time
from typing import Any

import numpy as np

from trt_ros.cuda.calls import CudaError
from trt_ros.cuda.device import Event, Stream
from trt_ros.cuda.graphs import Graph
from trt_ros.cuda.memory import DeviceBuffer, PinnedBuffer, copy_async, fill_async
from trt_ros.errors import BackendError, TensorMismatchError
from trt_ros.runtime.gpu.batch_buffers import (
    HEADER_NBYTES,
    Piece,
    Plan,
    SharedResources,
    Source,
    Stage,
    Way,
    aligned,
)
from trt_ros.runtime.gpu.preprocess import Geometry, RequestArgs, request_view
from trt_ros.runtime.gpu.slots import chunks
from trt_ros.vision.frame import Frame
from trt_ros.vision.thresholds import Thresholds

Registered = Callable[[int, int], int]  # (host address, bytes) to the GPU's address, or 0.


def cut(
    sizes: Sequence[int], offsets: Sequence[int], chunk_nbytes: int, *, send: bool
) -> tuple[Piece, ...]:
    """
    Cut images into pieces; each but the last is sent on by itself, the first with the header.

    :param offsets: where each image begins in the pinned buffer.
    :param send: False where the GPU reads the pinned buffer itself.
    """
    found = [
        (index, start, stop)
        for index, size in enumerate(sizes)
        for start, stop in chunks(size, chunk_nbytes)
    ]
    pieces = []
    for number, (index, start, stop) in enumerate(found):
        at = offsets[index] + start
        first = at if number else 0
        is_sent = send and number < len(found) - 1
        pieces.append(
            Piece(
                index, start, stop, at, (first, at + stop - start - first) if is_sent else (0, 0)
            )
        )
    return tuple(pieces)


def address_of(frame: Frame) -> int:
    """Return where a frame's bytes lie on the host."""
    address: int = frame.data.ctypes.data
    return address


class FrameSlot:
    """
    The way of one frame. Owns its stream, its memory and its plans; borrows the machinery.

    Copies are begun by `start`; what they read may be reused once `start` has returned, except a
    registered source, which must stay until `wait`.
    """

    def __init__(self, shared: SharedResources) -> None:
        self.shared = shared
        with ExitStack() as undo:
            self.stream = Stream(shared.stream_priority)
            undo.callback(self.stream.close)
            self.done = Event(blocking_sync=shared.blocking_sync)
            undo.callback(self.done.close)
            self._request = RequestArgs()
            self._pinned: PinnedBuffer | None = None
            self._image: DeviceBuffer | None = None
            self._results: PinnedBuffer | None = None
            undo.callback(self._drop_memory)
            self._plans: dict[int, Plan] = {}
            undo.callback(self._close_plans)
            self._owned = undo.pop_all()
        self.plan: Plan | None = None
        self.way: Way | None = None
        self.host_copy_seconds = 0.0
        self.is_lent = False  # Whether the GPU takes the frames from where they came in.
        self.is_under_way = False  # From `start` until whoever waits has seen the end.

    @property
    def pinned_view(self) -> np.ndarray:
        """Return the pinned bytes behind the header: where the images are copied to."""
        assert self._pinned is not None
        return self._pinned.view[HEADER_NBYTES:]

    def plan_for(self, count: int) -> Plan:
        """
        Return the plan of the smallest batch that takes so many images.

        :raises TensorMismatchError: when none does, or the engine refuses its shape.
        """
        batches = self.shared.batches
        batch = next((size for size in batches if size >= count), 0)
        if not batch:
            raise TensorMismatchError(f'{count} images at once, the network takes {batches[-1]}.')
        if batch not in self._plans:
            # The smaller ones work in the largest's memory.
            larger = self.plan_for(batches[-1]) if batch < batches[-1] else None
            with ExitStack() as undo:
                plan = Plan(self.shared, batch, larger)
                undo.callback(plan.close)
                plan.prepare(self.stream.handle)
                undo.pop_all()
            self._plans[batch] = plan
        return self._plans[batch]

    def _close_plans(self) -> None:
        while self._plans:
            self._plans.popitem()[1].close()

    def start(
        self,
        frames: Sequence[Frame],
        thresholds: Thresholds,
        registered: Registered | None,
        after: Event | None,
    ) -> None:
        """
        Bring the frames to the GPU and launch their graph; returns while it runs.

        :param registered: finds the GPU's address of page-locked memory of the caller's.
        :param after: the frame before, in whose scratch memory this one runs.
        """
        way = self.way = self._bring(frames, thresholds, registered, after)
        if after is not None:
            self.stream.wait_for(after)
        way.graph.launch(self.stream.handle)
        self.done.record(self.stream.handle)
        self.is_under_way = True

    def wait(self) -> None:
        """Wait for the frame's end; the GIL is free meanwhile."""
        self.done.wait()
        self.is_under_way = False

    def read(self, frames: Sequence[Frame]) -> list[tuple[Any, bool]]:
        """Read what the GPU has decoded of each frame, and whether values were not finite."""
        assert self.plan is not None and self.plan.decoder is not None
        assert self.way is not None and self._results is not None
        return [
            self.plan.decoder.read(self._results.view[part], frame.wh)
            for part, frame in zip(self.way.results, frames)
        ]

    def outputs(self) -> dict[str, np.ndarray]:
        """See the raw outputs, where a CPU decoder reads them; the memory is the next frame's."""
        assert self.plan is not None and self._results is not None
        return self.plan.outputs(self._results.view)

    def stages_of(self, frames: Sequence[Frame], thresholds: Thresholds) -> list[Stage]:
        """Bring frames in and list their stages, for measuring each; runs none of them."""
        way = self._bring(frames, thresholds, None, None)
        assert self.plan is not None
        return self.plan.stages(list(map(Geometry.of, frames)), way.source)

    def _bring(
        self,
        frames: Sequence[Frame],
        thresholds: Thresholds,
        registered: Registered | None,
        after: Event | None,
    ) -> Way:
        begin = time.perf_counter()
        plan = self.plan = self.plan_for(len(frames))
        lent: tuple[int, ...] = ()
        if registered is not None:
            addresses = tuple(registered(address_of(frame), frame.nbytes) for frame in frames)
            if all(addresses):
                lent = addresses
        in_place = self.shared.in_place
        # Kernels that read lent memory in place name its address; copies from it do not.
        key = (
            *(
                (frame.width, frame.height, frame.step, frame.encoding, frame.is_bigendian)
                for frame in frames
            ),
            lent if in_place else bool(lent),
        )
        way = plan.ways.find(key)
        if way is None:
            way = self._open_way(plan, key, frames, lent, after)
        assert self._pinned is not None
        request = self._request
        request.score_threshold, request.iou_threshold = thresholds.score, thresholds.iou
        request.max_detections = thresholds.max_detections
        self.is_lent = bool(lent)
        if not lent:
            self._copy(frames, way.pieces)
        elif not in_place:
            assert self._image is not None
            for frame, offset, size in zip(frames, way.offsets, way.sizes):
                copy_async(self._image.ptr + offset, address_of(frame), size, self.stream.handle)
        self.host_copy_seconds = time.perf_counter() - begin
        return way

    def _open_way(
        self,
        plan: Plan,
        key: tuple[object, ...],
        frames: Sequence[Frame],
        lent: tuple[int, ...],
        after: Event | None,
    ) -> Way:
        """Work out how frames like these travel, and capture it."""
        sizes = tuple(frame.nbytes for frame in frames)
        offsets, end = [], HEADER_NBYTES
        for size in sizes:
            offsets.append(end)
            end += aligned(size)
        geometries = tuple(map(Geometry.of, frames))
        results, ends = [], 0
        for size in plan.result_sizes(geometries):
            results.append(slice(ends, ends + size))
            ends += size
        # Lent images are not copied to pinned memory; to pin it takes most of a first frame.
        pinned, image, found = self._memory(HEADER_NBYTES if lent else end, end, ends)
        targets = tuple(found.device_ptr + part.start for part in results)
        pieces: tuple[Piece, ...] = ()
        if not lent:
            pieces = cut(sizes, offsets, self.shared.chunk_nbytes, send=image is not None)
        if image is None:
            addresses = lent or tuple(pinned.device_ptr + offset for offset in offsets)
            source = Source(addresses, pinned.device_ptr, (), targets)
        else:
            # The graph does the last transfer; with it goes the header when it is the only one.
            first, last = 0, HEADER_NBYTES
            if not lent:
                first = pieces[-1].pinned if len(pieces) > 1 else 0
                last = pieces[-1].pinned + pieces[-1].stop - pieces[-1].start
            source = Source(
                tuple(image.ptr + offset for offset in offsets),
                image.ptr,
                ((image.ptr + first, pinned.ptr + first, last - first),),
                targets,
            )
        if after is not None:
            self.stream.wait_for(after)
        stages = plan.stages(geometries, source)

        return plan.ways.get(
            key,
            make=lambda: Way(
                source, sizes, tuple(offsets), tuple(results), pieces, self._capture(plan, stages)
            ),
        )

    def _capture(self, plan: Plan, stages: list[Stage]) -> Graph:
        whole = Ungraphed([stage for _, stage in stages])
        if not self.shared.use_graph:
            return whole
        stream = self.stream.handle
        if not plan.is_warm:
            # TensorRT initialises on first use, which cannot be captured. Results are discarded.
            whole.launch(stream)
            self.stream.synchronize()
            plan.is_warm = True
        why_not = plan.execution.why_not_capturable(stream)
        if not why_not:
            try:
                return Graph.capture(stream, whole.launch)
            except (BackendError, CudaError) as error:
                if isinstance(error, CudaError) and error.is_sticky:
                    raise
                why_not = str(error)
        self.shared.on_graph_fallback(why_not)
        return whole

    def _copy(self, frames: Sequence[Frame], pieces: Sequence[Piece]) -> None:
        """Copy into pinned memory, and send each piece on as soon as it is there."""
        assert self._pinned is not None
        view, pinned = self._pinned.view, self._pinned.ptr
        image = 0 if self._image is None else self._image.ptr
        stream = self.stream.handle

        def do(piece: Piece) -> None:
            nbytes = piece.stop - piece.start
            view[piece.pinned : piece.pinned + nbytes] = frames[piece.index].data[
                piece.start : piece.stop
            ]
            first, count = piece.send
            if count:
                copy_async(image + first, pinned + first, count, stream)

        if len(pieces) == 1:
            do(pieces[0])
        else:
            self.shared.copy_threads.run(do, pieces)

    def _memory(
        self, pinned_nbytes: int, image_nbytes: int, result_nbytes: int
    ) -> tuple[PinnedBuffer, DeviceBuffer | None, PinnedBuffer]:
        """Return memory for images and results of so many bytes; grows where there is less."""
        if self.shared.in_place:
            image_nbytes = 0
        wanted = pinned_nbytes, image_nbytes, result_nbytes
        pinned, results = self._pinned, self._results
        have = tuple(
            0 if buffer is None else buffer.nbytes for buffer in (pinned, self._image, results)
        )
        if pinned is None or results is None or any(map(lt, have, wanted)):
            pinned_nbytes, image_nbytes, result_nbytes = map(max, have, wanted)
            # Graphs name the addresses that go.
            for plan in self._plans.values():
                plan.ways.clear()
            self._drop_memory()
            account = self.shared.account
            with ExitStack() as undo:
                undo.callback(self._drop_memory)
                pinned = self._pinned = PinnedBuffer(aligned(pinned_nbytes), 'slots', account)
                pinned.view[:HEADER_NBYTES] = 0
                self._request = request_view(pinned.view[:16])
                results = self._results = PinnedBuffer(result_nbytes, 'results', account)
                if not self.shared.in_place:
                    self._image = DeviceBuffer(aligned(image_nbytes), 'slots', account)
                    fill_async(self._image.ptr, 0, self._image.nbytes, self.stream.handle)
                undo.pop_all()
        return pinned, self._image, results

    def _drop_memory(self) -> None:
        for buffer in (self._image, self._pinned, self._results):
            if buffer is not None:
                buffer.close()
        self._image = self._pinned = self._results = None

    def close(self) -> None:
        self._owned.close()


class Ungraphed(Graph):
    """Stands where a graph would be, for what cannot be captured: its stages, one by one."""

    def __init__(self, stages: list[Callable[[int], None]]) -> None:
        self.stages = stages
        self.node_count = 0

    def launch(self, stream: int) -> None:
        for stage in self.stages:
            stage(stream)

    def close(self) -> None:
        self.stages = []
