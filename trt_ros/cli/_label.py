"""Recordings labeled by `trt-ros label`: their tasks, workers and outcomes."""

from argparse import Namespace
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import closing, suppress
from dataclasses import replace
from functools import partial
from itertools import cycle
import os
from pathlib import Path
import sys
from typing import Any

from tqdm import tqdm

from trt_ros.cli._flags import given_options, refuse_without_effect, thresholds_of
from trt_ros.driver import nvidia_driver
from trt_ros.errors import ParameterError, TrtRosError, printable
from trt_ros.labelling.batch import RunReport, entry_of, find_recordings, output_names
from trt_ros.labelling.job import LabelReport
from trt_ros.labelling.provenance import changed_values, job_settings
from trt_ros.labelling.ray_workers import label_with_ray
from trt_ros.labelling.remote import path_of
from trt_ros.labelling.selection import merge_selection
from trt_ros.labelling.task import LabelTask, SelectionOptions, annotations_of, as_trt_ros_error
from trt_ros.labelling.workers import Labeler, LocalWorker, label_with_workers
from trt_ros.regular_file import writing
from trt_ros.runtime.backends import choose_backend
from trt_ros.runtime.machine_options import LEAST_BUSY
from trt_ros.runtime.options import LabeledOptions, TiledOptions


def label(args: Namespace) -> int:
    """Label all recordings; return 1 when one failed or was damaged, or images were dropped."""
    options = given_options(args, TiledOptions)
    if args.frames_in_flight is None:
        options = replace(options, frames_in_flight=max(2, options.contexts))
    elif not (args.ray or options.is_remote):
        is_on_gpu = choose_backend(options.backend)[0].name != 'onnxruntime'
        refuse_without_effect(('--frames-in-flight', True, is_on_gpu, 'a GPU or a server'))
    report = RunReport(args.retry or args.report)
    earlier = report.entries()
    if args.retry and not (earlier and report.settings):
        raise ParameterError(
            f'--retry {args.retry} names no recording.',
            cause='The file does not exist, or no recording was begun.',
            remedy='Name the file of --report of an earlier run.',
        )
    if args.retry:
        vars(args).update({name: report.settings[name] for name in ('start', 'end', 'split')})
        args.output = args.output or report.settings['output']
    tasks = _tasks(args, earlier)
    if not tasks:
        print('no recordings in this part', file=sys.stderr)
        return 0
    if args.retry or args.report:
        of_job = {'output': str(path_of(args.output))}
        of_job |= {name: getattr(args, name) for name in ('start', 'end', 'split')}
        report.begin(job_settings(options, tasks[0]) | of_job, tasks, earlier)
    count = len(tasks)
    tasks = [task for task in tasks if not task.resume or _is_left(task, earlier)]
    if len(tasks) < count:
        print(f'{count - len(tasks)} of {count} recordings are done already', file=sys.stderr)
    summary = _Summary(report, _merging(args, tasks, earlier), is_only=len(tasks) == 1)
    if len(tasks) == 1:  # Before the network is loaded, which may take minutes.
        tasks = [task for task, _ in _counted(tasks, summary)]
    if tasks:
        is_here = args.workers is None and args.ray is None
        (_label_here if is_here else _label_with_workers)(tasks, options, args, summary)
    return 0 if summary.is_whole else 1


def _tasks(args: Namespace, earlier: Mapping[str, Mapping[str, Any]]) -> list[LabelTask]:
    """Return the recordings of the shard; `earlier` are the entries of the report."""
    make = partial(
        LabelTask,
        topics=tuple(args.topic),
        thresholds=thresholds_of(args),
        with_input=args.with_input,
        resume=args.resume or args.retry is not None,
        video=args.video,
        data_sets=tuple(dict.fromkeys(args.data_sets)),
        max_pixels=args.max_image_pixels,
        every=args.every,
        images=args.images,
        track=args.track,
        select=SelectionOptions(args.select, args.budget) if args.select else None,
    )
    if args.retry is not None:
        tasks = [
            make(
                path_of(each['recording']),
                path_of(output),
                start=each['start'],
                end=each['end'],
                is_part=bool(args.split),
            )
            for output, each in earlier.items()
        ]
    elif args.recordings and args.output:
        recordings, output = [path_of(each) for each in args.recordings], path_of(args.output)
        found = find_recordings(
            recordings, recursive=args.recursive, include=args.include, exclude=args.exclude
        )
        paths = [path for path, _ in found]
        outputs = [output]
        if paths != recordings or len(paths) > 1 or args.split:
            if output.suffix == '.mcap':
                raise ParameterError(
                    f'Output {output} is the name of one file, but there are several.',
                    cause='A folder, several recordings, and the parts of --split have a file '
                    'each.',
                    remedy='Set --output to a folder, or name the file of one recording.',
                )
            outputs = [output / str(name) for name in output_names(found)]
        tasks = [make(*pair, start=args.start, end=args.end) for pair in zip(paths, outputs)]
        if args.split:
            tasks = [part for task in tasks for part in task.parts(args.split)]
        for folder in {task.output.parent for task in tasks} if tasks[0].output != output else ():
            with writing(folder):
                folder.mkdir(parents=True, exist_ok=True)
    else:
        raise ParameterError(
            'Recordings or --output are missing.', remedy='Name them, or use --retry REPORT.'
        )
    index, count = args.shard
    return tasks[index::count]


