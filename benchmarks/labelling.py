"""
Throughput of `trt-ros label`, and of its pipeline alone: python benchmarks/labelling.py MODEL.

The recording has random raw images, in the folder --folder. The pipeline alone gets the same
number of frames from memory. Rounds alternate; the medians are compared.

    python benchmarks/labelling.py MODEL --run-ms 1

replaces the runs of the network by pauses, as those of a GPU are for the host: with 1, it shows
what reading, decoding and writing allow where the pipeline alone processes 1000 images per second.

    python benchmarks/labelling.py MODEL --workers 1 2 --ray      # actors of Ray on this machine

compares numbers of workers instead, with one GPU each, that label the recording four times each;
the start of the workers is not counted. Without --ray they are processes, which take GPUs in turn.
"""

from __future__ import annotations

from argparse import ArgumentParser, Namespace
from collections import deque
from collections.abc import Iterator
from contextlib import closing
from dataclasses import replace
from itertools import cycle
from pathlib import Path
import statistics
import tempfile
import time

import cv2
import numpy as np
from rosbags.rosbag2 import StoragePlugin, Writer
from rosbags.typesys import Stores, get_typestore

from trt_ros import Frame, Pipeline
from trt_ros.driver import nvidia_driver
from trt_ros.errors import TrtRosError
from trt_ros.labelling.job import LabelReport, label_recording
from trt_ros.labelling.task import LabelTask
from trt_ros.labelling.workers import LocalWorker, label_with_workers
from trt_ros.process_memory import tune_process
from trt_ros.recording import Recording
from trt_ros.runtime.options import LabeledOptions
from trt_ros.vision.thresholds import DEFAULT_THRESHOLDS

TOPIC = '/camera/image_raw'
IN_FLIGHT = 2


def write_recording(
    folder: Path, frames: int, size_wh: tuple[int, int], is_jpeg: bool = False
) -> Path:
    """Write random images of a few kinds at 30 Hz."""
    store, (width, height) = get_typestore(Stores.ROS2_JAZZY), size_wh
    types = store.types
    random = np.random.default_rng(0)
    pictures = random.integers(0, 256, (4, height * width * 3), dtype=np.uint8)
    kind = f'sensor_msgs/msg/{"CompressedImage" if is_jpeg else "Image"}'
    jpegs = [
        cv2.imencode('.jpg', cv2.GaussianBlur(each.reshape(height, width, 3), (0, 0), 3))[1]
        for each in pictures
    ]
    with Writer(folder, version=9, storage_plugin=StoragePlugin.MCAP) as writer:
        connection = writer.add_connection(TOPIC, kind, typestore=store)
        for number in range(frames):
            stamp = types['builtin_interfaces/msg/Time'](number, 0)
            header = types['std_msgs/msg/Header'](stamp, 'camera')
            index = number % len(pictures)
            content = (height, width, 'bgr8', 0, 3 * width, pictures[index])
            if is_jpeg:
                content = ('jpeg', jpegs[index])
            data = store.serialize_cdr(types[kind](header, *content), kind)
            writer.write(connection, round(number / 30 * 1e9), data)
    return folder


class PausingPipeline:
    """A pipeline whose runs take a fixed time, one after the other, without the host."""

    def __init__(self, pipeline: Pipeline, run_ms: float, size_wh: tuple[int, int]) -> None:
        self.decoder, self.class_names = pipeline.decoder, pipeline.class_names
        blank = Frame.from_pixels(np.zeros((size_wh[1], size_wh[0], 3), np.uint8))
        self._result = pipeline.submit(blank, DEFAULT_THRESHOLDS).result()
        self._seconds, self._end = run_ms / 1e3, 0.0

    def submit(self, frame: Frame, thresholds: object) -> PausingRun:
        self._end = max(time.perf_counter(), self._end) + self._seconds
        return PausingRun(self._end, self._result)


class PausingRun:
    def __init__(self, end: float, result: object) -> None:
        self._end, self._result = end, result

    def result(self) -> object:
        time.sleep(max(0.0, self._end - time.perf_counter()))
        return self._result


