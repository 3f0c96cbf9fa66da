"""Labelling of a recording: reading, inference and writing overlap, each frame in order."""

from collections import Counter, deque
from collections.abc import Callable, Iterator, Mapping, Sequence
from concurrent.futures import Future, ThreadPoolExecutor
from contextlib import closing, suppress
from dataclasses import dataclass, field, replace
from itertools import islice
import os
from typing import TYPE_CHECKING, Any, Protocol

from trt_ros.errors import BadFrameError, ParameterError
from trt_ros.labelling.mcap_head import definition_of
from trt_ros.labelling.results import ImageHeader, ResultMessages
from trt_ros.labelling.task import LabelTask
from trt_ros.labelling.video import Tracking
from trt_ros.recording import Recording
from trt_ros.recording.messages import RecordedMessage, RecordedTopic
from trt_ros.ros.frames import FrameReader
from trt_ros.runtime.future import Future as PendingResult
from trt_ros.runtime.pipeline import Pipeline
from trt_ros.video import IMAGE_TYPES, VIDEO_TYPES
from trt_ros.vision.frame import Frame

if TYPE_CHECKING:
    from trt_ros.labelling.mcap import McapWriter

DECODERS = max(3, min(8, os.cpu_count() or 1))
FRAMES_AHEAD = DECODERS + 2  # Decoded, and results not yet written: bounds the memory.


@dataclass
class LabelReport:
    """
    Numbers of a labeled recording.

    :param damage: where it could not be read to its end.
    :param nonfinite: number of images, and regions, with NaN or infinite outputs.
    """

    frames: int = 0
    resumed: int = 0
    dropped: Counter[str] = field(default_factory=Counter)
    damage: BadFrameError | None = None
    nonfinite: int = 0

    @property
    def images(self) -> int:
        """Return the number of images, with a result and without."""
        return self.frames + self.resumed + self.dropped.total()


@dataclass
class _Message:
    """
    A message, and the frame of an image or the error why there is none.

    With the B-frames of a video, the frame is that of an earlier message, which is complete now.

    :param position: from 1.
    :param is_labeled: whether it is an image to label.
    """

    position: int
    recorded: RecordedMessage
    is_labeled: bool
    frame: Frame | None = None
    header: ImageHeader | None = None
    error: BadFrameError | None = None


class ResultSink(Protocol):
    """A receiver of the images and their results, in order, on a thread of its own."""

    def write(self, topic: str, header: ImageHeader, frame: Frame, result: object) -> None:
        """Take the result of an image."""


def result_prefixes(node: str, topics: list[str], compressed: set[str]) -> dict[str, str]:
    """Return the prefix of the result topics by image topic, as a node of that name has them."""
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


def label_recording(
    recording: Recording,
    pipeline: Pipeline[Any],
    task: LabelTask,
    topics: list[str],
    origin: Mapping[str, Any] | None = None,
    *,
    frames_in_flight: int = 1,
    on_frames: Callable[[int], object] = lambda count: None,
    sinks: Sequence[ResultSink] = (),
    tracked: Tracking | None = None,
) -> LabelReport:
    """
    Run a pipeline on the images of topics of a recording and write the results to an MCAP file.

    The file can be read at any time, also after this process was killed.

    :param topics: as chosen_topics() returns them.
    :param origin: as provenance() returns it; written into the file, and compared with that of a
        file to continue.
    :param frames_in_flight: that of the pipeline.
    :param on_frames: called with the number of images done since the last call, first with those
        of the earlier run.
    :param sinks: get the images and results, too; the caller closes them.
    :param tracked: gives the objects that the sinks get their identities.
    :raises ParameterError: when the output cannot be written or continued.
    """
    from trt_ros.labelling.mcap import McapWriter  # The recording was opened: mcap is there.

    job = _Job(recording, pipeline, task, topics, sinks, tracked)
    writer = McapWriter(
        task.output,
        job.output_topics,
        resume=task.output.exists(),
        provenance=origin,
        attachments=recording.attachments() if task.with_input else (),
        compression=recording.compression if task.with_input else '',
    )
    before = pipeline.nonfinite_count
    with closing(writer):
        job.run(writer, frames_in_flight, on_frames)
    job.report.nonfinite = pipeline.nonfinite_count - before
    return job.report


