"""Network inputs on the GPU: their memory, and their part in a run, by class of the feed."""

from collections.abc import Callable, Mapping, Sequence
from contextlib import ExitStack
import ctypes
from ctypes import c_int, c_int64, c_uint, c_uint64, c_void_p
import math
from typing import Any, NamedTuple

import numpy as np

from trt_ros.cuda.kernels import Kernels
from trt_ros.cuda.memory import Account, DeviceBuffer, copy_async, fill_async
from trt_ros.errors import TensorMismatchError
from trt_ros.model.feeds import Feeds
from trt_ros.model.feeds.base import Feed, Given
from trt_ros.model.feeds.concat import ConcatFeed
from trt_ros.model.feeds.constant import ConstantFeed
from trt_ros.model.feeds.image import ImageFeed, ImagesFeed
from trt_ros.model.feeds.noise import UNIFORM_BITS, NoiseFeed
from trt_ros.model.feeds.numbered import CounterFeed, NumberedFeed
from trt_ros.model.feeds.prepared import HeldImageFeed, ImageHistoryFeed
from trt_ros.model.feeds.rows import CountFeed, MaskFeed
from trt_ros.model.feeds.state import StateFeed
from trt_ros.model.feeds.tensor import HeldFeed, HistoryFeed, TensorFeed
from trt_ros.model.feeds.transform import TransformFeed
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
    :cvar is_held: whether it stays the same in most runs.
    :ivar is_sent: whether `send` takes the array of a run, instead of the graph.
    :ivar array_offset: place in the input, in bytes, of the array that a run brings.
    """

    memory: DeviceBuffer | None = None
    array_offset = 0
    is_held = is_sent = False

    def __init__(
        self, name: str, feed: Any, first_image: int, account: Account, undo: ExitStack
    ) -> None:
        self.name, self.feed, self.first_image = name, feed, first_image

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
        """Return the shape of a batch or a stack of images."""
        return self.feed.shape(rows)

    def before(
        self, batch: Batch, geometries: Sequence[Geometry], addresses: RunAddresses
    ) -> Enqueue | None:
        """Return the launches of the kernels; the last image pads a partial batch."""
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
    is_held = is_sent = True

    def __init__(
        self, name: str, feed: HeldFeed, first_image: int, account: Account, undo: ExitStack
    ) -> None:
        super().__init__(name, feed, first_image, account, undo)
        assert feed.full_shape is not None
        nbytes = math.prod(feed.full_shape) * item_nbytes(feed.spec.dtype)
        self.memory = DeviceBuffer(nbytes, 'tensors', account)
        undo.callback(self.memory.close)
        self._last: np.ndarray | None = None

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

    def __init__(
        self, name: str, feed: HistoryFeed, first_image: int, account: Account, undo: ExitStack
    ) -> None:
        super().__init__(name, feed, first_image, account, undo)
        history, size = feed.history, item_nbytes(feed.spec.dtype)
        self._nbytes = math.prod(history.shape) * size
        self._step = self._nbytes // history.count
        self.array_offset = history.offset * size
        # The second half is for moving the values: copies must not overlap.
        self.memory = DeviceBuffer(2 * self._nbytes, 'states', account)
        undo.callback(self.memory.close)

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
            copy_async(scratch, source, nbytes, stream)
            copy_async(target, scratch, nbytes, stream)

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
        """Return the shape of the value, one per image."""
        return tuple(self.feed.of(rows).shape)

    def prepare(self, batch: Batch, stream: int) -> None:
        """Write the value of each image."""
        value = self.feed.of(batch.rows)
        # Pageable memory: CUDA has read all of it when the call returns.
        copy_async(batch.tensors[self.name].ptr, value.ctypes.data, value.nbytes, stream)


class GpuState(GpuInput):
    """An output of the previous run, an initial value at first."""

    feed: StateFeed

    def __init__(
        self, name: str, feed: StateFeed, first_image: int, account: Account, undo: ExitStack
    ) -> None:
        super().__init__(name, feed, first_image, account, undo)
        self._nbytes = int(np.prod(feed.spec.shape)) * item_nbytes(feed.spec.dtype)
        self.memory: DeviceBuffer = DeviceBuffer(self._nbytes, 'states', account)
        undo.callback(self.memory.close)

    def after(self, batch: Batch) -> Enqueue:
        """Return the copy of the output; raises TensorMismatchError when it is not as large."""
        self.feed.refuse_other_shape(batch.shapes[self.feed.output])
        source = batch.tensors[self.feed.output]
        return lambda stream: copy_async(self.memory.ptr, source.ptr, self._nbytes, stream)

    def reset(self, stream: int, array: np.ndarray | None) -> None:
        """Enqueue the initial value; CUDA has read pageable memory when the call returns."""
        copy_async(self.memory.ptr, self.feed.first.ctypes.data, self._nbytes, stream)


class GpuConcat(GpuInput):
    """Parts, which the graph copies one behind the other."""

    feed: ConcatFeed

    def before(
        self, batch: Batch, geometries: Sequence[Geometry], addresses: RunAddresses
    ) -> Enqueue:
        """Return the copies of the parts, which are complete before."""
        target, copies = batch.tensors[self.name].ptr, []
        for part in self.feed.parts:
            copies.append((target, batch.tensors[part].ptr, batch.sizes[part]))
            target += batch.sizes[part]

        def copy(stream: int) -> None:
            for each in copies:
                copy_async(*each, stream)

        return copy


#: preprocess.cu: enum Dtype; integers by their bytes.
_FLOATS = {'float32': 0, 'float16': 1, 'bfloat16': 2, 'float64': 4}
_INTEGERS = {1: 3, 2: 5, 4: 6, 8: 7}


class NumberedArgs(ctypes.Structure):
    """Arguments of the kernels; generate.cu: struct Numbered."""

    _fields_ = [
        ('target', c_void_p),
        ('number', c_void_p),
        ('largest', c_int64),
        ('seed', c_uint64),
        ('count', c_uint),
        ('dtype', c_int),
        ('uniform_bits', c_int),
    ]


class GpuNumbered(GpuInput):
    """A function of the number of the run, which is kept behind the input."""

    feed: NumberedFeed
    memory: DeviceBuffer
    kernel: str
    elements_per_thread = 1

    def __init__(
        self, name: str, feed: NumberedFeed, first_image: int, account: Account, undo: ExitStack
    ) -> None:
        super().__init__(name, feed, first_image, account, undo)
        spec = feed.spec
        size = item_nbytes(spec.dtype)
        count = math.prod(spec.shape)
        number = -(-count * size // 8) * 8
        self.memory = DeviceBuffer(number + 8, 'states', account)
        undo.callback(self.memory.close)
        self._args = NumberedArgs(
            target=self.memory.ptr,
            number=self.memory.ptr + number,
            count=count,
            dtype=_FLOATS.get(spec.dtype, _INTEGERS.get(size)),
        )

    def before(
        self, batch: Batch, geometries: Sequence[Geometry], addresses: RunAddresses
    ) -> Enqueue:
        """Return the launch that writes the input."""
        threads = -(-self._args.count // self.elements_per_thread)
        grid = (max(-(-threads // 256), 1), 1, 1)
        return lambda stream: batch.kernels.launch(
            self.kernel, grid, (256, 1, 1), self._args, stream
        )

    def after(self, batch: Batch) -> Enqueue:
        """Return the launch that increments the number."""
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


#: Class of the input by class of the feed.
INPUTS: Mapping[type[Feed], Callable[..., GpuInput]] = {
    ImageFeed: GpuImage,
    ImagesFeed: GpuImage,
    TensorFeed: GpuTensor,
    HeldFeed: GpuHeld,
    HistoryFeed: GpuHistory,
    HeldImageFeed: GpuHeld,
    ImageHistoryFeed: GpuHistory,
    TransformFeed: GpuTensor,
    MaskFeed: GpuTensor,
    CountFeed: GpuTensor,
    ConstantFeed: GpuConstant,
    StateFeed: GpuState,
    CounterFeed: GpuCounter,
    NoiseFeed: GpuNoise,
    ConcatFeed: GpuConcat,
}


class Inputs:
    """
    All network inputs of a pipeline; its slots share them, one run at a time.

    :param undo: receives what releases their memory.
    :ivar dynamic: names of the inputs whose shape is that of the array of a run.
    :ivar paddings: of the arrays of runs, by network input.
    :ivar part_dtypes: dtypes of the parts that are joined, by name.
    :raises TensorMismatchError: when a feed cannot run on a GPU.
    """

    def __init__(self, feeds: Feeds, account: Account, undo: ExitStack) -> None:
        self.all: list[GpuInput] = []
        images = 0
        for name, feed in feeds.items():
            made = INPUTS.get(type(feed))
            if made is None:
                raise TensorMismatchError(
                    f'The network input {name} is of the kind {feed.kind}, which runs on the CPU '
                    'only.',
                    remedy='Set backend to onnxruntime.',
                )
            self.all.append(made(name, feed, images, account, undo))
            images += feed.image_count
        self._memory = [each for each in self.all if each.memory is not None]
        self._sent = [each for each in self.all if each.is_sent]
        arrays = {name: feed for name, feed in feeds.items() if isinstance(feed, TensorFeed)}
        self.dynamic = [name for name, feed in arrays.items() if feed.full_shape is None]
        self.paddings = {name: feed.padding for name, feed in arrays.items() if feed.padding}
        self.part_dtypes: dict[str, str] = {
            part: feed.spec.dtype
            for feed in feeds.values()
            if isinstance(feed, ConcatFeed)
            for part in feed.parts
        }
        self._is_reset_due = True

    @property
    def in_graph(self) -> set[str]:
        """Network inputs whose arrays the graph takes."""
        return {each.name for each in self.all if not each.is_sent}

    @property
    def array_offsets(self) -> dict[str, int]:
        """Places in the inputs, in bytes, of the arrays that a run brings."""
        return {each.name: each.array_offset for each in self.all}

    @property
    def memory(self) -> dict[str, DeviceBuffer]:
        """Memory that is kept from run to run, by network input."""
        return {each.name: each.memory for each in self._memory if each.memory is not None}

    def reset(self) -> None:
        """Set the memory to its first contents before the next run."""
        self._is_reset_due = True

    def prepare(self, stream: int, arrays: Mapping[str, np.ndarray]) -> bool:
        """Enqueue what precedes the graph; return whether a held array has changed."""
        has_changed = False
        for each in self._sent:
            has_changed |= each.send(stream, arrays[each.name])
        if self._is_reset_due:
            self._is_reset_due = False
            for each in self._memory:
                each.reset(stream, arrays.get(each.name))
        return has_changed
