"""Labelling of one recording as a task that can run in another process."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from contextlib import ExitStack, closing
from dataclasses import dataclass, replace
from pathlib import Path
import traceback
from typing import Any

from trt_ros.errors import BackendError, ParameterError, TrtRosError
from trt_ros.families.registry import ALL_FAMILIES
from trt_ros.labelling.coco import CocoLabels
from trt_ros.labelling.job import LabelReport, chosen_topics, label_recording
from trt_ros.labelling.video import AnnotatedVideos, video_paths
from trt_ros.recording import Recording
from trt_ros.regular_file import check_output_folder
from trt_ros.runtime.options import LabeledOptions
from trt_ros.runtime.pipeline import Pipeline
from trt_ros.vision.pixel_limit import MAX_IMAGE_PIXELS
from trt_ros.vision.thresholds import Thresholds


@dataclass(frozen=True)
class LabelTask:
    """
    A recording to label.

    :param topics: image topics to label; () for all.
    :param with_input: whether to copy all messages of the recording, too.
    :param resume: whether to continue `output` if it exists.
    :param video: whether to write videos, too.
    :param coco: whether to write a data set in COCO format, too.
    :param max_pixels: larger compressed images are dropped before they are decoded.
    """

    path: Path
    output: Path
    topics: tuple[str, ...]
    thresholds: Thresholds
    with_input: bool = False
    resume: bool = False
    video: bool = False
    coco: bool = False
    max_pixels: int = MAX_IMAGE_PIXELS

    def check(self) -> int:
        """
        Return the number of images to label.

        :raises ParameterError: when there are none, the recording cannot be opened, or
            check_outputs() raises.
        """
        with closing(Recording(self.path)) as recording:
            topics = chosen_topics(recording, list(self.topics))
            self.check_outputs(topics)
            return sum(recording.topics[topic].count for topic in topics)

    def check_outputs(self, topics: Sequence[str]) -> None:
        """
        Check that the files of the results replace no other file and no other result.

        :param topics: as chosen_topics() returns them.
        :raises ParameterError: when one exists, two have the same name, or there is no folder.
        """
        if self.output.suffix != '.mcap':
            raise ParameterError(
                f'Output {self.output} is no name of an MCAP file.',
                remedy='Choose a file with the suffix .mcap; it has the results of one recording.',
            )
        others = self._files_beside(topics)
        exists = self.output.exists()
        if exists and self.resume and others:
            what = 'video' if self.video else 'data set'
            raise ParameterError(
                f'The {what} of {self.output} cannot be continued.',
                remedy='Leave --video and --coco or --resume out, or choose another output.',
            )
        if exists and not self.resume:
            raise ParameterError(
                f'File {self.output} exists already.',
                remedy='Choose another output file, or continue this one with --resume.',
            )
        for path in others:
            if path.exists():
                raise ParameterError(
                    f'File {path} exists already.', remedy='Choose another output file.'
                )
        check_output_folder(self.output)

    @property
    def coco_path(self) -> Path:
        """File of the data set in COCO format."""
        return self.output.with_suffix('.json')

    def _files_beside(self, topics: Sequence[str]) -> list[Path]:
        """Return the files of the videos and of the data set, if they are wanted."""
        videos = video_paths(self.output, topics).values() if self.video else ()
        return [*videos, *([self.coco_path] if self.coco else ())]

    def again(self) -> LabelTask:
        """
        Return the task that replaces this one after its process died.

        The task was checked before, so the files of the results are its own.
        """
        if not (self.video or self.coco):
            return replace(self, resume=True)
        with closing(Recording(self.path)) as recording:
            topics = chosen_topics(recording, list(self.topics))
        for path in (self.output, *self._files_beside(topics)):
            path.unlink(missing_ok=True)
        return self


def as_trt_ros_error(error: Exception, path: Path) -> TrtRosError:
    """Return an error of the recording `path`, with its traceback if it was not foreseen."""
    if isinstance(error, TrtRosError):
        return error
    return BackendError(
        f'Recording {path} was not labeled.',
        cause=''.join(traceback.format_exception(error)).rstrip(),
        remedy='Report this error of trt_ros or of a library with the recording.',
    )


class Labeler:
    """
    A pipeline that labels recordings. Owns the pipeline from open() to close().

    Errors are returned, so that they also come out of other processes.
    """

    def __init__(self, options: LabeledOptions) -> None:
        self._options = options
        self._pipeline: Pipeline[Any] | None = None

    def open(self) -> tuple[str, ...] | TrtRosError:
        """Open the pipeline; return its log lines."""
        families: Any = ALL_FAMILIES
        try:
            self._pipeline = Pipeline.open(self._options, families=families)
        except TrtRosError as error:
            return error
        return self._pipeline.log_lines

    def label(
        self, task: LabelTask, on_frames: Callable[[int], object] = lambda count: None
    ) -> LabelReport | TrtRosError:
        """
        Label a recording.

        :param on_frames: called with the number of images done since the last call.
        """
        try:
            return self._label(task, on_frames)
        except Exception as error:  # The other recordings may be good.
            return as_trt_ros_error(error, task.path)

    def _label(self, task: LabelTask, on_frames: Callable[[int], object]) -> LabelReport:
        assert self._pipeline is not None
        with ExitStack() as stack:
            recording = stack.enter_context(closing(Recording(task.path)))
            topics = chosen_topics(recording, list(task.topics))
            task.check_outputs(topics)
            sinks = list[Any]()
            if task.video:
                sinks.append(AnnotatedVideos(task.output, topics, recording))
                stack.enter_context(closing(sinks[-1]))
            if task.coco:
                sinks.append(CocoLabels(task.coco_path, self._pipeline))
                stack.enter_context(closing(sinks[-1]))
            return label_recording(
                recording,
                self._pipeline,
                task.output,
                topics=topics,
                thresholds=task.thresholds,
                frames_in_flight=self._options.frames_in_flight,
                max_pixels=task.max_pixels,
                with_input=task.with_input,
                resume=task.output.exists(),
                on_frames=on_frames,
                sinks=sinks,
            )

    def close(self) -> None:
        """Close the pipeline; may be called twice."""
        if self._pipeline is not None:
            self._pipeline.close()
            self._pipeline = None