def pipeline_alone(pipeline: Pipeline, frames: int, size_wh: tuple[int, int]) -> float:
    """Return frames per second from memory, with frames in flight."""
    random = np.random.default_rng(0)
    pictures = random.integers(0, 256, (4, size_wh[1], size_wh[0], 3), dtype=np.uint8)
    ready = [Frame.from_pixels(each) for each in pictures]
    in_flight: deque = deque()
    began = time.perf_counter()
    for number in range(frames):
        if len(in_flight) >= IN_FLIGHT:
            in_flight.popleft().result()
        in_flight.append(pipeline.submit(ready[number % len(ready)], DEFAULT_THRESHOLDS))
    while in_flight:
        in_flight.popleft().result()
    return frames / (time.perf_counter() - began)


def labeled(pipeline: Pipeline, path: Path, output: Path) -> float:
    """Return frames per second from recording to recording."""
    began = time.perf_counter()
    with closing(Recording(path)) as recording:
        report = label_recording(
            recording,
            pipeline,
            LabelTask(recording.path, output, (), DEFAULT_THRESHOLDS),
            [TOPIC],
            frames_in_flight=IN_FLIGHT,
        )
    seconds = time.perf_counter() - began
    output.unlink()
    return report.frames / seconds


def measure(args: Namespace, folder: Path) -> Iterator[tuple[float, float]]:
    path = write_recording(folder / 'drive', args.frames, args.size, args.jpeg)
    options = {'backend': args.backend, 'frames_in_flight': IN_FLIGHT}
    with Pipeline.open(args.model, **options) as pipeline:
        print('\n'.join(pipeline.log_lines))
        if args.run_ms is not None:
            pipeline = PausingPipeline(pipeline, args.run_ms, args.size)
        for _ in range(args.rounds):
            yield (
                pipeline_alone(pipeline, args.frames, args.size),
                labeled(pipeline, path, folder / 'labeled.mcap'),
            )


def with_workers(args: Namespace, folder: Path, count: int) -> float:
    """Return frames per second of several workers, which are open and have labeled once."""
    options = LabeledOptions(
        model_path=args.model, backend=args.backend, frames_in_flight=IN_FLIGHT
    )
    path = folder / 'drive'
    numbers = cycle(range(max(len(nvidia_driver().gpus), 1)))

    def open_one() -> LocalWorker:
        return LocalWorker(replace(options, device=next(numbers)))

    tasks = [
        LabelTask(path, folder / f'{number}.mcap', (TOPIC,), DEFAULT_THRESHOLDS)
        for number in range(5 * count)
    ]
    frames, times = [], []

    def done(task: LabelTask, report: LabelReport | TrtRosError) -> None:
        if isinstance(report, TrtRosError):
            raise report
        frames.append(report.frames)
        times.append(time.perf_counter())
        task.output.unlink()

    if args.ray:
        from trt_ros.labelling.ray_workers import label_with_ray

        label_with_ray('local', options, tasks, done, count=count)
    else:
        label_with_workers(open_one, count, tasks, done)
    # The first runs read the file into memory and capture graphs.
    return sum(frames[count:]) / (times[-1] - times[count - 1])


def compare_workers(args: Namespace, folder: Path) -> None:
    write_recording(folder / 'drive', args.frames, args.size)
    rates = [with_workers(args, folder, count) for count in args.workers]
    for count, rate in zip(args.workers, rates):
        print(f'{count} workers: {rate:.1f} frames/s, {rate / rates[0]:.2f} × the first')


def main() -> None:
    parser = ArgumentParser(description=__doc__)
    parser.add_argument('model')
    parser.add_argument('--backend', default='auto')
    parser.add_argument('--frames', type=int, default=200)
    parser.add_argument('--rounds', type=int, default=5)
    parser.add_argument(
        '--size', type=lambda text: tuple(map(int, text.split('x'))), default=(1280, 720)
    )
    parser.add_argument('--run-ms', type=float, help='replace the runs by pauses of this time')
    parser.add_argument('--jpeg', action='store_true', help='images are JPEG')
    parser.add_argument('--workers', type=int, nargs='+', help='numbers of workers to compare')
    parser.add_argument('--ray', action='store_true', help='workers are actors of Ray')
    parser.add_argument('--folder', default=None, help='where the recording is written')
    args = parser.parse_args()
    tune_process()
    with tempfile.TemporaryDirectory(dir=args.folder) as folder:
        if args.workers:
            return compare_workers(args, Path(folder))
        rates = list(measure(args, Path(folder)))
    alone, label = (statistics.median(each) for each in zip(*rates))
    print(f'pipeline alone {alone:.1f} frames/s, label {label:.1f} frames/s: {label / alone:.2f}')
    print('each round:', ', '.join(f'{two / one:.2f}' for one, two in rates))


if __name__ == '__main__':
    main()
