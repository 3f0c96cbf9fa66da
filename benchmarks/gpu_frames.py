"""
What a frame costs on an NVIDIA GPU, as one CUDA graph and as a naive node would do it.

    python benchmarks/gpu_models.py models
    python benchmarks/gpu_frames.py models/*.onnx [--json FILE] [--rounds N]
    python benchmarks/gpu_frames.py models/*.onnx --waits [--rounds N] [--sizes 1280x720 ..]
    python benchmarks/gpu_frames.py models/*.onnx --first

Prints a Markdown table; times are medians in microseconds unless the column says otherwise.
--waits compares the values of gpu_wait instead: latency, and CPU time of the calling thread, of
frames in registered memory, one after another and at 60 Hz. --first measures the first frames of a
pipeline.
"""

import argparse
from collections.abc import Callable
from contextlib import ExitStack
import json
from pathlib import Path
import platform
import sys
import time
from typing import Any

import cv2
import numpy as np

from trt_ros.engine.options import BuildOptions
from trt_ros.runtime.gpu.measure import (
    Work,
    frames_per_second,
    graph_times,
    host_times,
    open_frames,
    percentiles,
    stage_times,
)
from trt_ros.runtime.gpu.open import open_tensor_runner
from trt_ros.runtime.gpu.pipeline import GpuPipeline
from trt_ros.vision.frame import Frame
from trt_ros.vision.letterbox import Letterbox
from trt_ros.vision.thresholds import Thresholds

ASKED = Thresholds(score=0.25, iou=0.45, max_detections=300)
WAITS = ('adaptive', 'spin', 'block')


