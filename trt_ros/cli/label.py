"""
Labels of recordings of rosbag2: results of every image, written to an MCAP file.

Each image gets one result, in order, with its own stamp and time, on the topics that the node of
the task would publish: /detector/detections or, with several topics, /detector/TOPIC/detections.
The file can be read while it is written and after an interrupt; --resume continues it.
"""

from __future__ import annotations

from argparse import ArgumentParser, Namespace
from collections.abc import Callable, Iterator, Sequence
from contextlib import closing
from dataclasses import replace
from functools import partial
from itertools import cycle
import os
from pathlib import Path
import sys
from typing import TYPE_CHECKING, Any

from trt_ros.cli._arguments import finite, make_output_folder, positive, thresholds_of
from trt_ros.cli._option_flags import add_option_flags, given_options
from trt_ros.driver import nvidia_driver
from trt_ros.errors import ParameterError, TrtRosError, printable
from trt_ros.runtime.options import LEAST_BUSY, LabeledOptions, TiledOptions
from trt_ros.vision.pixel_limit import PixelLimit
from trt_ros.vision.thresholds import ThresholdOptions

if TYPE_CHECKING:
    from trt_ros.labelling.job import LabelReport
    from trt_ros.labelling.task import LabelTask
    from trt_ros.labelling.workers import Worker


def add_arguments(parser: ArgumentParser) -> None:
    """Declare the arguments."""
    parser.add_argument(
        'recordings',
        nargs='+',
        type=Path,
        metavar='RECORDING',
        help='.mcap or .db3 file, folder of a recording, or folder of recordings',
    )
    parser.add_argument(
        '--output',
        type=Path,
        required=True,
        metavar='FILE',
        help='MCAP file of the results; of several recordings or a folder of them, the folder of '
        'these files',
    )
    parser.add_argument(
        '--topic',
        nargs='+',
        action='extend',
        default=[],
        metavar='TOPIC',
        help='image topics to label (default: all)',
    )
    parser.add_argument(
        '--start', type=finite, default=0.0, metavar='S', help='seconds of the recording to skip'
    )
    parser.add_argument(
        '--end', type=finite, metavar='S', help='seconds of the recording after which to stop'
    )
    parser.add_argument(
        '--every', type=positive, default=1, metavar='N', help='label one of N images per topic'
    )
    parser.add_argument(
        '--with-input', action='store_true', help='also copy all messages of the recording'
    )
    parser.add_argument(
        '--resume', action='store_true', help='continue the output of an interrupted run'
    )
    parser.add_argument(
        '--video',
        action='store_true',
        help='also write the images with their results, as MP4 beside the output, one per topic',
    )
    parser.add_argument(
        '--coco',
        action='store_true',
        help='also write a data set in COCO format, as JSON beside the output',
    )
    parser.add_argument(
        '--workers',
        type=positive,
        metavar='N',
        help='label N recordings at a time, each in a process of its own',
    )
    parser.add_argument(
        '--ray',
        nargs='?',
        const='local',
        metavar='ADDRESS',
        help='label in the workers of a Ray cluster: its address, or auto (default: on this '
        'machine); recordings and outputs are on a file system that all of them share',
    )
    parser.add_argument(
        '--gpus-per-worker',
        type=finite,
        metavar='X',
        help='GPUs, or part of one, per worker of Ray (default: 1 where the cluster has any)',
    )
    add_option_flags(parser, cls=PixelLimit)
    add_option_flags(parser, cls=ThresholdOptions)
    add_option_flags(parser)
    parser.set_defaults(frames_in_flight=2)


def run(args: Namespace) -> int:
    """Label all recordings; 1 when one was damaged or images were dropped."""
    from trt_ros.labelling.task import LabelTask

    options = given_options(args, TiledOptions)
    tasks = [
        LabelTask(
            path,
            output,
            tuple(args.topic),
            thresholds_of(args),
            with_input=args.with_input,
            resume=args.resume,
            video=args.video,
            coco=args.coco,
            max_pixels=args.max_image_pixels,
            start=args.start,
            end=args.end,
            every=args.every,
        )
        for path, output in _outputs(args.recordings, args.output)
    ]
    summary = _Summary(is_only=len(tasks) == 1)
    # Before the network is loaded, which may take minutes.
    counted = list(_counted(tasks, summary))
    if counted:
        label = _label_here if args.workers is None and args.ray is None else _label_with_workers
        label(counted, options, args, summary)
    return 0 if summary.is_whole else 1


class _Summary:
    """
    Prints the outcome of each recording; raises the error of an only one.

    :ivar is_whole: whether all images so far got results.
    """

    def __init__(self, *, is_only: bool) -> None:
        self._is_only = is_only
        self.is_whole = True

    def __call__(self, task: LabelTask, outcome: LabelReport | TrtRosError) -> None:
        if not isinstance(outcome, TrtRosError):
            self.is_whole &= _print(task, outcome)
            return
        if self._is_only:
            raise outcome
        self.is_whole = False
        print(printable(f'{task.path}: {outcome}', lines=True), file=sys.stderr)


