"""
Where the time of an image goes between a camera and a detector of one process, by reference.

    python benchmarks/gpu_models.py models
    python benchmarks/timeline.py models/yolov8s.onnx --size 1920x1080 --rate 60

The ranges are those of the parameter `profiling`. Times are medians and 99th percentiles in
microseconds since the stamp of the image. Needs ROS 2.
"""

import argparse
from collections import defaultdict
from collections.abc import Iterator
from contextlib import contextmanager
import sys
import threading
import time

from cameras import Container, measure
import numpy as np

from trt_ros import profiling


class Recorder:
    """A stand-in for nvtx.annotate that keeps the ranges: (name, thread, begin, end)."""

    def __init__(self) -> None:
        self.ranges: list[tuple[str, str, float, float]] = []

    @contextmanager
    def __call__(self, name: str, domain: str) -> Iterator[None]:
        """Keep a range of this thread."""
        began = time.time()
        try:
            yield
        finally:
            self.ranges.append((name, threading.current_thread().name, began, time.time()))


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__.strip().partition('\n')[0])
    parser.add_argument('model')
    parser.add_argument('--backend', default='auto')
    parser.add_argument('--precision', default='auto')
    parser.add_argument('--rate', type=float, default=60.0, help='of the camera, in Hz')
    parser.add_argument('--size', default='1920x1080')
    parser.add_argument('--seconds', type=float, default=5.0)
    args = parser.parse_args()
    recorder = Recorder()
    container = Container(
        args.model,
        [1],
        [0],
        args.rate,
        args.size,
        args.seconds,
        args.backend,
        parameters={'precision': args.precision},
    )

    def start_recording() -> None:
        recorder.ranges.clear()
        profiling._annotate = recorder

    with measure(container, start_recording) as figures:
        profiling._annotate = None
    sends = sorted(begin for name, _, begin, _ in recorder.ranges if name == 'send')
    found = defaultdict(list)
    for name, thread, begin, end in recorder.ranges:
        number = int(np.searchsorted(sends, begin, side='right')) - 1
        if number >= 0 and begin - sends[number] < 0.5 / args.rate:
            found[name, thread.split('-')[0]].append((begin - sends[number], end - sends[number]))
    print(
        '| range | thread | begin p50 | p99 | end p50 | p99 |',
        '|---|---|---|---|---|---|',
        sep='\n',
    )
    rows = [(key, 1e6 * np.percentile(each, [50, 99], axis=0)) for key, each in found.items()]
    for (name, thread), ((begin, end), (late, last)) in sorted(rows, key=lambda row: row[1][0, 0]):
        print(f'| {name} | {thread} | {begin:.0f} | {late:.0f} | {end:.0f} | {last:.0f} |')
    print({key: figures[key] for key in ('latency p50 (ms)', 'p99 (ms)', 'CPU (cores)')})
    return 0


if __name__ == '__main__':
    sys.exit(main())
