"""A class of network inputs on the GPU per kind of feed: memory, and part in a run."""

from collections.abc import Callable, Mapping, Sequence
from contextlib import ExitStack
import ctypes
from ctypes import c_int, c_int64, c_uint, c_uint64, c_void_p
from functools import partial
import math
from typing import Any, NamedTuple

import numpy as np

from trt_ros.cuda.copies import Copy, copy_all
from trt_ros.cuda.kernels import Kernels
from trt_ros.cuda.memory import Account, DeviceBuffer, copy_async, fill_async
from trt_ros.decode.cuda.decoder import fields
from trt_ros.model.feeds.base import Given
from trt_ros.model.feeds.concat import ConcatFeed
from trt_ros.model.feeds.constant import ConstantFeed
from trt_ros.model.feeds.image import ImageFeed
from trt_ros.model.feeds.numbered import UNIFORM_BITS, CounterFeed, NoiseFeed, NumberedFeed
from trt_ros.model.feeds.state import StateFeed
from trt_ros.model.feeds.tensor import HeldFeed, HistoryFeed
from trt_ros.runtime.gpu.captured_graph import RunAddresses
from trt_ros.runtime.gpu.preprocess import (
    Geometry,
    PreprocessArgs,
    crop_args,
    launch_crop,
    launch_preprocess,
    preprocess_args,
    refuse_other_dtypes,
    tile_args,
)
from trt_ros.tensors import Shape, item_nbytes

Enqueue = Callable[[int], None]  # Called with the stream.


class Batch(NamedTuple):
    """
    Memory of a run.

    :param rows: batch size.
    :param tensors: GPU memory by name of an input or output, and its bytes: `sizes`.
    :param shapes: of the outputs, by name.
    :param kernels: those of preprocess.cu.
    """

    rows: int
    tensors: Mapping[str, DeviceBuffer]
    sizes: Mapping[str, int]
    shapes: Mapping[str, Shape]
    kernels: Kernels


class GpuInput:
    """
    A network input on the GPU. Owns its memory.

    :param feed: of the class that this is registered for.
    :param first_image: number of images of the inputs before it.
    :param undo: receives what releases the memory.
    :ivar memory: kept from run to run, instead of memory of each batch; None without.
    :cvar owner: owner of `memory` in the account, '' without; `memory_nbytes` is its size.
    :cvar is_held: whether it stays the same in most runs.
    :ivar is_sent: whether `send` takes the array of a run, instead of the graph.
    :ivar array_offset: place in the input, in bytes, of the array that a run brings.
    """

    memory: DeviceBuffer | None = None
    owner = ''
    array_offset = 0
    is_held = is_sent = False

    def __init__(
        self, name: str, feed: Any, first_image: int, account: Account, undo: ExitStack
    ) -> None:
        self.name, self.feed, self.first_image = name, feed, first_image
        if self.owner:
            self.memory = DeviceBuffer(self.memory_nbytes, self.owner, account)
            undo.callback(self.memory.close)

    @property
    def input_nbytes(self) -> int:
        """Bytes of an input of a fixed shape."""
        count: int = math.prod(self.feed.full_shape)
        return count * item_nbytes(self.feed.spec.dtype)

    @property
    def memory_nbytes(self) -> int:
        """Bytes of `memory`."""
        return self.input_nbytes

    def shape(self, rows: int, arrays: Mapping[str, Shape]) -> Shape:
        """Return the shape of the input in a run, from those of the arrays by network input."""
        shape: Shape | None = self.feed.full_shape
        return arrays[self.name] if shape is None else shape

    def prepare(self, batch: Batch, stream: int) -> None:
        """Write the first contents of a batch, once for all its runs."""

    def before(
        self, batch: Batch, geometries: Sequence[Geometry], addresses: RunAddresses
    ) -> Enqueue | None:
        """Return the work of a run before the network; None without any."""
        return None

    def after(self, batch: Batch) -> Enqueue | None:
        """Return the work of a run after the network, on `memory`; None without any."""
        return None

    def kept(self, batch: Batch) -> Sequence[Copy]:
        """Return the copies of a run after the network, to `memory`."""
        return ()

    def send(self, stream: int, array: np.ndarray) -> bool:
        """Enqueue the array of a run into `memory`, before its graph; return False if it stays."""
        return False

    def reset(self, stream: int, array: np.ndarray | None) -> None:
        """Enqueue the contents of `memory` before the first run, which brings `array`."""


