"""Choice between GPU and CPU for small networks of arrays, by the times of their runs."""

from collections.abc import Callable
from contextlib import ExitStack
from dataclasses import replace
import logging
from pathlib import Path
from statistics import median
import time
from typing import Any

import numpy as np

from trt_ros.engine.plan import is_plan
from trt_ros.errors import TrtRosError
from trt_ros.model.run_inputs import example_inputs, image_feeds, split_inputs
from trt_ros.progress import CancelledError
from trt_ros.runtime.agreement import Agreement, agreements
from trt_ros.runtime.backends import FOR_GPUS, cpu_backend
from trt_ros.runtime.options import PipelineOptions, changed_options
from trt_ros.vision.thresholds import DEFAULT_THRESHOLDS

log = logging.getLogger('trt_ros.runtime')

#: Longer runs on a GPU are not compared: the network takes most of them.
LONGEST_SECONDS = 0.5e-3
ROUNDS = 51
#: Random runs whose outputs are compared, and their lowest cosine similarity.
COMPARED_RUNS, MIN_COSINE = 3, 0.99


def faster_of(
    pipeline: Any, options: PipelineOptions, open_pipeline: Callable[[PipelineOptions], Any]
) -> tuple[Any, tuple[str, ...]]:
    """
    Return the faster one of a pipeline on the GPU and one on the CPU, and lines for the log.

    Networks without images are compared, if their runs are short, where `backend` is auto, the
    model is an ONNX file or a bundle, and no option is for GPUs alone. The slower pipeline is
    closed, and that on the GPU where its results differ.

    :param pipeline: of a Pipeline, warmed up; stays open when this raises.
    :param open_pipeline: opens a Pipeline and warms it up.
    :raises CancelledError: when opening is cancelled.
    """
    cpu = cpu_backend()
    if (
        options.backend != 'auto'
        or options.is_remote
        or pipeline.backend == cpu.name
        or cpu.missing()
        or changed_options(options, FOR_GPUS)
        or image_feeds(pipeline.feeds)
        or example_inputs(pipeline.feeds) is None
        or is_plan(Path(options.model_path).expanduser())
    ):
        return pipeline, ()
    on_gpu = run_seconds(pipeline)
    if on_gpu > LONGEST_SECONDS:
        return pipeline, ()
    with ExitStack() as undo:
        try:
            other = open_pipeline(replace(options, backend=cpu.name))
            undo.callback(other.close)
            on_cpu = run_seconds(other)
        except CancelledError:
            raise
        except TrtRosError as error:
            return pipeline, (f'not compared with {cpu.title}: {error.problem}',)
        reason = disagreement(pipeline, other)
        if reason:
            log.warning('%s', reason)
            undo.pop_all()
            pipeline.close()
            return other, (f'the CPU is used: {reason}',)
        times = f'a run takes {1e6 * on_gpu:.0f} us on the GPU, {1e6 * on_cpu:.0f} us on the CPU'
        if on_gpu <= on_cpu:
            return pipeline, (times,)
        undo.pop_all()
        pipeline.close()
        return other, (f'{times}, which is used; set backend to {pipeline.backend} for the GPU',)


def disagreement(pipeline: Any, reference: Any) -> str:
    """Compare pipelines on random arrays, without a trace; return the difference, or ''."""
    rng = np.random.default_rng(0)
    worst: dict[str, Agreement] = {}
    with pipeline.rehearsal(), reference.rehearsal():
        for _ in range(COMPARED_RUNS):
            frames, tensors = split_inputs(pipeline.feeds, example_inputs(pipeline.feeds) or {})
            tensors = {
                name: rng.standard_normal(value.shape, np.float32).astype(value.dtype)
                if value.dtype.kind == 'f'
                else value
                for name, value in tensors.items()
            }
            got, want = (
                {name: np.array(value) for name, value in result.items()}
                for each in (pipeline, reference)
                for result in each.run(frames, DEFAULT_THRESHOLDS, tensors)
            )
            for name, found in agreements(got, want).items():
                worst.setdefault(name, found).add(found)
    for name, found in worst.items():
        problem = found.problem(MIN_COSINE, of_layer=True)
        if problem:
            return (
                f'GPU and CPU differ on random inputs, output {name}: {problem} '
                '(trt-ros verify compares them)'
            )
    return ''


def run_seconds(pipeline: Any) -> float:
    """Return the median time of a run on zeros, which leaves no trace in a Pipeline."""
    frames, tensors = split_inputs(pipeline.feeds, example_inputs(pipeline.feeds) or {})
    times = []
    with pipeline.rehearsal():
        for _ in range(ROUNDS):
            start = time.perf_counter()
            pipeline.run(frames, DEFAULT_THRESHOLDS, tensors)
            times.append(time.perf_counter() - start)
    return median(times)
