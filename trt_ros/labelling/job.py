"""Labelling of a recording: reading, inference and writing overlap, each frame in order."""

from collections import Counter, deque
from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import Future, ThreadPoolExecutor
from contextlib import closing, suppress
from dataclasses import dataclass, field
from itertools import islice
import os
from pathlib import Path
from typing import Any, Protocol

import numpy as np

from trt_ros.errors import BadFrameError, ParameterError
from trt_ros.labelling.definitions import definition_of
from trt_ros.labelling.mcap import McapWriter, OutputTopic
from trt_ros.labelling.results import ImageHeader, ResultMessages
from trt_ros.recording import IMAGE_TYPES, Recording
from trt_ros.ros.dds.cdr import read_compressed_image, read_image
from trt_ros.ros.frames import to_frame
from trt_ros.runtime.future import Future as PendingResult
from trt_ros.runtime.pipeline import Pipeline
from trt_ros.vision.frame import Frame
from trt_ros.vision.pixel_limit import MAX_IMAGE_PIXELS
from trt_ros.vision.thresholds import Thresholds

DECODERS = max(3, min(8, os.cpu_count() or 1))
FRAMES_AHEAD = DECODERS + 2  # Decoded, and results not yet written: bounds the memory.

#: Position from 1, and topic, time in nanoseconds and bytes.
Messages = Iterator[tuple[int, tuple[str, int, np.ndarray]]]


@dataclass
class LabelReport:
    """
    Numbers of a labeled recording.

    :param resumed: number of images that an earlier run had finished.
    :param dropped: number of images without a result by cause.
    :param damage: where the recording could not be read to its end.
    """

    frames: int = 0
    resumed: int = 0
    dropped: Counter[str] = field(default_factory=Counter)
    damage: BadFrameError | None = None


@dataclass
class _Message:
    """A message, and the frame of an image or the error why there is none."""

    position: int
    topic: str
    time_ns: int
    data: np.ndarray
    frame: Frame | None = None
    header: ImageHeader | None = None
    error: BadFrameError | None = None


class ResultSink(Protocol):
    """A receiver of the images and their results, in order, on a thread of its own."""

    def write(self, topic: str, header: ImageHeader, frame: Frame, result: object) -> None:
        """Take the result of an image."""


def result_prefixes(node: str, topics: list[str], compressed: set[str]) -> dict[str, str]:
    """
    Return the prefix of the result topics by image topic, as a node of that name has them.

    :param compressed: the topics of compressed images, named after those of raw ones.
    """
    if len(topics) == 1:
        return {topics[0]: f'/{node}/'}
    prefixes = {}
    for topic in topics:
        base = topic.removesuffix('/compressed') if topic in compressed else topic
        prefixes[topic] = f'/{node}/{base.strip("/")}/'
    if len(set(prefixes.values())) < len(prefixes):
        raise ParameterError(
            f'Several topics have the same results: {", ".join(topics)}.',
            cause='One is the compressed form of another.',
            remedy='Choose one of them with --topic.',
        )
    return prefixes


def chosen_topics(recording: Recording, wanted: list[str]) -> list[str]:
    """
    Return the image topics to label: those wanted, or all.

    :raises ParameterError: when there are none, or one does not exist or has no images.
    """
    images = recording.images()
    missing = [topic for topic in wanted if topic not in images]
    if missing or not images:
        raise ParameterError(
            f'Recording {recording.path} has no images on topic {", ".join(missing) or "any"}.',
            cause=f'Its image topics are {", ".join(images) or "none"}.',
            remedy='Correct --topic.' if images else 'Choose a recording of images.',
        )
    return list(dict.fromkeys(wanted)) or images


def label_recording(
    recording: Recording,
    pipeline: Pipeline[Any],
    output: Path,
    *,
    topics: list[str],
    thresholds: Thresholds,
    with_input: bool = False,
    resume: bool = False,
    frames_in_flight: int = 1,
    max_pixels: int = MAX_IMAGE_PIXELS,
    on_frames: Callable[[int], object] = lambda count: None,
    sinks: Sequence[ResultSink] = (),
) -> LabelReport:
    """
    Run a pipeline on every image of topics of a recording and write the results to an MCAP file.

    The file can be read at any time, also after this process was killed.

    :param topics: as chosen_topics() returns them.
    :param frames_in_flight: that of the pipeline.
    :param max_pixels: as for to_frame().
    :param with_input: whether to copy all messages of the recording, too.
    :param resume: continue an unfinished `output`.
    :param on_frames: called with the number of images done since the last call, first with those
        of the earlier run.
    :param sinks: get the images and results, too; the caller closes them.
    :raises ParameterError: when `output` cannot be written or continued.
    """
    job = _Job(recording, pipeline, topics, thresholds, with_input, max_pixels, sinks)
    with closing(McapWriter(output, job.output_topics, resume=resume)) as writer:
        job.run(writer, frames_in_flight, on_frames)
    return job.report


