"""
Time measurements of runs, on the GPU by CUDA events and on the host by the clock; peak rates.

Every run has the maximum batch size: the same frame, `pipeline.max_batch` times. Tensors are
zeros.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import ExitStack, closing, contextmanager
import os
import time
from typing import Any

import numpy as np

from trt_ros.cuda.device import Event
from trt_ros.cuda.memory import PinnedBuffer
from trt_ros.cuda.monitor import Monitor
from trt_ros.engine.options import BuildOptions
from trt_ros.families.family import Family
from trt_ros.families.head import Head
from trt_ros.profiling import mark
from trt_ros.progress import Reporter
from trt_ros.runtime.cpu.measure import Work, percentiles
from trt_ros.runtime.fitting import resolve
from trt_ros.runtime.gpu.batch_buffers import BatchBuffers
from trt_ros.runtime.gpu.captured_graph import Stage
from trt_ros.runtime.gpu.frame_slot import FrameSlot
from trt_ros.runtime.gpu.open import open_tensor_runner
from trt_ros.runtime.gpu.pipeline import GpuPipeline, Pending
from trt_ros.runtime.gpu.tensor_runner import TensorRTRunner
from trt_ros.runtime.options import PipelineOptions
from trt_ros.vision.frame import Frame
from trt_ros.vision.thresholds import Thresholds

THRESHOLDS = Thresholds(max_detections=300)
MIN_POWER_SECONDS = 0.5  # In less time, NVML updates its counter of energy too rarely.


def open_frames(
    model: PipelineOptions | str | os.PathLike[str],
    build: BuildOptions | None = None,
    *,
    report: Reporter | None = None,
    **changes: Any,
) -> GpuPipeline:
    """
    Open any network, to measure it.

    A network that no decoder recognizes returns raw outputs; see resolve. Runs take `build.batch`
    images where the network allows that.

    :param changes: options by name, as for open_tensor_runner.
    """
    network = open_tensor_runner(model, build, report=report, **changes)
    return frames_of(network, network.options, batch=build.batch if build else 1)


def frames_of(
    network: TensorRTRunner,
    options: PipelineOptions,
    families: tuple[Family[Head[Any]], ...] | None = None,
    *,
    batch: int = 1,
) -> GpuPipeline:
    """Return a pipeline that owns an open network, also when this raises; see open_frames."""
    with ExitStack() as undo:
        undo.callback(network.close)
        pipeline = GpuPipeline(network, resolve(network, options, families), batch)
        undo.pop_all()
        return pipeline


@contextmanager
def _whole_slot(pipeline: GpuPipeline) -> Iterator[FrameSlot]:
    """Open a slot whose graph does the whole transfer; nothing else may run meanwhile."""
    with (
        pipeline.gpu.launch_context,
        closing(
            FrameSlot(pipeline.shared, pipeline.slots.all[0].buffers, chunk_nbytes=1 << 40)
        ) as slot,
    ):
        yield slot


def _stages_of(slot: FrameSlot, work: Work) -> tuple[BatchBuffers, list[Stage]]:
    """Copy the inputs of a run and return its buffers and stages, of which none is launched."""
    launched = slot.stage_inputs(work.frames, THRESHOLDS, None, None, work.tensors)
    captured = launched.captured
    return launched.buffers, launched.buffers.stages(captured.geometries, captured.addresses)


def stage_times(pipeline: GpuPipeline, work: Work, rounds: int) -> dict[str, list[float]]:
    """
    Measure each stage of a frame by itself on the GPU, as a graph of its own.

    Enqueued without one, a network of many small kernels would wait for the host.

    :returns: {'copy in': [ms, ..], 'preprocess': .., 'inference': .., 'decode' or 'copy out': ..}
    """
    times: dict[str, list[float]] = {}
    with _whole_slot(pipeline) as slot, ExitStack() as owned:
        buffers, all_stages = _stages_of(slot, work)
        stages = [(stage[0], buffers.capture([stage], slot.stream)) for stage in all_stages]
        for _, graph in stages:
            owned.enter_context(closing(graph))
        events = [owned.enter_context(closing(Event(timing=True))) for _ in range(len(stages) + 1)]
        stream = slot.stream.handle
        for number in range(rounds + 5):
            events[0].record(stream)
            for (name, graph), event in zip(stages, events[1:]):
                with mark(name):
                    graph.launch(stream)
                event.record(stream)
            events[-1].wait()
            if number >= 5:
                for (name, _), begin, end in zip(stages, events, events[1:]):
                    times.setdefault(name, []).append(end.ms_since(begin))
    return times


def graph_times(pipeline: GpuPipeline, work: Work, rounds: int) -> dict[str, list[float]]:
    """
    Measure the graph of a frame in pinned memory, from launch to results on the host.

    :returns: 'gpu': between events before and after the graph; 'wall': from before the launch to
        after the wait, of the same launches; 'wall alone': without those two events; all in ms.
    """
    gpu, wall, alone = [], [], []
    with (
        _whole_slot(pipeline) as slot,
        closing(Event(timing=True)) as begin,
        closing(Event(timing=True)) as end,
    ):
        launched = slot.start(work.frames, THRESHOLDS, None, None, work.tensors)
        slot.wait()
        graph = launched.captured.graph
        stream, done, clock = slot.stream.handle, slot.done, time.perf_counter
        for number in range(rounds + 20):
            start = clock()
            begin.record(stream)
            graph.launch(stream)
            end.record(stream)
            end.wait()
            stop = clock()
            graph.launch(stream)
            done.record(stream)
            done.wait()
            last = clock()
            if number >= 20:
                gpu.append(end.ms_since(begin))
                wall.append((stop - start) * 1e3)
                alone.append((last - stop) * 1e3)
    return {'gpu': gpu, 'wall': wall, 'wall alone': alone}


def host_times(pipeline: GpuPipeline, work: Work, rounds: int) -> dict[str, list[float]]:
    """
    Measure a frame from its bytes in host memory to its results.

    :returns: 'frame': the total; 'bring in': its part for the copy to pinned memory, including
        transfers enqueued meanwhile; 'plain copy': one call that copies the bytes of the first
        image or tensor to pinned memory; all in ms.
    """
    whole, bring, plain = [], [], []
    values: Sequence[np.ndarray] = [frame.data[: frame.nbytes] for frame in work.frames[:1]]
    values = values or list(work.tensors.values()) or [np.empty(0, np.uint8)]
    data = values[0].reshape(-1).view(np.uint8)
    with (
        pipeline.gpu.context,
        closing(PinnedBuffer(max(data.size, 1), 'plain copy', pipeline.account)) as pinned,
    ):
        for number in range(rounds + 10):
            start = time.perf_counter()
            with mark('frame'):
                pending = pipeline.start(work.frames, THRESHOLDS, work.tensors)
                pending.result()
            stop = time.perf_counter()
            begin = time.perf_counter()
            pinned.view[: data.size] = data
            end = time.perf_counter()
            if number >= 10:
                whole.append((stop - start) * 1e3)
                plain.append((end - begin) * 1e3)
                bring.append(pending.host_copy_seconds * 1e3)
    return {'frame': whole, 'bring in': bring, 'plain copy': plain}


def frames_per_second(
    pipeline: GpuPipeline, work: Work, runs: int, clock: Callable[[], float] = time.perf_counter
) -> float:
    """Measure the images per second in `runs` runs while every slot is always busy."""
    pending: list[Pending] = []
    start = 0.0
    for number in range(runs + 10):
        if number == 10:
            start = clock()
        if len(pending) == len(pipeline.slots.all):
            pending.pop(0).wait()
        pending.append(pipeline.start(work.frames, THRESHOLDS, work.tensors))
    for last in pending:
        last.wait()
    return runs * pipeline.max_batch / (clock() - start)


def layer_times(pipeline: GpuPipeline, work: Work, rounds: int) -> dict[str, float]:
    """Measure each layer in ms with TensorRT's profiler, which waits between them."""
    trt = pipeline.shared.contexts.engine.library.trt
    totals: dict[str, float] = {}

    class Layers(trt.IProfiler):  # type: ignore[misc, name-defined]
        def __init__(self) -> None:
            trt.IProfiler.__init__(self)

        def report_layer_time(self, layer_name: str, ms: float) -> None:
            totals[layer_name] = totals.get(layer_name, 0.0) + ms

    slot = pipeline.slots.take(60.0)
    profiler = Layers()
    # A separate context, because a context keeps its profiler.
    execution = None
    with pipeline.gpu.launch_context:
        try:
            buffers, all_stages = _stages_of(slot, work)
            stages = dict(all_stages)
            execution = pipeline.shared.contexts.new(
                {
                    spec.name: buffers.execution.shape_of(spec.name)
                    for spec in pipeline.shared.contexts.engine.inputs
                }
            )
            for name, buffer in buffers.tensors.items():
                execution.bind(name, buffer.ptr)
            for stage in ('copy in', 'preprocess'):
                if stage in stages:
                    stages[stage](slot.stream.handle)
            execution.enqueue(slot.stream.handle)  # Not profiled: the first run compiles.
            slot.stream.synchronize()
            execution.context.profiler = profiler
            for _ in range(rounds):
                execution.enqueue(slot.stream.handle)
                slot.stream.synchronize()
        finally:
            if execution is not None:
                execution.close()
            pipeline.slots.give_back(slot)
    return {name: total / rounds for name, total in totals.items()}


