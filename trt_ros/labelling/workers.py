"""Labelling of many recordings by pipelines, each in a process; one that dies is replaced."""

from collections.abc import Callable, Iterable, Sequence
from contextlib import ExitStack, closing, suppress
from dataclasses import dataclass
from itertools import islice
import multiprocessing
from multiprocessing.connection import Connection, wait
from pathlib import Path
import signal
import time
from typing import Any

from trt_ros.errors import BackendError, ParameterError, TrtRosError
from trt_ros.families.registry import ALL_FAMILIES
from trt_ros.labelling.coco import CocoLabels
from trt_ros.labelling.job import LabelReport, label_recording
from trt_ros.labelling.parquet import ParquetLabels
from trt_ros.labelling.provenance import model_hashes, provenance
from trt_ros.labelling.remote import local_copy
from trt_ros.labelling.selection import Selection
from trt_ros.labelling.task import LabelTask, as_trt_ros_error, chosen_topics
from trt_ros.labelling.video import AnnotatedVideos, Tracking
from trt_ros.process_memory import tune_process
from trt_ros.recording import Recording
from trt_ros.runtime.options import LabeledOptions
from trt_ros.runtime.pipeline import Pipeline

WRITERS: dict[str, Any] = {'coco': CocoLabels, 'parquet': ParquetLabels}


class Labeler:
    """
    A pipeline that labels recordings. Owns the pipeline from open() to close().

    Errors are returned, so that they also come out of other processes.
    """

    def __init__(self, options: LabeledOptions) -> None:
        self._options = options
        self._pipeline: Pipeline[Any] | None = None

    def open(self) -> tuple[str, ...] | TrtRosError:
        """Open the pipeline; return its log lines. Tunes the process for many images."""
        tune_process()
        families: Any = ALL_FAMILIES
        try:
            self._pipeline = Pipeline.open(self._options, families=families)
            self._hashes = model_hashes(self._options)
        except TrtRosError as error:
            return error
        return self._pipeline.log_lines

    def label(
        self, task: LabelTask, on_frames: Callable[[int], object] = lambda count: None
    ) -> LabelReport | TrtRosError:
        """Label a recording; `on_frames` is called with the number of further images done."""
        try:
            with local_copy(task) as local:
                return self._label(local, on_frames)
        except Exception as error:  # The other recordings may be good.
            return as_trt_ros_error(error, task.path)

    def _label(self, task: LabelTask, on_frames: Callable[[int], object]) -> LabelReport:
        assert self._pipeline is not None
        with ExitStack() as stack:
            recording = stack.enter_context(closing(Recording(task.path)))
            topics = chosen_topics(recording, list(task.topics))
            task.check_outputs(topics)
            origin = provenance(self._options, self._hashes, self._pipeline, task, recording)
            tracked = Tracking(task.track, self._pipeline) if task.track else None
            sinks = list[Any]()

            def add(sink: Any) -> None:
                sinks.append(stack.enter_context(closing(sink)))

            if task.video:
                add(AnnotatedVideos(task.output, topics, recording))
            for kind in task.data_sets:
                more = {'pictures': task.images_path} if kind == 'coco' and task.images else {}
                add(WRITERS[kind](task.data_set_path(kind), self._pipeline, origin, **more))
            if task.select is not None:
                selection = Selection(
                    task.selection_path,
                    self._pipeline,
                    origin,
                    task.select,
                    self._options,
                    task.thresholds,
                )
                add(selection)
            report = label_recording(
                recording,
                self._pipeline,
                task,
                topics,
                origin,
                frames_in_flight=self._options.frames_in_flight or 1,
                on_frames=on_frames,
                sinks=sinks,
                tracked=tracked,
            )
            if not (task.is_part or report.images or report.damage):
                task.output.unlink()
                part = f' from {task.start:g} s' if task.start else ''
                part += f' up to {task.end:g} s' if task.end is not None else ''
                raise ParameterError(
                    f'Recording {task.path} has no images{part}.',
                    cause='It ends before, or its topics have no messages there.',
                    remedy='Correct --start, --end or --topic, or leave the recording out.',
                )
            return report

    def close(self) -> None:
        """Close the pipeline; may be called twice."""
        if self._pipeline is not None:
            self._pipeline.close()
            self._pipeline = None


MAX_ATTEMPTS = 3
SECONDS_PER_PROGRESS = 0.2


def worker_died(path: Path) -> BackendError:
    """Return the error of a recording whose worker died in every attempt."""
    return BackendError(
        f'The worker of {path} died {MAX_ATTEMPTS} times.',
        cause='Its process crashed or was killed, as by lack of memory.',
        remedy='Label this recording alone, without --workers and --ray, and read the log; or use '
        'fewer workers.',
    )