class _Job:
    def __init__(
        self,
        recording: Recording,
        pipeline: Pipeline[Any],
        topics: list[str],
        thresholds: Thresholds,
        with_input: bool,
        max_pixels: int,
        sinks: Sequence[ResultSink],
    ) -> None:
        self._sinks, self._max_pixels = sinks, max_pixels
        self._recording, self._pipeline, self._thresholds = recording, pipeline, thresholds
        self._messages_of = ResultMessages(pipeline)
        self._types = {topic: recording.topics[topic].message_type for topic in topics}
        compressed = {topic for topic, kind in self._types.items() if kind != IMAGE_TYPES[0]}
        self._prefixes = result_prefixes(self._messages_of.node, topics, compressed)
        results = [
            OutputTopic(prefix + name, kind, 'ros2msg', definition_of(kind))
            for prefix in self._prefixes.values()
            for name, kind in self._messages_of.topics.items()
        ]
        names = {each.name for each in results}
        # Results of an earlier run are replaced.
        self._copied = [
            OutputTopic(
                each.name,
                each.message_type,
                each.schema_encoding or 'ros2msg',
                each.definition,
                each.qos_profiles,
            )
            for each in recording.topics.values()
            if with_input and each.name not in names
        ]
        self._copied_names = {each.name for each in self._copied}
        self.output_topics = [*results, *self._copied]
        self.report = LabelReport()

    def run(self, writer: McapWriter, limit: int, on_frames: Callable[[int], object]) -> None:
        """Process all messages after the writer's position."""
        wanted = sorted({*self._types, *self._copied_names})
        messages = enumerate(self._recording.messages(wanted), 1)
        in_flight: deque[tuple[_Message, PendingResult[Any] | None]] = deque()
        with (
            ThreadPoolExecutor(1) as reading,
            ThreadPoolExecutor(DECODERS) as decoding,
            ThreadPoolExecutor(1) as writing,
            ThreadPoolExecutor(1) as drawing,
        ):
            unwritten: deque[Future[None]] = deque()

            def finish() -> None:
                message, pending = in_flight.popleft()
                result = _result(message, pending)
                drawn = drawing.submit(self._draw, message, result) if self._sinks else None
                unwritten.append(writing.submit(self._write, writer, message, result, drawn))
                if len(unwritten) > FRAMES_AHEAD:
                    unwritten.popleft().result()
                on_frames(int(message.topic in self._types))

            try:
                try:
                    skipped = reading.submit(self._skip, messages, writer.position)
                    self.report.resumed = skipped.result()
                    on_frames(self.report.resumed)
                    for message in self._ahead(messages, reading, decoding):
                        if len(in_flight) >= limit:
                            finish()
                        in_flight.append((message, self._submit(message)))
                except BadFrameError as error:
                    self.report.damage = error
                while in_flight:
                    finish()
                for each in unwritten:
                    each.result()
            finally:  # After an error, the next recording needs the slots of the pipeline.
                for message, pending in in_flight:
                    with suppress(Exception):
                        _result(message, pending)

    def _skip(self, messages: Messages, count: int) -> int:
        """Skip messages; return the number of images among them."""
        return sum(topic in self._types for _, (topic, *_) in islice(messages, count))

    def _ahead(
        self, messages: Messages, reading: ThreadPoolExecutor, decoding: ThreadPoolExecutor
    ) -> Iterator[_Message]:
        """Yield the messages in order while the next ones are read and decoded."""
        waiting = deque(
            reading.submit(self._read, messages, decoding) for _ in range(FRAMES_AHEAD)
        )
        while True:
            found = waiting.popleft().result()
            if found is None:
                return
            waiting.append(reading.submit(self._read, messages, decoding))
            yield found.result() if isinstance(found, Future) else found

    def _read(
        self, messages: Messages, decoding: ThreadPoolExecutor
    ) -> _Message | Future[_Message] | None:
        """Return the next message, as a future where its image is compressed; None at the end."""
        found = next(messages, None)
        if found is None:
            return None
        position, (topic, time_ns, data) = found
        message = _Message(position, topic, time_ns, data)
        kind = self._types.get(topic)
        if kind is None:
            return message
        if kind == IMAGE_TYPES[0]:
            return _decoded(message, read_image, self._max_pixels)
        return decoding.submit(_decoded, message, read_compressed_image, self._max_pixels)

    def _submit(self, message: _Message) -> PendingResult[Any] | None:
        if message.frame is None:
            return None
        try:
            return self._pipeline.submit(message.frame, self._thresholds)
        except BadFrameError as error:
            message.error = error
            return None

    def _draw(self, message: _Message, result: Any) -> None:
        if message.frame is None or message.header is None or message.error is not None:
            return
        for sink in self._sinks:
            sink.write(message.topic, message.header, message.frame, result)

    def _write(
        self, writer: McapWriter, message: _Message, result: Any, drawn: Future[None] | None
    ) -> None:
        if drawn is not None:
            drawn.result()
        if message.topic in self._copied_names:
            writer.write(message.topic, message.time_ns, message.data.data)
        if message.error is not None:
            self.report.dropped[message.error.kind] += 1
        elif message.header is not None:
            prefix = self._prefixes[message.topic]
            for name, data in self._messages_of.write(result, message.header):
                writer.write(prefix + name, message.time_ns, data)
            self.report.frames += 1
        writer.checkpoint(message.position)


def _decoded(message: _Message, read: Callable[[np.ndarray], Any], max_pixels: int) -> _Message:
    """Return a message with the frame and header of its image."""
    try:
        view = read(message.data)
        message.frame = to_frame(view, max_pixels=max_pixels)
        message.header = ImageHeader(view.stamp, view.frame_id, message.frame.wh)
    except BadFrameError as error:
        message.error = error
    return message


def _result(message: _Message, pending: PendingResult[Any] | None) -> Any:
    """Wait for the result of a frame; None without one."""
    if pending is None:
        return None
    try:
        return pending.result()
    except BadFrameError as error:
        message.error = error
        return None
