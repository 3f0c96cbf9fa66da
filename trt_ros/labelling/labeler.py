"""A pipeline that labels one recording after another."""

from collections.abc import Callable
from contextlib import ExitStack, closing
from typing import Any

from trt_ros.errors import ParameterError, TrtRosError
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
