"""GPU memory of one batch size, and the stages of its frames."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from contextlib import ExitStack
from dataclasses import dataclass, field
from typing import NamedTuple

import numpy as np

from trt_ros.cuda.graphs import Graph
from trt_ros.cuda.memory import DeviceBuffer, PinnedBuffer, copy_async, fill_async
from trt_ros.errors import TensorMismatchError
from trt_ros.runtime.gpu.decode import Launch
from trt_ros.runtime.gpu.preprocess import (
    Geometry,
    RequestArgs,
    launch_preprocess,
    preprocess_args,
)
from trt_ros.runtime.gpu.shared_resources import SharedResources
from trt_ros.runtime.gpu.slots import LruCache
from trt_ros.runtime.gpu.tensorrt_context import Execution, item_nbytes
from trt_ros.runtime.gpu.waiting import RunTimes

HEADER_NBYTES = 256  # The request; keeps the images behind it aligned.
MAX_GRAPHS = 16  # Per slot and batch size: image geometries that may alternate.
Stage = tuple[str, Callable[[int], None]]


def aligned(nbytes: int) -> int:
    """Return `nbytes` rounded up to a multiple of 256."""
    return -(-nbytes // 256) * 256


@dataclass(frozen=True)
class FrameAddresses:
    """
    Addresses that the captured work of a batch reads and writes.

    :param images: GPU address of each image; may be fewer than the batch has.
    :param request: GPU address of the `RequestArgs`.
    :param copies: (target, source, nbytes) of the copies to the GPU inside the graph.
    :param results: where the results of each image go, or else all raw outputs.
    """

    images: tuple[int, ...]
    request: int
    copies: tuple[tuple[int, int, int], ...]
    results: tuple[int, ...]


@dataclass(frozen=True)
class Piece:
    """
    Bytes `start` to `stop` of image `index`, copied to pinned memory as one.

    :param pinned: offset of the target in the pinned buffer.
    :param send: (offset, nbytes) to send to the GPU once copied: the first piece includes the
        header, the last one is (0, 0) because the graph sends it.
    """

    index: int
    start: int
    stop: int
    pinned: int
    send: tuple[int, int]


class SlotMemory(NamedTuple):
    """Memory of a slot for images and results; `image` is None where kernels read in place."""

    pinned: PinnedBuffer
    image: DeviceBuffer | None
    results: PinnedBuffer
    request: RequestArgs


class StageSequence:
    """Stages launched one by one, in place of a CUDA graph where none can be captured."""

    def __init__(self, stages: list[Callable[[int], None]]) -> None:
        self.stages = stages

    def launch(self, stream: int) -> None:
        """Enqueue all stages into `stream`; returns at once."""
        for stage in self.stages:
            stage(stream)

    def close(self) -> None:
        """Drop the stages; may be called twice."""
        self.stages = []


@dataclass(frozen=True, eq=False)
class CapturedGraph:
    """
    A CUDA graph captured for one batch of image geometries. Owns the graph.

    :param memory: the slot's memory that the graph uses; borrowed.
    :param sizes: bytes of each image.
    :param offsets: offset of each image in the pinned buffer.
    :param results: slice of each image's results in the result buffer.
    :param pieces: copies to pinned memory; empty for zero-copy frames.
    """

    graph: Graph | StageSequence
    memory: SlotMemory
    addresses: FrameAddresses
    sizes: tuple[int, ...]
    offsets: tuple[int, ...]
    results: tuple[slice, ...]
    pieces: tuple[Piece, ...]
    times: RunTimes = field(default_factory=RunTimes)

    def close(self) -> None:
        """Destroy the graph; may be called twice."""
        self.graph.close()


class TensorMemory(NamedTuple):
    """GPU memory of a batch: its tensors by name, and the decoder's scratch memory."""

    tensors: dict[str, DeviceBuffer]
    scratch: DeviceBuffer | None


