"""A network on the regions of detected objects, in the captured graphs of the detector."""

from collections.abc import Callable, Sequence
from functools import cached_property, partial
from typing import Any

import numpy as np

from trt_ros.cuda.memory import DeviceBuffer
from trt_ros.decode.cuda.boxes import GpuBoxes, GpuOrientedBoxes
from trt_ros.decode.cuda.choice import gpu_decoder
from trt_ros.decode.cuda.decoder import Addresses, Reader, aligned
from trt_ros.decode.cuda.vectors import GpuClasses
from trt_ros.results.base import Result
from trt_ros.runtime.gpu.captured_graph import RunAddresses
from trt_ros.runtime.gpu.preprocess import Geometry, RegionArgs, region_args

MAP_NBYTES = 8 * 4
ONE_WARP = (1, 1, 1), (32, 1, 1)


def boxes_of(decoder: Any) -> GpuBoxes | None:
    """Return the decoder that writes the boxes of the result; None where it has none."""
    found = getattr(decoder, 'merge', decoder)  # Of tiles.
    return found if isinstance(found, GpuBoxes) else None


class GpuRegions:
    """
    A network that runs on the objects of each image, right behind their decoder.

    A kernel reads the boxes where the decoder has written them, and places the regions; those past
    the number of objects are run, too, but not read. Owns the memory of the regions.

    :param pipeline: of the network, a GpuPipeline opened with `regions`; borrowed.
    :param count: maximum number of regions per image.
    """

    def __init__(self, pipeline: Any, count: int) -> None:
        self._pipeline, self.shared, self.count = pipeline, pipeline.shared, count
        self._batch: int = self.shared.batches[-1]
        self._runs = -(-count // self._batch)
        self._rows = self._runs * self._batch
        self._maps = DeviceBuffer(self._rows * MAP_NBYTES, 'tensors', self.shared.account)

    @cached_property
    def buffers(self) -> Any:
        """The BatchBuffers of the network, made by the first call; the GPU is current."""
        return self._pipeline.slots.all[0].buffers_for(self._batch)

    @property
    def _placed_nbytes(self) -> int:
        return aligned(self._rows * (MAP_NBYTES + 4))

    @cached_property
    def _classes(self) -> GpuClasses | None:
        shapes = {name: self.buffers.shapes[name] for name in self.shared.outputs}
        outputs, input_hw = self.shared.contexts.engine.outputs, self.shared.preprocess.input_hw
        found = gpu_decoder(self._pipeline.decoder, outputs, shapes, input_hw)
        return found if isinstance(found, GpuClasses) else None

    @property
    def _run_nbytes(self) -> int:
        if self._classes is not None:
            return self._batch * self._classes.row_nbytes
        (nbytes,) = self.buffers.result_sizes(())
        return int(nbytes)

    @property
    def nbytes(self) -> int:
        """Bytes of the result of one image."""
        nbytes: int = self._placed_nbytes + self._runs * self._run_nbytes
        return nbytes

    def work(
        self, decoder: Any, geometries: Sequence[Geometry], addresses: RunAddresses
    ) -> Callable[[int], None]:
        """Return the work on the objects of all images of a run, as a function of the stream."""
        parts: list[Callable[[int], None]] = []
        for geometry, image, result in zip(geometries, addresses.images, addresses.results):
            target = result + aligned(decoder.result_nbytes((geometry.width, geometry.height)))
            args = self._args(decoder, geometry, result, target)
            place = self.shared.preprocess_kernels.launch
            parts.append(partial(place, 'place_regions', *ONE_WARP, args))
            for run in range(self._runs):
                at = target + self._placed_nbytes + run * self._run_nbytes
                maps = self._maps.ptr + run * self._batch * MAP_NBYTES
                results = (at,) * (1 if self.buffers.decoder is None else self._batch)
                inner = RunAddresses((image,), 0, (), results, maps)
                stages = dict(self.buffers.stages([geometry], inner))
                if self._classes is not None:
                    for each in ('copy out', 'decode'):
                        stages.pop(each, None)
                    stages['classes'] = self._classify(self._classes, at)
                parts += stages.values()

        def launch(stream: int) -> None:
            for part in parts:
                part(stream)

        return launch

    def _args(self, decoder: Any, geometry: Geometry, result: int, target: int) -> RegionArgs:
        boxes = boxes_of(decoder)
        assert boxes is not None
        args = region_args(self.shared.crop, geometry)
        args.result, args.maps = result, self._maps.ptr
        args.placed, args.chosen = target, target + self._rows * MAP_NBYTES
        args.capacity, args.rows, args.count = boxes.capacity, self._rows, self.count
        args.is_rotated = isinstance(boxes, GpuOrientedBoxes)
        return args

    def _classify(self, classes: GpuClasses, result: int) -> Callable[[int], None]:
        at = Addresses(lambda name: self.buffers.tensors[name].ptr, 0, 0, result)
        launch = classes.launch(at, self._batch)
        return partial(self.shared.decode_kernels.load([launch]).launch, *launch)

    def reader(self, read: Reader, memory: np.ndarray) -> Reader:
        """Return a function that reads an image's objects with their results from `memory`."""
        maps_nbytes, pipeline = self._rows * MAP_NBYTES, self._pipeline
        maps = memory[:maps_nbytes].view(np.float32).reshape(self._rows, 2, 4)
        chosen = memory[maps_nbytes : maps_nbytes + 4 * self._rows].view(np.int32)
        results_of = self._results(memory[self._placed_nbytes :])

        def read_all() -> tuple[Any, bool]:
            found, has_nonfinite = read()
            by_object: list[Result | None] = [None] * len(found)
            indices = chosen[chosen >= 0].tolist()
            for index, result, affine in zip(indices, results_of(len(indices)), maps):
                by_object[index] = pipeline.named(result.to_source(affine))
            found.region_results = by_object
            return found, has_nonfinite

        return read_all

    def _results(self, memory: np.ndarray) -> Callable[[int], list[Any]]:
        """Return a function that reads the results of the first regions."""
        classes, batch = self._classes, self._batch
        if classes is not None:
            rows = memory.reshape(self._rows, classes.row_nbytes)
            readers = [classes.reader(row, (0, 0)) for row in rows]
            return lambda count: [read()[0] for read in readers[:count]]
        outputs = [
            self.buffers.outputs(memory[run * self._run_nbytes :]) for run in range(self._runs)
        ]

        def decode(count: int) -> list[Any]:
            found: list[Any] = []
            for run, given in enumerate(outputs[: -(-count // batch)]):
                letterboxes = [self.shared.crop.letterbox] * min(count - run * batch, batch)
                found += self._pipeline.decode(given, batch, letterboxes)
            return found

        return decode

    def close(self) -> None:
        """Release the memory; may be called twice."""
        self._maps.close()
