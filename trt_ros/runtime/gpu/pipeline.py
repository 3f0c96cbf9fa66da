"""Execution of frames on one GPU: each frame is one launch of a CUDA graph."""

from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import ExitStack
from functools import partial
import logging
import threading
from typing import Any, TypeVar

import numpy as np

from trt_ros.cuda.calls import CudaError
from trt_ros.cuda.memory import measured
from trt_ros.cuda.monitor import Monitor
from trt_ros.decode.choice import decode_batch
from trt_ros.decode.cuda.boxes import MAX_DETECTIONS
from trt_ros.errors import BackendError, ParameterError
from trt_ros.model.run_inputs import NO_TENSORS, REGIONS, example_inputs, has_memory, split_inputs
from trt_ros.profiling import marked
from trt_ros.runtime.fitting import ResolvedModel
from trt_ros.runtime.future import Future
from trt_ros.runtime.gpu.batch_buffers import BuffersByShape
from trt_ros.runtime.gpu.device import GpuDevice
from trt_ros.runtime.gpu.frame_slot import FrameSlot
from trt_ros.runtime.gpu.launched import Launched
from trt_ros.runtime.gpu.regions import GpuRegions
from trt_ros.runtime.gpu.shared_resources import SharedResources
from trt_ros.runtime.gpu.slots import Slots
from trt_ros.runtime.gpu.tensor_runner import TensorRTRunner
from trt_ros.runtime.gpu.tensorrt_context import CONTEXTS
from trt_ros.runtime.gpu.waiting import Faults
from trt_ros.runtime.pipeline import Pipeline
from trt_ros.tensors import Arrays, address_of, widen
from trt_ros.vision.frame import Frame
from trt_ros.vision.letterbox import Letterbox
from trt_ros.vision.regions import whole_image
from trt_ros.vision.thresholds import DEFAULT_THRESHOLDS, Thresholds

log = logging.getLogger('trt_ros.runtime')

Read = TypeVar('Read')


class Pending(Future[list[Any]]):
    """A run in flight; call exactly one of `result` and `wait`."""

    def __init__(
        self,
        collect: Callable[[Callable[[], Any]], Any],
        read: Callable[[], list[Any]],
        host_copy_seconds: float,
        is_done: Callable[[], bool],
    ) -> None:
        super().__init__(lambda: collect(read), is_done)  # Releases the GIL while it waits.
        self._wait, self.host_copy_seconds = collect, host_copy_seconds

    def wait(self) -> None:
        """Wait and discard the results; raises GpuFailedError when the GPU has failed."""
        self._wait(lambda: None)


