"""Resources that all frame slots of a pipeline share, and the batch sizes of its runs."""

from collections.abc import Callable, Iterable, Mapping, Sequence
from contextlib import ExitStack
from dataclasses import dataclass, field, replace
from functools import cached_property
from pathlib import Path
from typing import Any, TypeVar

import numpy as np

from trt_ros.cuda.device import Gpu
from trt_ros.cuda.jpeg import JpegDecoder
from trt_ros.cuda.kernels import Kernels
from trt_ros.cuda.memory import Account
from trt_ros.decode.choice import Decoder
from trt_ros.decode.cuda.choice import gpu_decoder
from trt_ros.decode.cuda.decoder import GpuDecoder, Launch
from trt_ros.engine.cache import kernel_folder
from trt_ros.errors import TensorMismatchError
from trt_ros.model.feeds import Feeds
from trt_ros.model.feeds.image import ImageFeed
from trt_ros.model.run_inputs import REGIONS, array_specs, image_feeds, is_one_image
from trt_ros.runtime.fitting import ResolvedModel
from trt_ros.runtime.gpu.inputs import Inputs
from trt_ros.runtime.gpu.staging import CopyThreadPool
from trt_ros.runtime.gpu.tensor_runner import TensorRTRunner
from trt_ros.runtime.gpu.tensorrt_context import Contexts
from trt_ros.runtime.gpu.waiting import GpuWait
from trt_ros.runtime.options import PipelineOptions
from trt_ros.tensors import Shape, TensorSpec, host_dtype
from trt_ros.vision.letterbox import Preprocess
from trt_ros.vision.regions import Crop

Image = TypeVar('Image')
REGION_MAPS = TensorSpec(REGIONS, (-1, 8), 'float32', 'input')
COPY_THREADS = 2  # Beside the calling thread; they share the copy of a large image.


class DecodeKernels:
    """The decoding kernels, compiled at first launch; `cache_dir` None: without a cache."""

    def __init__(self, arch: str, cache_dir: Path | None, account: Account) -> None:
        self._arch, self._cache_dir, self._account = arch, cache_dir, account
        self._loaded: dict[frozenset[str], Kernels] = {}

    def load(self, launches: Iterable[Launch]) -> Kernels:
        """Return the kernels of these launches; the GPU is current, and no graph is captured."""
        functions = frozenset(launch.function for launch in launches)
        if functions not in self._loaded:
            loaded = Kernels('decode', self._arch, self._cache_dir, functions)
            self._loaded[functions] = loaded
            self._account.add('kernels', loaded.nbytes)
        return self._loaded[functions]

    def close(self) -> None:
        """Unload the kernels; may be called twice."""
        for kernels in self._loaded.values():
            kernels.close()


@dataclass(frozen=True)
class SharedResources:
    """
    The resources that all frame slots of a pipeline borrow; the pipeline owns them.

    :param outputs: names of the outputs that are decoded or copied to the host, in order.
    :param decoder_for: returns the GPU decoder for output shapes; None where only the CPU can
        decode.
    :param in_place: whether kernels read images in pinned memory, without a copy to the GPU.
    :param batches: batch sizes of runs, ascending.
    :param class_count: number of classes; 0: unknown.
    :param graph_fallbacks: reasons why frames run without a CUDA graph; slots append to it.
    :param joined: networks that run on the objects found, in the same graphs.
    """

    gpu: Gpu
    account: Account
    options: PipelineOptions
    use_graph: bool
    contexts: Contexts
    feeds: Feeds
    outputs: tuple[str, ...]
    preprocess_kernels: Kernels
    decode_kernels: DecodeKernels
    decoder_for: Callable[[Mapping[str, Shape]], GpuDecoder | None]
    copy_threads: CopyThreadPool
    in_place: bool
    inputs: Inputs
    waiting: GpuWait
    jpegs: JpegDecoder
    batches: tuple[int, ...] = (1,)
    class_count: int = 0
    graph_fallbacks: list[str] = field(default_factory=list)
    joined: list[Any] = field(default_factory=list)

    @cached_property
    def images(self) -> Mapping[str, ImageFeed]:
        """Feeds of images by network input."""
        return image_feeds(self.feeds)

    @cached_property
    def tensor_specs(self) -> Mapping[str, TensorSpec]:
        """Network inputs whose tensors the graph takes, by name."""
        in_graph = self.inputs.in_graph
        specs = {name: spec for name, spec in array_specs(self.feeds).items() if name in in_graph}
        return {**specs, REGIONS: REGION_MAPS} if self.crop is not None else specs

    @cached_property
    def crop(self) -> Crop | None:
        """Preprocessing of regions; None where runs get whole images."""
        return next((feed.crop for feed in self.images.values()), None)

    @cached_property
    def tile_count(self) -> int:
        """Number of tiles of an image, which are a batch; 1 where runs get whole images."""
        return next((feed.tiles.count for feed in self.images.values() if feed.tiles), 1)

    @cached_property
    def is_one_image(self) -> bool:
        """Whether runs get one image each, so that images can be batched."""
        return is_one_image(self.feeds)

    @cached_property
    def host_dtypes(self) -> Mapping[str, np.dtype[np.generic]]:
        """NumPy dtypes of the outputs in host memory."""
        return {spec.name: host_dtype(spec) for spec in self.contexts.engine.outputs}

    @property
    def preprocess(self) -> Preprocess:
        """Preprocessing of the (first) image, where there is one."""
        return next(iter(self.images.values())).preprocess

    def decoded(self, images: Sequence[Image]) -> Sequence[Image]:
        """Return those of a run's images that have a result of their own."""
        return images if self.is_one_image else images[:1]