def measure(pipeline: GpuPipeline, frame: Frame | None, *, rounds: int = 200) -> dict[str, Any]:
    """Measure stages, graph, runs and throughput (ms, for JSON); `frame`: None without images."""
    work = Work.of(pipeline, frame)
    with mark('warm-up'):
        pipeline.warm_up(frame)
    with mark('graph alone'):
        graph = graph_times(pipeline, work, rounds)
    with mark('separate steps'):
        stages = stage_times(pipeline, work, rounds)
    with mark('frames'):
        host = host_times(pipeline, work, rounds)
    monitor, began = Monitor(pipeline.gpu), time.perf_counter()
    joules = monitor.energy_joules()
    with mark('throughput'):
        rate = frames_per_second(pipeline, work, rounds)
    state = monitor.diagnostics()
    watts = _watts(joules, monitor.energy_joules(), time.perf_counter() - began)
    over = [wall - gpu for wall, gpu in zip(graph['wall'], graph['gpu'])]
    gpu_ms = percentiles(graph['gpu'])['p50']
    return {
        'image': work.description,
        'batch': pipeline.max_batch,
        'stages_ms': _summaries(stages),
        'graph_ms': _summaries(graph),
        'wall_minus_gpu_ms': percentiles(over),
        'host_ms': _summaries(host),
        'frames_per_second': rate,
        'throughput_times_gpu_ms': rate * gpu_ms / 1e3 / pipeline.max_batch,
        'frame_times_ms': [round(each, 4) for each in host['frame']],
        'times_ms': {'frame': host['frame'], 'copy in': host['bring in'], 'GPU': graph['gpu']},
        'memory': pipeline.memory(),
        'memory_peak': pipeline.account.peak(),
        'gpu_state': state,
        'watts': watts,
    }


def _watts(before: float | None, after: float | None, seconds: float) -> float | None:
    """Return the mean power; None in too short a time for the counter of NVML."""
    if before is None or after is None or seconds < MIN_POWER_SECONDS:
        return None
    return (after - before) / seconds


def _summaries(times: Mapping[str, Sequence[float]]) -> dict[str, dict[str, float]]:
    return {name: percentiles(each) for name, each in times.items()}
