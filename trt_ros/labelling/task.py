"""Labelling of one recording as a task that can run in another process."""

from __future__ import annotations

from collections.abc import Sequence
from contextlib import closing
from dataclasses import dataclass, replace
import math
from pathlib import Path
import shutil
import traceback

from trt_ros.errors import BackendError, ParameterError, TrtRosError, file_error
from trt_ros.labelling.video import video_paths
from trt_ros.recording import ALL_TIMES, Recording
from trt_ros.regular_file import check_output_folder
from trt_ros.ros.frames import color_topics
from trt_ros.video import VIDEO_TYPES
from trt_ros.vision.pixel_limit import MAX_IMAGE_PIXELS
from trt_ros.vision.thresholds import Thresholds

DATA_SETS = {'coco': '.json', 'parquet': '.parquet'}  # Suffixes of their files.
MAX_PARTS = 10_000
RULES = ('uncertain', 'rare:CLASS', 'disagree:MODEL')


def chosen_topics(recording: Recording, wanted: list[str]) -> list[str]:
    """Return the image topics to label: those wanted, or all but depth images beside others."""
    images = recording.images() if wanted else color_topics(recording)
    missing = [topic for topic in wanted if topic not in images]
    if missing or not images:
        others = [
            f'{each.name} ({each.message_type}, {each.encoding})'
            for each in recording.topics.values()
        ]
        raise ParameterError(
            f'Recording {recording.path} has no images'
            + (f' on topic {", ".join(missing)}.' if missing else '.'),
            cause=f'Its image topics are {", ".join(color_topics(recording))}.'
            if images
            else f'Its topics are {", ".join(others) or "none"}.',
            remedy='Correct --topic.' if images else 'Choose a recording of images.',
        )
    return list(dict.fromkeys(wanted)) or images


def annotations_of(output: Path) -> Path:
    """Return the data set of the images that are selected of a recording, by its output."""
    return output.with_name(f'{output.stem}_selected') / 'annotations.json'


@dataclass(frozen=True)
class SelectionOptions:
    """Images to select of each recording: at most `budget`, by one of RULES."""

    rule: str
    budget: int

    def __post_init__(self) -> None:
        arguments = dict(rule.partition(':')[::2] for rule in RULES)
        name, _, argument = self.rule.partition(':')
        if name not in arguments or bool(argument) != bool(arguments[name]):
            raise ParameterError(
                f'Rule of selection {self.rule!r} is unknown.',
                remedy=f'Choose one of {", ".join(RULES)}.',
            )