def picture(width: int, height: int) -> Frame:
    rng = np.random.default_rng(0)
    small = rng.integers(0, 256, (height // 16, width // 16, 3), dtype=np.uint8)
    return Frame.from_pixels(cv2.resize(small, (width, height), interpolation=cv2.INTER_CUBIC))


def naive(runner: Any, pipeline: GpuPipeline) -> Callable[[Frame], object]:
    """Do what a plain Python node does: OpenCV, NumPy, pageable memory, no graph."""
    preprocess, decoder = pipeline.shared.preprocess, pipeline.decoder
    name = runner.inputs[0].name
    mean, std = np.array(preprocess.mean, 'f4'), np.array(preprocess.std, 'f4')

    def infer(frame: Frame) -> object:
        image = frame.data[: frame.nbytes].reshape(frame.height, frame.width, 3)
        box = Letterbox.fit(frame.wh, preprocess.input_hw, preprocess.resize)
        (left, top), (width, height) = map(int, box.pad_xy), box.inner_wh
        canvas = np.full((*preprocess.input_hw, 3), preprocess.pad_value, np.uint8)
        canvas[top : top + height, left : left + width] = cv2.resize(image, (width, height))
        if preprocess.channel_order == 'rgb':
            canvas = cv2.cvtColor(canvas, cv2.COLOR_BGR2RGB)
        tensor = canvas.astype(np.float32)
        if preprocess.scale != 1:
            tensor = tensor * np.float32(preprocess.scale)
        if mean.any() or (std != 1).any():
            tensor = (tensor - mean) / std
        tensor = np.ascontiguousarray(tensor.transpose(2, 0, 1)[None], preprocess.dtype)
        outputs = runner.infer({name: tensor})
        return outputs if decoder is None else decoder(outputs, box, ASKED)

    return infer


def timed(call: Callable[[], object], rounds: int) -> list[float]:
    times = []
    for number in range(rounds + 5):
        start = time.perf_counter()
        call()
        if number >= 5:
            times.append((time.perf_counter() - start) * 1e3)
    return times


def row(
    model: Path, frame: Frame, precision: str, rounds: int, decoder: str = 'auto'
) -> dict[str, Any]:
    build = BuildOptions(precision=precision)
    entry: dict[str, Any] = {'model': model.stem, 'image': f'{frame.width}x{frame.height}'}
    pipeline = open_frames(model, build, decoder=decoder, frames_in_flight=2)
    try:
        pipeline.warm_up(frame)
        work = Work.of(pipeline, frame)
        graph = graph_times(pipeline, work, rounds)
        entry['stages'] = {
            name: percentiles(each) for name, each in stage_times(pipeline, work, rounds).items()
        }
        over = [wall - gpu for wall, gpu in zip(graph['wall'], graph['gpu'])]
        entry['graph'] = {name: percentiles(each) for name, each in graph.items()}
        entry['wall_minus_gpu'] = percentiles(over)
        gpu_ms = entry['graph']['gpu']['p50']
        host = host_times(pipeline, work, rounds)
        entry['host'] = {name: percentiles(each) for name, each in host.items()}
        entry['latency_ratio'] = entry['host']['frame']['p50'] / (
            entry['host']['plain copy']['p50'] + gpu_ms
        )
        entry['fps'] = frames_per_second(pipeline, work, rounds * 2)
        memory = frame.data.copy()
        pipeline.device.register(memory)
        registered = Frame(memory, frame.width, frame.height, frame.step, frame.encoding)
        pipeline.warm_up(registered)
        lent = Work.of(pipeline, registered)
        entry['lent'] = {
            name: percentiles(each) for name, each in host_times(pipeline, lent, rounds).items()
        }
        entry['lent_fps'] = frames_per_second(pipeline, lent, rounds * 2)
        pipeline.device.unregister(memory)
        entry['memory'] = pipeline.memory()
        runner = open_tensor_runner(model, build)
        try:
            slow = naive(runner, pipeline)
            entry['naive'] = percentiles(timed(lambda: slow(frame), max(20, rounds // 5)))
        finally:
            runner.close()
    finally:
        pipeline.close()
    entry['throughput'] = entry['fps'] * gpu_ms / 1e3
    entry['lent_throughput'] = entry['lent_fps'] * gpu_ms / 1e3
    entry['naive_ratio'] = entry['naive']['p50'] / entry['host']['frame']['p50']
    return entry


def wait_rows(model: Path, frame: Frame, precision: str, rounds: int) -> list[dict[str, Any]]:
    """Measure frames in registered memory with each gpu_wait in turn: load and clocks change."""
    rows = []
    with ExitStack() as stack:
        pipelines = {}
        data = frame.data.copy()
        frame = Frame(data, frame.width, frame.height, frame.step, frame.encoding)
        for mode in WAITS:
            build = BuildOptions(precision=precision)
            pipelines[mode] = open_frames(model, build, gpu_wait=mode)
            stack.callback(pipelines[mode].close)
            pipelines[mode].device.register(data)
            pipelines[mode].warm_up(frame)
        for rate_hz in (0, 60):
            wall, cpu, waiting = ({mode: list[float]() for mode in WAITS} for _ in range(3))
            for number in range(-20, rounds):
                order = number % len(WAITS)
                for mode in WAITS[order:] + WAITS[:order]:
                    if rate_hz:
                        time.sleep(1 / rate_hz)
                    pipeline, used, began = (
                        pipelines[mode],
                        time.thread_time(),
                        time.perf_counter(),
                    )
                    pending = pipeline.start([frame] * pipeline.max_batch, ASKED)
                    submitted = time.thread_time()
                    pending.wait()
                    seconds, ended = time.perf_counter() - began, time.thread_time()
                    if number >= 0:
                        wall[mode].append(seconds)
                        cpu[mode].append(ended - used)
                        waiting[mode].append(ended - submitted)
            spin50, spin99 = np.percentile(wall['spin'], [50, 99]) * 1e6
            for mode in WAITS:
                p50, p99 = np.percentile(wall[mode], [50, 99]) * 1e6
                rows.append(
                    {
                        'model': model.stem,
                        'image': f'{frame.width}x{frame.height}',
                        'rate': f'{rate_hz} Hz' if rate_hz else 'back to back',
                        'gpu_wait': mode,
                        'p50': p50,
                        'p99': p99,
                        'later than spin p50': p50 - spin50,
                        'later than spin p99': p99 - spin99,
                        'CPU per frame': np.mean(cpu[mode]) * 1e6,
                        'CPU of waiting': np.mean(waiting[mode]) * 1e6,
                        'CPU of waiting, % of spin': 100
                        * np.mean(waiting[mode])
                        / np.mean(waiting['spin']),
                    }
                )
    return rows


def first_rows(model: Path, frame: Frame, precision: str) -> list[dict[str, Any]]:
    """Measure the first frames of new pipelines."""
    rows = []
    for memory in ('copied', 'registered'):
        pipeline = open_frames(model, BuildOptions(precision=precision))
        pipeline.warm_up()
        data = frame.data.copy()
        if memory == 'registered':
            pipeline.device.register(data)
        each = Frame(data, frame.width, frame.height, frame.step, frame.encoding)
        times = []
        for _ in range(200):
            time.sleep(0.01)
            began = time.perf_counter()
            pipeline.start([each] * pipeline.max_batch, ASKED).wait()
            times.append((time.perf_counter() - began) * 1e6)
        pipeline.close()
        p50 = float(np.median(times[20:]))
        rows.append(
            {
                'model': model.stem,
                'image': f'{frame.width}x{frame.height}',
                'memory': memory,
                **{f'frame {number + 1}': times[number] for number in range(3)},
                'p50 of 21 to 200': p50,
                'worst of 3, % of p50': 100 * max(times[:3]) / p50,
            }
        )
    return rows


def plain_table(rows: list[dict[str, Any]]) -> str:
    """Return rows of the same keys as a Markdown table."""
    lines = ['| ' + ' | '.join(rows[0]) + ' |', '|' + ' --- |' * len(rows[0])]
    for each in rows:
        cells = (f'{value:.0f}' if isinstance(value, float) else value for value in each.values())
        lines.append('| ' + ' | '.join(cells) + ' |')
    return '\n'.join(lines)


def table(rows: list[dict[str, Any]]) -> str:
    head = (
        'model',
        'image',
        'GPU',
        'wall − GPU p50',
        'p99',
        'frame p50',
        'p99',
        'plain copy',
        'ratio',
        'lent frame p50',
        'frames/s × GPU',
        'lent',
        'naive',
        'naive ÷ ours',
    )
    lines = ['| ' + ' | '.join(head) + ' |', '|' + ' --- |' * len(head)]

    def us(ms: float) -> str:
        return f'{ms * 1e3:.0f}'

    for r in rows:
        over, host, lent = r['wall_minus_gpu'], r['host'], r['lent']
        lines.append(
            '| '
            + ' | '.join(
                (
                    r['model'],
                    r['image'],
                    us(r['graph']['gpu']['p50']),
                    us(over['p50']),
                    us(over['p99']),
                    us(host['frame']['p50']),
                    us(host['frame']['p99']),
                    us(host['plain copy']['p50']),
                    f'{r["latency_ratio"]:.2f}',
                    us(lent['frame']['p50']),
                    f'{r["throughput"]:.2f}',
                    f'{r["lent_throughput"]:.2f}',
                    us(r['naive']['p50']),
                    f'{r["naive_ratio"]:.1f}',
                )
            )
            + ' |'
        )
    return '\n'.join(lines)


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__.strip().partition('\n')[0])
    parser.add_argument('models', nargs='+', type=Path)
    parser.add_argument('--precision', default='auto')
    parser.add_argument('--decoder', default='auto', help='not with --waits and --first')
    parser.add_argument('--rounds', type=int, default=300)
    parser.add_argument('--json', type=Path)
    parser.add_argument('--sizes', nargs='+', default=['640x480', '1280x720', '1920x1080'])
    parser.add_argument('--waits', action='store_true', help='compare the values of gpu_wait')
    parser.add_argument('--first', action='store_true', help='measure the first frames')
    args = parser.parse_args()
    rows = []
    sizes = [tuple(map(int, size.split('x'))) for size in args.sizes]
    if args.waits or args.first:
        for model in args.models:
            for size_wh in sizes:
                if args.first:
                    rows += first_rows(model, picture(*size_wh), args.precision)
                else:
                    rows += wait_rows(model, picture(*size_wh), args.precision, args.rounds)
        print(f'Python {platform.python_version()}, NumPy {np.__version__}')
        print(plain_table(rows))
        return 0
    for model in args.models:
        for width, height in sizes:
            frame = picture(width, height)
            rows.append(row(model, frame, args.precision, args.rounds, args.decoder))
            print(table(rows[-1:]).splitlines()[-1], file=sys.stderr, flush=True)
    print(f'Python {platform.python_version()}, NumPy {np.__version__}')
    print(table(rows))
    if args.json:
        args.json.write_text(json.dumps(rows, indent=1))
    return 0


if __name__ == '__main__':
    sys.exit(main())