class GpuImage(GpuInput):
    """Images, which kernels preprocess, or whose regions they cut out."""

    feed: ImageFeed

    def __init__(self, name: str, feed: ImageFeed, *rest: Any) -> None:
        super().__init__(name, feed, *rest)
        refuse_other_dtypes(feed.preprocess)

    def shape(self, rows: int, arrays: Mapping[str, Shape]) -> Shape:
        return self.feed.shape(rows)

    def before(
        self, batch: Batch, geometries: Sequence[Geometry], addresses: RunAddresses
    ) -> Enqueue | None:
        preprocess, kernels, target = self.feed.preprocess, batch.kernels, batch.tensors[self.name]
        if addresses.maps:
            crop = crop_args(
                preprocess, geometries[0], addresses.images[0], target.ptr, addresses.maps
            )
            return lambda stream: launch_crop(kernels, crop, batch.rows, stream)
        places = batch.rows * math.prod(self.feed.leading)
        nbytes = batch.sizes[self.name] // places
        args: list[PreprocessArgs] = []
        if self.feed.tiles is not None:
            image = addresses.images[0]
            args = tile_args(self.feed.tiles, geometries[0], image, target.ptr, nbytes)
            places = 0
        for place in range(places):
            start = min(self.first_image + place, len(geometries) - 1)
            images = slice(start, start + 1 + self.feed.has_second)
            args += preprocess_args(
                preprocess,
                geometries[images],
                addresses.images[images],
                target.ptr + place * nbytes,
            )

        def launch(stream: int) -> None:
            for each in args:
                launch_preprocess(kernels, each, stream)

        return launch


class GpuTensor(GpuInput):
    """An array, which the graph copies into the network's input."""


class GpuHeld(GpuInput):
    """An array that is sent when it changes."""

    feed: HeldFeed
    memory: DeviceBuffer
    owner = 'tensors'
    is_held = is_sent = True
    _last: np.ndarray | None = None

    def prepare(self, batch: Batch, stream: int) -> None:
        """Write zeros, with which the network runs before its graph is captured."""
        fill_async(self.memory.ptr, 0, self.memory.nbytes, stream)
        self._last = None

    def send(self, stream: int, array: np.ndarray) -> bool:
        """Enqueue the array, unless it is that of the last run and read-only."""
        if array is self._last and not array.flags.writeable:
            return False
        staged, _ = self.feed.stage(Given(array=array))
        # Pageable memory: CUDA has read all of it when the call returns.
        copy_async(self.memory.ptr, staged.ctypes.data, self.memory.nbytes, stream)
        self._last = array
        return True


class GpuHistory(GpuInput):
    """The arrays of the last runs; the graph copies that of the run behind the others."""

    feed: HistoryFeed
    memory: DeviceBuffer
    owner = 'states'

    def __init__(self, name: str, feed: HistoryFeed, *rest: Any) -> None:
        super().__init__(name, feed, *rest)
        history, size = feed.history, item_nbytes(feed.spec.dtype)
        self._nbytes = math.prod(history.shape) * size
        self._step = self._nbytes // history.count
        self.array_offset = history.offset * size

    @property
    def memory_nbytes(self) -> int:
        """Bytes of two histories: values are moved by way of the second, as copies overlap."""
        return 2 * math.prod(self.feed.history.shape) * item_nbytes(self.feed.spec.dtype)

    def after(self, batch: Batch) -> Enqueue | None:
        """Return the copies that move the values by one place; the oldest is lost."""
        start, scratch = self.memory.ptr, self.memory.ptr + self._nbytes
        source, target = start, start + self._step
        if self.feed.history.is_oldest_first:
            source, target = target, source
        nbytes = self._nbytes - self._step
        if not nbytes:
            return None

        def move(stream: int) -> None:
            copy_all(batch.kernels, [(scratch, source, nbytes)], stream)
            copy_all(batch.kernels, [(target, scratch, nbytes)], stream)

        return move

    def reset(self, stream: int, array: np.ndarray | None) -> None:
        """Enqueue the history of the first run; CUDA has read it when the call returns."""
        staged, _ = self.feed.stage(Given(array=array))
        copy_async(self.memory.ptr, staged.ctypes.data, self._nbytes, stream)


class GpuConstant(GpuInput):
    """A value that is written once per batch."""

    feed: ConstantFeed
    is_held = True

    def shape(self, rows: int, arrays: Mapping[str, Shape]) -> Shape:
        return tuple(self.feed.of(rows).shape)

    def prepare(self, batch: Batch, stream: int) -> None:
        value = self.feed.of(batch.rows)
        # Pageable memory: CUDA has read all of it when the call returns.
        copy_async(batch.tensors[self.name].ptr, value.ctypes.data, value.nbytes, stream)


