"""From a model file to a network on TensorRT, built or found in the cache."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path

from trt_ros.cuda.device import open_gpu
from trt_ros.engine.open import open_engine
from trt_ros.engine.options import BuildOptions
from trt_ros.errors import TensorMismatchError
from trt_ros.progress import Reporter
from trt_ros.runtime.gpu.executor import GraphOptions, GraphPipeline
from trt_ros.runtime.gpu.tensor_runner import TensorRTRunner
from trt_ros.runtime.options import PipelineOptions
from trt_ros.runtime.pipeline import Pipeline
from trt_ros.vision.detections import Detections
from trt_ros.vision.letterbox import Preprocess


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

    What no decoder recognises gets its pixels as 0 to 1 and gives raw outputs. Runs take as many
    images as `build.batch` says, where the network allows that.
    """
    graph, batch = graph or GraphOptions(), build.batch if build else 1

    def network() -> TensorRTRunner:
        return open_network(
            model_path,
            build,
            backend=backend,
            device=graph.device,
            cache_dir=cache_dir,
            report=report,
            graph=graph,
        )

    runner = network()
    try:
        # Only decides; nothing runs.
        asked: Pipeline[Detections] = Pipeline.open(
            PipelineOptions(model_path=str(model_path), input_size=tuple(input_size)),
            runner=runner,
        )
    except TensorMismatchError:
        runner = network()
        spec = runner.inputs[0]
        if len(runner.inputs) != 1 or len(spec.shape) != 4 or min(spec.shape[1:]) < 1:
            runner.close()
            raise
        layout = 'nchw' if spec.shape[1] == 3 else 'nhwc'
        height, width = spec.shape[2:] if layout == 'nchw' else spec.shape[1:3]
        scale = 1.0 if spec.dtype == 'uint8' else 1 / 255
        preprocess = Preprocess((height, width), scale=scale, layout=layout, dtype=spec.dtype)
        return runner.for_frames(preprocess, None, batch=batch)
    return runner.for_frames(asked.preprocess, asked.decoder, batch=batch)
