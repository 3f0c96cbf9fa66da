"""Frame slots: memory, stream and captured graphs of one frame in flight."""

from collections.abc import Sequence
from contextlib import ExitStack, suppress
from operator import lt
import time

import numpy as np

from trt_ros.cuda.calls import CudaError
from trt_ros.cuda.device import Event, Stream
from trt_ros.cuda.memory import fill_async
from trt_ros.errors import ClosedError
from trt_ros.model.run_inputs import NO_LETTERBOX, NO_TENSORS, REGIONS
from trt_ros.profiling import mark, marked
from trt_ros.runtime.gpu.batch_buffers import BatchBuffers, BuffersByShape
from trt_ros.runtime.gpu.captured_graph import CapturedGraph, SlotMemory
from trt_ros.runtime.gpu.launched import Launched
from trt_ros.runtime.gpu.run_layout import RunLayout
from trt_ros.runtime.gpu.shared_resources import SharedResources
from trt_ros.runtime.gpu.slots import LruCache
from trt_ros.runtime.gpu.sources import image_source, tensor_source
from trt_ros.runtime.gpu.staging import (
    DeviceAddress,
    Source,
    copy_pieces,
    header_nbytes,
    write_request,
    zero_copy_addresses,
)
from trt_ros.runtime.gpu.waiting import Run
from trt_ros.tensors import Arrays
from trt_ros.vision.frame import Frame
from trt_ros.vision.thresholds import Thresholds

#: Larger images are copied in pieces of this size: the transfer of one overlaps the next copy.
CHUNK_NBYTES = 1 << 20
MAX_GRAPHS = 16  # Per slot and batch size: image geometries that may alternate.


