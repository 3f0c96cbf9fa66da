"""What a batch of frames does on the GPU, step by step, and the memory for it."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from contextlib import ExitStack
from dataclasses import dataclass, field
from typing import Any, NamedTuple

import numpy as np

from trt_ros.cuda.device import Gpu
from trt_ros.cuda.graphs import Graph
from trt_ros.cuda.kernels import Kernels
from trt_ros.cuda.memory import Account, DeviceBuffer, copy_async, fill_async
from trt_ros.errors import TensorMismatchError
from trt_ros.runtime.gpu.decode import GpuDecoder, Launch
from trt_ros.runtime.gpu.preprocess import Geometry, launch_preprocess, preprocess_args
from trt_ros.runtime.gpu.slots import CopyThreadPool, LruCache
from trt_ros.runtime.gpu.tensorrt_context import Contexts, Execution, Shape, item_nbytes
from trt_ros.tensors import TensorSpec
from trt_ros.vision.decoders.registry import Decoder
from trt_ros.vision.letterbox import Preprocess

HEADER_NBYTES = 256  # The request; keeps the images behind it aligned.
Stage = tuple[str, Callable[[int], None]]


def aligned(nbytes: int) -> int:
    return -(-nbytes // 256) * 256


@dataclass(frozen=True)
class SharedResources:
    """What all slots of a pipeline share; borrowed by them."""

    gpu: Gpu
    account: Account
    contexts: Contexts
    preprocess: Preprocess
    preprocess_kernels: Kernels
    decode_kernels: Kernels | None
    decoders: Callable[[Mapping[str, Shape]], GpuDecoder | None]
    copy_threads: CopyThreadPool
    chunk_nbytes: int
    graph_capacity: int
    use_graph: bool
    in_place: bool  # Kernels read pinned memory where it lies.
    blocking_sync: bool
    stream_priority: int
    on_graph_fallback: Callable[[str], None]
    constant_inputs: Mapping[str, np.ndarray] = field(default_factory=dict)  # Beside the images.
    batches: tuple[int, ...] = (1,)  # The sizes that runs have, ascending.

    @property
    def image_input(self) -> TensorSpec:
        return next(
            spec for spec in self.contexts.engine.inputs if spec.name not in self.constant_inputs
        )


def batches_for(
    shared: SharedResources, batch: int, decoder: Decoder[Any] | None
) -> tuple[int, ...]:
    """
    Say how many images runs take: each count has a context, which costs GPU memory (72 MiB with
    tensorrt_rtx 1.5, whatever the network), so only powers of two, and the largest batch.
    """
    spec = shared.image_input
    if spec.shape[0] != -1:
        return (spec.shape[0],)
    if decoder is not None and not decoder.takes_batches:
        return (1,)
    max_batch = min(
        batch,
        max((profile[spec.name][2][0] for profile in shared.contexts.engine.profiles), default=1),
    )
    return (
        *(1 << power for power in range(max_batch.bit_length()) if 1 << power < max_batch),
        max_batch,
    )


def batch_log_lines(shared: SharedResources, batch: int) -> tuple[str, ...]:
    """Tell the log what comes of asking for `batch` images in a run."""
    fixed, max_batch = shared.image_input.shape[0], shared.batches[-1]
    if fixed > 1:
        return (f'the network takes {fixed} images in each run: fewer are filled up',)
    if max_batch == 1 < batch:
        which = 'network' if fixed == 1 else 'engine'
        return (f'images run one after another: the {which} takes one in a run',)
    return (f'up to {max_batch} images in a run',) if batch > 1 else ()


@dataclass(frozen=True)
class Source:
    """
    Where the GPU finds the images of a batch, and the part of their way that the graph does.

    :param addresses: of each image; there may be fewer than the batch takes.
    :param request: of the thresholds.
    :param in_graph: (target, origin, nbytes) copies that belong into the graph.
    :param results: where each image's results go, or else all raw outputs.
    """

    addresses: tuple[int, ...]
    request: int
    in_graph: tuple[tuple[int, int, int], ...]
    results: tuple[int, ...]


@dataclass(frozen=True)
class Piece:
    """Bytes `start` to `stop` of image `index`, and what to send on to the GPU once copied."""

    index: int
    start: int
    stop: int
    pinned: int  # Where they go in the pinned buffer.
    send: tuple[int, int]  # (offset, bytes); with the header for the first, (0, 0) for the last.


class Way:
    """What frames of one size and encoding need, worked out and captured once; owns a graph."""

    def __init__(
        self,
        source: Source,
        sizes: tuple[int, ...],
        offsets: tuple[int, ...],
        results: tuple[slice, ...],
        pieces: tuple[Piece, ...],
        graph: Graph,
    ) -> None:
        self.source, self.sizes, self.offsets = source, sizes, offsets
        self.results, self.pieces, self.graph = results, pieces, graph

    def close(self) -> None:
        self.graph.close()


class Memory(NamedTuple):
    """What a batch works in: the tensors, and the decoder's scratch memory."""

    tensors: dict[str, DeviceBuffer]
    scratch: DeviceBuffer | None