class GpuPipeline(Pipeline[Any]):
    """
    From images and tensors to results on one GPU. Owns the network and everything it opened.

    Compiles the kernels and creates the slots; `warm_up` does the rest. Runs may be started from
    several threads. Once the GPU has failed, a pipeline can only be closed.

    :param network: owned from now on, also when this raises.
    :param batch: number of frames that may arrive together.
    :raises CudaError: when out of memory; lists requested and free bytes.
    """

    is_asynchronous = True
    max_detections = MAX_DETECTIONS
    device: GpuDevice
    _nonfinite_advice = 'A lower precision may overflow: try precision fp32.'

    def __init__(
        self, network: TensorRTRunner, fitted: ResolvedModel[Any], batch: int = 1
    ) -> None:
        super().__init__(network, fitted)
        self.gpu, self.options = network.gpu, network.options
        self.account = network.engine.account
        # Messages that end in this thread meanwhile may unlock their memory.
        self._submit = threading.RLock()
        self.frames = self.zero_copy_frames = 0  # Since warm-up.
        self._last: dict[BuffersByShape, FrameSlot] = {}
        self._bits = [each.name for each in fitted.output_specs if each.dtype == 'bfloat16']
        if self.options.contexts > 1 and has_memory(fitted.feeds):
            network.close()
            raise ParameterError(
                f'contexts is {self.options.contexts}, but the network has states.',
                cause='A run needs the result of the one before.',
                remedy='Set contexts to 1.',
            )
        with self.gpu.launch_context, ExitStack() as undo:
            undo.callback(network.close)
            network.save_cache()  # Of a trial run, for the contexts to come.
            network.free()
            with measured(self.account, CONTEXTS):
                self.shared = SharedResources(network, fitted, batch=batch, undo=undo)
                buffers: list[BuffersByShape] = []
                slots: list[FrameSlot] = []
                for number in range(self.options.contexts):
                    own = self.shared.with_own_context(network, undo) if number else self.shared
                    buffers.append(BuffersByShape(own))
                    undo.callback(buffers[-1].close)
                for number in range(self.shared.in_flight):
                    each = buffers[number % len(buffers)]
                    slots.append(FrameSlot(each.shared, each))
                    undo.callback(slots[-1].close)
            self.slots, self.max_batch = Slots(slots), self.shared.batches[-1]
            self._engine_log_lines = (*network.log_lines, *self.shared.batch_lines)
            self._monitor = Monitor(self.gpu)
            self.faults = Faults(self.options.gpu_timeout, network.engine.retire)
            self.device = GpuDevice(self.shared, self.faults, self._submit)
            undo.callback(self.device.close)
            undo.callback(self.faults.close)
            self.account.check_budget(self.options.memory_budget_mb)
            self._owned = undo.pop_all()

    def _own_log_lines(self) -> tuple[str, ...]:
        """Return lines on the engine, GPU, CUDA graph, slots and decoder."""
        shared, slots = self.shared, len(self.slots.all)
        fallbacks = shared.graph_fallbacks
        has_graph = shared.use_graph and not fallbacks
        decodes_on_gpu = self.slots.all[0].buffers.has_gpu_decoder
        return (
            *self._engine_log_lines,
            f'{self.gpu}, {shared.contexts.engine.library}, '
            f'{"CUDA graph" if has_graph else "no graph"}, {slots} '
            f'{"slot" if slots == 1 else "slots"}, gpu_wait {self.options.gpu_wait}, '
            f'decoding on the {"GPU" if decodes_on_gpu else "CPU"}'
            + (', images read in place' if shared.in_place else '')
            + (f', {self.options.contexts} contexts' if self.options.contexts > 1 else ''),
            *(f'CUDA graph fallback: {reason}' for reason in fallbacks[:1]),
        )

    def warm_up(self, frame: Frame | None = None) -> None:
        """
        Run every slot once with each batch size, and save TensorRT-RTX's runtime cache.

        TensorRT initializes, TensorRT-RTX compiles its kernels, and graphs are captured.

        A network of tensors of dynamic shapes is left alone: its first run does this.

        :param frame: a frame of the expected size and encoding; default the network's size, bgr8.
        """
        thresholds = Thresholds(score=1.0, iou=0.5, max_detections=1)
        with self.rehearsal(), self.gpu.context, measured(self.account, CONTEXTS):
            for frames, tensors in _example_runs(self.shared, frame):
                runs = [self.start(frames, thresholds, tensors) for _ in self.slots.all]
                for pending in runs:
                    pending.wait()
        self.faults.check()
        self.account.check_budget(self.options.memory_budget_mb)
        with self.gpu.launch_context:
            for each in (self.shared, *(each.shared for each in self.shared.joined)):
                each.contexts.save_cache()

    def join(self, regions: Pipeline[Any], count: int) -> None:
        is_alone = self.options.contexts == 1  # The pipeline of the objects has one context.
        if is_alone and isinstance(regions, GpuPipeline) and regions.gpu.index == self.gpu.index:
            with self.gpu.context:
                joined = GpuRegions(regions, count)
            self._owned.callback(joined.close)
            self.shared.joined.append(joined)

    @property
    def has_joined(self) -> bool:
        return self.slots.all[0].buffers.has_joined

    def reset_state(self) -> None:
        super().reset_state()
        self.shared.inputs.reset()

    def _reset_counts(self) -> None:
        super()._reset_counts()
        self.frames = self.zero_copy_frames = 0

    def start(
        self, frames: Sequence[Frame], thresholds: Thresholds, tensors: Arrays = NO_TENSORS
    ) -> Pending:
        """Launch a run, whose slot is busy until it is waited for; see Pipeline.start."""
        slot, launched = self._launch(frames, thresholds, tensors)
        return Pending(
            partial(self._collect, slot),
            partial(self._read, launched, thresholds, tensors, frames),
            slot.host_copy_seconds,
            partial(self._is_done, slot),
        )

    def run(
        self, frames: Sequence[Frame], thresholds: Thresholds, tensors: Arrays = NO_TENSORS
    ) -> list[Any]:
        slot, launched = self._launch(frames, thresholds, tensors)
        return self._collect(slot, partial(self._read, launched, thresholds, tensors))

    def _launch(
        self, frames: Sequence[Frame], thresholds: Thresholds, tensors: Arrays
    ) -> tuple[FrameSlot, Launched]:
        self.faults.check()
        slot = self.slots.take(self.options.gpu_timeout or 60.0)
        self.faults.begin(slot)
        try:
            with self._submit, self.gpu.launch_context:
                # Slots of a context share its memory: a run waits for the one before.
                after, last = None, self._last.get(slot.buffers)
                if last is not None and last.in_flight:
                    after = last.done
                device = self.device
                launched = slot.start(
                    frames,
                    thresholds,
                    device.device_address if device.blocks else None,
                    after,
                    tensors,
                )
                self._last[slot.buffers] = slot  # Not where an image or tensor was refused.
                count = len(launched.letterboxes)
                self.frames += count
                self.zero_copy_frames += launched.zero_copy * count
        except BaseException as error:
            self._release_failed(slot, error)
            raise
        return slot, launched

    def run_ahead(self, memory: np.ndarray, start: int) -> None:
        if not self.shared.fetches or self.faults.error is not None:
            return
        slot = self.slots.take_free()  # None while a result is awaited or read, and once closed.
        if slot is None:
            return
        try:
            with self._submit, self.gpu.launch_context:
                address = address_of(memory) + start
                slot.run_ahead(self.device.device_address, address, memory)
        except (BackendError, CudaError):
            return  # The run fails likewise.
        finally:
            self.slots.give_back(slot)

    def _is_done(self, slot: FrameSlot) -> bool:
        with self.gpu.context:
            return slot.done.is_done()

    def _collect(self, slot: FrameSlot, read: Callable[[], Read]) -> Read:
        try:
            with self.gpu.context:
                slot.wait()
        except BaseException as error:
            self._release_failed(slot, error)
            raise
        try:
            return read()
        finally:
            self.faults.end(slot)
            self.slots.give_back(slot)

    def _release_failed(self, slot: FrameSlot, error: BaseException) -> None:
        """Release the slot; raise GpuFailedError instead of `error` if the GPU has failed."""
        self.faults.end(slot)
        try:
            self.faults.raise_if_device_lost(error)
        finally:
            self.slots.give_back(slot)

    @marked('decode')
    def _read(
        self,
        launched: Launched,
        thresholds: Thresholds,
        tensors: Arrays,
        held: Sequence[Frame] = (),
    ) -> list[Any]:
        """
        Return the results of a run that has finished: those of the GPU decoder, if it ran.

        :param held: frames, whose memory the GPU has read until now.
        """
        readers, letterboxes = launched.captured.readers, launched.letterboxes
        if REGIONS in tensors:  # Others pad the batch; all have one placement.
            count = len(tensors[REGIONS])
            readers, letterboxes = readers[:count], [*letterboxes] * count
        if readers:
            results = []
            for read in readers:
                result, is_nonfinite = read()
                results.append(result)
                if is_nonfinite:
                    self.nonfinite.add()
            return results
        return self.decode(launched.outputs, launched.buffers.batch, letterboxes, thresholds)

    def decode(
        self,
        outputs: Arrays,
        batch: int,
        letterboxes: Sequence[Letterbox],
        thresholds: Thresholds = DEFAULT_THRESHOLDS,
    ) -> list[Any]:
        """Return the results of raw outputs, in which bfloat16 are bits."""
        if self._bits:
            outputs = {**outputs, **{name: widen(outputs[name]) for name in self._bits}}
        add = self.nonfinite.add
        return decode_batch(self.decoder, outputs, batch, letterboxes, thresholds, add)

    def memory(self) -> Mapping[str, Mapping[str, int]]:
        """Return {'device': {owner: bytes}, 'pinned': {owner: bytes}}."""
        return self.account.report()

    def _own_diagnostics(self) -> Mapping[str, str]:
        """Return the state of engine and GPU, memory by owner, frame counts."""
        engine, fallbacks = self.shared.contexts.engine, self.shared.graph_fallbacks
        return {
            **engine.diagnostics,
            'engine shared by (pipelines)': str(engine.users),
            'GPU': str(self.gpu),
            **self.account.diagnostics(),
            **self._monitor.diagnostics(),
            **self.shared.jpegs.diagnostics(),
            'zero-copy frames': f'{self.zero_copy_frames} of {self.frames}',
            'CUDA graph fallbacks': fallbacks[0] if fallbacks else '',
        }

    def _close(self) -> None:
        self.gpu.launch_context.release(self.slots.close, self.options.gpu_timeout)
        self.gpu.launch_context.release(self._owned.close)


def _example_runs(
    shared: SharedResources, frame: Frame | None
) -> Iterator[tuple[Sequence[Frame], Arrays]]:
    """Yield images (`frame` or gray) and tensors of each kind of run; none if dynamic."""
    inputs = example_inputs(shared.feeds)
    if inputs is None:
        return
    frames, tensors = split_inputs(shared.feeds, inputs)
    if frame is not None:
        frames = (frame,) * len(frames)
    crop = shared.crop
    if crop is not None:
        for batch in reversed(shared.batches):
            yield (frames, {REGIONS: whole_image(crop, crop.preprocess.input_hw[::-1], batch)})
        return
    for images in range(shared.batches[-1], 0, -1):
        yield frames * images, tensors
