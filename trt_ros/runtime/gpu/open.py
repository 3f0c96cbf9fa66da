"""From a model file to a network on TensorRT, built or found in the cache."""

from __future__ import annotations

from collections.abc import Sequence
from contextlib import ExitStack
from dataclasses import replace
from pathlib import Path

from trt_ros.cuda.device import open_gpu
from trt_ros.engine.open import open_engine
from trt_ros.engine.options import BuildOptions
from trt_ros.errors import TensorMismatchError
from trt_ros.progress import Reporter
from trt_ros.runtime.fitting import fit, raw_preprocess
from trt_ros.runtime.gpu.executor import GraphOptions, GraphPipeline
from trt_ros.runtime.gpu.tensor_runner import TensorRTRunner
from trt_ros.runtime.options import PipelineOptions
from trt_ros.vision.decoders.registry import FAMILIES


def open_network(
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
    Open a network with TensorRT; the first time its engine is built.

    :param model_path: an ONNX file, or an engine.
    :param backend: 'tensorrt', 'tensorrt_rtx' or 'auto'.
    :param memory_if_unwritable: where the cache cannot be written, build in memory, each time.
    :param graph: how it uses the GPU; `device` and `cache_dir` go before what it says of them.
    :raises TrtRosError: a ParameterError, ModelError, BackendError, CudaError or CancelledError.
    """
    graph = replace(graph or GraphOptions(), device=device, cache_dir=str(cache_dir))
    with open_gpu(device).context:
        found = open_engine(
            model_path,
            build,
            backend=backend,
            device=device,
            cache_dir=cache_dir,
            memory_if_unwritable=memory_if_unwritable,
            report=report,
        )
        return TensorRTRunner(
            found.engine, cache=found.runtime_cache, log_lines=found.log_lines, options=graph
        )


def open_frames(
    model_path: Path | str,
    build: BuildOptions | None = None,
    graph: GraphOptions | None = None,
    *,
    backend: str = 'auto',
    cache_dir: Path | str = '',
    input_size: Sequence[int] = (),
    report: Reporter | None = None,
) -> GraphPipeline:
    """
    Open any network of one image input for frames, to measure it.

    A network that no decoder recognises gets pixels of 0 to 1 and returns raw outputs. Runs take
    `build.batch` images where the network allows that.
    """
    graph = graph or GraphOptions()
    runner = open_network(
        model_path,
        build,
        backend=backend,
        device=graph.device,
        cache_dir=cache_dir,
        report=report,
        graph=graph,
    )
    options = PipelineOptions(model_path=str(model_path), input_size=tuple(input_size))
    return frames_of(runner, options, batch=build.batch if build else 1)


def frames_of(
    runner: TensorRTRunner, options: PipelineOptions, *, batch: int = 1
) -> GraphPipeline:
    """
    Turn an open network into a pipeline of frames; see open_frames.

    :param runner: closed when this returns or raises; its engine goes to the pipeline.
    """
    with ExitStack() as undo:
        undo.callback(runner.close)
        try:
            fitted = fit(runner, options, FAMILIES)
        except TensorMismatchError:
            preprocess = raw_preprocess(runner)
            if preprocess is None:
                raise
            return runner.for_frames(preprocess, None, batch=batch)
        return runner.for_frames(fitted.preprocess, fitted.decoder, batch=batch)
