"""Time per step of a frame on the CPU."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import ExitStack, contextmanager
import time
from typing import Any, NamedTuple

import numpy as np

from trt_ros.model.run_inputs import REGIONS, image_feeds, measured_inputs, split_inputs
from trt_ros.profiling import mark
from trt_ros.progress import Reporter
from trt_ros.runtime.backends import open_network
from trt_ros.runtime.cpu.pipeline import CpuPipeline
from trt_ros.runtime.fitting import resolve
from trt_ros.runtime.options import PipelineOptions
from trt_ros.runtime.pipeline import Pipeline
from trt_ros.tensors import Arrays
from trt_ros.vision.frame import Frame
from trt_ros.vision.regions import whole_image
from trt_ros.vision.thresholds import DEFAULT_THRESHOLDS

WARM_UP_RUNS = 3


def percentiles(times_ms: Sequence[float]) -> dict[str, float]:
    """Return percentiles, maximum and mean of times, of which there is at least one."""
    found = np.percentile(times_ms, [50, 90, 99, 100]).tolist()
    return {**dict(zip(('p50', 'p90', 'p99', 'max'), found)), 'mean': float(np.mean(times_ms))}


class Work(NamedTuple):
    """The images and tensors of a run of the maximum batch size."""

    frames: Sequence[Frame]
    tensors: Arrays

    @classmethod
    def of(cls, pipeline: Pipeline[Any], frame: Frame | None) -> Work:
        """Return a run of a pipeline on one frame, by default gray images of its size."""
        feeds, batch = pipeline.feeds, pipeline.max_batch
        frames, tensors = split_inputs(feeds, measured_inputs(feeds, frame))
        for feed in image_feeds(feeds).values():
            if feed.crop is not None:
                return cls(frames, {REGIONS: whole_image(feed.crop, frames[0].wh, batch)})
        return cls(frames * batch, tensors)

    @property
    def description(self) -> str:
        """Size and encoding of the images, or the shapes of the tensors."""
        texts = [f'{each.width}x{each.height} {each.encoding}' for each in self.frames[:1]]
        shapes = {name: list(each.shape) for name, each in self.tensors.items() if name != REGIONS}
        return ', '.join([*texts, *(f'{name} {shape}' for name, shape in shapes.items())])


@contextmanager
def _clocked(owner: object, name: str) -> Iterator[list[float]]:
    """Time the calls of a method, or of a callable in an attribute, in milliseconds."""
    present, times_ms = getattr(owner, name), list[float]()

    def call(*args: Any, **kwargs: Any) -> Any:
        start = time.perf_counter()
        try:
            return present(*args, **kwargs)
        finally:
            times_ms.append((time.perf_counter() - start) * 1e3)

    setattr(owner, name, call)
    try:
        yield times_ms
    finally:
        setattr(owner, name, present)


def open_on_the_cpu(options: PipelineOptions, batch: int) -> CpuPipeline[Any]:
    """Open a network, raw where no decoder recognizes it, warmed up; the caller closes it."""
    with ExitStack() as undo:
        network, opened, lines = open_network(options, Reporter(None, None), batch)
        undo.callback(network.close)
        fitted = resolve(network, options)
        steps: CpuPipeline[Any] = opened.pipeline(network, fitted, batch)
        steps._choice = lines
        steps.warm_up()
        undo.pop_all()
        return steps


def measure_steps(
    steps: CpuPipeline[Any], frame: Frame | None, rounds: int, warm_up: int = WARM_UP_RUNS
) -> Mapping[str, list[float]]:
    """
    Time runs of as many images as the network takes, all the same frame; tensors are zeros.

    :param frame: None for a network without images.
    :param warm_up: number of runs before those that are timed.
    :returns: milliseconds per run. 'frame' is the time from image in hand to result; it includes
        'preprocess', 'network' and 'decode'; of a bundle, also 'network NAME'.
    """
    members = getattr(steps.runner, 'members', {})
    clocked = {
        **{'frame': (steps, 'start'), 'preprocess': (steps, 'stage')},
        'network': (steps.runner, 'infer'),
        **{f'network {name}': (runner, 'infer') for name, runner in members.items()},
        'decode': (steps, 'decoder'),
    }
    run = _run(steps, frame)
    with ExitStack() as stack:
        times = {key: stack.enter_context(_clocked(*each)) for key, each in clocked.items()}
        for phase, runs in (('warm-up', warm_up), ('frames', rounds)):
            with mark(phase):
                for _ in range(runs):
                    with mark('frame'):
                        run()
    return {
        name: np.reshape(each, (warm_up + rounds, -1)).sum(axis=1).tolist()[warm_up:]
        for name, each in times.items()
    }


def overlapped_frames_per_second(
    steps: CpuPipeline[Any], frame: Frame | None, runs: int, in_flight: int
) -> float:
    """Measure the images per second while `in_flight` runs overlap with all their steps."""
    run = _run(steps, frame)
    with ThreadPoolExecutor(in_flight) as pool, mark('throughput'):
        began = time.perf_counter()
        for _ in pool.map(lambda _: run(), range(runs)):
            pass
        return runs * steps.max_batch / (time.perf_counter() - began)


def network_tensors(steps: CpuPipeline[Any], frame: Frame | None) -> Arrays:
    """Return the tensors that reach the network in a run of measure_steps."""
    frames, tensors = Work.of(steps, frame)
    return steps.run_network(steps.stage(frames, tensors)[0], tensors)[0]


def _run(steps: CpuPipeline[Any], frame: Frame | None) -> Callable[[], Any]:
    """Return a function that runs the network once."""
    frames, tensors = Work.of(steps, frame)
    return lambda: steps.start(frames, DEFAULT_THRESHOLDS, tensors)