class Plan:
    """
    A batch size in one slot: its context, its tensors, its graphs; the slot owns it.

    :param larger: the slot's plan of a larger batch, in whose memory this one works: they run one
        after another. It must live as long.
    """

    def __init__(self, shared: SharedResources, batch: int, larger: Plan | None = None) -> None:
        self.shared, self.batch = shared, batch
        engine = shared.contexts.engine
        self._owned = ExitStack()
        with ExitStack() as undo:
            spec = shared.image_input
            height, width = shared.preprocess.input_hw
            shape = (
                (batch, 3, height, width)
                if shared.preprocess.layout == 'nchw'
                else (batch, height, width, 3)
            )
            self._constant_inputs = {
                name: np.repeat(value, batch, axis=0)
                for name, value in shared.constant_inputs.items()
            }
            self.execution: Execution = shared.contexts.new(
                {
                    spec.name: shape,
                    **{name: value.shape for name, value in self._constant_inputs.items()},
                }
            )
            undo.callback(self.execution.close)
            self.shapes = {out.name: self.execution.shape_of(out.name) for out in engine.outputs}
            for name, each in self.shapes.items():
                if batch > 1 and each[:1] != (batch,):
                    raise TensorMismatchError(
                        f'The output {name} of {batch} images is {each}, not of {batch}.',
                        remedy='Set max_batch_size to 1.',
                    )
            self.image_nbytes = int(np.prod(shape[1:])) * item_nbytes(spec.dtype)
            self.sizes = {
                spec.name: batch * self.image_nbytes,
                **{name: value.nbytes for name, value in self._constant_inputs.items()},
            }
            for out in engine.outputs:
                self.sizes[out.name] = int(np.prod(self.shapes[out.name])) * item_nbytes(out.dtype)
            self.decoder = shared.decoders(self.shapes)
            self.memory: Memory = self._take_memory(undo) if larger is None else larger.memory
            self.tensors, self.scratch = self.memory
            for name, buffer in self.tensors.items():
                self.execution.bind(name, buffer.ptr)
            self.input = self.tensors[spec.name]
            self.ways: LruCache[Way] = LruCache(shared.graph_capacity)
            undo.callback(self.ways.clear)
            self._owned = undo.pop_all()
        self.is_warm = False

    def _take_memory(self, undo: ExitStack) -> Memory:
        m, scratch = self.shared, None
        tensors = {}
        for name, nbytes in self.sizes.items():
            tensors[name] = DeviceBuffer(nbytes, 'tensors', m.account)
            undo.callback(tensors[name].close)
        if self.decoder is not None:
            scratch = DeviceBuffer(
                self.batch * aligned(self.decoder.scratch_nbytes), 'decoder', m.account
            )
            undo.callback(scratch.close)
        return Memory(tensors, scratch)

    def result_sizes(self, geometries: Sequence[Geometry]) -> tuple[int, ...]:
        """Bytes of each image's results in host memory, or else of all raw outputs."""
        if self.decoder is None:
            return (
                sum(aligned(self.sizes[out.name]) for out in self.shared.contexts.engine.outputs),
            )
        return tuple(aligned(self.decoder.result_nbytes((g.width, g.height))) for g in geometries)

    def prepare(self, stream: int) -> None:
        """Set the decoder's counters to zero, and the extra inputs: each frame leaves them so."""
        for name, value in self._constant_inputs.items():
            # From pageable memory: CUDA has read it all when this returns.
            copy_async(self.tensors[name].ptr, value.ctypes.data, value.nbytes, stream)
        if self.scratch is not None:
            fill_async(self.scratch.ptr, 0, self.scratch.nbytes, stream)

    def stages(self, geometries: Sequence[Geometry], source: Source) -> list[Stage]:
        """List what a frame does on the GPU, in order, each as a function of the stream."""
        m, stages = self.shared, list[Stage]()
        if source.in_graph:

            def copy_in(stream: int) -> None:
                for target, origin, nbytes in source.in_graph:
                    copy_async(target, origin, nbytes, stream)

            stages.append(('copy in', copy_in))
        last = len(geometries) - 1
        args = [
            preprocess_args(
                m.preprocess,
                geometries[min(i, last)],
                source.addresses[min(i, last)],
                self.input.ptr + i * self.image_nbytes,
            )
            for i in range(self.batch)
        ]  # The last image fills up what is left.

        def preprocess(stream: int) -> None:
            for each in args:
                launch_preprocess(m.preprocess_kernels, each, stream)

        stages += [
            ('preprocess', preprocess),
            ('inference', self.execution.enqueue),
            self._last_stage(geometries, source),
        ]
        return stages

    def _last_stage(self, geometries: Sequence[Geometry], source: Source) -> Stage:
        m, decoder, scratch = self.shared, self.decoder, self.scratch
        outputs = m.contexts.engine.outputs
        if decoder is None or scratch is None or m.decode_kernels is None:

            def copy_out(stream: int) -> None:
                (target,) = source.results
                for out in outputs:
                    nbytes = self.sizes[out.name]
                    copy_async(target, self.tensors[out.name].ptr, nbytes, stream)
                    target += aligned(nbytes)

            return 'copy out', copy_out
        kernels, launches = m.decode_kernels, list[Launch]()
        for i, geometry in enumerate(geometries):

            def address(name: str, i: int = i) -> int:
                return self.tensors[name].ptr + i * (self.sizes[name] // self.batch)

            launches += decoder.launches(
                m.preprocess.letterbox((geometry.width, geometry.height)),
                address,
                request=source.request,
                result=source.results[i],
                scratch=scratch.ptr + i * aligned(decoder.scratch_nbytes),
            )

        def decode(stream: int) -> None:
            for each in launches:
                kernels.launch(*each, stream)

        return 'decode', decode

    def outputs(self, results: np.ndarray) -> dict[str, np.ndarray]:
        """See the raw outputs in pinned memory, where a CPU decoder reads them; borrowed."""
        found, offset = {}, 0
        for out in self.shared.contexts.engine.outputs:
            nbytes = self.sizes[out.name]
            kind = 'uint16' if out.dtype == 'bfloat16' else out.dtype
            found[out.name] = (
                results[offset : offset + nbytes].view(kind).reshape(self.shapes[out.name])
            )
            offset += aligned(nbytes)
        return found

    def close(self) -> None:
        self._owned.close()
