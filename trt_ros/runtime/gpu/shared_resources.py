"""Resources that all frame slots of a pipeline share, and the batch sizes of its runs."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from contextlib import ExitStack
from copy import copy
from dataclasses import replace
from pathlib import Path
from typing import Any, TypeVar

from trt_ros.cuda.jpeg import JpegDecoder
from trt_ros.cuda.kernels import Kernels
from trt_ros.cuda.memory import Account
from trt_ros.decode.cuda.choice import gpu_decoder
from trt_ros.decode.cuda.decoder import GpuDecoder, Launch
from trt_ros.engine.cache import kernel_folder
from trt_ros.errors import TensorMismatchError
from trt_ros.model.run_inputs import REGIONS, array_specs, image_feeds, is_one_image
from trt_ros.runtime.fitting import ResolvedModel
from trt_ros.runtime.gpu.inputs import Inputs
from trt_ros.runtime.gpu.preprocess import Geometry, blocks_read
from trt_ros.runtime.gpu.staging import CopyThreadPool
from trt_ros.runtime.gpu.tensor_runner import TensorRTRunner
from trt_ros.runtime.gpu.waiting import GpuWait
from trt_ros.tensors import Shape, TensorSpec, numpy_dtype
from trt_ros.vision.frame import Frame
from trt_ros.vision.letterbox import Letterbox, Preprocess

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


class SharedResources:
    """
    The resources that all frame slots of a pipeline borrow; the pipeline owns them.

    Allocates them and compiles; the GPU is current.

    :param batch: number of frames that may arrive together.
    :param undo: receives what releases the resources.
    :ivar feeds: by network input; those of images are `images`.
    :ivar outputs: names of the outputs that are decoded or copied to the host, in order.
    :ivar tensor_specs: network inputs whose tensors the graph takes, by name.
    :ivar host_dtypes: NumPy dtypes of the outputs in host memory.
    :ivar crop: preprocessing of regions; None where runs get whole images.
    :ivar tile_count: number of tiles of an image, which are a batch; 1 for whole images.
    :ivar is_one_image: whether runs get one image each, so that images can be batched.
    :ivar in_place: whether kernels read images in pinned memory, without a copy to the GPU.
    :ivar in_flight: number of runs that may overlap.
    :ivar fetches: whether graphs copy images from registered memory by a kernel, which would wait
        for another run in flight.
    :ivar batches: batch sizes of runs, ascending.
    :ivar class_count: number of classes; 0: unknown.
    :ivar graph_fallbacks: reasons why frames run without a CUDA graph; slots append to it.
    :ivar joined: networks that run on the objects found, in the same graphs.
    """

    def __init__(
        self, network: TensorRTRunner, fitted: ResolvedModel[Any], *, batch: int, undo: ExitStack
    ) -> None:
        self.gpu, self.options, self._decoder = network.gpu, network.options, fitted.decoder
        self.account, self.use_graph = network.engine.account, network.use_graph
        self.feeds, self.outputs = fitted.feeds, fitted.outputs
        self.class_count = len(fitted.class_names) or fitted.decoder.class_count or 0
        self.graph_fallbacks: list[str] = []
        self.joined: list[Any] = []
        self._open_contexts(network, undo)

        cubins = kernel_folder(self.options.engine_cache_dir)
        undo.callback(self.account.drop, 'kernels')
        self.preprocess_kernels = Kernels('preprocess', self.gpu.arch, cubins)
        undo.callback(self.preprocess_kernels.close)
        self.account.add('kernels', self.preprocess_kernels.nbytes)
        self.decode_kernels = DecodeKernels(self.gpu.arch, cubins, self.account)
        undo.callback(self.decode_kernels.close)
        self.jpegs = JpegDecoder(self.gpu.index)
        undo.callback(self.jpegs.close)
        self.copy_threads = CopyThreadPool(COPY_THREADS, self.gpu.context)
        undo.callback(self.copy_threads.close)
        unified = self.options.unified_memory
        self.in_place = unified == 'on' or (unified == 'auto' and self.gpu.is_integrated)
        self.in_flight = self.options.frames_in_flight or self.options.contexts
        self.fetches = self.in_flight == 1 and not self.in_place
        self.waiting = GpuWait(self.options.gpu_wait)

        self.images = image_feeds(self.feeds)
        self.crop = next((feed.crop for feed in self.images.values()), None)
        self.tile_count = next(
            (each.tiles.count for each in self.images.values() if each.tiles), 1
        )
        self.is_one_image = is_one_image(self.feeds)
        specs, in_graph = array_specs(self.feeds), self.inputs.in_graph
        self.tensor_specs = {name: spec for name, spec in specs.items() if name in in_graph}
        if self.crop is not None:
            self.tensor_specs[REGIONS] = REGION_MAPS
        self.host_dtypes = {spec.name: numpy_dtype(spec.dtype) for spec in network.engine.outputs}
        self.batches, self.batch_lines = self._batches(batch)

    def _open_contexts(self, network: TensorRTRunner, undo: ExitStack) -> None:
        self.inputs = Inputs(self.feeds, self.account, undo)
        self.contexts = network.open_contexts()
        undo.callback(self.contexts.close)

    def with_own_context(self, network: TensorRTRunner, undo: ExitStack) -> SharedResources:
        """Return the same, with an execution context and tensors that no other run uses."""
        other = copy(self)
        other._open_contexts(network, undo)
        return other

    def decoder_for(self, shapes: Mapping[str, Shape]) -> GpuDecoder | None:
        """Return the GPU decoder for output shapes; None where only the CPU can decode."""
        # Results of regions are small but for those of text, and the CPU decodes them.
        if not self.images or (self.crop is not None and self._decoder.task != 'text'):
            return None
        outputs, tiles = self.contexts.engine.outputs, self._decoder.tiles
        return gpu_decoder(self._decoder, outputs, shapes, self.preprocess.input_hw, tiles)

    @property
    def preprocess(self) -> Preprocess:
        """Preprocessing of the (first) image, where there is one."""
        return next(iter(self.images.values())).preprocess

    def letterbox(self, frame: Frame) -> Letterbox:
        """Return the placement of an image, or of its regions, in the network's input."""
        return self.preprocess.letterbox(frame.wh) if self.crop is None else self.crop.letterbox

    def geometry(self, frame: Frame, *, is_there: bool) -> Geometry:
        """Return the geometry of an image; `is_there` where the GPU has or reads all of it."""
        geometry = Geometry.of(frame)
        is_plain = self.is_one_image and self.crop is None and self.tile_count == 1
        if is_there or self.joined or not is_plain:
            return geometry
        return replace(geometry, blocks=blocks_read(self.preprocess, geometry))

    def decoded(self, images: Sequence[Image]) -> Sequence[Image]:
        """Return those of a run's images that have a result of their own."""
        return images if self.is_one_image else images[:1]

    def _batches(self, batch: int) -> tuple[tuple[int, ...], tuple[str, ...]]:
        """
        Return the batch sizes of runs: powers of two, and the maximum; and lines for the log.

        Each size has an execution context, which takes GPU memory (72 MiB with TensorRT-RTX 1.5,
        whatever the network), so not every size has one.
        """
        if not self.is_one_image:
            return (1,), ('batch size 1: a run has several inputs',) if batch > 1 else ()
        engine = self.contexts.engine
        spec = next(spec for spec in engine.inputs if spec.name in self.images)
        fixed = largest = spec.shape[0]
        if fixed == -1:
            largest = max((each[spec.name][2][0] for each in engine.profiles), default=1)
        if self.tile_count > 1:
            if largest < self.tile_count:
                raise TensorMismatchError(
                    f'The network takes {largest} images per run, but an image has '
                    f'{self.tile_count} tiles.',
                    remedy='Export with a dynamic batch size (Ultralytics: dynamic=True), and '
                    'give the ONNX file, or an engine that is built from it with --batch '
                    f'{self.tile_count}.',
                )
            return (1,), (f'batch size {self.tile_count}: the tiles of one image per run',)
        if fixed > 1:
            return (fixed,), (f'fixed batch size {fixed}: smaller batches are padded',)
        most = min(batch, largest) if self._decoder.takes_batches else 1
        powers = (1 << power for power in range(most.bit_length()))
        sizes = (*(size for size in powers if size < most), most)
        if batch == 1:
            return sizes, ()
        if most == 1:
            limit = 'network' if fixed == 1 else 'engine'
            return sizes, (f'batch size 1: the {limit} accepts one image per run',)
        return sizes, (f'batch size: up to {most} images per run',)