class FrameSlot:
    """
    One run in flight. Owns its stream, its memory and its graphs; borrows shared resources.

    Source memory of images and tensors may be reused once `start` has returned, except registered
    memory, which must not change until `wait` returns.

    :param chunk_nbytes: size of the pieces of a large image; default CHUNK_NBYTES.
    :ivar memory: memory for images and results; None before the first frame.
    :ivar in_flight: True from `start` until `wait` has returned.
    :ivar host_copy_seconds: time of the last `start` to copy images and to enqueue transfers.
    """

    def __init__(
        self, shared: SharedResources, buffers: BuffersByShape, chunk_nbytes: int | None = None
    ) -> None:
        self.shared, self.buffers = shared, buffers
        self._chunk_nbytes = CHUNK_NBYTES if chunk_nbytes is None else chunk_nbytes
        with ExitStack() as undo:
            self.stream = Stream(shared.options.stream_priority)
            undo.callback(self.stream.close)
            self.done = Event(blocking_sync=shared.options.gpu_wait == 'block')
            undo.callback(self.done.close)
            self.memory: SlotMemory | None = None
            undo.callback(self._free_memory)
            self._captured: dict[int, LruCache[CapturedGraph]] = {}
            undo.callback(self._close_graphs)
            self._owned = undo.pop_all()
        self.in_flight, self.host_copy_seconds = False, 0.0
        self._run: Run | None = None
        self._last: Launched | None = None
        self._ahead: tuple[Launched, int, object] | None = None

    def buffers_for(
        self, images: int, tensors: Arrays = NO_TENSORS, after: Event | None = None
    ) -> BatchBuffers:
        """Return the buffers of a run; see BuffersByShape.get."""
        shapes = {
            name: tensors[name].shape for name in self.shared.inputs.dynamic if name in tensors
        }
        return self.buffers.get(images, shapes, self.stream, after)

    def captured(self, buffers: BatchBuffers) -> LruCache[CapturedGraph]:
        """Return the graphs that use these buffers, by the geometries of the images."""
        graphs = self._captured.get(buffers.number)
        if graphs is None:
            for number in self._captured.keys() - self.buffers.numbers:
                self._captured.pop(number).clear()
            graphs = self._captured[buffers.number] = LruCache(MAX_GRAPHS)
        return graphs

    def _close_graphs(self) -> None:
        self._last = None
        for graphs in self._captured.values():
            graphs.clear()

    def start(
        self,
        frames: Sequence[Frame],
        thresholds: Thresholds,
        device_address: DeviceAddress | None,
        after: Event | None,
        tensors: Arrays = NO_TENSORS,
    ) -> Launched:
        """
        Copy images and tensors to the GPU and launch their graph; see `Pipeline.start`.

        :param device_address: returns the GPU's address of registered memory; None without any.
        :param after: end of the previous run, whose activation memory this one reuses.
        """
        begin = time.perf_counter()
        try:
            launched = self.stage_inputs(frames, thresholds, device_address, after, tensors)
            self.host_copy_seconds = time.perf_counter() - begin
            ahead, self._ahead = self._ahead, None
            is_ahead = (
                ahead is not None
                and ahead[0] is launched
                and ahead[1] == launched.captured.words[0][1].item()
            )
            if not is_ahead:
                self._enqueue(launched, after, tensors)
        except BaseException:
            self._ahead = None
            with suppress(CudaError):
                self.stream.synchronize()  # Images before a refused one may be freed now.
            raise
        self.in_flight = True
        return launched

    @marked('enqueue')
    def _enqueue(self, launched: Launched, after: Event | None, tensors: Arrays) -> None:
        stream = self.stream.handle
        if after is not None:
            self.stream.wait_for(after)
        has_changed = self.shared.inputs.prepare(stream, tensors)
        launched.buffers.enqueue_held(stream, has_changed)
        self._launch(launched)

    def _launch(self, launched: Launched) -> None:
        stream = self.stream.handle
        launched.captured.graph.launch(stream)
        self.done.record(stream)
        # The GPU works already.
        self._run = self.shared.waiting.begin(launched.captured.times)

    @marked('ahead')
    def run_ahead(self, device_address: DeviceAddress, address: int, memory: object) -> None:
        """
        Launch the last run again, on an image at a host address, if that is registered.

        The next `start` takes it over, where it would launch the same, or launches its own behind.
        Until then `memory` is referenced, so that no other image can be at its address.
        """
        last = self._last
        if self._ahead is None and last is not None and last.captured.is_of_one_image:
            ((_, word, nbytes),) = last.captured.words
            there = device_address(address, nbytes)
            if there:
                word[0] = there
                self._ahead = last, 0, memory  # If only a part of it is launched, too.
                self._launch(last)
                self._ahead = last, there, memory

    @marked('wait')
    def wait(self) -> None:
        """Wait for the launched frames without the GIL; raises ClosedError once closed."""
        self.shared.waiting.end(self._run, self.done)
        self.in_flight = False
        if self.memory is None:
            raise ClosedError('The pipeline')

    @marked('copy')
    def stage_inputs(
        self,
        frames: Sequence[Frame],
        thresholds: Thresholds,
        device_address: DeviceAddress | None,
        after: Event | None,
        tensors: Arrays,
    ) -> Launched:
        """Copy images and tensors to the GPU, except for the transfers that the graph does."""
        last = self._last
        if last is not None and last.takes(tensors):
            return last
        begin = time.perf_counter()
        jpegs, gpu = self.shared.jpegs, self.shared.gpu
        sources = [image_source(frame, jpegs, gpu) for frame in frames]
        buffers: BatchBuffers | None = None
        taken: Arrays = {}
        if tensors:
            buffers, tensors = self._padded(len(frames), tensors, after)
            specs, paddings = self.shared.tensor_specs, self.shared.inputs.paddings
            taken = {name: tensor for name, tensor in tensors.items() if name in specs}
            sources += [
                tensor_source(specs[name], tensor, paddings.get(name), gpu)
                for name, tensor in taken.items()
            ]
        zero_copy = zero_copy_addresses(sources, device_address)
        # Graphs contain the addresses of images that kernels read in place, not of copied ones.
        key = (
            *[source.key for source in sources],
            zero_copy if self.shared.in_place else tuple(map(bool, zero_copy)),
        )
        if (
            last is None
            or last.thresholds is not thresholds
            or last.key != key
            or buffers not in (None, last.buffers)
        ):
            self._last = None  # Also where an image is refused: its graph may replace the last.
            if self._ahead is not None:
                self.stream.synchronize()  # It reads what is written now.
            buffers = buffers or self.buffers_for(len(frames), after=after)
            header = header_nbytes(thresholds, self.shared.class_count)
            captured = self.captured(buffers).find((header, *key))
            if captured is None:
                with mark('capture'):
                    captured = self._open_graph(
                        buffers, (header, *key), header, frames, sources, zero_copy, after
                    )
                self.buffers.report_new_shape(time.perf_counter() - begin)
            write_request(captured.memory.pinned.view, thresholds)
            decoded = self.shared.decoded(frames)
            last = self._last = Launched(
                buffers,
                captured,
                thresholds,
                key,
                [*map(self.shared.letterbox, decoded)] or [NO_LETTERBOX],
                all(zero_copy),
                self._memory_of(captured, sources, taken),
                len(tensors),
            )
        captured, stream = last.captured, self.stream.handle
        for index, word, _ in captured.words:
            word[0] = zero_copy[index]
        if captured.pieces:
            pinned, threads = captured.memory.pinned, self.shared.copy_threads
            copy_pieces(sources, captured.pieces, pinned, stream, threads)
        for index, target, rows in captured.direct:
            if rows is None:
                sources[index].send(target, stream)
            else:
                rows.enqueue(sources[index].address, stream)
        return last

    def _memory_of(
        self, captured: CapturedGraph, sources: Sequence[Source], tensors: Arrays
    ) -> Arrays:
        """Return the pinned memory of small tensors that come as they are; {} if one does not."""
        is_small = all(each.is_small_tensor and each.data is not None for each in sources)
        if self.shared.inputs.dynamic or not is_small or len(captured.pieces) != len(tensors):
            return {}
        view = captured.memory.pinned.view
        return {
            name: view[piece.pinned :][: tensor.nbytes].view(tensor.dtype).reshape(tensor.shape)
            for (name, tensor), piece in zip(tensors.items(), captured.pieces)
        }

    def _padded(
        self, images: int, tensors: Arrays, after: Event | None
    ) -> tuple[BatchBuffers, Arrays]:
        """Return the buffers of a run with tensors, and the tensors; regions fill the batch."""
        regions = tensors.get(REGIONS)
        if regions is None:
            return self.buffers_for(images, tensors, after), tensors
        buffers = self.buffers_for(len(regions), tensors, after)
        missing = buffers.batch - len(regions)  # The last one pads a partial batch.
        return buffers, {REGIONS: np.concatenate([regions, regions[-1:].repeat(missing, axis=0)])}

    def _open_graph(
        self,
        buffers: BatchBuffers,
        key: tuple[object, ...],
        header_nbytes: int,
        frames: Sequence[Frame],
        sources: Sequence[Source],
        zero_copy: tuple[int, ...],
        after: Event | None,
    ) -> CapturedGraph:
        """Lay out memory for sources like these, and capture their graph."""
        layout = RunLayout(self.shared, buffers, header_nbytes, frames, sources, zero_copy)
        memory = self._grow_memory(*layout.memory_nbytes)
        if after is not None:
            self.stream.wait_for(after)
        capture = layout.placed(memory, self._chunk_nbytes)  # Images are refused here.
        return self.captured(buffers).get(key, make=lambda: capture(self.stream))

    def _grow_memory(
        self, pinned_nbytes: int, image_nbytes: int, result_nbytes: int
    ) -> SlotMemory:
        """Return memory of at least these sizes; reallocates where the present one is smaller."""
        if self.shared.in_place:
            image_nbytes = 0
        memory, wanted = self.memory, (pinned_nbytes, image_nbytes, result_nbytes)
        present = (0, 0, 0) if memory is None else memory.sizes
        if memory is None or any(map(lt, present, wanted)):
            # Graphs contain the addresses of the memory that is freed here.
            self._close_graphs()
            self._free_memory()
            sizes = map(max, present, wanted)
            memory = self.memory = SlotMemory.allocate(self.shared.account, *sizes)
            if memory.image is not None:
                fill_async(memory.image.ptr, 0, memory.image.nbytes, self.stream.handle)
        return memory

    def _free_memory(self) -> None:
        memory, self.memory = self.memory, None
        if memory is not None:
            memory.close()

    def close(self) -> None:
        """Release everything; may be called twice."""
        if self._ahead is not None:
            self._ahead = None
            with suppress(CudaError):
                self.stream.synchronize()
        self._owned.close()
