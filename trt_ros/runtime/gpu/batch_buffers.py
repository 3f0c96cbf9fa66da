"""GPU memory for one set of input shapes, and the stages of its runs."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from contextlib import ExitStack
from functools import partial
from itertools import count
import logging

import numpy as np

from trt_ros.cuda.calls import CudaError
from trt_ros.cuda.copies import Copy, copy_all, fetch
from trt_ros.cuda.device import Event, Graph, Stream
from trt_ros.cuda.memory import DeviceBuffer, fill_async
from trt_ros.decode.cuda.decoder import Addresses, Launch, Reader, aligned
from trt_ros.errors import BackendError, TensorMismatchError
from trt_ros.model.feeds.padding import CAPACITY
from trt_ros.model.run_inputs import REGIONS
from trt_ros.runtime.gpu.captured_graph import RunAddresses, Stage, StageSequence
from trt_ros.runtime.gpu.input_kinds import Batch, Enqueue
from trt_ros.runtime.gpu.preprocess import Geometry
from trt_ros.runtime.gpu.regions import GpuRegions, boxes_of
from trt_ros.runtime.gpu.shared_resources import SharedResources
from trt_ros.runtime.gpu.slots import LruCache
from trt_ros.runtime.gpu.tensorrt_context import Execution
from trt_ros.tensors import Shape, item_nbytes

log = logging.getLogger('trt_ros.runtime')

#: Combinations of tensor shapes whose buffers are kept.
MAX_SHAPES = 4
KEEP_STATE = 'keep state'


class BatchBuffers:
    """
    Execution context and tensors of one set of input shapes, which it owns.

    :param batch: number of images per run; 1 where a run has other inputs, too.
    :param tensor_shapes: shapes of the tensors fed, by network input.
    :param larger: the buffers of a larger batch, whose memory this one uses too, because their
        runs never overlap. It must outlive this one.
    :ivar number: unique in this process; graphs are captured for it.
    :ivar maps: memory of the maps of regions, one per image; None for whole images.
    """

    _numbers = count()

    def __init__(
        self,
        shared: SharedResources,
        batch: int,
        tensor_shapes: Mapping[str, Shape],
        larger: BatchBuffers | None = None,
    ) -> None:
        self.shared, self.batch, self.number = shared, batch, next(self._numbers)
        engine = shared.contexts.engine
        self._owned = ExitStack()
        with ExitStack() as undo:
            input_shapes: dict[str, Shape] = {
                each.name: each.shape(batch, tensor_shapes) for each in shared.inputs.all
            }
            parts = shared.inputs.part_dtypes
            self.execution: Execution = shared.contexts.new(
                {name: shape for name, shape in input_shapes.items() if name not in parts}
            )
            undo.callback(self.execution.close)
            self.shapes = {out.name: self.execution.shape_of(out.name) for out in engine.outputs}
            rows = batch * shared.tile_count
            for name, output_shape in self.shapes.items():
                if rows > 1 and output_shape[:1] != (rows,):
                    raise TensorMismatchError(
                        f'Output {name} has shape {output_shape} for a batch of {rows} images.',
                        cause='its first dimension is not the batch',
                        remedy='Leave tiles out.' if rows > batch else 'Set max_batch_size to 1.',
                    )
            dtypes = {spec.name: spec.dtype for spec in (*engine.inputs, *engine.outputs)} | parts
            shapes = {**input_shapes, **self.shapes}
            self.sizes = {
                name: int(np.prod(shapes[name])) * item_nbytes(dtype)
                for name, dtype in dtypes.items()
            }
            self.decoder = shared.decoder_for({name: self.shapes[name] for name in shared.outputs})
            self.tensors: dict[str, DeviceBuffer] = shared.inputs.memory
            self.scratch: DeviceBuffer | None = None
            self.maps: DeviceBuffer | None = None
            if larger is None:
                self._allocate(undo)
            else:
                self.tensors, self.scratch, self.maps = larger.tensors, larger.scratch, larger.maps
            self._inputs = Batch(
                batch, self.tensors, self.sizes, self.shapes, shared.preprocess_kernels
            )
            for name, buffer in self.tensors.items():
                if name not in parts:
                    self.execution.bind(name, buffer.ptr)
            self.execution.hold({each.name for each in shared.inputs.all if each.is_held})
            self._owned = undo.pop_all()
        self.is_warm, self._is_held_due = False, True

    def _allocate(self, undo: ExitStack) -> None:
        def allocate(nbytes: int, owner: str) -> DeviceBuffer:
            buffer = DeviceBuffer(nbytes, owner, self.shared.account)
            undo.callback(buffer.close)
            return buffer

        for name, nbytes in self.sizes.items():
            if name not in self.tensors:
                self.tensors[name] = allocate(nbytes, 'tensors')
        if self.decoder is not None:
            # The images of a batch are decoded one after another, with the same memory.
            self.scratch = allocate(self.decoder.scratch_nbytes, 'decoder')
        if self.shared.crop is not None:
            self.maps = allocate(self.batch * 8 * 4, 'tensors')

    def input_address(self, name: str) -> int:
        """Return the GPU address of a tensor that is fed; see SharedResources.tensor_specs."""
        if name == REGIONS:
            assert self.maps is not None
            return self.maps.ptr
        return self.tensors[name].ptr + self.shared.inputs.array_offsets[name]

    def result_sizes(self, geometries: Sequence[Geometry]) -> tuple[int, ...]:
        """Return the bytes of each image's results in host memory, or else of all raw outputs."""
        if self.decoder is None:
            return (sum(aligned(self.sizes[name]) for name in self.shared.outputs),)
        more = sum(each.nbytes for each in self.joined)
        return tuple(
            aligned(self.decoder.result_nbytes((g.width, g.height))) + more
            for g in self._decoded(geometries)
        )

    def _decoded(self, geometries: Sequence[Geometry]) -> Sequence[Geometry]:
        """Return the geometries of the images that are decoded; of regions, one of each."""
        found = self.shared.decoded(geometries)
        return found if self.shared.crop is None else [*found] * self.batch

    def readers(
        self, geometries: Sequence[Geometry], results: np.ndarray, parts: Sequence[slice]
    ) -> tuple[Reader, ...]:
        """Return the reader of each image's part of `results`; none if the CPU decodes."""
        if self.decoder is None:
            return ()
        readers = list[Reader]()
        for part, geometry in zip(parts, self._decoded(geometries)):
            read = self.decoder.reader(results[part], (geometry.width, geometry.height))
            for each in self.joined:
                read = each.reader(read, results[part][-each.nbytes :])
            readers.append(read)
        return tuple(readers)

    @property
    def joined(self) -> Sequence[GpuRegions]:
        """Networks that run on the boxes which the GPU decodes, behind the decoder."""
        return self.shared.joined if boxes_of(self.decoder) else ()

    def why_not_capturable(self, stream: int) -> str:
        """Return why a network cannot be captured; '' if all can."""
        executions = [self.execution, *(each.buffers.execution for each in self.joined)]
        return next(filter(None, (each.why_not_capturable(stream) for each in executions)), '')

    def capture(self, stages: list[Stage], stream: Stream) -> Graph | StageSequence:
        """Return the stages as a graph, which the caller closes."""
        sequence = StageSequence(stages)
        if not self.shared.use_graph:
            return sequence
        if not self.is_warm:
            # TensorRT initializes on first use, which cannot be captured. Results are discarded.
            StageSequence([each for each in stages if each[0] != KEEP_STATE]).launch(stream.handle)
            stream.synchronize()
            self.is_warm = True
        reason = self.why_not_capturable(stream.handle)
        if not reason:
            try:
                return Graph.capture(stream.handle, sequence.launch)
            except (BackendError, CudaError) as error:
                if isinstance(error, CudaError) and error.is_sticky:
                    raise
                reason = str(error)
        self.shared.graph_fallbacks.append(reason)
        return sequence

    def prepare(self, stream: int) -> None:
        """Write the constant inputs and zero the decoder's counters, once for all frames."""
        for each in self.shared.inputs.all:
            each.prepare(self._inputs, stream)
        if self.scratch is not None:
            fill_async(self.scratch.ptr, 0, self.scratch.nbytes, stream)

    def enqueue_held(self, stream: int, has_changed: bool) -> None:
        """Enqueue the networks of held inputs alone, in the first run and where one changed."""
        if has_changed or self._is_held_due:
            self._is_held_due = False
            self.execution.enqueue_held(stream)

    def stages(self, geometries: Sequence[Geometry], addresses: RunAddresses) -> list[Stage]:
        """Return the stages of a run on the GPU, in order, each as a function of the stream."""
        shared = self.shared
        copying = self._copying(addresses.copies) if addresses.copies else None
        fetching = [partial(fetch, shared.preprocess_kernels, *each) for each in addresses.fetches]
        inputs = shared.inputs.all
        before = [each.before(self._inputs, geometries, addresses) for each in inputs]
        after = [each.after(self._inputs) for each in inputs]
        kept = [copy for each in inputs for copy in each.kept(self._inputs)]
        after += [self._copying(kept)] if kept else []
        return [
            *_together('copy in', [copying, *fetching]),
            *_together('preprocess', before),
            *self.execution.stages(),
            self._last_stage(geometries, addresses),
            *(
                ('regions', each.work(self.decoder, self.shared.decoded(geometries), addresses))
                for each in self.joined
            ),
            *_together(KEEP_STATE, after),
        ]

    def _copying(self, copies: Sequence[Copy]) -> Enqueue:
        return partial(copy_all, self.shared.preprocess_kernels, copies)

    def _last_stage(self, geometries: Sequence[Geometry], addresses: RunAddresses) -> Stage:
        shared, decoder, scratch = self.shared, self.decoder, self.scratch
        if decoder is None or scratch is None:
            (target,) = addresses.results
            copies = []
            for name in shared.outputs:
                copies.append((target, self.tensors[name].ptr, self.sizes[name]))
                target += aligned(self.sizes[name])
            return 'copy out', self._copying(copies)
        launches = list[Launch]()
        for i, geometry in enumerate(self._decoded(geometries)):

            def address(name: str, i: int = i) -> int:
                return self.tensors[name].ptr + i * (self.sizes[name] // self.batch)

            letterbox = shared.preprocess.letterbox((geometry.width, geometry.height))
            at = Addresses(address, addresses.request, scratch.ptr, addresses.results[i])
            launches += decoder.launches(letterbox, at)

        kernels = shared.decode_kernels.load(launches)

        def decode(stream: int) -> None:
            for launch in launches:
                kernels.launch(*launch, stream)

        return 'decode', decode

    def outputs(self, results: np.ndarray) -> dict[str, np.ndarray]:
        """Return views of the raw outputs in the result buffer, bfloat16 as uint16; borrowed."""
        outputs, offset = {}, 0
        for name in self.shared.outputs:
            nbytes = self.sizes[name]
            outputs[name] = (
                results[offset : offset + nbytes]
                .view(self.shared.host_dtypes[name])
                .reshape(self.shapes[name])
            )
            offset += aligned(nbytes)
        return outputs

    def close(self) -> None:
        """Release the context and own memory; may be called twice."""
        self._owned.close()


def _together(name: str, parts: Sequence[Callable[[int], None] | None]) -> list[Stage]:
    """Return one stage of what several inputs enqueue; none if they enqueue nothing."""
    enqueued = [part for part in parts if part is not None]

    def enqueue(stream: int) -> None:
        for each in enqueued:
            each(stream)

    return [(name, enqueue)] if enqueued else []


class BuffersByShape:
    """
    The buffers of each batch size and combination of tensor shapes, made when first needed.

    Owns them; all slots of a context use them, whose runs never overlap. Of tensors of dynamic
    shapes, the last few combinations are kept.
    """

    def __init__(self, shared: SharedResources) -> None:
        self.shared = shared
        # Batch sizes are all kept: smaller ones use the memory of the largest.
        self._buffers: LruCache[BatchBuffers] = LruCache(max(len(shared.batches), MAX_SHAPES))
        self._has_reported = False

    def get(
        self,
        images: int,
        tensor_shapes: Mapping[str, Shape],
        stream: Stream,
        after: Event | None = None,
    ) -> BatchBuffers:
        """
        Return the buffers of the smallest batch of at least `images`, for these tensors.

        :param stream: idle stream that writes their first contents.
        :param after: end of the run that uses their memory; None when there is none.
        :raises TensorMismatchError: when there is no such batch, or the engine rejects a shape.
        """
        batches = self.shared.batches
        batch = 1
        if self.shared.is_one_image:
            batch = next((size for size in batches if size >= images), 0)
            if not batch:
                raise TensorMismatchError(
                    f'{images} images exceed the maximum batch size of {batches[-1]}.'
                )
        key = (batch, *tensor_shapes.values())
        found = self._buffers.find(key)
        if found is not None:
            return found
        if after is not None:
            # The run uses the memory, or buffers that are closed to make room.
            stream.wait_for(after)
            stream.synchronize()
        # Smaller batches use the memory of the largest.
        larger = self.get(batches[-1], {}, stream) if batch < batches[-1] else None
        return self._buffers.get(
            key,
            lambda: self._made(BatchBuffers(self.shared, batch, tensor_shapes, larger), stream),
        )

    @staticmethod
    def _made(buffers: BatchBuffers, stream: Stream) -> BatchBuffers:
        """Write the first contents; the first run may be in another stream."""
        try:
            buffers.prepare(stream.handle)
            stream.synchronize()
        except BaseException:
            buffers.close()
            raise
        return buffers

    def report_new_shape(self, seconds: float) -> None:
        """Log the host time of a run with a new shape of tensors, once, with the second one."""
        if self._has_reported or self.shared.is_one_image or self._buffers.made < 2:
            return
        self._has_reported = True
        log.info(
            'A run with tensors of another shape took %.1f ms to start: each new shape gets '
            'buffers and a CUDA graph, which are kept for the last %d shapes. '
            '?%s= in inputs pads an input to one shape.',
            1e3 * seconds,
            self._buffers.capacity,
            CAPACITY,
        )

    @property
    def has_gpu_decoder(self) -> bool:
        """Whether outputs are decoded on the GPU; known after the first run."""
        return any(buffers.decoder is not None for buffers in self._buffers)

    @property
    def has_joined(self) -> bool:
        """Whether other networks run in the same graphs; known after the first run."""
        return any(buffers.joined for buffers in self._buffers)

    @property
    def numbers(self) -> frozenset[int]:
        """Numbers of the present buffers."""
        return frozenset(buffers.number for buffers in self._buffers)

    def close(self) -> None:
        """Release the buffers, after all slots; may be called twice."""
        for buffers in sorted(self._buffers, key=lambda each: each.batch):
            buffers.close()
        self._buffers.clear()