def open_shared_resources(
    network: TensorRTRunner, fitted: ResolvedModel[Any], *, batch: int, undo: ExitStack
) -> SharedResources:
    """Allocate what slots share, released by `undo`, and compile; the GPU is current."""
    gpu, engine, options = network.gpu, network.engine, network.options
    account = engine.account
    inputs = Inputs(fitted.feeds, account, undo)
    contexts = network.open_contexts()
    undo.callback(contexts.close)

    cubins = kernel_folder(options.engine_cache_dir)
    undo.callback(account.drop, 'kernels')
    preprocess_kernels = Kernels('preprocess', gpu.arch, cubins)
    undo.callback(preprocess_kernels.close)
    account.add('kernels', preprocess_kernels.nbytes)
    decode_kernels = DecodeKernels(gpu.arch, cubins, account)
    undo.callback(decode_kernels.close)

    def decoder_for(shapes: Mapping[str, Shape]) -> GpuDecoder | None:
        # Results of regions are small but for those of text, and the CPU decodes them.
        images = image_feeds(fitted.feeds).values()
        has_regions = any(feed.crop is not None for feed in images)
        if not images or (has_regions and fitted.decoder.task != 'text'):
            return None
        return gpu_decoder(
            fitted.decoder,
            engine.outputs,
            shapes,
            fitted.preprocess.input_hw,
            fitted.decoder.tiles,
        )

    jpegs = JpegDecoder(gpu.index)
    undo.callback(jpegs.close)
    copy_threads = CopyThreadPool(COPY_THREADS, gpu.context)
    undo.callback(copy_threads.close)
    shared = SharedResources(
        gpu=gpu,
        account=account,
        options=options,
        use_graph=network.use_graph,
        contexts=contexts,
        feeds=fitted.feeds,
        outputs=fitted.outputs,
        preprocess_kernels=preprocess_kernels,
        decode_kernels=decode_kernels,
        decoder_for=decoder_for,
        copy_threads=copy_threads,
        in_place=options.unified_memory == 'on'
        or (options.unified_memory == 'auto' and gpu.is_integrated),
        inputs=inputs,
        waiting=GpuWait(options.gpu_wait),
        jpegs=jpegs,
        class_count=len(fitted.class_names) or fitted.decoder.class_count or 0,
    )
    return replace(shared, batches=batches_for(shared, batch, fitted.decoder))


def with_own_context(
    shared: SharedResources, network: TensorRTRunner, undo: ExitStack
) -> SharedResources:
    """Return the same resources with an execution context and tensors that no other run uses."""
    contexts = network.open_contexts()
    undo.callback(contexts.close)
    inputs = Inputs(shared.feeds, shared.account, undo)
    return replace(shared, contexts=contexts, inputs=inputs)


def batches_for(shared: SharedResources, batch: int, decoder: Decoder[Any]) -> tuple[int, ...]:
    """
    Return the batch sizes of runs, ascending: powers of two, and the maximum.

    Each size has an execution context, which takes GPU memory (72 MiB with TensorRT-RTX 1.5,
    whatever the network), so not every size has one.
    """
    if not shared.is_one_image:
        return (1,)
    spec = _image_input(shared)
    if shared.tile_count > 1:
        _require_batch(shared, spec)
        return (1,)
    if spec.shape[0] != -1:
        return (spec.shape[0],)
    if not decoder.takes_batches:
        return (1,)
    profiles = shared.contexts.engine.profiles
    max_batch = min(batch, max((profile[spec.name][2][0] for profile in profiles), default=1))
    powers = (1 << power for power in range(max_batch.bit_length()))
    return (*(size for size in powers if size < max_batch), max_batch)


def _require_batch(shared: SharedResources, spec: TensorSpec) -> None:
    """Raise TensorMismatchError if the network does not take an image's tiles as a batch."""
    largest = spec.shape[0]
    if largest == -1:
        profiles = shared.contexts.engine.profiles
        largest = max((profile[spec.name][2][0] for profile in profiles), default=1)
    if largest < shared.tile_count:
        raise TensorMismatchError(
            f'The network takes {largest} images per run, but an image has {shared.tile_count} '
            'tiles.',
            remedy='Export with a dynamic batch size (Ultralytics: dynamic=True), and give the '
            'ONNX file, or an engine that is built from it with --batch '
            f'{shared.tile_count}.',
        )


def _image_input(shared: SharedResources) -> TensorSpec:
    return next(spec for spec in shared.contexts.engine.inputs if spec.name in shared.images)


def batch_log_lines(shared: SharedResources, batch: int) -> tuple[str, ...]:
    """Return lines for the log about the batch sizes for up to `batch` frames per run."""
    if not shared.is_one_image:
        return ('batch size 1: a run has several inputs',) if batch > 1 else ()
    if shared.tile_count > 1:
        return (f'batch size {shared.tile_count}: the tiles of one image per run',)
    fixed, max_batch = _image_input(shared).shape[0], shared.batches[-1]
    if fixed > 1:
        return (f'fixed batch size {fixed}: smaller batches are padded',)
    if max_batch == 1 < batch:
        limit = 'network' if fixed == 1 else 'engine'
        return (f'batch size 1: the {limit} accepts one image per run',)
    return (f'batch size: up to {max_batch} images per run',) if batch > 1 else ()