class BatchBuffers:
    """
    Execution context, tensors and captured graphs of one batch size in one slot, which owns them.

    :param larger: the slot's buffers of a larger batch, whose memory this one uses too, because
        their runs never overlap. It must outlive this one.
    """

    def __init__(
        self, shared: SharedResources, batch: int, larger: BatchBuffers | None = None
    ) -> None:
        self.shared, self.batch = shared, batch
        engine = shared.contexts.engine
        self._owned = ExitStack()
        with ExitStack() as undo:
            spec = shared.image_input
            shape = (batch, *shared.preprocess.shape[1:])
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
            for name, output_shape in self.shapes.items():
                if batch > 1 and output_shape[:1] != (batch,):
                    raise TensorMismatchError(
                        f'Output {name} has shape {output_shape} for a batch of {batch} images.',
                        cause='its first dimension is not the batch',
                        remedy='Set max_batch_size to 1.',
                    )
            self.image_nbytes = int(np.prod(shape[1:])) * item_nbytes(spec.dtype)
            self.sizes = {
                spec.name: batch * self.image_nbytes,
                **{name: value.nbytes for name, value in self._constant_inputs.items()},
            }
            for out in engine.outputs:
                self.sizes[out.name] = int(np.prod(self.shapes[out.name])) * item_nbytes(out.dtype)
            self.decoder = shared.decoder_for(self.shapes)
            self.memory: TensorMemory = self._allocate(undo) if larger is None else larger.memory
            self.tensors, self.scratch = self.memory
            for name, buffer in self.tensors.items():
                self.execution.bind(name, buffer.ptr)
            self.input = self.tensors[spec.name]
            self.captured: LruCache[CapturedGraph] = LruCache(MAX_GRAPHS)
            undo.callback(self.captured.clear)
            self._owned = undo.pop_all()
        self.is_warm = False

    def _allocate(self, undo: ExitStack) -> TensorMemory:
        account, scratch = self.shared.account, None
        tensors = {}
        for name, nbytes in self.sizes.items():
            tensors[name] = DeviceBuffer(nbytes, 'tensors', account)
            undo.callback(tensors[name].close)
        if self.decoder is not None:
            scratch = DeviceBuffer(
                self.batch * aligned(self.decoder.scratch_nbytes), 'decoder', account
            )
            undo.callback(scratch.close)
        return TensorMemory(tensors, scratch)

    def result_sizes(self, geometries: Sequence[Geometry]) -> tuple[int, ...]:
        """Return the bytes of each image's results in host memory, or else of all raw outputs."""
        if self.decoder is None:
            return (
                sum(aligned(self.sizes[out.name]) for out in self.shared.contexts.engine.outputs),
            )
        return tuple(aligned(self.decoder.result_nbytes((g.width, g.height))) for g in geometries)

    def prepare(self, stream: int) -> None:
        """Write the constant inputs and zero the decoder's counters, once for all frames."""
        for name, value in self._constant_inputs.items():
            # Pageable memory: CUDA has read all of it when the call returns.
            copy_async(self.tensors[name].ptr, value.ctypes.data, value.nbytes, stream)
        if self.scratch is not None:
            fill_async(self.scratch.ptr, 0, self.scratch.nbytes, stream)

    def stages(self, geometries: Sequence[Geometry], addresses: FrameAddresses) -> list[Stage]:
        """Return the stages of a frame on the GPU, in order, each as a function of the stream."""
        shared, stages = self.shared, list[Stage]()
        if addresses.copies:

            def copy_in(stream: int) -> None:
                for target, source, nbytes in addresses.copies:
                    copy_async(target, source, nbytes, stream)

            stages.append(('copy in', copy_in))
        last = len(geometries) - 1
        args = [
            image_args
            for i in range(self.batch)
            for image_args in preprocess_args(
                shared.preprocess,
                [geometries[min(i, last)]],
                [addresses.images[min(i, last)]],
                self.input.ptr + i * self.image_nbytes,
            )
        ]  # The last image pads a partial batch.

        def preprocess(stream: int) -> None:
            for image_args in args:
                launch_preprocess(shared.preprocess_kernels, image_args, stream)

        stages += [
            ('preprocess', preprocess),
            ('inference', self.execution.enqueue),
            self._last_stage(geometries, addresses),
        ]
        return stages

    def _last_stage(self, geometries: Sequence[Geometry], addresses: FrameAddresses) -> Stage:
        shared, decoder, scratch = self.shared, self.decoder, self.scratch
        outputs = shared.contexts.engine.outputs
        if decoder is None or scratch is None:

            def copy_out(stream: int) -> None:
                (target,) = addresses.results
                for out in outputs:
                    nbytes = self.sizes[out.name]
                    copy_async(target, self.tensors[out.name].ptr, nbytes, stream)
                    target += aligned(nbytes)

            return 'copy out', copy_out
        kernels, launches = shared.decode_kernels, list[Launch]()
        for i, geometry in enumerate(geometries):

            def address(name: str, i: int = i) -> int:
                return self.tensors[name].ptr + i * (self.sizes[name] // self.batch)

            launches += decoder.launches(
                shared.preprocess.letterbox((geometry.width, geometry.height)),
                address,
                request=addresses.request,
                result=addresses.results[i],
                scratch=scratch.ptr + i * aligned(decoder.scratch_nbytes),
            )

        def decode(stream: int) -> None:
            for launch in launches:
                kernels.launch(*launch, stream)

        return 'decode', decode

    def outputs(self, results: np.ndarray) -> dict[str, np.ndarray]:
        """Return views of the raw outputs in the result buffer, bfloat16 as uint16; borrowed."""
        outputs, offset = {}, 0
        for out in self.shared.contexts.engine.outputs:
            nbytes = self.sizes[out.name]
            kind = 'uint16' if out.dtype == 'bfloat16' else out.dtype
            outputs[out.name] = (
                results[offset : offset + nbytes].view(kind).reshape(self.shapes[out.name])
            )
            offset += aligned(nbytes)
        return outputs

    def close(self) -> None:
        """Release the graphs, the context and own memory; may be called twice."""
        self._owned.close()