@dataclass(frozen=True)
class LabelTask:
    """
    A recording to label.

    :param topics: image topics to label; () for all.
    :param with_input: whether to copy all messages of the recording, too.
    :param resume: whether to continue `output` if it exists.
    :param video: whether to write videos, too.
    :param data_sets: formats of data sets to write, too, of DATA_SETS.
    :param images: whether to write the image files of that in COCO format.
    :param track: method of tracking by which objects get identities; '' for none.
    :param select: images to select, too.
    :param max_pixels: larger compressed images are dropped before they are decoded.
    :param start: seconds after the start of the recording.
    :param end: seconds after the start of the recording; None for its end.
    :param every: of how many images of a topic one is labeled.
    :param is_part: whether it is one of several tasks of a recording, and may have no images.
    """

    path: Path
    output: Path
    topics: tuple[str, ...]
    thresholds: Thresholds
    with_input: bool = False
    resume: bool = False
    video: bool = False
    data_sets: tuple[str, ...] = ()
    max_pixels: int = MAX_IMAGE_PIXELS
    start: float = 0.0
    end: float | None = None
    every: int = 1
    images: bool = False
    track: str = ''
    select: SelectionOptions | None = None
    is_part: bool = False

    def parts(self, seconds: float) -> list[LabelTask]:
        """
        Return tasks of parts of this recording, whose outputs are files of one folder.

        Without any part, or where the recording cannot be opened, return the task itself.

        :raises ParameterError: when it is a URL, has videos, or there are too many parts.
        """
        if self._is_remote:
            raise ParameterError(
                f'Parts of {self.path} cannot be labeled.', remedy='Leave --split out for a URL.'
            )
        try:
            with closing(Recording(self.path)) as recording:
                times = recording.start_ns / 1e9, recording.end_ns / 1e9
                last = (recording.end_ns - recording.start_ns) / 1e9
                topics = chosen_topics(recording, list(self.topics))
                kinds = {topic: recording.topics[topic].message_type for topic in topics}
        except TrtRosError:  # check() reports it.
            return [self]
        if videos := [topic for topic, kind in kinds.items() if kind in VIDEO_TYPES]:
            raise ParameterError(
                f'Parts of {self.path} cannot be labeled.',
                cause=f'Topic {", ".join(videos)} is a video: the pictures of a part before its '
                'first key frame cannot be decoded.',
                remedy='Leave --split out, or choose topics of images with --topic.',
            )
        ratio = (min(last, self.end or last) - self.start) / seconds
        if ratio >= MAX_PARTS:
            raise ParameterError(
                f'{self.path} has {ratio:.0f} parts of {seconds:g} s, of at most {MAX_PARTS}.',
                cause=f'Its messages have times from {times[0]:.3f} to {times[1]:.3f}, '
                f'{last:.3f} s.',
                remedy='Set --split to a larger value, or choose a part with --start and --end.',
            )
        count = math.floor(ratio) + 1
        folder = self.output.with_suffix('')
        return [
            replace(
                self,
                output=folder / f'{folder.name}_{number}.mcap',
                start=self.start + number * seconds,
                end=self.start + (number + 1) * seconds if number < count - 1 else self.end,
                is_part=True,
            )
            for number in range(count)
        ] or [self]

    def times_ns(self, recording: Recording) -> tuple[int, int]:
        """Return the times from and to which messages are read."""
        first, last = recording.start_ns, ALL_TIMES[1]
        return (
            first + round(self.start * 1e9) if self.start else ALL_TIMES[0],
            last if self.end is None else first + round(self.end * 1e9),
        )

    def check(self) -> int:
        """Return the number of images to label, estimated for a part; 0 if remote; or raise."""
        if self._is_remote:  # It is checked when it has been copied.
            return 0
        with closing(Recording(self.path)) as recording:
            topics = chosen_topics(recording, list(self.topics))
            self.check_outputs(topics)
            counts = (recording.topics[topic].count for topic in topics)
            seconds = (recording.end_ns - recording.start_ns) / 1e9
            end = seconds if self.end is None else min(self.end, seconds)
            share = (end - self.start) / seconds if seconds else 1.0
            return sum(math.ceil(max(0.0, share) * count / self.every) for count in counts)

    def check_outputs(self, topics: Sequence[str]) -> None:
        """Raise ParameterError if files of the results would replace a file or each other."""
        if self.output.suffix != '.mcap':
            raise ParameterError(
                f'Output {self.output} is no name of an MCAP file.',
                remedy='Choose a file with the suffix .mcap; it has the results of one recording.',
            )
        others = self._files_beside(topics)
        if self.resume and others and self.output.exists():
            what = 'video' if self.video else 'data set'
            raise ParameterError(
                f'The {what} of {self.output} cannot be continued.',
                remedy='Leave --video, --coco, --parquet and --select or --resume out, or choose '
                'another output.',
            )
        for path in (*([] if self.resume else [self.output]), *others):
            if path.exists():
                more = ', or continue this one with --resume' if path is self.output else ''
                raise ParameterError(
                    f'File {path} exists already.', remedy=f'Choose another output file{more}.'
                )
        check_output_folder(self.output)

    @property
    def starts_over(self) -> bool:
        """Whether something of its results cannot be continued."""
        return bool(self.video or self.data_sets or self.select)

    @property
    def _is_remote(self) -> bool:
        """Whether a path is a URL: such objects are no instances of Path."""
        return not (isinstance(self.path, Path) and isinstance(self.output, Path))

    def data_set_path(self, kind: str) -> Path:
        """Return the file of a data set."""
        return self.output.with_suffix(DATA_SETS[kind])

    @property
    def images_path(self) -> Path:
        """Folder of the image files of the data set in COCO format."""
        return self.output.with_suffix('')

    @property
    def selection_path(self) -> Path:
        """Folder of the selected images."""
        return annotations_of(self.output).parent

    def _files_beside(self, topics: Sequence[str]) -> list[Path]:
        """Return the files of the videos and of the data set, if they are wanted."""
        videos = video_paths(self.output, topics).values() if self.video else ()
        return [
            *videos,
            *map(self.data_set_path, self.data_sets),
            *([self.images_path] if self.images else ()),
            *([self.selection_path] if self.select else ()),
        ]

    def again(self) -> LabelTask:
        """
        Return the task that replaces this one after its process died.

        The task was checked before, so the files of the results are its own.
        """
        if self._is_remote or not self.starts_over:
            return replace(self, resume=True)
        self.delete_results()
        return self

    def delete_results(self) -> None:
        """Delete the files of the results; of a remote one, that to continue."""
        others = list[Path]()
        if not self._is_remote:
            with closing(Recording(self.path)) as recording:
                others = self._files_beside(chosen_topics(recording, list(self.topics)))
        for path in (self.output, *others):
            if path in (self.images_path, self.selection_path):
                shutil.rmtree(path, ignore_errors=True)
            else:
                path.unlink(missing_ok=True)


def as_trt_ros_error(error: Exception, path: Path) -> TrtRosError:
    """Return an error of the recording `path`, with its traceback if it was not foreseen."""
    if isinstance(error, TrtRosError):
        return error
    return file_error(error) or BackendError(
        f'Recording {path} was not labeled.',
        cause=''.join(traceback.format_exception(error)).rstrip(),
        remedy='Report this error of trt_ros or of a library with the recording.',
    )
