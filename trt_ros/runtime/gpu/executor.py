"""Execution of frames on one GPU: each frame is one launch of a CUDA graph."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import ExitStack
from functools import partial
from itertools import count
import threading
from typing import Any, Protocol, TypeVar

import numpy as np

from trt_ros.blob import Blob
from trt_ros.cuda.device import Gpu, open_gpu
from trt_ros.cuda.monitor import Monitor
from trt_ros.cuda.usage import measured
from trt_ros.engine.engine import Engine
from trt_ros.errors import GpuFailedError
from trt_ros.families.registry import Decoder
from trt_ros.profiling import mark
from trt_ros.runtime.feeds import (
    RunInputs,
    example_inputs,
    inputs_of_image,
    split_inputs,
)
from trt_ros.runtime.fitting import ResolvedModel
from trt_ros.runtime.future import Future
from trt_ros.runtime.gpu.batch_buffers import BuffersByShape
from trt_ros.runtime.gpu.decode_boxes import MAX_DETECTIONS
from trt_ros.runtime.gpu.faults import Faults
from trt_ros.runtime.gpu.frame_slot import NO_TENSORS, FrameSlot, Launched
from trt_ros.runtime.gpu.graph_options import GraphOptions
from trt_ros.runtime.gpu.receive_buffers import ReceiveBuffers
from trt_ros.runtime.gpu.recent_images import RecentImages
from trt_ros.runtime.gpu.result_reader import Health, ResultReader
from trt_ros.runtime.gpu.shared_resources import (
    REGIONS,
    SharedResources,
    batch_log_lines,
    open_shared_resources,
)
from trt_ros.runtime.gpu.slots import Slots
from trt_ros.runtime.gpu.tensorrt_context import CONTEXTS, close_engine
from trt_ros.runtime.runner import FrameRunner
from trt_ros.vision.frame import Frame
from trt_ros.vision.jpeg import example_jpeg
from trt_ros.vision.regions import Crop
from trt_ros.vision.thresholds import Thresholds

Read = TypeVar('Read')


class _Collect(Protocol):
    """Waits for a run, returns what a function reads of it, and releases its slot."""

    def __call__(self, read: Callable[[], Read]) -> Read: ...


class Pending(Future[list[Any]]):
    """A run in flight; call exactly one of `result`, `region_results`, `outputs` and `wait`."""

    def __init__(
        self,
        collect: _Collect,
        reader: ResultReader,
        launched: Launched,
        frames: Sequence[Frame],
        thresholds: Thresholds,
        host_copy_seconds: float,
        is_done: Callable[[], bool],
    ) -> None:
        # Releases the GIL while it waits.
        super().__init__(
            lambda: collect(lambda: reader.images(launched, frames, thresholds)), is_done
        )
        self._wait, self._reader, self._launched = collect, reader, launched
        self._thresholds, self.host_copy_seconds = thresholds, host_copy_seconds

    def region_results(self, count: int) -> list[Any]:
        """
        Wait and return the decoder's result of each of `count` regions, in input pixels.

        :raises GpuFailedError: when the GPU has failed.
        """
        return self._wait(lambda: self._reader.regions(self._launched, count, self._thresholds))

    def wait(self) -> None:
        """Wait and discard the results."""
        self._wait(lambda: None)

    def outputs(self) -> dict[str, np.ndarray]:
        """
        Wait and return copies of the raw outputs; where the GPU does not decode them.

        :raises GpuFailedError: when the GPU has failed.
        """
        return self._wait(lambda: self._reader.outputs(self._launched))


class GraphPipeline(FrameRunner[Any]):
    """
    From images and tensors to results on one GPU. Owns the engine and everything it opened.

    Runs may be started from several threads.
    """

    max_detections = MAX_DETECTIONS

    def __init__(
        self,
        shared: SharedResources,
        decoder: Decoder[Any],
        slots: Slots[FrameSlot],
        on_fault: Callable[[GpuFailedError], None] | None,
        log_lines: tuple[str, ...],
    ) -> None:
        self.shared, self.options, self.decoder = shared, shared.options, decoder
        self.gpu: Gpu = shared.gpu
        self.account = shared.account
        self.health = Health()
        self._reader = ResultReader(shared, decoder, self.health)
        self.slots = slots
        self.receive_buffers = ReceiveBuffers(shared.gpu, shared.account)
        self._submit = threading.Lock()
        self._numbers = count(1)
        self._last: FrameSlot | None = None
        self._recent: RecentImages | None = None
        self._engine_log_lines = log_lines
        self._monitor = Monitor(self.gpu)
        self.faults = Faults(
            self.options.gpu_timeout_seconds, shared.contexts.engine.retire, on_fault
        )
        self._owned = ExitStack()

    @classmethod
    def open(
        cls,
        engine: Engine,
        fitted: ResolvedModel[Any],
        *,
        options: GraphOptions | None = None,
        cache: Blob | None = None,
        batch: int = 1,
        on_fault: Callable[[GpuFailedError], None] | None = None,
        log_lines: tuple[str, ...] = (),
    ) -> GraphPipeline:
        """
        Open the GPU, compile the kernels and create the slots; `warm_up` does the rest.

        :param engine: owned by the pipeline from now on, also when this raises.
        :param fitted: the feeds of its inputs, its outputs and decoder.
        :param cache: TensorRT-RTX's runtime cache of this engine.
        :param batch: number of frames that may arrive together.
        :param on_fault: called once, on any thread, when the GPU has failed for good.
        :param log_lines: lines about the engine, first in `log_lines`.
        :raises CudaError: no GPU, or out of memory; lists requested and free bytes.
        """
        options = options or GraphOptions()
        try:
            gpu = open_gpu(options.device)
        except BaseException:
            close_engine(engine)
            raise
        with gpu.context, ExitStack() as undo:
            undo.callback(close_engine, engine)
            with measured(engine.account, CONTEXTS):
                shared = open_shared_resources(
                    engine,
                    fitted,
                    gpu,
                    options,
                    batch=batch,
                    cache=cache,
                    undo=undo,
                )
                buffers = BuffersByShape(shared)
                undo.callback(buffers.close)
                slots: list[FrameSlot] = []
                for _ in range(options.slots):
                    slot = FrameSlot(shared, buffers)
                    undo.callback(slot.close)
                    slots.append(slot)
            lines = (*log_lines, *batch_log_lines(shared, batch))
            pipeline = cls(shared, fitted.decoder, Slots(slots), on_fault, lines)
            undo.callback(pipeline.receive_buffers.close)
            undo.callback(pipeline.faults.close)
            pipeline._owned = undo.pop_all()
            return pipeline

    @property
    def log_lines(self) -> tuple[str, ...]:
        """Lines for the log: engine, GPU, CUDA graph, slots and decoder."""
        shared = self.shared
        fallbacks = shared.graph_fallbacks
        has_graph = self.options.use_graph and not fallbacks
        decodes_on_gpu = self.slots.all[0].buffers.has_gpu_decoder
        lines = [
            *self._engine_log_lines,
            f'{shared.gpu}, {shared.contexts.engine.library}, '
            f'{"CUDA graph" if has_graph else "no graph"}, {self.options.slots} '
            f'{"slot" if self.options.slots == 1 else "slots"}, gpu_wait {self.options.gpu_wait}, '
            f'decoding on the {"GPU" if decodes_on_gpu else "CPU"}'
            + (', images read in place' if shared.in_place else ''),
        ]
        lines += [f'CUDA graph fallback: {reason}' for reason in fallbacks[:1]]
        return tuple(lines)

    @property
    def max_batch(self) -> int:
        """Maximum number of frames per run."""
        return self.shared.batches[-1]

    @property
    def expected_image_nbytes(self) -> int:
        """Bytes of the largest image that the last runs read in registered memory; 0 for none."""
        return self._recent.zero_copy_nbytes() if self._recent is not None else 0

    def warm_up(self, frame: Frame | None = None) -> None:
        """
        Run every slot once with each batch size, and save TensorRT-RTX's runtime cache.

        TensorRT initializes, TensorRT-RTX compiles its kernels, and graphs are captured.

        With `remember_images`, images like those of the last time run, too. A network of tensors
        of dynamic shapes is left alone: its first run does this.

        :param frame: a frame of the expected size and encoding; default the network's size, bgr8.
        """
        thresholds = Thresholds(score=1.0, iou=0.5, max_detections=1)
        with self.gpu.context, measured(self.account, CONTEXTS):
            for inputs in self._warm_up_inputs(frame):
                for pending in [self.start(*inputs, thresholds) for _ in self.slots.all]:
                    pending.wait()
            recent = self._warm_up_recent(thresholds)
        self.reset_state()
        self.faults.check()
        health = self.health
        health.frames = health.zero_copy_frames = health.nonfinite_frames = 0
        with self.gpu.context:
            self.shared.contexts.save_cache()
        self._recent = recent

    def _warm_up_recent(self, thresholds: Thresholds) -> RecentImages | None:
        """Run every slot on images like those of the last time."""
        if not (self.options.remember_images and self.shared.is_one_image):
            return None

        def run(frames: list[Frame]) -> None:
            crop = self.shared.crop
            kinds = [NO_TENSORS] if crop is None else list(self._example_regions(crop))
            for tensors in kinds:
                for _ in self.slots.all:
                    self.start(frames, tensors, thresholds).wait()

        key = self.shared.contexts.engine.diagnostics.get('engine key', '')
        recent = RecentImages.open(self.options.cache_dir, key)
        recent.warm_up(run, self.register, self.unregister)
        return recent

    def _warm_up_inputs(
        self, frame: Frame | None
    ) -> Iterator[tuple[Sequence[Frame], Mapping[str, np.ndarray]]]:
        """Yield the images and tensors of a run of each kind."""
        inputs = example_inputs(self.shared.feeds)
        if inputs is None:
            return
        frames, tensors = split_inputs(self.shared.feeds, inputs)
        if frame is not None:
            frames = (frame,) * len(frames)
        if self.shared.crop is not None:
            for regions in self._example_regions(self.shared.crop):
                yield frames, regions
            return
        for images in range(self.max_batch, 0, -1):
            yield frames * images, tensors

    def _example_regions(self, crop: Crop) -> Iterator[Mapping[str, np.ndarray]]:
        """Yield regions for a run of each batch size."""
        height, width = crop.preprocess.input_hw
        region = crop.maps(np.array([[width / 2, height / 2, width, height, 0.0]])).reshape(1, 6)
        for batch in reversed(self.shared.batches):
            yield {REGIONS: region.repeat(batch, axis=0)}

    def infer(self, frame: Frame, thresholds: Thresholds) -> Any:
        """
        Run the network on one image.

        :param thresholds: for boxes; other results ignore them.
        :returns: the decoder's result, in image pixels.
        :raises GpuFailedError: when the GPU has failed; the pipeline can then only be closed.
        :raises ClosedError: after close().
        """
        return self.submit([frame], thresholds).result()[0]

    def infer_all(self, frames: Sequence[Frame], thresholds: Thresholds) -> list[Any]:
        """Run the network on several images, `max_batch` per run, as `infer` does on one."""
        found: list[Any] = [None] * len(frames)
        for start in range(0, len(frames), self.max_batch):
            # In one order whatever camera comes first: one graph per mix of geometries, not one
            # per permutation.
            places = sorted(
                range(start, min(start + self.max_batch, len(frames))),
                key=lambda i: (frames[i].wh, frames[i].encoding, frames[i].step),
            )
            results = self.submit([frames[i] for i in places], thresholds).result()
            for i, result in zip(places, results):
                found[i] = result
        return found

    def infer_regions(self, frame: Frame, maps: np.ndarray, thresholds: Thresholds) -> list[Any]:
        """Run regions of an image, `max_batch` per run; see FrameRunner.infer_regions."""
        found: list[Any] = []
        for start in range(0, len(maps), self.max_batch):
            some = maps[start : start + self.max_batch]
            pending = self.start([frame], {REGIONS: some.reshape(-1, 6)}, thresholds)
            results = pending.region_results(len(some))
            found += [each.to_source(affine) for each, affine in zip(results, some)]
        return found

    def submit(self, frames: Sequence[Frame], thresholds: Thresholds) -> Pending:
        """
        Launch a batch of images; returns while the GPU works.

        :param frames: 1 to `max_batch` images, of any sizes and encodings.
        :param thresholds: a GPU decoder returns at most `GraphPipeline.max_detections` boxes.
        :returns: the frames in flight; their slot is busy until it is waited for.
        """
        if self.shared.is_one_image:
            return self.start(frames, NO_TENSORS, thresholds)
        (frame,) = frames
        return self.submit_inputs(inputs_of_image(self.shared.feeds, frame), thresholds)

    def submit_inputs(self, inputs: RunInputs, thresholds: Thresholds) -> Pending:
        """Launch a run of an image or array per input, see FrameRunner.infer_inputs."""
        return self.start(*split_inputs(self.shared.feeds, inputs), thresholds)

    def open_jpeg_decoder(self) -> str:
        """Decode frames that are JpegFrame on the GPU from now on; see FrameRunner."""
        with self._submit, self.gpu.context:
            return self.shared.jpegs.open(example_jpeg())

    def reset_state(self) -> None:
        """Set the states to zeros before the next run."""
        self.shared.states.reset()

    def start(
        self,
        frames: Sequence[Frame],
        tensors: Mapping[str, np.ndarray],
        thresholds: Thresholds,
    ) -> Pending:
        """
        Launch a run; returns while the GPU works.

        :param frames: a batch of images, or the images of one run in the order of their feeds.
        :param tensors: as `split_inputs` returns them.
        :returns: the run in flight; its slot is busy until it is waited for.
        """
        self.faults.check()
        slot = self.slots.take(self.options.gpu_timeout_seconds or 60.0)
        number = next(self._numbers)
        self.faults.begin(number)
        try:
            with self._submit, self.gpu.context:
                # All slots share activations and tensors: a run waits for the one before.
                after, last = None, self._last
                if last is not None and last.in_flight:
                    after = last.done
                buffers = self.receive_buffers
                launched = slot.start(
                    frames,
                    thresholds,
                    buffers.device_address if buffers.blocks else None,
                    after,
                    tensors,
                )
                self._last = slot  # Not where an image or tensor was refused.
                count = len(self.shared.decoded(frames)) or 1
                self.health.frames += count
                self.health.zero_copy_frames += launched.zero_copy * count
                if self._recent is not None:
                    self._recent.add(frames, launched.zero_copy)
        except BaseException as error:
            self._release_failed(slot, number, error)
            raise
        return Pending(
            partial(self._collect, slot, number),
            self._reader,
            launched,
            frames,
            thresholds,
            slot.host_copy_seconds,
            partial(self._is_done, slot),
        )

    def _is_done(self, slot: FrameSlot) -> bool:
        with self.gpu.context:
            return slot.done.is_done()

    def _collect(self, slot: FrameSlot, number: int, read: Callable[[], Read]) -> Read:
        try:
            with self.gpu.context:
                slot.wait()
        except BaseException as error:
            self._release_failed(slot, number, error)
            raise
        try:
            with mark('decode'):
                return read()
        finally:
            self.faults.end(number)
            self.slots.give_back(slot)

    def _release_failed(self, slot: FrameSlot, number: int, error: BaseException) -> None:
        """Release the slot; raise GpuFailedError instead of `error` if the GPU has failed."""
        self.faults.end(number)
        try:
            self.faults.raise_if_device_lost(error)
        finally:
            self.slots.give_back(slot)

    def register(self, memory: np.ndarray) -> None:
        """
        Page-lock a receive buffer, so that the GPU reads frames in it without a copy on the host.

        The owner of `memory` keeps it in place until `unregister` or close().
        """
        self.receive_buffers.add(memory)

    def unregister(self, memory: np.ndarray) -> None:
        """Unlock a registered receive buffer, after all work of the GPU."""
        self.receive_buffers.remove(memory)

    def memory(self) -> Mapping[str, Mapping[str, int]]:
        """Return {'device': {owner: bytes}, 'pinned': {owner: bytes}}."""
        return self.account.report()

    def diagnostics(self) -> Mapping[str, str]:
        """Return values for /diagnostics by key: GPU, memory by owner, frame counts."""
        fallbacks = self.shared.graph_fallbacks
        return {
            **self.shared.contexts.engine.diagnostics,
            'engine shared by (pipelines)': str(self.shared.contexts.engine.users),
            'GPU': str(self.gpu),
            **self.account.diagnostics(),
            **self._monitor.diagnostics(),
            **self.shared.jpegs.diagnostics(),
            'zero-copy frames': f'{self.health.zero_copy_frames} of {self.health.frames}',
            'frames with non-finite values': str(self.health.nonfinite_frames),
            'CUDA graph fallbacks': fallbacks[0] if fallbacks else '',
        }

    def on_fault(self, callback: Callable[[GpuFailedError], None]) -> None:
        """Call `callback` once, on any thread, when the GPU has failed or does not respond."""
        self.faults.report_to(callback)

    def close(self) -> None:
        """Release everything, after the frames in flight; may be called twice."""
        if self._recent is not None:
            self._recent.wait()
        self.gpu.context.release(self.slots.close, self.options.gpu_timeout_seconds)
        self.gpu.context.release(self._owned.close)
