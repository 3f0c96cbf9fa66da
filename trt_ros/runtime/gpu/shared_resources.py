"""Resources that all frame slots of a pipeline share, and the batch sizes of its runs."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from contextlib import ExitStack
from dataclasses import dataclass, field, replace
from typing import Any

import numpy as np

from trt_ros.cuda.device import Gpu
from trt_ros.cuda.kernels import Kernels
from trt_ros.cuda.memory import Account
from trt_ros.engine.cache import Blob, kernel_folder
from trt_ros.engine.engine import Engine
from trt_ros.runtime.gpu.decode import GpuDecoder
from trt_ros.runtime.gpu.decoder_choice import gpu_decoder
from trt_ros.runtime.gpu.graph_options import GraphOptions
from trt_ros.runtime.gpu.slots import CopyThreadPool
from trt_ros.runtime.gpu.tensorrt_context import Contexts, Shape
from trt_ros.runtime.gpu.waiting import GpuWait
from trt_ros.tensors import TensorSpec
from trt_ros.vision.decoders.registry import Decoder
from trt_ros.vision.letterbox import Preprocess

COPY_THREADS = 2  # Beside the calling thread; they share the copy of a large image.


@dataclass(frozen=True)
class SharedResources:
    """
    The resources that all frame slots of a pipeline borrow; the pipeline owns them.

    :param decoder_for: returns the GPU decoder for output shapes; None where only the CPU can
        decode.
    :param in_place: whether kernels read pinned memory directly, without a copy to the GPU.
    :param constant_inputs: values of the network inputs beside the images, one row each.
    :param batches: batch sizes of runs, ascending.
    :param graph_fallbacks: reasons why frames run without a CUDA graph; slots append to it.
    """

    gpu: Gpu
    account: Account
    options: GraphOptions
    contexts: Contexts
    preprocess: Preprocess
    preprocess_kernels: Kernels
    decode_kernels: Kernels
    decoder_for: Callable[[Mapping[str, Shape]], GpuDecoder | None]
    copy_threads: CopyThreadPool
    in_place: bool
    constant_inputs: Mapping[str, np.ndarray]
    waiting: GpuWait
    batches: tuple[int, ...] = (1,)
    graph_fallbacks: list[str] = field(default_factory=list)

    @property
    def image_input(self) -> TensorSpec:
        """The network input that takes the images."""
        return next(
            spec for spec in self.contexts.engine.inputs if spec.name not in self.constant_inputs
        )


def open_shared_resources(
    engine: Engine,
    preprocess: Preprocess,
    decoder: Decoder[Any] | None,
    gpu: Gpu,
    options: GraphOptions,
    *,
    batch: int,
    cache: Blob | None,
    undo: ExitStack,
) -> SharedResources:
    """
    Allocate the shared resources and compile the kernels; the GPU is current.

    :param batch: number of frames that may arrive together.
    :param cache: TensorRT-RTX's runtime cache of this engine.
    :param undo: receives what releases the resources, also when this raises.
    """
    account = Account()
    undo.callback(account.device.pop, 'engine', None)
    account.device['engine'] = engine.plan_nbytes
    contexts = Contexts(engine, account, cache=cache)
    undo.callback(contexts.close)

    def kernels(name: str) -> Kernels:
        loaded = Kernels(name, gpu.arch, kernel_folder(options.cache_dir))
        undo.callback(loaded.close)
        account.device['kernels'] += loaded.nbytes
        undo.callback(account.device.pop, 'kernels', None)
        return loaded

    def decoder_for(shapes: Mapping[str, Shape]) -> GpuDecoder | None:
        if decoder is None:
            return None
        return gpu_decoder(decoder, engine.outputs, shapes, preprocess.input_hw)

    preprocess_kernels, decode_kernels = kernels('preprocess'), kernels('decode')
    copy_threads = CopyThreadPool(COPY_THREADS, gpu.context)
    undo.callback(copy_threads.close)
    shared = SharedResources(
        gpu=gpu,
        account=account,
        options=options,
        contexts=contexts,
        preprocess=preprocess,
        preprocess_kernels=preprocess_kernels,
        decode_kernels=decode_kernels,
        decoder_for=decoder_for,
        copy_threads=copy_threads,
        in_place=options.unified_memory == 'on'
        or (options.unified_memory == 'auto' and gpu.is_integrated),
        constant_inputs=decoder.constant_inputs if decoder else {},
        waiting=GpuWait(options.gpu_wait),
    )
    return replace(shared, batches=batches_for(shared, batch, decoder))


def batches_for(
    shared: SharedResources, batch: int, decoder: Decoder[Any] | None
) -> tuple[int, ...]:
    """
    Return the batch sizes of runs, ascending: powers of two, and the maximum.

    Each size has an execution context, which takes GPU memory (72 MiB with TensorRT-RTX 1.5,
    whatever the network), so not every size has one.
    """
    spec = shared.image_input
    if spec.shape[0] != -1:
        return (spec.shape[0],)
    if decoder is not None and not decoder.takes_batches:
        return (1,)
    profiles = shared.contexts.engine.profiles
    max_batch = min(batch, max((profile[spec.name][2][0] for profile in profiles), default=1))
    powers = (1 << power for power in range(max_batch.bit_length()))
    return (*(size for size in powers if size < max_batch), max_batch)


def batch_log_lines(shared: SharedResources, batch: int) -> tuple[str, ...]:
    """Return lines for the log about the batch sizes for up to `batch` frames per run."""
    fixed, max_batch = shared.image_input.shape[0], shared.batches[-1]
    if fixed > 1:
        return (f'fixed batch size {fixed}: smaller batches are padded',)
    if max_batch == 1 < batch:
        limit = 'network' if fixed == 1 else 'engine'
        return (f'batch size 1: the {limit} accepts one image per run',)
    return (f'batch size: up to {max_batch} images per run',) if batch > 1 else ()
