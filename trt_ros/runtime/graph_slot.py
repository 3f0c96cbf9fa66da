"""One frame under way: its memory, its stream, and its captured graphs."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from contextlib import ExitStack
from dataclasses import dataclass
from functools import partial
import logging
import time

import numpy as np

from trt_ros.cuda.calls import CudaError
from trt_ros.cuda.device import Event, Gpu, Stream
from trt_ros.cuda.graphs import Graph
from trt_ros.cuda.kernels import Kernels
from trt_ros.cuda.memory import Account, DeviceBuffer, PinnedBuffer, copy_async, fill_async
from trt_ros.errors import BackendError
from trt_ros.runtime.graph_steps import (
    Geometry,
    GpuHead,
    ResultView,
    launch_preprocess,
    preprocess_args,
    request_view,
    result_nbytes,
)
from trt_ros.runtime.slots import CopyCrew, Recent, chunks
from trt_ros.runtime.tensorrt_execution import Contexts, Execution, Shape, item_nbytes
from trt_ros.vision.frame import Frame
from trt_ros.vision.letterbox import Letterbox, Preprocess

log = logging.getLogger('trt_ros.runtime')

HEADER_NBYTES = 256  # The request; keeps the images behind it aligned.
Stage = tuple[str, Callable[[int], None]]


def aligned(nbytes: int) -> int:
    return -(-nbytes // 256) * 256


@dataclass(frozen=True)
class Thresholds:
    """What a graph does not freeze."""

    score: float
    iou: float
    max_detections: int


@dataclass(frozen=True)
class Machinery:
    """What all slots of a pipeline share; borrowed by them."""

    gpu: Gpu
    account: Account
    contexts: Contexts
    preprocess: Preprocess
    preprocess_kernels: Kernels
    detect_kernels: Kernels | None
    heads: Callable[[Mapping[str, Shape]], GpuHead | None]
    crew: CopyCrew
    capacity: int            # Detections an image.
    chunk_nbytes: int
    graph_capacity: int
    use_graph: bool
    in_place: bool           # Kernels read pinned memory where it lies.
    blocking_sync: bool
    stream_priority: int
    on_ungraphed: Callable[[str], None]


class Source:
    """
    Where the bytes of a frame's images come from, and the part of the way that the graph does.

    :param key: what a graph depends on beside the geometries.
    :param addresses: where the GPU reads each image.
    :param in_graph: (target, source, nbytes) copies that belong into the graph.
    """

    def __init__(self, key: tuple[object, ...], addresses: tuple[int, ...], request: int,
                 in_graph: tuple[tuple[int, int, int], ...]) -> None:
        self.key, self.addresses, self.request, self.in_graph = key, addresses, request, in_graph


class Plan:
    """A batch size in one slot: its context, its tensors, its graphs; the slot owns it."""

    def __init__(self, machinery: Machinery, batch: int) -> None:
        self.machinery, self.batch = machinery, batch
        engine = machinery.contexts.engine
        self._owned = ExitStack()
        with ExitStack() as undo:
            spec = engine.inputs[0]
            height, width = machinery.preprocess.input_hw
            shape = ((batch, 3, height, width) if machinery.preprocess.layout == 'nchw'
                     else (batch, height, width, 3))
            self.execution: Execution = machinery.contexts.new({spec.name: shape})
            undo.callback(self.execution.close)
            self.shapes = {out.name: self.execution.shape_of(out.name) for out in engine.outputs}
            self.image_nbytes = int(np.prod(shape[1:])) * item_nbytes(spec.dtype)
            self.tensors: dict[str, DeviceBuffer] = {}
            sizes = {spec.name: batch * self.image_nbytes}
            for out in engine.outputs:
                sizes[out.name] = int(np.prod(self.shapes[out.name])) * item_nbytes(out.dtype)
            for name, nbytes in sizes.items():
                buffer = DeviceBuffer(nbytes, 'tensors', machinery.account)
                undo.callback(buffer.close)
                self.tensors[name] = buffer
                self.execution.bind(name, buffer.ptr)
            self.input = self.tensors[spec.name]
            self.head = machinery.heads(self.shapes)
            if self.head is not None:
                scratch = batch * aligned(self.head.scratch_nbytes)
                nbytes = batch * aligned(result_nbytes(machinery.capacity))
                self.scratch = DeviceBuffer(scratch, 'decoder', machinery.account)
                undo.callback(self.scratch.close)
            else:
                nbytes = sum(aligned(sizes[out.name]) for out in engine.outputs)
            self.results = PinnedBuffer(nbytes, 'results', machinery.account)
            undo.callback(self.results.close)
            self.graphs: Recent[Graph] = Recent(machinery.graph_capacity)
            undo.callback(self.graphs.clear)
            self.views = self._views()
            self._owned = undo.pop_all()
        self.is_warm = False

    def _views(self) -> tuple[ResultView, ...]:
        if self.head is None:
            return ()
        step, capacity = aligned(result_nbytes(self.machinery.capacity)), self.machinery.capacity
        return tuple(ResultView.on(self.results.view[i * step:(i + 1) * step], capacity)
                     for i in range(self.batch))

    def prepare(self, stream: int) -> None:
        """Set the decoder's counters to zero, once: each frame leaves them so."""
        if self.head is not None:
            fill_async(self.scratch.ptr, 0, self.scratch.nbytes, stream)

    def stages(self, geometries: Sequence[Geometry], source: Source) -> list[Stage]:
        """List what a frame does on the GPU, in order, each as a function of the stream."""
        m, stages = self.machinery, list[Stage]()
        if source.in_graph:
            def copy_in(stream: int) -> None:
                for target, origin, nbytes in source.in_graph:
                    copy_async(target, origin, nbytes, stream)
            stages.append(('copy in', copy_in))
        args = [preprocess_args(m.preprocess, geometry, address,
                                self.input.ptr + i * self.image_nbytes)
                for i, (geometry, address) in enumerate(zip(geometries, source.addresses))]

        def preprocess(stream: int) -> None:
            for each in args:
                launch_preprocess(m.preprocess_kernels, each, stream)
        stages += [('preprocess', preprocess), ('inference', self.execution.enqueue),
                   self._last_stage(geometries, source)]
        return stages

    def _last_stage(self, geometries: Sequence[Geometry], source: Source) -> Stage:
        m, head = self.machinery, self.head
        outputs = m.contexts.engine.outputs
        if head is None or m.detect_kernels is None:
            def copy_out(stream: int) -> None:
                offset = 0
                for out in outputs:
                    buffer = self.tensors[out.name]
                    copy_async(self.results.ptr + offset, buffer.ptr, buffer.nbytes, stream)
                    offset += aligned(buffer.nbytes)
            return 'copy out', copy_out
        kernels = m.detect_kernels
        values = self.tensors[head.spec.name]
        args = [head.args(
            Letterbox.fit((g.width, g.height), m.preprocess.input_hw, m.preprocess.resize),
            values=values.ptr + i * values.nbytes // self.batch, request=source.request,
            scratch=self.scratch.ptr + i * aligned(head.scratch_nbytes),
            result=self.results.device_ptr + i * aligned(result_nbytes(m.capacity)),
            capacity=m.capacity) for i, g in enumerate(geometries)]

        def decode(stream: int) -> None:
            for each in args:
                head.launch(kernels, each, stream)
        return 'decode', decode

    def outputs(self) -> dict[str, np.ndarray]:
        """See the raw outputs in pinned memory, where a CPU decoder reads them; borrowed."""
        found, offset = {}, 0
        for out in self.machinery.contexts.engine.outputs:
            nbytes = self.tensors[out.name].nbytes
            kind = 'uint16' if out.dtype == 'bfloat16' else out.dtype
            found[out.name] = self.results.view[offset:offset + nbytes].view(kind).reshape(
                self.shapes[out.name])
            offset += aligned(nbytes)
        return found

    def close(self) -> None:
        self._owned.close()