class LocalWorker:
    """
    A process with a pipeline. Owned by whoever made it.

    :ivar connection: returns the log lines of the pipeline, or its TrtRosError; of each task that
        is sent, numbers of images done, and at last its LabelReport or TrtRosError.
    """

    def __init__(self, options: LabeledOptions) -> None:
        context = multiprocessing.get_context('spawn')
        self.connection, theirs = context.Pipe()
        self._process = context.Process(target=_serve, args=(theirs, options), daemon=True)
        # Ctrl-C is kept from the process: it is ended in order.
        mask = signal.pthread_sigmask(signal.SIG_BLOCK, {signal.SIGINT})
        try:
            self._process.start()
        finally:
            theirs.close()
            signal.pthread_sigmask(signal.SIG_SETMASK, mask)

    def close(self) -> None:
        """End the process at once; may be called twice."""
        self._process.kill()
        self._process.join()
        self.connection.close()


def _serve(connection: Connection, options: LabeledOptions) -> None:
    """Open a pipeline and label recordings until the other side is gone."""
    labeler = Labeler(options)
    with suppress(EOFError, OSError):
        connection.send(labeler.open())
        while True:
            task = connection.recv()
            progress = _Progress(connection)
            found = labeler.label(task, progress)
            progress.send()
            connection.send(found)


class _Progress:
    """Sends the number of images done, a few times per second."""

    def __init__(self, connection: Connection) -> None:
        self._connection, self._count, self._due = connection, 0, 0.0

    def __call__(self, count: int) -> None:
        self._count += count
        if time.monotonic() >= self._due:
            self.send()

    def send(self) -> None:
        """Send the number since the last time."""
        self._connection.send(self._count)
        self._count, self._due = 0, time.monotonic() + SECONDS_PER_PROGRESS


@dataclass
class _Run:
    """A task that a worker has; `attempt`: what is sent to it, `frames`: images done."""

    worker: LocalWorker
    task: LabelTask
    attempt: LabelTask
    tries: int = 1
    frames: int = 0
    is_open: bool = False

    def receive(
        self, make_worker: Callable[[], LocalWorker]
    ) -> LabelReport | TrtRosError | tuple[str, ...] | int:
        """Return log lines, a number of further images, or an outcome; or raise TrtRosError."""
        found: Any
        try:
            found = self.worker.connection.recv()
            if not self.is_open:
                if isinstance(found, TrtRosError):
                    raise found
                self.is_open = True
                self.worker.connection.send(self.attempt)
        except (EOFError, ConnectionError):
            return self._begin_again(make_worker)
        self.frames += found if isinstance(found, int) else 0
        return found  # type: ignore[no-any-return]

    def begin(self, task: LabelTask, make_worker: Callable[[], LocalWorker]) -> None:
        """Take another task, with the same worker if it is alive."""
        self.task = self.attempt = task
        self.tries, self.frames = 1, 0
        if not self.is_open:
            self.worker = make_worker()
            return
        with suppress(ConnectionError):  # Of one that died, there is nothing more to receive.
            self.worker.connection.send(task)

    def _begin_again(self, make_worker: Callable[[], LocalWorker]) -> TrtRosError | int:
        """Try with another worker; return minus the images done, or why there is no other try."""
        self.worker.close()
        undone, self.frames, self.is_open = -self.frames, 0, False
        try:
            self.attempt = self.task.again()
        except Exception as error:
            return as_trt_ros_error(error, self.task.path)
        if self.tries == MAX_ATTEMPTS:
            return worker_died(self.task.path)
        self.tries += 1
        self.worker = make_worker()
        return undone


def label_with_workers(
    make_worker: Callable[[], LocalWorker],
    count: int,
    tasks: Iterable[LabelTask],
    on_done: Callable[[LabelTask, LabelReport | TrtRosError], object],
    *,
    on_frames: Callable[[int], object] = lambda count: None,
    on_log: Callable[[Sequence[str]], object] = lambda lines: None,
) -> None:
    """
    Label recordings as workers are free; end the workers, also when interrupted.

    :param on_frames: called with the number of images done since the last call; negative where
        those of a worker that died are done again.
    :param on_log: called with the log lines of the first worker.
    :raises TrtRosError: when a pipeline cannot be opened.
    """
    waiting, is_logged = iter(tasks), False
    runs = list[_Run]()
    try:
        for task in islice(waiting, count):
            runs.append(_Run(make_worker(), task, task))
        while runs:
            ready = wait([each.worker.connection for each in runs])
            for run in [each for each in runs if each.worker.connection in ready]:
                found = run.receive(make_worker)
                if isinstance(found, int):
                    on_frames(found)
                elif isinstance(found, tuple):
                    if not is_logged:
                        on_log(found)
                    is_logged = True
                else:
                    on_done(run.task, found)
                    following = next(waiting, None)
                    if following is None:
                        run.worker.close()
                        runs.remove(run)
                    else:
                        run.begin(following, make_worker)
    finally:
        for run in runs:
            run.worker.close()