def _counted(tasks: Sequence[LabelTask], summary: _Summary) -> Iterator[tuple[LabelTask, int]]:
    """Yield the tasks that can be done with their numbers of images."""
    from trt_ros.labelling.task import as_trt_ros_error

    for task in tasks:
        try:
            count = task.check()
        except Exception as error:  # The other recordings may be good.
            summary(task, as_trt_ros_error(error, task.path))
        else:
            yield task, count


def _label_here(
    counted: Sequence[tuple[LabelTask, int]],
    options: LabeledOptions,
    args: Namespace,
    summary: _Summary,
) -> None:
    """Label recordings in this process."""
    from trt_ros.labelling.labeler import Labeler

    with closing(Labeler(options)) as labeler:
        log_lines = labeler.open()
        if isinstance(log_lines, TrtRosError):
            raise log_lines
        _print_log(log_lines)
        for task, count in counted:
            with _bar(count, task.path.name) as bar:
                outcome = labeler.label(task, bar.update)
            summary(task, outcome)


def _label_with_workers(
    counted: Sequence[tuple[LabelTask, int]],
    options: LabeledOptions,
    args: Namespace,
    summary: _Summary,
) -> None:
    """Label recordings in other processes."""
    from trt_ros.labelling.workers import LabelPool

    make_worker, workers = _worker_maker(options, args, len(counted))
    total = sum(count for _, count in counted)
    with _bar(total, f'{len(counted)} recordings') as bar:
        pool = LabelPool(make_worker, workers, on_frames=bar.update, on_log=_print_log)

        def done(task: LabelTask, outcome: LabelReport | TrtRosError) -> None:
            with bar.external_write_mode(file=sys.stderr):
                summary(task, outcome)

        pool.label([task for task, _ in counted], done)


def _worker_maker(
    options: LabeledOptions, args: Namespace, task_count: int
) -> tuple[Callable[[], Worker], int]:
    """Return a function that starts a worker, and the number of workers."""
    from trt_ros.labelling.workers import LocalWorker
    from trt_ros.runtime.backends import choose_backend

    count = min(args.workers or task_count, task_count)
    if args.ray is None:
        is_local = not options.is_remote
        if is_local and choose_backend(options.backend)[0].name == 'onnxruntime':
            threads = max(1, len(os.sched_getaffinity(0)) // count)
            options = replace(options, cpu_threads=options.cpu_threads or threads)
        if options.device == LEAST_BUSY:  # Each worker would choose the same GPU now.
            devices = cycle(range(len(nvidia_driver().gpus) or 1))
            return lambda: LocalWorker(replace(options, device=next(devices))), count
        return partial(LocalWorker, options), count
    from trt_ros.labelling.ray_workers import open_ray

    return open_ray(args.ray, options, count, args.gpus_per_worker)


def _print_log(lines: Sequence[str]) -> None:
    for line in lines:
        print(line, file=sys.stderr)


def _bar(total: int, title: str) -> Any:
    from tqdm import tqdm

    interval = 0.1 if sys.stderr.isatty() else 10.0
    return tqdm(total=total, unit=' frames', desc=printable(title), mininterval=interval)


def _outputs(paths: Sequence[Path], output: Path) -> Iterator[tuple[Path, Path]]:
    """Yield each recording with its output file."""
    from trt_ros.recording import is_recording, recordings_in

    found: list[Path] = []
    for path in paths:
        inside = recordings_in(path) if path.is_dir() and not is_recording(path) else []
        # A folder of one file may be a recording whose recorder was killed.
        found += inside if len(inside) > 1 or any(map(Path.is_dir, inside)) else [path]
    if found == list(paths) and len(found) == 1:
        yield found[0], output
        return
    names = [path.stem if path.is_file() else path.name for path in found]
    same = [str(path) for path, name in zip(found, names) if names.count(name) > 1]
    if same:
        raise ParameterError(
            f'The results of {", ".join(same)} would have the same name.',
            remedy='Label them one by one.',
        )
    make_output_folder(output)
    for path, name in zip(found, names):
        yield path, output / f'{name}.mcap'


def _print(task: LabelTask, report: LabelReport) -> bool:
    """Print the summary of one recording; return whether all images got results."""
    summary = f'{task.path}: {report.frames} frames'
    if report.resumed:
        summary += f' after the {report.resumed} of the earlier run'
    for cause, count in report.dropped.items():
        summary += f', {count} dropped ({cause})'
    print(printable(f'{summary}; see {task.output}'), file=sys.stderr)
    if report.damage is not None:
        print(report.damage, file=sys.stderr)
    return not report.dropped and report.damage is None
