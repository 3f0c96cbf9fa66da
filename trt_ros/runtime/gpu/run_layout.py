"""Layout of the sources and results of a run in the memory of a slot."""

from collections.abc import Callable, Sequence
from itertools import accumulate

import numpy as np

from trt_ros.cuda.copies import Blocks
from trt_ros.cuda.device import Stream
from trt_ros.decode.cuda.decoder import aligned
from trt_ros.model.run_inputs import REGIONS
from trt_ros.runtime.gpu.batch_buffers import BatchBuffers
from trt_ros.runtime.gpu.captured_graph import CapturedGraph, RunAddresses, SlotMemory
from trt_ros.runtime.gpu.shared_resources import SharedResources
from trt_ros.runtime.gpu.staging import Part, Source, plan_transfers
from trt_ros.vision.frame import Frame


class RunLayout:
    """
    Where the request, the sources and the results of runs with one graph are.

    :param header_nbytes: size of the header of the request. The addresses of the images that the
        graph fetches follow it, then come the sources, images before tensors.
    :param zero_copy: GPU address of each source; 0 for one that is not in registered memory.
    :ivar memory_nbytes: size of the pinned memory, of the images on the GPU and of the results.
    """

    def __init__(
        self,
        shared: SharedResources,
        buffers: BatchBuffers,
        header_nbytes: int,
        frames: Sequence[Frame],
        sources: Sequence[Source],
        zero_copy: Sequence[int],
    ) -> None:
        self._shared, self._buffers, self._sources = shared, buffers, sources
        self._zero_copy = zero_copy
        self._geometries = tuple(
            shared.geometry(frame, is_there=source.is_on_gpu or bool(address and shared.in_place))
            for frame, source, address in zip(frames, sources, zero_copy)
        )
        self._blocks = [
            *[each.blocks for each in self._geometries],
            *[None] * (len(sources) - len(frames)),
        ]
        self._sizes = [
            source.nbytes if each is None else each.nbytes * each.count
            for source, each in zip(sources, self._blocks)
        ]
        fetched = [i for i in range(len(frames)) if zero_copy[i] and shared.fetches]
        self._words = {i: header_nbytes + 8 * number for number, i in enumerate(fetched)}
        self._request_nbytes = header_nbytes + aligned(8 * len(fetched))
        *self._offsets, end = accumulate(map(aligned, self._sizes), initial=self._request_nbytes)
        ends = list(accumulate(buffers.result_sizes(self._geometries), initial=0))
        self._results = list(map(slice, ends, ends[1:]))
        # Zero-copy sources need no pinned memory; pinning takes most of the time of a first frame.
        is_in_pinned = not all(
            address or (source.is_on_gpu and not shared.in_place)
            for source, address in zip(sources, zero_copy)
        )
        self.memory_nbytes = end if is_in_pinned else self._request_nbytes, end, ends[-1]

    def placed(self, memory: SlotMemory, chunk_nbytes: int) -> Callable[[Stream], CapturedGraph]:
        """
        Return the function that captures the graph of these runs in memory that is large enough.

        :raises BadFrameError: when a kernel cannot read an image.
        """
        shared, buffers, pinned = self._shared, self._buffers, memory.pinned
        parts = self._parts(memory)
        header = 0 if memory.image is None else memory.image.ptr
        transfers = plan_transfers(parts, header, self._request_nbytes, chunk_nbytes)
        # Where each source is when the graph reads it; the GPU can read pinned memory.
        there = [
            part.target or address or pinned.device_ptr + part.pinned
            for part, address in zip(parts, self._zero_copy)
        ]
        images = len(self._geometries)
        has_maps = len(parts) > images and shared.crop is not None
        inputs = [buffers.input_address(name) for name in shared.tensor_specs]
        request = header or pinned.device_ptr
        addresses = RunAddresses(
            tuple(there[:images]),
            request,
            (
                *(
                    (target, pinned.device_ptr + offset, nbytes)
                    for target, offset, nbytes in transfers.in_graph
                ),
                *(
                    (target, address, part.nbytes)
                    for target, address, part in zip(inputs, there[images:], parts[images:])
                ),
            ),
            tuple(memory.results.device_ptr + part.start for part in self._results),
            buffers.input_address(REGIONS) if has_maps else 0,
            tuple(
                (there[i], request + at, part.blocks or Blocks(0, part.nbytes, part.nbytes, 1))
                for i, at in self._words.items()
                for part in [parts[i]]
            ),
        )
        words = tuple(
            (i, pinned.view[at : at + 8].view(np.uint64), self._sources[i].nbytes)
            for i, at in self._words.items()
        )
        for i, word, _ in words:  # The network is run before it is captured.
            word[0] = self._zero_copy[i]
        stages = buffers.stages(self._geometries, addresses)
        return lambda stream: CapturedGraph(
            buffers.capture(stages, stream),
            memory,
            addresses,
            buffers.readers(self._geometries, memory.results.view, self._results),
            transfers.pieces,
            self._geometries,
            tuple(
                (index, part.target, part.rows)
                for index, part in enumerate(parts)
                if part.is_zero_copy and part.target and index not in self._words
            ),
            words,
            len(parts) == len(words) == 1 and shared.inputs.are_images,
        )

    def _parts(self, memory: SlotMemory) -> list[Part]:
        return [
            Part(
                size,
                offset,
                _target(source, memory, offset),
                bool(address) or source.is_on_gpu,
                source.data is not None,
                blocks,
            )
            for source, size, offset, address, blocks in zip(
                self._sources, self._sizes, self._offsets, self._zero_copy, self._blocks
            )
        ]


def _target(source: Source, memory: SlotMemory, offset: int) -> int:
    """Return the GPU address to send a source to; 0 where the graph reads it in place."""
    if memory.image is None:
        return memory.pinned.device_ptr + offset if source.is_on_gpu else 0
    # The network's inputs belong to the previous run until it ends.
    return 0 if source.is_small_tensor else memory.image.ptr + offset
