"""
A policy at 200 Hz beside a detector that floods the same GPU, by priority and by shares.

    python benchmarks/gpu_models.py models
    python benchmarks/priorities.py models/yolov8s.onnx [--mps]

The policy (48-512-256-128-12) is called at a rate; its times are those of a call, from arrays to
arrays. The detector always has two images in flight, in another thread of the process, or in
another process with and without MPS.
"""

from __future__ import annotations

import argparse
from collections import deque
from contextlib import ExitStack
import os
from pathlib import Path
import shutil
import subprocess
import sys
import tempfile
import threading
import time

import numpy as np
from policy import SIZES, write_network
from report import machine
from two_gpus import CONTROL, mps

from trt_ros import Frame, Pipeline
from trt_ros.errors import TrtRosError
from trt_ros.process_memory import tune_process


class Flood:
    """Runs of a detector without a pause, in a thread."""

    def __init__(self, model: str, **options: float) -> None:
        self.pipeline = Pipeline.open(
            model, frames_in_flight=2, gpu_wait='block', backend='tensorrt_rtx', **options
        )
        self.runs, self._stopping = 0, threading.Event()
        self._thread = threading.Thread(target=self._run)

    def _run(self) -> None:
        frame, pending = Frame.from_pixels(np.zeros((640, 640, 3), np.uint8)), deque()
        while not self._stopping.is_set():
            pending.append(self.pipeline.submit(frame))
            if len(pending) == 2:
                pending.popleft().result()
                self.runs += 1
        for each in pending:
            each.result()

    def __enter__(self) -> Flood:
        self._thread.start()
        return self

    def __exit__(self, *_: object) -> None:
        self._stopping.set()
        self._thread.join()
        self.pipeline.close()

    def rate(self) -> float:
        """Return the runs since the last call."""
        runs, self.runs = self.runs, 0
        return runs


class FloodProcess:
    """The same in a process of its own, which prints its runs per line that it reads."""

    def __init__(self, model: str, environment: dict[str, str]) -> None:
        self._process = subprocess.Popen(
            [sys.executable, __file__, model, '--flood'],
            env={**os.environ, **environment},
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            text=True,
        )

    def rate(self) -> float:
        print(file=self._process.stdin, flush=True)
        return float(self._process.stdout.readline())

    def __enter__(self) -> FloodProcess:
        self.rate()
        return self

    def __exit__(self, *_: object) -> None:
        self._process.stdin.close()
        self._process.wait(60)


def call_times(policy: Pipeline, rate_hz: float, seconds: float) -> np.ndarray:
    """Return the microseconds of each call."""
    x, times = {'obs': np.zeros((1, SIZES[0]), np.float32)}, []
    for _ in range(200):
        policy(x)
    due = time.perf_counter()
    end = due + seconds
    while due < end:
        due += 1 / rate_hz
        time.sleep(max(0.0, due - time.perf_counter()))
        begin = time.perf_counter()
        policy(x)
        times.append(time.perf_counter() - begin)
    return np.array(times) * 1e6


def row(args: argparse.Namespace, policy: str, name: str, flood=None, **options: float) -> None:
    """Print the figures of a row."""
    with ExitStack() as stack:
        flood = flood and stack.enter_context(flood())
        given = {'backend': 'tensorrt_rtx', 'inputs': ('obs=tensor:obs',), **options}
        opened = stack.enter_context(Pipeline.open(policy, **given))
        if flood:
            flood.rate()
        begin = time.perf_counter()
        times = call_times(opened, args.rate, args.seconds)
        kept = f'{flood.rate() / (time.perf_counter() - begin):.0f}' if flood else ''
    p50, p99 = np.percentile(times, [50, 99])
    print(f'| {name} | {p50:.0f} | {p99:.0f} | {times.max():.0f} | {kept} |', flush=True)


def measure(args: argparse.Namespace, policy: str) -> None:
    def flood(**options: float):
        return lambda: Flood(args.model, **options)

    with Flood(args.model) as alone:
        time.sleep(1)
        alone.rate()
        time.sleep(args.seconds)
        print(f'flood alone: {alone.rate() / args.seconds:.0f} runs/s')
    print('| | p50 us | p99 us | max us | flood, runs/s |')
    row(args, policy, 'alone')
    row(args, policy, 'beside the flood', flood())
    first = {'stream_priority': -5}
    row(args, policy, 'stream_priority -5', flood(), **first)
    for share in args.shares:
        name, rest = f'gpu_share {share:g}', 1 - share
        try:
            row(args, policy, f'{name}, alone', gpu_share=share)
            row(args, policy, f'{name}, flood {rest:g}', flood(gpu_share=rest), gpu_share=share)
            both = f'{name} and priority, flood {rest:g}'
            row(args, policy, both, flood(gpu_share=rest), gpu_share=share, **first)
            row(args, policy, f'{name}, flood on all SMs', flood(), gpu_share=share)
        except TrtRosError as error:
            print(f'{name}: {error}')
    row(args, policy, 'flood in another process', lambda: FloodProcess(args.model, {}))


def measure_with_mps(args: argparse.Namespace, policy: str) -> None:
    """Measure again as clients of MPS, in processes of their own."""
    if not shutil.which(CONTROL):
        print(f'{CONTROL} is not on this machine')
        return
    with mps() as environment:
        for percentage in ('100', '75'):
            limit = {**environment, 'CUDA_MPS_ACTIVE_THREAD_PERCENTAGE': percentage}
            with FloodProcess(args.model, limit):
                print(f'beside a flood by MPS, which has {percentage} % of the threads:')
                subprocess.run(
                    [
                        sys.executable,
                        __file__,
                        args.model,
                        '--only',
                        '--seconds',
                        str(args.seconds),
                    ],
                    env={**os.environ, **environment},
                    check=True,
                )


def run_flood(model: str) -> None:
    with Flood(model) as flood:
        for _ in sys.stdin:
            print(flood.rate(), flush=True)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.split('\n')[1])
    parser.add_argument('model', help='ONNX file of a detector')
    parser.add_argument('--rate', type=float, default=200.0, help='Hz')
    parser.add_argument('--seconds', type=float, default=10.0, help='of each row')
    parser.add_argument('--shares', type=float, nargs='*', default=[0.25, 0.125])
    parser.add_argument('--mps', action='store_true')
    parser.add_argument('--flood', action='store_true', help=argparse.SUPPRESS)
    parser.add_argument('--only', action='store_true', help=argparse.SUPPRESS)
    args = parser.parse_args()
    tune_process()  # As containers do.
    if args.flood:
        return run_flood(args.model)
    with tempfile.TemporaryDirectory() as folder:
        policy = f'{folder}/policy.onnx'
        write_network(Path(policy))
        if args.only:
            return row(args, policy, 'policy')
        print(machine())
        measure(args, policy)
        if args.mps:
            measure_with_mps(args, policy)


if __name__ == '__main__':
    main()