def _is_left(task: LabelTask, earlier: Mapping[str, Mapping[str, Any]]) -> bool:
    """Return whether a recording is to be labeled; delete results that cannot be continued."""
    name, wanted = str(task.output), entry_of(task)
    entry = earlier.get(name, wanted)
    if difference := changed_values({each: entry[each] for each in wanted}, wanted):
        raise ParameterError(
            f'Output {name} is of another recording, or of another part.',
            cause=f'{difference}.',
            remedy='Name the recordings of the earlier run, or another --report and --output.',
        )
    if entry.get('status') == 'done' and ('://' in name or Path(name).exists()):
        return False
    if entry.get('begun') or entry.get('status') == 'damaged':  # Its files are its own.
        with suppress(TrtRosError):  # It is reported when it is its turn.
            task.delete_results()
    return True


def _merging(
    args: Namespace, tasks: Sequence[LabelTask], earlier: Mapping[str, object]
) -> Callable[[Path], None]:
    """Return the function that takes the selection of an output into that of all recordings."""
    outputs, folder = [task.output for task in tasks], path_of(args.output)
    if not args.select or outputs == [folder]:
        return lambda output: None
    index, count = args.shard
    name = 'selected.json' if count == 1 else f'selected_{index}_of_{count}.json'

    def merge(output: Path) -> None:
        merge_selection(annotations_of(output), folder / name, args.budget)

    for path in map(path_of, earlier):
        if path not in outputs:
            merge(path)
    return merge


class _Summary:
    """Prints and reports the outcome of each recording; raises the error of an only one."""

    def __init__(self, report: RunReport, merge: Callable[[Path], None], *, is_only: bool) -> None:
        self._report, self._merge, self._is_only = report, merge, is_only
        self.is_whole = True

    def __call__(self, task: LabelTask, outcome: LabelReport | TrtRosError | None) -> None:
        self._report.append(task, outcome)
        if outcome is None:
            return
        if not isinstance(outcome, TrtRosError):
            self.is_whole &= _print(task, outcome)
            self._merge(task.output)
            return
        if self._is_only:
            raise outcome
        self.is_whole = False
        print(printable(f'{task.path}: {outcome}', lines=True), file=sys.stderr)


def _counted(
    tasks: Iterable[LabelTask], summary: Callable[[LabelTask, Any], object]
) -> Iterator[tuple[LabelTask, int]]:
    """Yield the tasks that can be done with their numbers of images, each when it is its turn."""
    for task in tasks:
        try:
            count = task.check()
        except Exception as error:  # The other recordings may be good.
            summary(task, as_trt_ros_error(error, task.path))
        else:
            summary(task, None)
            yield task, count


def _label_here(
    tasks: Sequence[LabelTask], options: LabeledOptions, args: Namespace, summary: _Summary
) -> None:
    with closing(Labeler(options)) as labeler:
        log_lines = labeler.open()
        if isinstance(log_lines, TrtRosError):
            raise log_lines
        _print_log(log_lines)
        for task, count in _counted(tasks, summary):
            with _bar(count or None, task.path.name) as bar:
                outcome = labeler.label(task, bar.update)
            summary(task, outcome)


def _label_with_workers(
    tasks: Sequence[LabelTask], options: LabeledOptions, args: Namespace, summary: _Summary
) -> None:
    with _bar(len(tasks), 'labelling', ' recordings') as bar:
        frames = 0

        def progress(count: int) -> None:
            nonlocal frames
            frames += count
            bar.set_postfix_str(f'{frames} frames', refresh=False)
            bar.update(0)

        def done(task: LabelTask, outcome: LabelReport | TrtRosError | None) -> None:
            with bar.external_write_mode(file=sys.stderr):
                summary(task, outcome)
            bar.update(int(outcome is not None))

        checked = (task for task, _ in _counted(tasks, done))
        if args.ray is not None:
            label_with_ray(
                args.ray,
                options,
                checked,
                done,
                count=args.workers and min(args.workers, len(tasks)),
                gpus=args.gpus_per_worker,
                on_log=_print_log,
            )
            return
        next_options, workers = _worker_options(options, args, len(tasks))
        label_with_workers(
            lambda: LocalWorker(next_options()),
            workers,
            checked,
            done,
            on_frames=progress,
            on_log=_print_log,
        )


def _worker_options(
    options: LabeledOptions, args: Namespace, task_count: int
) -> tuple[Callable[[], LabeledOptions], int]:
    """Return a function that returns the options of the next worker, and the number of workers."""
    count = min(args.workers, task_count)
    is_local = not options.is_remote
    if is_local and choose_backend(options.backend)[0].name == 'onnxruntime':
        threads = max(1, len(os.sched_getaffinity(0)) // count)
        options = replace(options, cpu_threads=options.cpu_threads or threads)
    if options.device == LEAST_BUSY:  # Each worker would choose the same GPU now.
        devices = cycle(range(len(nvidia_driver().gpus) or 1))
        return lambda: replace(options, device=next(devices)), count
    return lambda: options, count


def _print_log(lines: Sequence[str]) -> None:
    for line in lines:
        print(line, file=sys.stderr)


def _bar(total: int | None, title: str, unit: str = ' frames') -> Any:
    interval = 0.1 if sys.stderr.isatty() else 10.0
    return tqdm(total=total, unit=unit, desc=printable(title), mininterval=interval)


def _print(task: LabelTask, report: LabelReport) -> bool:
    """Print the summary of one recording; return whether all images got results."""
    summary = f'{task.path}: {report.frames} frames'
    if report.resumed:
        summary += f' after the {report.resumed} of the earlier run'
    for cause, count in report.dropped.items():
        summary += f', {count} dropped ({cause})'
    if report.nonfinite:
        summary += f', {report.nonfinite} results of NaN or infinite outputs'
    print(printable(f'{summary}; see {task.output}'), file=sys.stderr)
    if report.damage is not None:
        print(report.damage, file=sys.stderr)
    return not (report.dropped or report.nonfinite or report.damage)