class FrameSlot:
    """
    The way of one frame. Owns its stream, its memory and its plans; borrows the machinery.

    Copies are begun by `start`; what they read may be reused once `start` has returned, except a
    registered source, which must stay until `wait`.
    """

    def __init__(self, machinery: Machinery) -> None:
        self.machinery = machinery
        with ExitStack() as undo:
            self.stream = Stream(machinery.gpu, machinery.stream_priority)
            undo.callback(self.stream.close)
            self.done = Event(blocking_sync=machinery.blocking_sync)
            undo.callback(self.done.close)
            self._pinned: PinnedBuffer | None = None
            self._image: DeviceBuffer | None = None
            undo.callback(self._drop_memory)
            self._plans: Recent[Plan] = Recent(capacity=4)
            undo.callback(self._plans.clear)
            self._owned = undo.pop_all()
        self.plan: Plan | None = None
        self.host_copy_seconds = 0.0

    @property
    def pinned_view(self) -> np.ndarray:
        """Return the pinned bytes behind the header: where the images are copied to."""
        assert self._pinned is not None
        return self._pinned.view[HEADER_NBYTES:]

    def plan_for(self, batch: int) -> Plan:
        def make() -> Plan:
            plan = Plan(self.machinery, batch)
            plan.prepare(self.stream.handle)
            return plan
        return self._plans.get(batch, make)

    def start(self, frames: Sequence[Frame], thresholds: Thresholds,
              registered: Callable[[int, int], int], after: Event | None) -> None:
        """
        Bring the frames to the GPU and launch their graph; returns while it runs.

        :param registered: the GPU's address of (host address, bytes) in page-locked memory, or 0.
        :param after: the frame before, in whose scratch memory this one runs.
        """
        plan = self.plan = self.plan_for(len(frames))
        geometries = tuple(map(Geometry.of, frames))
        source = self._bring(frames, thresholds, registered)
        stream = self.stream.handle
        if after is not None:
            self.stream.wait_for(after)
        if not self.machinery.use_graph:
            for _, stage in plan.stages(geometries, source):
                stage(stream)
        else:
            graph = plan.graphs.get((geometries, source.key),
                                    make=lambda: self._capture(plan, geometries, source))
            graph.launch(stream)
        self.done.record(stream)

    def stages_of(self, frames: Sequence[Frame], thresholds: Thresholds,
                  registered: Callable[[int, int], int]) -> list[Stage]:
        """Bring the frames in and list the stages, for measuring each; runs none of them."""
        plan = self.plan = self.plan_for(len(frames))
        return plan.stages(tuple(map(Geometry.of, frames)),
                           self._bring(frames, thresholds, registered))

    def _capture(self, plan: Plan, geometries: tuple[Geometry, ...], source: Source) -> Graph:
        stages = plan.stages(geometries, source)
        stream = self.stream.handle
        if not plan.is_warm:
            # TensorRT initialises on first use, which cannot be captured. Results are discarded.
            for _, stage in stages:
                stage(stream)
            self.stream.synchronize()
            plan.is_warm = True
        whole = Ungraphed([stage for _, stage in stages])
        why_not = plan.execution.why_not_capturable(stream)
        if not why_not:
            try:
                return Graph.capture(stream, whole.launch)
            except (BackendError, CudaError) as error:
                if isinstance(error, CudaError) and error.is_sticky:
                    raise
                why_not = str(error)
        self.machinery.on_ungraphed(why_not)
        return whole

    def _bring(self, frames: Sequence[Frame], thresholds: Thresholds,
               registered: Callable[[int, int], int]) -> Source:
        begin = time.perf_counter()
        offsets, end = [], HEADER_NBYTES
        for frame in frames:
            offsets.append(end)
            end += aligned(frame.nbytes)
        pinned, image = self._memory(end)
        request = request_view(pinned.view[:16])
        request.score_threshold, request.iou_threshold = thresholds.score, thresholds.iou
        request.max_detections = thresholds.max_detections
        at = [frame.data.__array_interface__['data'][0] for frame in frames]
        lent = [registered(ptr, frame.nbytes) for ptr, frame in zip(at, frames)]
        if image is None:
            source = self._in_place(frames, pinned, offsets, lent)
        elif all(lent):
            for frame, ptr, offset in zip(frames, at, offsets):
                copy_async(image.ptr + offset, ptr, frame.nbytes, self.stream.handle)
            source = Source(('lent',), tuple(image.ptr + offset for offset in offsets), image.ptr,
                            ((image.ptr, pinned.ptr, HEADER_NBYTES),))
        else:
            source = self._in_chunks(frames, pinned, image, offsets)
        self.host_copy_seconds = time.perf_counter() - begin
        return source

    def _in_place(self, frames: Sequence[Frame], pinned: PinnedBuffer, offsets: list[int],
                  lent: list[int]) -> Source:
        addresses = []
        for frame, offset, address in zip(frames, offsets, lent):
            if not address:
                self._copy(pinned, [(frame, offset, 0, frame.nbytes)], None, 0)
                address = pinned.device_ptr + offset
            addresses.append(address)
        # Lent memory lies where it lies, so its address is part of what the graph is.
        return Source(('in place', *addresses), tuple(addresses), pinned.device_ptr, ())

    def _in_chunks(self, frames: Sequence[Frame], pinned: PinnedBuffer, image: DeviceBuffer,
                   offsets: list[int]) -> Source:
        pieces = [(frame, offset, start, stop) for frame, offset in zip(frames, offsets)
                  for start, stop in chunks(frame.nbytes, self.machinery.chunk_nbytes)]
        self._copy(pinned, pieces, image, len(pieces) - 1)
        # The graph does the last transfer; the first one takes the header along.
        _, offset, start, stop = pieces[-1]
        first = offset + start if len(pieces) > 1 else 0
        return Source(
            ('pinned',), tuple(image.ptr + offset for offset in offsets), image.ptr,
            ((image.ptr + first, pinned.ptr + first, offset + stop - first),))

    def _copy(self, pinned: PinnedBuffer, pieces: list[tuple[Frame, int, int, int]],
              image: DeviceBuffer | None, transfers: int) -> None:
        """Copy pieces into pinned memory, and send each of the first `transfers` on at once."""
        view, stream = pinned.view, self.stream.handle

        def do(number: int) -> None:
            frame, offset, start, stop = pieces[number]
            view[offset + start:offset + stop] = frame.data[start:stop]
            if image is not None and number < transfers:
                first = offset + start if number else 0
                copy_async(image.ptr + first, pinned.ptr + first, offset + stop - first, stream)
        if len(pieces) == 1:
            do(0)
        else:
            self.machinery.crew.run([partial(do, number) for number in range(len(pieces))])

    def _memory(self, nbytes: int) -> tuple[PinnedBuffer, DeviceBuffer | None]:
        """Return memory for this many bytes; grows where there is less."""
        if self._pinned is None or self._pinned.nbytes < nbytes:
            # Graphs name the addresses that go.
            for plan in self._plans.values():
                plan.graphs.clear()
            self._drop_memory()
            self._pinned = PinnedBuffer(aligned(nbytes), 'slots', self.machinery.account)
            if not self.machinery.in_place:
                self._image = DeviceBuffer(aligned(nbytes), 'slots', self.machinery.account)
        return self._pinned, self._image

    def _drop_memory(self) -> None:
        for buffer in (self._image, self._pinned):
            if buffer is not None:
                buffer.close()
        self._image = self._pinned = None

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
