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
from dataclasses import fields, replace
from functools import partial
from itertools import cycle
import os
from pathlib import Path
import sys
from typing import TYPE_CHECKING, Any, TypeVar

from trt_ros.cli._arguments import (
    add_threshold_flags,
    finite,
    make_output_folder,
    positive,
    thresholds_of,
)
from trt_ros.cli._option_flags import add_option_flags
from trt_ros.driver import nvidia_driver
from trt_ros.errors import ParameterError, TrtRosError
from trt_ros.runtime.options import LEAST_BUSY, LabelledOptions

if TYPE_CHECKING:
    from trt_ros.labelling.job import LabelReport
    from trt_ros.labelling.task import LabelTask
    from trt_ros.labelling.workers import Worker

ResultT = TypeVar('ResultT')


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
        help='MCAP file of the results; of several recordings, the folder of these files',
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
    add_threshold_flags(parser)
    add_option_flags(parser, [each.name for each in fields(LabelledOptions)])
    parser.set_defaults(frames_in_flight=2)


def run(args: Namespace) -> int:
    """Label all recordings; 1 when one was damaged or images were dropped."""
    from trt_ros.labelling.task import LabelTask

    options = LabelledOptions(
        **{each.name: getattr(args, each.name) for each in fields(LabelledOptions)}
    )
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
        )
        for path, output in _outputs(args.recordings, args.output)
    ]
    if args.workers is None and args.ray is None:
        return 0 if _label_here(tasks, options) else 1
    return 0 if _label_with_workers(tasks, options, args) else 1


def _label_here(tasks: Sequence[LabelTask], options: LabelledOptions) -> bool:
    """Label recordings in this process; return whether all images got results."""
    from trt_ros.labelling.task import Labeller

    is_whole = True
    with closing(Labeller(options)) as labeller:
        _print_log(_checked(labeller.open()))
        for task in tasks:
            with _bar(task.count_frames(), task.path.name) as bar:
                report = _checked(labeller.label(task, bar.update))
            is_whole &= _print(task, report)
    return is_whole


def _label_with_workers(
    tasks: Sequence[LabelTask], options: LabelledOptions, args: Namespace
) -> bool:
    """Label recordings in other processes; return whether all images got results."""
    from trt_ros.labelling.workers import LabelPool

    is_whole = True
    total = sum(task.count_frames() for task in tasks)
    open_worker, count = _worker_opener(options, args, len(tasks))
    with _bar(total, f'{len(tasks)} recordings') as bar:

        def done(task: LabelTask, outcome: LabelReport | TrtRosError) -> None:
            nonlocal is_whole
            if isinstance(outcome, TrtRosError):
                bar.write(f'{task.path}: {outcome}', file=sys.stderr)
                is_whole = False
            else:
                is_whole &= _print(task, outcome)

        pool = LabelPool(open_worker, count, on_frames=bar.update, on_log=_print_log)
        pool.label(tasks, done)
    return is_whole


def _worker_opener(
    options: LabelledOptions, args: Namespace, task_count: int
) -> tuple[Callable[[], Worker], int]:
    """Return a function that opens a worker, and the number of workers."""
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


def _checked(found: ResultT | TrtRosError) -> ResultT:
    if isinstance(found, TrtRosError):
        raise found
    return found


def _print_log(lines: Sequence[str]) -> None:
    for line in lines:
        print(line, file=sys.stderr)


def _bar(total: int, title: str) -> Any:
    from tqdm import tqdm

    interval = 0.1 if sys.stderr.isatty() else 10.0
    return tqdm(total=total, unit=' frames', desc=title, mininterval=interval)


def _outputs(paths: Sequence[Path], output: Path) -> Iterator[tuple[Path, Path]]:
    """Yield each recording with its output file."""
    from trt_ros.recording import is_recording, recordings_in

    found: list[Path] = []
    for path in paths:
        inside = recordings_in(path) if path.is_dir() and not is_recording(path) else []
        found += inside if len(inside) > 1 else [path]
    if len(found) == 1:
        yield found[0], output
        return
    names = [path.stem if path.is_file() else path.name for path in found]
    if len(set(names)) < len(names):
        raise ParameterError(
            'Several recordings have the same name.', remedy='Label them one by one.'
        )
    make_output_folder(output)
    for path, name in zip(found, names):
        yield path, output / f'{name}.mcap'


def _print(task: LabelTask, report: LabelReport) -> bool:
    """Print the summary of one recording; return whether all images got results."""
    summary = f'{task.path}: {report.frames} frames'
    if report.resumed:
        summary += f' after the {report.resumed} messages of the earlier run'
    for cause, count in report.dropped.items():
        summary += f', {count} dropped ({cause})'
    print(f'{summary}; see {task.output}', file=sys.stderr)
    if report.damage is not None:
        print(report.damage, file=sys.stderr)
    return not report.dropped and report.damage is None
