"""Time per step of a frame on the CPU."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass
import time
from typing import Any

import numpy as np

from trt_ros.progress import Reporter
from trt_ros.runtime.backends import open_network
from trt_ros.runtime.cpu.frame_runner import StepByStep
from trt_ros.runtime.feeds import measured_inputs, split_inputs
from trt_ros.runtime.fitting import fit_any
from trt_ros.runtime.options import PipelineOptions
from trt_ros.vision.decoders.registry import DRAWN
from trt_ros.vision.frame import Frame
from trt_ros.vision.thresholds import DEFAULT_THRESHOLDS

WARM_UP_RUNS = 3


@dataclass(frozen=True)
class Summary:
    """Percentiles, maximum and mean of many times, in milliseconds."""

    p50: float
    p90: float
    p99: float
    max: float
    mean: float

    @classmethod
    def of(cls, times_ms: Sequence[float]) -> Summary:
        """Summarise times, of which there is at least one."""
        p50, p90, p99 = np.percentile(times_ms, [50, 90, 99])
        return cls(
            float(p50), float(p90), float(p99), float(max(times_ms)), float(np.mean(times_ms))
        )


class _Clocked:
    """A callable that records the duration of each call, in ms."""

    def __init__(self, call: Callable[..., Any]) -> None:
        self._call, self.times_ms = call, list[float]()

    def __call__(self, *args: Any, **kwargs: Any) -> Any:
        start = time.perf_counter()
        try:
            return self._call(*args, **kwargs)
        finally:
            self.times_ms.append((time.perf_counter() - start) * 1e3)


@contextmanager
def _clocked(owner: object, name: str) -> Iterator[_Clocked]:
    """Time the calls of a method, or of a callable in an attribute."""
    present = getattr(owner, name)
    clock = _Clocked(present)
    setattr(owner, name, clock)
    try:
        yield clock
    finally:
        setattr(owner, name, present)


def open_on_the_cpu(
    options: PipelineOptions, batch: int
) -> tuple[StepByStep[Any], tuple[str, ...]]:
    """
    Open a network; one that no decoder recognises returns raw outputs.

    :param options: with backend onnxruntime or triton.
    :param batch: maximum number of images per run.
    :returns: the caller's to close, warmed up; and lines for the log.
    :raises TrtRosError: a ParameterError, ModelError, BackendError or TensorMismatchError.
    """
    with ExitStack() as undo:
        network, opened, _ = open_network(options, Reporter(None, None), batch)
        undo.callback(network.close)
        fitted = fit_any(network, options, DRAWN)
        steps: Any = opened.frame_runner(network, fitted, batch)
        steps.warm_up()
        undo.pop_all()
        return steps, (*fitted.log_lines, *steps.log_lines)


def measure_steps(
    steps: StepByStep[Any], frame: Frame | None, rounds: int
) -> Mapping[str, list[float]]:
    """
    Time runs of as many images as the network takes, all the same frame; tensors are zeros.

    :param frame: None for a network without images.
    :returns: milliseconds per run. 'frame' is the time from image in hand to result; it includes
        'preprocess', 'network' and 'decode'.
    """
    inputs: Any = measured_inputs(steps.feeds, frame)
    if steps.is_one_image:
        inputs = split_inputs(steps.feeds, inputs)[0] * steps.max_batch
    whole = _Clocked(steps.infer_all if steps.is_one_image else steps.infer_inputs)
    with (
        _clocked(steps, 'preprocess' if steps.is_one_image else 'tensors_of') as preprocess,
        _clocked(steps.runner, 'infer') as network,
        _clocked(steps, 'decoder') as decode,
    ):
        for _ in range(rounds + WARM_UP_RUNS):
            whole(inputs, DEFAULT_THRESHOLDS)
    parts = {'preprocess': preprocess, 'network': network, 'decode': decode}
    return {
        name: np.reshape(clock.times_ms, (rounds + WARM_UP_RUNS, -1))
        .sum(axis=1)
        .tolist()[WARM_UP_RUNS:]
        for name, clock in (('frame', whole), *parts.items())
    }
