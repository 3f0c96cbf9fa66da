"""Opening of model files with TensorRT, whose engines are built or loaded from the cache."""

from __future__ import annotations

from contextlib import ExitStack, closing
from dataclasses import replace
from pathlib import Path
from typing import Any

from trt_ros.cuda.device import open_gpu
from trt_ros.engine.open import open_engine
from trt_ros.engine.options import BuildOptions
from trt_ros.families.family import Family, Head
from trt_ros.families.registry import ALL_FAMILIES
from trt_ros.progress import Reporter
from trt_ros.runtime.fitting import resolve
from trt_ros.runtime.gpu.device_choice import reserved_device
from trt_ros.runtime.gpu.executor import GraphPipeline
from trt_ros.runtime.gpu.graph_options import GraphOptions
from trt_ros.runtime.gpu.tensor_runner import TensorRTRunner
from trt_ros.runtime.options import PipelineOptions


def open_tensor_runner(
    model_path: Path | str,
    build: BuildOptions | None = None,
    *,
    backend: str = 'auto',
    device: int = 0,
    cache_dir: Path | str = '',
    memory_if_unwritable: bool = False,
    report: Reporter | None = None,
    graph: GraphOptions | None = None,
) -> TensorRTRunner:
    """
    Open a network with TensorRT; builds its engine the first time.

    :param model_path: ONNX file or engine.
    :param backend: 'tensorrt', 'tensorrt_rtx' or 'auto'.
    :param device: CUDA device index, or LEAST_BUSY.
    :param memory_if_unwritable: whether to build in memory, on every call, where the cache cannot
        be written.
    :param graph: options of the frame path; `device` and `cache_dir` override its values.
    :raises TrtRosError: a ParameterError, ModelError, BackendError, CudaError or CancelledError.
    """
    with ExitStack() as current:
        with reserved_device(device) as (device, lines):
            current.enter_context(open_gpu(device).context)
            found = open_engine(
                model_path,
                build,
                backend=backend,
                device=device,
                cache_dir=cache_dir,
                memory_if_unwritable=memory_if_unwritable,
                report=report,
            )
        # The open engine counts by itself from now on.
        return TensorRTRunner(
            found.engine,
            cache=found.runtime_cache,
            log_lines=(*lines, *found.log_lines),
            options=replace(graph or GraphOptions(), device=device, cache_dir=str(cache_dir)),
        )


def open_frames(
    model_path: Path | str,
    build: BuildOptions | None = None,
    graph: GraphOptions | None = None,
    *,
    backend: str = 'auto',
    cache_dir: Path | str = '',
    options: PipelineOptions | None = None,
    report: Reporter | None = None,
) -> GraphPipeline:
    """
    Open any network, to measure it.

    A network that no decoder recognizes returns raw outputs; see resolve. Runs take `build.batch`
    images where the network allows that.

    :param options: bindings, preprocessing and decoder; opening the engine ignores them.
    """
    graph = graph or GraphOptions()
    runner = open_tensor_runner(
        model_path,
        build,
        backend=backend,
        device=graph.device,
        cache_dir=cache_dir,
        report=report,
        graph=graph,
    )
    return frames_of(runner, options or PipelineOptions(), batch=build.batch if build else 1)


def frames_of(
    runner: TensorRTRunner,
    options: PipelineOptions,
    families: tuple[Family[Head[Any]], ...] = ALL_FAMILIES,
    *,
    batch: int = 1,
) -> GraphPipeline:
    """
    Return a pipeline of frames for an open network; see open_frames.

    :param runner: closed when this returns or raises; the pipeline owns its engine.
    :param families: those that `options.decoder` chooses from.
    """
    with closing(runner):
        return runner.for_frames(resolve(runner, options, families), batch=batch)