class _Job:
    def __init__(
        self,
        recording: Recording,
        pipeline: Pipeline[Any],
        task: LabelTask,
        topics: list[str],
        sinks: Sequence[ResultSink],
        tracked: Tracking | None,
    ) -> None:
        self._sinks, self._task, self._tracked = sinks, task, tracked
        self._recording, self._pipeline = recording, pipeline
        self._messages_of = ResultMessages(pipeline)
        self._types = {topic: recording.topics[topic].message_type for topic in topics}
        self._readers = {
            topic: FrameReader(kind, task.max_pixels) for topic, kind in self._types.items()
        }
        compressed = {topic for topic, kind in self._types.items() if kind != IMAGE_TYPES[0]}
        self._prefixes = result_prefixes(self._messages_of.node, topics, compressed)
        results = [
            RecordedTopic(prefix + name, kind, 0, 'ros2msg', definition_of(kind))
            for prefix in self._prefixes.values()
            for name, kind in self._messages_of.topics.items()
        ]
        names = {each.name for each in results}
        # Results of an earlier run are replaced.
        copied = [
            replace(each, schema_encoding=each.schema_encoding or 'ros2msg')
            for each in recording.topics.values()
            if task.with_input and each.name not in names
        ]
        self._copied_names = {each.name for each in copied}
        self.output_topics = [*results, *copied]
        self.report = LabelReport()

    def _messages(self) -> Iterator[_Message]:
        """Yield the messages to label or to copy; of videos, all are decoded."""
        seen, every = Counter[str](), self._task.every
        first_ns, last_ns = self._task.times_ns(self._recording)
        wanted = sorted({*self._types, *self._copied_names})
        position, message = 0, None
        for message in self._recording.messages(wanted, first_ns, last_ns):
            topic = message.topic
            is_labeled = topic in self._types and seen[topic] % every == 0
            seen[topic] += 1
            found = _Message(position + 1, message, is_labeled)
            if self._types.get(topic) in VIDEO_TYPES:
                _decode(found, self._readers[topic])
            if is_labeled or topic in self._copied_names:
                position += 1
                yield found
        for topic, reader in self._readers.items():
            for view, frame in reader.flush():
                seen[topic] += 1
                if message is not None and (seen[topic] - 1) % every == 0:
                    position += 1
                    end = message._replace(topic=topic, data=message.data[:0])
                    header = ImageHeader(view.stamp, view.frame_id, frame.wh)
                    yield _Message(position, end, False, frame, header)

    def run(self, writer: 'McapWriter', limit: int, on_frames: Callable[[int], object]) -> None:
        messages = self._messages()
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
                on_frames(int(message.is_labeled))

            try:
                try:
                    earlier = islice(messages, writer.position)
                    resumed = reading.submit(sum, (each.is_labeled for each in earlier))
                    self.report.resumed = resumed.result()
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

    def _ahead(
        self,
        messages: Iterator[_Message],
        reading: ThreadPoolExecutor,
        decoding: ThreadPoolExecutor,
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
        self, messages: Iterator[_Message], decoding: ThreadPoolExecutor
    ) -> _Message | Future[_Message] | None:
        """Return the next message, as a future where its image is compressed; None at the end."""
        message = next(messages, None)
        if message is None or not message.is_labeled:
            return message
        kind, reader = self._types[message.recorded.topic], self._readers[message.recorded.topic]
        if kind == IMAGE_TYPES[0]:
            return _decode(message, reader)
        return decoding.submit(_converted if kind in VIDEO_TYPES else _decode, message, reader)

    def _submit(self, message: _Message) -> PendingResult[Any] | None:
        if message.frame is None:
            return None
        try:
            return self._pipeline.submit(message.frame, self._task.thresholds)
        except BadFrameError as error:
            message.error = error
            return None

    def _draw(self, message: _Message, result: Any) -> None:
        if message.frame is None or message.header is None or message.error is not None:
            return
        if self._tracked is not None:
            result = self._tracked(message.recorded.topic, message.header, result)
        for sink in self._sinks:
            sink.write(message.recorded.topic, message.header, message.frame, result)

    def _write(
        self, writer: 'McapWriter', message: _Message, result: Any, drawn: Future[None] | None
    ) -> None:
        if drawn is not None:
            drawn.result()
        topic, time_ns, data, publish_ns, sequence = message.recorded
        if topic in self._copied_names and data.size:
            writer.write(topic, time_ns, data.data, publish_ns, sequence)
        if message.error is not None:
            self.report.dropped[message.error.kind] += 1
        elif message.header is not None:
            for name, result_data in self._messages_of.write(result, message.header):
                writer.write(self._prefixes[topic] + name, time_ns, result_data)
            self.report.frames += 1
        writer.checkpoint(message.position)


def _decode(message: _Message, reader: FrameReader) -> _Message:
    try:
        complete = reader.read(message.recorded.data)
    except BadFrameError as error:
        message.error = error if message.is_labeled else None
        return message
    if complete and message.is_labeled:
        view, message.frame = complete[-1]
        message.header = ImageHeader(view.stamp, view.frame_id, message.frame.wh)
    return message


def _converted(message: _Message, reader: FrameReader) -> _Message:
    """Convert the pixels of a picture of a video ahead of its run."""
    if message.frame is not None:
        _ = message.frame.data
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
