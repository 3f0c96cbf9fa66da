"""Labelling of many recordings by pipelines, each in a process; one that dies is replaced."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import ExitStack, closing, suppress
from itertools import islice
import multiprocessing
from multiprocessing.connection import Connection
from pathlib import Path
from queue import SimpleQueue
import signal
import threading
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
            if task.video:
                sinks.append(AnnotatedVideos(task.output, topics, recording))
                stack.enter_context(closing(sinks[-1]))
            for kind in task.data_sets:
                more = {'pictures': task.images_path} if kind == 'coco' and task.images else {}
                path = task.data_set_path(kind)
                sinks.append(WRITERS[kind](path, self._pipeline, origin, **more))
                stack.enter_context(closing(sinks[-1]))
            if task.select is not None:
                selection = Selection(
                    task.selection_path,
                    self._pipeline,
                    origin,
                    task.select,
                    self._options,
                    task.thresholds,
                )
                sinks.append(stack.enter_context(closing(selection)))
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

_Event = tuple[LabelTask, LabelReport | TrtRosError] | BaseException | int | list[str]


class WorkerDiedError(Exception):
    """The process of a worker has ended."""


def worker_died(path: Path) -> BackendError:
    """Return the error of a recording whose worker died in every attempt."""
    return BackendError(
        f'The worker of {path} died {MAX_ATTEMPTS} times.',
        cause='Its process crashed or was killed, as by lack of memory.',
        remedy='Label this recording alone, without --workers and --ray, and read the log; or use '
        'fewer workers.',
    )


class LocalWorker:
    """A process with a pipeline, after open(), or WorkerDiedError. Owned by whoever made it."""

    def __init__(self, options: LabeledOptions) -> None:
        context = multiprocessing.get_context('spawn')
        self._connection, theirs = context.Pipe()
        self._process = context.Process(target=_serve, args=(theirs, options), daemon=True)
        try:
            self._process.start()
        finally:
            theirs.close()

    def open(self) -> Sequence[str]:
        """Open the pipeline; return its log lines, or raise TrtRosError, WorkerDiedError."""
        lines: tuple[str, ...] = self._receive()
        return lines

    def label(self, task: LabelTask, on_frames: Callable[[int], object]) -> LabelReport:
        """Label a recording, see label_recording(), or raise TrtRosError, WorkerDiedError."""
        try:
            self._connection.send(task)
        except OSError as error:
            raise WorkerDiedError from error
        while True:
            found = self._receive()
            if isinstance(found, LabelReport):
                return found
            on_frames(found)

    def _receive(self) -> Any:
        try:
            found = self._connection.recv()
        except (EOFError, OSError) as error:
            raise WorkerDiedError from error
        if isinstance(found, TrtRosError):
            raise found
        return found

    def close(self) -> None:
        """End the process at once; may be called twice and from another thread."""
        self._process.kill()
        self._process.join()


def _serve(connection: Connection, options: LabeledOptions) -> None:
    """Open a pipeline and label recordings until the other side is gone."""
    labeler = Labeler(options)
    with suppress(EOFError, OSError):
        connection.send(labeler.open())
        while True:
            task = connection.recv()
            with _Progress(connection) as progress:
                found = labeler.label(task, progress)
            connection.send(found)


class _Progress:
    """Sends the number of images done, a few times per second."""

    def __init__(self, connection: Connection) -> None:
        self._connection, self._count, self._due = connection, 0, 0.0

    def __call__(self, count: int) -> None:
        self._count += count
        if time.monotonic() >= self._due:
            self._send()

    def _send(self) -> None:
        self._connection.send(self._count)
        self._count, self._due = 0, time.monotonic() + SECONDS_PER_PROGRESS

    def __enter__(self) -> _Progress:
        return self

    def __exit__(self, *_: object) -> None:
        self._send()


class LabelPool:
    """
    Workers that label recordings, one at a time each.

    The functions are called on the thread of label(): one that fails, as where nobody reads the
    output any more, ends it.

    :param make_worker: starts a worker; called from several threads.
    :param on_frames: called with the number of images done since the last call; negative where
        those of a worker that died are done again.
    :param on_log: called with the log lines of the first worker.
    """

    def __init__(
        self,
        make_worker: Callable[[], LocalWorker],
        count: int,
        *,
        on_frames: Callable[[int], object] = lambda count: None,
        on_log: Callable[[Sequence[str]], object] = lambda lines: None,
    ) -> None:
        self._make_worker, self._count = make_worker, count
        self._on_frames, self._on_log = on_frames, on_log
        self._lock = threading.Lock()
        self._tasks: SimpleQueue[LabelTask | None] = SimpleQueue()
        self._workers: set[LocalWorker] = set()
        self._events: SimpleQueue[_Event] = SimpleQueue()
        self._is_stopped = self._is_logged = False

    def label(
        self,
        tasks: Iterable[LabelTask],
        on_done: Callable[[LabelTask, LabelReport | TrtRosError], object],
    ) -> None:
        """Label recordings as workers are free; end the workers, also when interrupted."""
        waiting = iter(tasks)
        with ThreadPoolExecutor(self._count, initializer=_block_interrupts) as threads:
            try:
                for _ in range(self._count):
                    threads.submit(self._work)
                left = self._put(waiting, self._count)
                while left:
                    event = self._events.get()
                    if isinstance(event, BaseException):
                        raise event
                    if isinstance(event, int):
                        self._on_frames(event)
                    elif isinstance(event, list):
                        self._on_log(event)
                    else:
                        on_done(*event)
                        left += self._put(waiting, 1) - 1
            finally:
                self._stop()

    def _put(self, waiting: Iterator[LabelTask], count: int) -> int:
        found = list(islice(waiting, count))
        for task in found:
            self._tasks.put(task)
        return len(found)

    def _work(self) -> None:
        worker: LocalWorker | None = None
        try:
            while True:
                task = self._tasks.get()
                if task is None or self._is_stopped:
                    return
                worker = self._label(worker, task)
        except BaseException as error:
            self._events.put(error)
        finally:
            if worker is not None:
                self._close(worker)

    def _label(self, worker: LocalWorker | None, task: LabelTask) -> LocalWorker | None:
        """Label a recording, again where a worker died; return the worker that is left."""
        attempt = task
        for _ in range(MAX_ATTEMPTS):
            counted = _Counted(self._events.put)
            try:
                worker = worker or self._open()
                self._events.put((task, _outcome(worker, attempt, counted)))
                return worker
            except WorkerDiedError:
                if worker is not None:
                    self._close(worker)
                worker = None
                if self._is_stopped:
                    return None
                self._events.put(-counted.total)
                try:
                    attempt = task.again()
                except Exception as error:
                    self._events.put((task, as_trt_ros_error(error, task.path)))
                    return None
        self._events.put((task, worker_died(task.path)))
        return None

    def _open(self) -> LocalWorker:
        worker = self._make_worker()
        with self._lock:  # Before it opens, which may take minutes: _stop() closes it.
            self._workers.add(worker)
        try:
            if self._is_stopped:
                raise WorkerDiedError
            log_lines = worker.open()
        except BaseException:
            self._close(worker)
            raise
        with self._lock:
            is_first, self._is_logged = not self._is_logged, True
        if is_first:
            self._events.put(list(log_lines))
        return worker

    def _close(self, worker: LocalWorker) -> None:
        with self._lock:
            self._workers.discard(worker)
        worker.close()

    def _stop(self) -> None:
        with self._lock:
            self._is_stopped = True
            for _ in range(self._count):
                self._tasks.put(None)
            workers = list(self._workers)
        for worker in workers:
            worker.close()


def _outcome(
    worker: LocalWorker, task: LabelTask, on_frames: Callable[[int], object]
) -> LabelReport | TrtRosError:
    try:
        return worker.label(task, on_frames)
    except WorkerDiedError:
        raise
    except Exception as error:  # The other recordings may be good.
        return as_trt_ros_error(error, task.path)


class _Counted:
    """Forwards numbers of images, and adds them up."""

    def __init__(self, on_frames: Callable[[int], object]) -> None:
        self._on_frames, self.total = on_frames, 0

    def __call__(self, count: int) -> None:
        self.total += count
        self._on_frames(count)


def _block_interrupts() -> None:
    """Keep Ctrl-C from the processes that this thread starts: they are ended in order."""
    signal.pthread_sigmask(signal.SIG_BLOCK, {signal.SIGINT})
