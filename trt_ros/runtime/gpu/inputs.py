"""The network inputs of a pipeline on the GPU, and their classes by class of the feed."""

from collections.abc import Callable, Mapping
from contextlib import ExitStack

from trt_ros.cuda.memory import Account, DeviceBuffer
from trt_ros.errors import TensorMismatchError
from trt_ros.model.feeds import Feeds
from trt_ros.model.feeds.base import Feed
from trt_ros.model.feeds.concat import ConcatFeed
from trt_ros.model.feeds.constant import ConstantFeed
from trt_ros.model.feeds.image import ImageFeed, ImagesFeed
from trt_ros.model.feeds.message import TransformFeed
from trt_ros.model.feeds.numbered import CounterFeed, NoiseFeed
from trt_ros.model.feeds.prepared import HeldImageFeed, ImageHistoryFeed
from trt_ros.model.feeds.rows import CountFeed, MaskFeed
from trt_ros.model.feeds.state import StateFeed
from trt_ros.model.feeds.tensor import HeldFeed, HistoryFeed, TensorFeed
from trt_ros.runtime.gpu.input_kinds import (
    GpuConcat,
    GpuConstant,
    GpuCounter,
    GpuHeld,
    GpuHistory,
    GpuImage,
    GpuInput,
    GpuNoise,
    GpuState,
    GpuTensor,
)
from trt_ros.tensors import Arrays

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
    def are_images(self) -> bool:
        """Whether all are images, so that no run depends on the one before."""
        return all(type(each) is GpuImage for each in self.all)

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

    def prepare(self, stream: int, arrays: Arrays) -> bool:
        """Enqueue what precedes the graph; return whether a held array has changed."""
        has_changed = False
        for each in self._sent:
            has_changed |= each.send(stream, arrays[each.name])
        if self._is_reset_due:
            self._is_reset_due = False
            for each in self._memory:
                each.reset(stream, arrays.get(each.name))
        return has_changed