class GpuState(GpuInput):
    """An output of the previous run, an initial value at first."""

    feed: StateFeed
    memory: DeviceBuffer
    owner = 'states'

    def kept(self, batch: Batch) -> Sequence[Copy]:
        """Return the copy of the output; raises TensorMismatchError when it is not as large."""
        self.feed.refuse_other_shape(batch.shapes[self.feed.output])
        return [(self.memory.ptr, batch.tensors[self.feed.output].ptr, self.memory.nbytes)]

    def reset(self, stream: int, array: np.ndarray | None) -> None:
        """Enqueue the initial value; CUDA has read pageable memory when the call returns."""
        copy_async(self.memory.ptr, self.feed.first.ctypes.data, self.memory.nbytes, stream)


class GpuConcat(GpuInput):
    """Parts, which the graph copies one behind the other."""

    feed: ConcatFeed

    def before(
        self, batch: Batch, geometries: Sequence[Geometry], addresses: RunAddresses
    ) -> Enqueue:
        target, copies = batch.tensors[self.name].ptr, []
        for part in self.feed.parts:
            copies.append((target, batch.tensors[part].ptr, batch.sizes[part]))
            target += batch.sizes[part]
        return partial(copy_all, batch.kernels, copies)


#: preprocess.cu: enum Dtype; integers by their bytes.
_FLOATS = {'float32': 0, 'float16': 1, 'bfloat16': 2, 'float64': 4}
_INTEGERS = {1: 3, 2: 5, 4: 6, 8: 7}


class NumberedArgs(ctypes.Structure):
    """Arguments of the kernels; generate.cu: struct Numbered."""

    _fields_ = [
        *fields(c_void_p, 'target number'),
        ('largest', c_int64),
        ('seed', c_uint64),
        ('count', c_uint),
        *fields(c_int, 'dtype uniform_bits'),
    ]


class GpuNumbered(GpuInput):
    """A function of the number of the run, which is kept behind the input."""

    feed: NumberedFeed
    memory: DeviceBuffer
    owner = 'states'
    kernel: str
    elements_per_thread = 1

    def __init__(self, name: str, feed: NumberedFeed, *rest: Any) -> None:
        super().__init__(name, feed, *rest)
        spec = feed.spec
        self._args = NumberedArgs(
            target=self.memory.ptr,
            number=self.memory.ptr + self.memory_nbytes - 8,
            count=math.prod(spec.shape),
            dtype=_FLOATS.get(spec.dtype, _INTEGERS.get(item_nbytes(spec.dtype))),
        )

    @property
    def memory_nbytes(self) -> int:
        """Bytes of the input and, aligned behind it, of the number."""
        return -(-self.input_nbytes // 8) * 8 + 8

    def before(
        self, batch: Batch, geometries: Sequence[Geometry], addresses: RunAddresses
    ) -> Enqueue:
        threads = -(-self._args.count // self.elements_per_thread)
        grid = (max(-(-threads // 256), 1), 1, 1)
        return lambda stream: batch.kernels.launch(
            self.kernel, grid, (256, 1, 1), self._args, stream
        )

    def after(self, batch: Batch) -> Enqueue:
        one = (1, 1, 1)
        return lambda stream: batch.kernels.launch('next_run', one, one, self._args, stream)

    def reset(self, stream: int, array: np.ndarray | None) -> None:
        """Enqueue the first number; CUDA has read pageable memory when the call returns."""
        first = c_int64(self.feed.first)
        copy_async(self._args.number, ctypes.addressof(first), 8, stream)


class GpuCounter(GpuNumbered):
    """The number of the run."""

    kernel = 'count_runs'

    def __init__(self, name: str, feed: CounterFeed, *rest: Any) -> None:
        super().__init__(name, feed, *rest)
        self._args.largest = feed.largest


class GpuNoise(GpuNumbered):
    """Random numbers."""

    kernel = 'draw_noise'
    elements_per_thread = 4

    def __init__(self, name: str, feed: NoiseFeed, *rest: Any) -> None:
        super().__init__(name, feed, *rest)
        self._args.seed = feed.seed
        if feed.distribution == 'uniform':
            self._args.uniform_bits = UNIFORM_BITS[feed.spec.dtype]
