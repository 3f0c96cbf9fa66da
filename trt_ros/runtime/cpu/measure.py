"""Where a frame's time goes on the CPU, step by step."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
import time
from typing import Any

import numpy as np

from trt_ros.errors import TensorMismatchError
from trt_ros.runtime.cpu.frame_runner import StepByStep
from trt_ros.runtime.options import PipelineOptions
from trt_ros.runtime.pipeline import Pipeline
from trt_ros.vision.decoders.registry import DRAWN, TENSORS
from trt_ros.vision.frame import Frame

WARM_UP_RUNS = 3


@dataclass(frozen=True)
class Summary:
    """Of many times, in milliseconds."""

    p50: float
    p90: float
    p99: float
    max: float
    mean: float

    @classmethod
    def of(cls, times_ms: Sequence[float]) -> Summary:
        p50, p90, p99 = np.percentile(times_ms, [50, 90, 99])
        return cls(
            float(p50), float(p90), float(p99), float(max(times_ms)), float(np.mean(times_ms))
        )


class _Clocked:
    """A callable that keeps how long each call took, in ms."""

    def __init__(self, call: Callable[..., Any]) -> None:
        self._call, self.times_ms = call, list[float]()

    def __call__(self, *args: Any, **kwargs: Any) -> Any:
        start = time.perf_counter()
        try:
            return self._call(*args, **kwargs)
        finally:
            self.times_ms.append((time.perf_counter() - start) * 1e3)


def open_on_the_cpu(model: Path, input_size: tuple[int, ...], batch: int) -> Pipeline[Any]:
    """Open a network of one image input; one that no decoder recognises gives raw outputs."""
    options = PipelineOptions(model_path=str(model), backend='onnxruntime', input_size=input_size)
    try:
        return Pipeline.open(options, families=DRAWN, batch=batch)
    except TensorMismatchError:
        return Pipeline.open(replace(options, decoder='tensor'), families=TENSORS, batch=batch)


def measure_steps(pipeline: Pipeline[Any], frame: Frame, rounds: int) -> Mapping[str, list[float]]:
    """
    Time runs of `pipeline.max_batch` images each, all the same frame.

    :returns: 'frame': image in hand to result; of it 'preprocess', 'network' and 'decode'; in ms
        per run.
    """
    assert isinstance(pipeline.frames, StepByStep)
    steps, batch = pipeline.frames, pipeline.max_batch
    parts = {
        'preprocess': _Clocked(steps.preprocess),
        'network': _Clocked(steps.runner.infer),
        'decode': _Clocked(steps.decoder),
    }
    runner, preprocess, decoder = steps.runner, steps.preprocess, steps.decoder
    whole = _Clocked(pipeline.infer_all)
    try:
        steps.preprocess, steps.decoder = parts['preprocess'], parts['decode']  # type: ignore[assignment]
        runner.infer = parts['network']  # type: ignore[method-assign]
        for _ in range(rounds + WARM_UP_RUNS):
            whole([frame] * batch)
    finally:
        steps.preprocess, steps.decoder = preprocess, decoder
        del runner.infer
    return {
        name: np.reshape(clock.times_ms, (rounds + WARM_UP_RUNS, -1))
        .sum(axis=1)
        .tolist()[WARM_UP_RUNS:]
        for name, clock in (('frame', whole), *parts.items())
    }
