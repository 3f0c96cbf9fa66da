"""A network whose frame is one CUDA graph: copy in, preprocess, TensorRT, decode, result out."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from contextlib import ExitStack
from dataclasses import dataclass, field, replace
from itertools import count
import logging
import threading
from typing import Any, TypeVar

import numpy as np

from trt_ros.cuda.device import Gpu, open_gpu
from trt_ros.cuda.kernels import Kernels
from trt_ros.cuda.memory import Account, RegisteredMemory
from trt_ros.cuda.monitor import Monitor
from trt_ros.engine.cache import Blob, kernel_folder
from trt_ros.engine.engine import Engine
from trt_ros.errors import GpuFailedError, ParameterError
from trt_ros.runtime.gpu.batch_buffers import SharedResources, batch_log_lines, batches_for
from trt_ros.runtime.gpu.decode import MOST_DETECTIONS, gpu_decoder
from trt_ros.runtime.gpu.faults import Faults
from trt_ros.runtime.gpu.frame_slot import FrameSlot
from trt_ros.runtime.gpu.slots import CopyThreadPool, Slots
from trt_ros.runtime.gpu.tensorrt_context import Contexts, close_engine, widen
from trt_ros.runtime.runner import FrameRunner, PendingResults
from trt_ros.vision.decoders.registry import Decoder
from trt_ros.vision.frame import Frame
from trt_ros.vision.letterbox import Preprocess
from trt_ros.vision.thresholds import Thresholds

log = logging.getLogger('trt_ros.runtime')
Read = TypeVar('Read')


@dataclass(frozen=True)
class GraphOptions:
    """
    How frames go through the GPU.

    :param slots: frames under way at once; with 2 the next one's copy overlaps this one's work.
    :param stream_priority: 0 is ordinary, negative goes first among this GPU's work.
    :param blocking_sync: the waiting thread sleeps instead of spinning: later (by 0.1 to 0.4 ms,
        see docs/benchmarks.md), but a CPU core is free meanwhile.
    :param use_graph: False launches each step by itself.
    :param unified_memory: 'auto' lets kernels read pinned memory in place where the GPU has no
        memory of its own; 'on' and 'off' force it.
    :param chunk_nbytes: larger images are copied in pieces of this size, so that the transfer of
        one overlaps the copy of the next.
    :param copy_helpers: threads beside the caller's that share the copy of a large image.
    :param graph_capacity: graphs kept a slot: image sizes and encodings in turn.
    :param share_activations: slots run one after another in the same scratch memory; False lets
        them run side by side, each in its own.
    :param gpu_decode: False decodes on the CPU, as for the families that have no kernels.
    :param gpu_timeout_seconds: a frame that takes longer means that the GPU does not answer;
        0 watches nothing.
    :param cache_dir: where compiled kernels are kept; '' for the default of the engine cache.
    """

    device: int = 0
    slots: int = 2
    stream_priority: int = 0
    blocking_sync: bool = False
    use_graph: bool = True
    unified_memory: str = 'auto'
    chunk_nbytes: int = 1 << 20
    copy_helpers: int = 2
    graph_capacity: int = 16
    share_activations: bool = True
    gpu_decode: bool = True
    gpu_timeout_seconds: float = 10.0
    cache_dir: str = ''

    def __post_init__(self) -> None:
        if self.unified_memory not in ('auto', 'on', 'off'):
            raise ParameterError(
                f'unified_memory is {self.unified_memory!r}.',
                remedy='Choose one of auto, on, off.',
            )
        for name, least in (
            ('slots', 1),
            ('chunk_nbytes', 4096),
            ('graph_capacity', 1),
            ('copy_helpers', 0),
            ('gpu_timeout_seconds', 0),
        ):
            if getattr(self, name) < least:
                raise ParameterError(
                    f'{name} is {getattr(self, name)}.', remedy=f'Give at least {least}.'
                )


@dataclass
class Health:
    """Counts for /diagnostics, since warming up."""

    frames: int = 0
    zero_copy_frames: int = 0  # Those that the host did not copy.
    nonfinite_frames: int = 0
    graph_fallbacks: list[str] = field(default_factory=list)


class Pending(PendingResults[Any]):
    """A frame under way; one of `results`, `outputs` and `wait` must be called, once."""

    def __init__(
        self,
        pipeline: GraphPipeline,
        slot: FrameSlot,
        number: int,
        frames: Sequence[Frame],
        thresholds: Thresholds,
    ) -> None:
        self._pipeline, self._slot, self._number = pipeline, slot, number
        self._frames, self._thresholds = frames, thresholds
        self.host_copy_seconds = slot.host_copy_seconds

    def results(self) -> list[Any]:
        """
        Wait (the GIL is free) and return one result of the decoder a frame.

        :raises GpuFailedError: when the GPU failed meanwhile.
        """
        return self._pipeline._collect(
            self._slot,
            self._number,
            lambda: self._pipeline._results(self._slot, self._frames, self._thresholds),
        )

    def wait(self) -> None:
        """Wait, and leave the results."""
        self._pipeline._collect(self._slot, self._number, lambda: None)

    def outputs(self) -> dict[str, np.ndarray]:
        """
        Wait and return the network's raw outputs, copied; for a pipeline without a GPU decoder.

        :raises GpuFailedError: when the GPU failed meanwhile.
        """
        return self._pipeline._collect(
            self._slot,
            self._number,
            lambda: {
                name: widen(head) if head.dtype == np.uint16 else head.copy()
                for name, head in self._slot.outputs().items()
            },
        )


class GraphPipeline(FrameRunner[Any]):
    """
    From frames to detections on one GPU. Owns all that it opened, and the engine.

    `infer` may be called by several threads.
    """

    max_detections = MOST_DETECTIONS

    def __init__(
        self,
        shared: SharedResources,
        options: GraphOptions,
        decoder: Decoder[Any] | None,
        slots: Slots[FrameSlot],
        owned: ExitStack,
        on_fault: Callable[[GpuFailedError], None] | None,
    ) -> None:
        self.shared, self.options, self.decoder = shared, options, decoder
        self.gpu: Gpu = shared.gpu
        self.account = shared.account
        self.health = Health()
        self.slots = slots
        self._owned = owned
        self._submit = threading.Lock()
        self._numbers = count(1)
        self._last: FrameSlot | None = None
        self._registered: list[RegisteredMemory] = []
        self._engine_log_lines: tuple[str, ...] = ()
        self._monitor = Monitor(self.gpu)
        self._has_told_most = False
        self.faults = Faults(options.gpu_timeout_seconds, on_fault)

    @classmethod
    def open(
        cls,
        engine: Engine,
        preprocess: Preprocess,
        decoder: Decoder[Any] | None,
        *,
        options: GraphOptions | None = None,
        cache: Blob | None = None,
        batch: int = 1,
        on_fault: Callable[[GpuFailedError], None] | None = None,
        log_lines: tuple[str, ...] = (),
    ) -> GraphPipeline:
        """
        Take the GPU, compile the kernels; `warm_up` does the rest.

        :param engine: of one image input, beside those that the decoder feeds; belongs to the
            pipeline from now on, also when this raises.
        :param decoder: None for a network whose outputs are taken raw (`Pending.outputs`).
        :param cache: RTX's compiled kernels of this engine.
        :param batch: frames that may come together. More than one share one slot, for a batch is
            waited for, and a second slot would take its memory twice.
        :param log_lines: where the engine came from, to begin `log_lines` with.
        :param on_fault: told once, on any thread, when the GPU failed for good.
        :raises CudaError: out of memory (what was needed, what there is), or no GPU.
        """
        options = options or GraphOptions()
        if batch > 1:
            options = replace(options, slots=1)
        account = Account()
        try:
            gpu = open_gpu(options.device)
        except BaseException:
            close_engine(engine)
            raise
        with gpu.context, ExitStack() as undo:
            undo.callback(close_engine, engine)
            undo.callback(account.device.pop, 'engine', None)
            account.device['engine'] = engine.plan_nbytes
            contexts = Contexts(
                engine, account, share_activations=options.share_activations, cache=cache
            )
            undo.callback(contexts.close)
            kernels = _kernels('preprocess', gpu, account, undo, options.cache_dir)
            decode = (
                _kernels('decode', gpu, account, undo, options.cache_dir)
                if options.gpu_decode
                else None
            )
            copy_threads = CopyThreadPool(options.copy_helpers, gpu.context)
            undo.callback(copy_threads.close)
            graph_fallbacks: list[str] = []
            in_place = options.unified_memory == 'on' or (
                options.unified_memory == 'auto' and gpu.is_integrated
            )
            shared = SharedResources(
                gpu=gpu,
                account=account,
                contexts=contexts,
                preprocess=preprocess,
                preprocess_kernels=kernels,
                decode_kernels=decode,
                decoders=lambda shapes: (
                    gpu_decoder(decoder, engine.outputs, shapes, preprocess.input_hw)
                    if decode and decoder
                    else None
                ),
                copy_threads=copy_threads,
                chunk_nbytes=options.chunk_nbytes,
                graph_capacity=options.graph_capacity,
                use_graph=options.use_graph,
                in_place=in_place,
                blocking_sync=options.blocking_sync,
                stream_priority=options.stream_priority,
                on_graph_fallback=graph_fallbacks.append,
                constant_inputs=decoder.constant_inputs if decoder else {},
            )
            shared = replace(shared, batches=batches_for(shared, batch, decoder))
            slots: list[FrameSlot] = []
            for _ in range(options.slots):
                slot = FrameSlot(shared)
                undo.callback(slot.close)
                slots.append(slot)
            pool = Slots(slots)
            pipeline = cls(shared, options, decoder, pool, ExitStack(), on_fault)
            undo.callback(pipeline._unregister_all)
            undo.callback(pipeline.faults.close)
            pipeline.health.graph_fallbacks = graph_fallbacks
            pipeline._engine_log_lines = (*log_lines, *batch_log_lines(shared, batch))
            pipeline._owned = undo.pop_all()
            return pipeline

    @property
    def log_lines(self) -> tuple[str, ...]:
        """Lines for the log: what runs where."""
        m = self.shared
        plan = m.contexts.engine
        how = (
            'CUDA graph'
            if self.options.use_graph and not self.health.graph_fallbacks
            else 'no graph'
        )
        where = 'GPU' if self.slots.all[0].plan_for(1).decoder is not None else 'CPU'
        lines = [
            *self._engine_log_lines,
            f'{m.gpu}, {plan.flavour}, {how}, {self.options.slots} slots, '
            f'decoding on the {where}' + (', images read in place' if m.in_place else ''),
        ]
        lines += [f'runs without a graph: {why}' for why in self.health.graph_fallbacks[:1]]
        return tuple(lines)

    @property
    def max_batch(self) -> int:
        """How many frames one run takes."""
        return self.shared.batches[-1]

    def warm_up(self, frame: Frame | None = None) -> None:
        """
        Run every slot once, with each batch: RTX compiles and its kernels are kept, TensorRT
        initialises, a graph is captured.

        :param frame: of the size and encoding that will come; default the network's size, bgr8.
        """
        if frame is None:
            frame = Frame.from_pixels(
                np.full((*self.shared.preprocess.input_hw, 3), 114, np.uint8)
            )
        for images in range(self.max_batch, 0, -1):
            for pending in [
                self.submit([frame] * images, Thresholds(score=1.0, iou=0.5, max_detections=1))
                for _ in self.slots.all
            ]:
                pending.wait()
        self.faults.check()
        self.health.frames = self.health.zero_copy_frames = 0
        with self.gpu.context:
            self.shared.contexts.save_cache()

    def infer(self, frame: Frame, thresholds: Thresholds) -> Any:
        """
        Find what is in one image; the thresholds are for boxes.

        :returns: what the decoder finds, in the image's pixels.
        :raises GpuFailedError: when the GPU failed; the pipeline is then of no more use.
        :raises ClosedError: after close().
        """
        return self.submit([frame], thresholds).results()[0]

    def infer_all(self, frames: Sequence[Frame], thresholds: Thresholds) -> list[Any]:
        """Find what is in each image, one graph for as many as a run takes; see infer."""
        found: list[Any] = [None] * len(frames)
        for start in range(0, len(frames), self.max_batch):
            # In one order whatever camera comes first: a graph a mix of sizes, not a permutation.
            places = sorted(
                range(start, min(start + self.max_batch, len(frames))),
                key=lambda i: (frames[i].wh, frames[i].encoding, frames[i].step),
            )
            results = self.submit([frames[i] for i in places], thresholds).results()
            for i, result in zip(places, results):
                found[i] = result
        return found

    def submit(self, frames: Sequence[Frame], thresholds: Thresholds) -> Pending:
        """
        Begin with a batch of images; returns while the GPU works.

        :param frames: one to `max_batch`, of any sizes and encodings.
        :param max_detections: of an image; the best 1024 where it is more.
        :returns: waits and gives the results; its slot is busy until then.
        """
        self.faults.check()
        if thresholds.max_detections > MOST_DETECTIONS and not self._has_told_most:
            self._has_told_most = True
            log.warning(
                'max_detections is %d, the GPU finds the best %d of an image.',
                thresholds.max_detections,
                MOST_DETECTIONS,
            )
        thresholds = Thresholds(
            thresholds.score, thresholds.iou, min(thresholds.max_detections, MOST_DETECTIONS)
        )
        slot = self.slots.take(self.options.gpu_timeout_seconds or 60.0)
        number = next(self._numbers)
        self.faults.begin(number)
        try:
            with self._submit, self.gpu.context:
                after, last = None, self._last
                if self.options.share_activations and last is not None and last.is_under_way:
                    after = last.done
                self._last = slot
                slot.start(
                    frames, thresholds, self._registered_at if self._registered else None, after
                )
                self.health.frames += len(frames)
                self.health.zero_copy_frames += slot.is_lent * len(frames)
        except BaseException as error:
            self._ended_badly(slot, number, error)
            raise
        return Pending(self, slot, number, frames, thresholds)

    def _collect(self, slot: FrameSlot, number: int, read: Callable[[], Read]) -> Read:
        try:
            with self.gpu.context:
                slot.wait()
        except BaseException as error:
            self._ended_badly(slot, number, error)
            raise
        try:
            return read()
        finally:
            self.faults.end(number)
            self.slots.give_back(slot)

    def _results(
        self, slot: FrameSlot, frames: Sequence[Frame], thresholds: Thresholds
    ) -> list[Any]:
        assert slot.plan is not None
        pairs = (
            slot.read(frames)
            if slot.plan.decoder is not None
            else self._decode_on_cpu(slot, slot.plan.batch, frames, thresholds)
        )
        odd = sum(is_odd for _, is_odd in pairs)
        if odd and not self.health.nonfinite_frames:
            log.warning(
                'The network gave values that are NaN or infinite; their boxes are '
                'dropped. A lower precision may overflow: try precision fp32.'
            )
        self.health.nonfinite_frames += odd
        return [found for found, _ in pairs]

    def _decode_on_cpu(
        self, slot: FrameSlot, batch: int, frames: Sequence[Frame], thresholds: Thresholds
    ) -> list[tuple[Any, bool]]:
        """Decode each frame, and tell whether its outputs had values that were not finite."""
        if self.decoder is None:
            raise ParameterError('This pipeline has no decoder.', remedy='Take the raw outputs.')
        outputs = {
            name: widen(head) if head.dtype == np.uint16 else head
            for name, head in slot.outputs().items()
        }
        m, found = self.shared, []
        for i, frame in enumerate(frames):
            letterbox = m.preprocess.letterbox(frame.wh)
            # The outputs of a single image may have no axis of images.
            own = (
                outputs
                if batch == 1
                else {name: head[i : i + 1] for name, head in outputs.items()}
            )
            is_odd = any(
                head.dtype.kind == 'f' and not np.isfinite(head).all() for head in own.values()
            )
            found.append((self.decoder(own, letterbox, thresholds), is_odd))
        return found

    def register(self, memory: np.ndarray) -> None:
        """
        Page-lock memory that frames will lie in (a receive buffer): the GPU then reads them there.

        The lender keeps it in place until `unregister` or close().
        """
        with self.gpu.context:
            self._registered.append(RegisteredMemory(memory, 'receive buffers', self.account))

    def unregister(self, memory: np.ndarray) -> None:
        """Give registered memory back to its lender."""
        self.gpu.synchronize()
        for block in [b for b in self._registered if b.ptr == memory.ctypes.data]:
            self._registered.remove(block)
            block.close()

    def _unregister_all(self) -> None:
        while self._registered:
            self._registered.pop().close()

    def _registered_at(self, ptr: int, nbytes: int) -> int:
        for block in self._registered:
            if block.holds(ptr, nbytes):
                return block.device_ptr + ptr - block.ptr
        return 0

    def _ended_badly(self, slot: FrameSlot, number: int, error: BaseException) -> None:
        """Give the slot back; raise instead of `error` what it means for the whole pipeline."""
        self.faults.end(number)
        try:
            self.faults.judge(error)
        finally:
            self.slots.give_back(slot)

    def memory(self) -> Mapping[str, Mapping[str, int]]:
        """Return {'device': {owner: bytes}, 'pinned': {owner: bytes}}."""
        return self.account.report()

    def diagnostics(self) -> Mapping[str, str]:
        """Return what /diagnostics shows: the GPU, the memory by owner, odd values seen."""

        def told(owners: Mapping[str, int]) -> str:
            return ', '.join(f'{owner} {nbytes / 1e6:.1f}' for owner, nbytes in owners.items())

        held = self.memory()
        return {
            **self.shared.contexts.engine.diagnostics,
            'GPU': str(self.gpu),
            'GPU memory (MB)': told(held['device']),
            'pinned memory (MB)': told(held['pinned']),
            **self._monitor.diagnostics(),
            'zero-copy frames': (f'{self.health.zero_copy_frames} of {self.health.frames}'),
            'frames with non-finite values': str(self.health.nonfinite_frames),
            'CUDA graph fallbacks': self.health.graph_fallbacks[0]
            if self.health.graph_fallbacks
            else '',
        }

    def on_fault(self, callback: Callable[[GpuFailedError], None]) -> None:
        """Call `callback` once, on any thread, when the GPU has failed or does not answer."""
        self.faults.report_to(callback)

    def close(self) -> None:
        """Give everything back, after the frames under way; may be called twice."""
        self.gpu.context.release(self.slots.close, self.options.gpu_timeout_seconds)
        self.gpu.context.release(self._owned.close)


def _kernels(name: str, gpu: Gpu, account: Account, undo: ExitStack, cache_dir: str) -> Kernels:
    kernels = Kernels(name, gpu.arch, kernel_folder(cache_dir))
    undo.callback(kernels.close)
    account.device['kernels'] += kernels.nbytes
    undo.callback(account.device.pop, 'kernels', None)
    return kernels
