"""Recordings of rosbag2: .mcap and .db3 files and their folders, read with rosbags without ROS."""

from collections.abc import Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import ExitStack
from dataclasses import dataclass, replace
from enum import Enum
import json
from pathlib import Path
import re
from typing import Any

import numpy as np

from trt_ros.errors import BadFrameError, ParameterError, requires
from trt_ros.recording.chunks import chunk_messages
from trt_ros.recording.unfinished import UnfinishedMcap

RECORDING_SUFFIXES = ('.mcap', '.db3')
IMAGE_TYPES = ('sensor_msgs/msg/Image', 'sensor_msgs/msg/CompressedImage')

LOADING_THREADS = 3
MAX_EMPTY_RECORDS = 8  # Tried at the end of an unfinished file.


@dataclass(frozen=True)
class RecordedTopic:
    """
    A topic of a recording.

    :param message_type: as in 'sensor_msgs/msg/Image'.
    :param count: number of its messages.
    :param schema_encoding: 'ros2msg', 'ros2idl', or '' without a definition.
    :param definition: text of the message definition.
    :param qos_profiles: those of the recorded publishers, as YAML of rosbag2, or ''.
    """

    name: str
    message_type: str
    count: int
    schema_encoding: str
    definition: str
    qos_profiles: str = ''


def is_recording(path: Path) -> bool:
    """Return whether a path is a recording file, or a folder with metadata.yaml."""
    if path.is_dir():
        return (path / 'metadata.yaml').is_file()
    return path.suffix.lower() in RECORDING_SUFFIXES


def recordings_in(folder: Path) -> list[Path]:
    """Return the recordings of a folder in natural order of name: 2 before 10."""
    return sorted(filter(is_recording, folder.iterdir()), key=_natural)


class Recording:
    """
    An open recording. Owns its files until close().

    A recording whose writer was killed is read as far as it goes.

    :param path: a file, or a folder with metadata.yaml or storage files.
    :raises ParameterError: when it does not exist or cannot be opened, or rosbags is missing.
    :ivar topics: by name.
    :ivar start_ns: time of the first message, 0 in an empty recording.
    :ivar end_ns: time after the last message.
    """

    def __init__(self, path: Path) -> None:
        self.path = path
        self._readers: list[Any] = []
        self._unfinished = ''
        self._threads = ThreadPoolExecutor(LOADING_THREADS)
        with ExitStack() as undo:
            undo.callback(self.close)
            self._open()
            self._describe()
            undo.pop_all()

    def _describe(self) -> None:
        """Read topics and times; the metadata may have any types."""
        try:
            self._read_topics()
            filled = [reader for reader in self._readers if reader.message_count]
            self.start_ns = min((_int64(each.start_time) for each in filled), default=0)
            self.end_ns = max((_int64(each.end_time) for each in filled), default=0)
        except (TypeError, ValueError, OverflowError) as error:
            raise _cannot_open(self.path, error) from error

    def _read_topics(self) -> None:
        self.topics: dict[str, RecordedTopic] = {}
        for reader in self._readers:
            for each in reader.connections:
                topic = self.topics.get(each.topic) or RecordedTopic(
                    each.topic, each.msgtype, 0, '', '', _qos_yaml(each.ext.offered_qos_profiles)
                )
                encoding = each.msgdef.format.name
                if encoding != 'NONE':
                    topic = replace(
                        topic,
                        schema_encoding=f'ros2{encoding.lower()}',
                        definition=each.msgdef.data,
                    )
                self.topics[each.topic] = replace(topic, count=topic.count + _int64(each.msgcount))

    def _open(self) -> None:
        path = self.path
        if not path.exists():
            raise ParameterError(
                f'Recording {path} does not exist.', remedy='Correct the path of the recording.'
            )
        if is_recording(path):
            try:
                self._readers.append(_open_reader(path))
                return
            except _UnreadableError as error:
                if not path.is_dir() and path.suffix != '.mcap':
                    raise _cannot_open(path, error) from error
                cause = error
        else:
            cause = _UnreadableError('It has no metadata.yaml.')
        # The writer was killed, or still writes.
        files = _storage_files(path) if path.is_dir() else [path]
        if not files:
            raise _cannot_open(path, cause)
        for each in files:
            try:
                self._readers.append(_open_reader(each))
            except _UnreadableError as error:
                self._unfinished = str(error)
                self._readers.append(_open_unfinished(path, each, error))

    def images(self) -> list[str]:
        """Return the names of the topics of raw and compressed images."""
        return [
            each.name
            for each in self.topics.values()
            if each.message_type in IMAGE_TYPES and not each.name.endswith('compressedDepth')
        ]

    def mean_rate_hz(self, topic: str) -> float:
        """
        Return the mean rate of a topic over the whole recording; 0.0 if it is unknown.

        Less than one message per day is a clock that was set while recording.
        """
        seconds = (self.end_ns - self.start_ns) / 1e9
        rate_hz = (self.topics[topic].count - 1) / seconds if seconds > 0 else 0.0
        return rate_hz if 1 / 86400 < rate_hz < 1000 else 0.0

    def messages(self, topics: Sequence[str]) -> Iterator[tuple[str, int, np.ndarray]]:
        """
        Yield topic, time of recording in nanoseconds and serialized message, (N,) uint8.

        :raises BadFrameError: 'damaged recording', where the rest cannot be read.
        """
        last_ns = self.start_ns
        try:
            for reader in self._readers:
                chosen = [each for each in reader.connections if each.topic in topics]
                if not chosen:
                    continue
                for topic, time_ns, data in _messages(reader, chosen, self._threads):
                    if not isinstance(time_ns, int) or time_ns < 0:  # SQLite stores anything.
                        raise ValueError(f'A message has the time {time_ns!r}.')
                    last_ns = time_ns
                    yield topic, time_ns, data
        except Exception as error:  # rosbags, SQLite and decompressors raise their own.
            raise self._damaged(last_ns, str(error)) from error
        if self._unfinished:
            raise self._damaged(last_ns, self._unfinished)

    def _damaged(self, time_ns: int, cause: str) -> BadFrameError:
        seconds = (time_ns - self.start_ns) / 1e9
        return BadFrameError(
            'damaged recording',
            f'Recording {self.path} is damaged: read up to {seconds:.3f} s after its start '
            f'(time {time_ns / 1e9:.3f}).',
            cause=cause,
            remedy='Use the results up to that time, or try to repair the recording, as with '
            '`mcap recover` or `ros2 bag reindex`.',
        )

    def close(self) -> None:
        """Close the files; may be called twice."""
        self._threads.shutdown(cancel_futures=True)
        while self._readers:
            self._readers.pop().close()


def _messages(
    reader: Any, chosen: Sequence[Any], threads: ThreadPoolExecutor
) -> Iterator[tuple[str, int, np.ndarray]]:
    """Yield the messages of connections of an open reader of rosbags."""
    files = getattr(reader.storage, 'storages', [reader.storage])
    if reader.compression_mode == 'message' or not all(_has_chunks(each) for each in files):
        for connection, time_ns, data in reader.messages(chosen):
            yield connection.topic, time_ns, np.frombuffer(data, np.uint8)
        return
    topics = {each.topic for each in chosen}
    for file in files:
        topic_of = {each.id: each.topic for each in file.connections if each.topic in topics}
        path = getattr(file.path, 'file', file.path)
        yield from chunk_messages(path, file.chunks, topic_of, threads)


def _int64(value: Any) -> int:
    """Return a number of the metadata, from 0 to the largest of 64 bits."""
    return max(0, min(int(value), (1 << 63) - 1))


def _has_chunks(file: Any) -> bool:
    """Return whether all messages of an open file of rosbags are in indexed chunks."""
    return hasattr(file, 'chunks') and bool(file.chunks or not file.metadata.message_count)


def _qos_yaml(profiles: Sequence[Any]) -> str:
    """Return QoS profiles of rosbags as rosbag2 of Jazzy writes them."""

    def plain(value: Any) -> Any:
        if isinstance(value, Enum):
            return value.name.lower()
        return value._asdict() if hasattr(value, '_asdict') else value

    fields = [{name: plain(value) for name, value in each._asdict().items()} for each in profiles]
    return json.dumps(fields) if fields else ''  # YAML, too.


class _UnreadableError(Exception):
    """An error of rosbags."""


def _open_reader(path: Any) -> Any:
    """Return an open reader of rosbags."""
    package = 'the Python package rosbags, 0.11.9 or later'
    with requires(package, 'Reading of recordings', "pip install 'rosbags>=0.11.9'"):
        from rosbags.rosbag2 import Reader, ReaderError
        from rosbags.rosbag2.storage_mcap import decompress  # noqa: F401  # Of chunks.
    try:
        reader = Reader(path)
        reader.open()
    except ReaderError as error:
        raise _UnreadableError(str(error)) from error
    except Exception as error:  # rosbags, SQLite and decompressors raise their own.
        raise _UnreadableError('The file is damaged or truncated.') from error
    return reader


def _open_unfinished(path: Path, file: Path, error: Exception) -> Any:
    """
    Return an open reader of the whole records of an MCAP file of the recording `path`.

    After a power failure, the last ones may have their size, but no content.

    :raises ParameterError: when there are none; its cause is `error`.
    """
    for dropped in range(MAX_EMPTY_RECORDS + 1):
        try:
            return _open_reader(UnfinishedMcap(file, dropped))
        except (_UnreadableError, OSError):
            continue
    raise _cannot_open(path, error) from error


def _cannot_open(path: Path, error: Exception) -> ParameterError:
    return ParameterError(
        f'Recording {path} cannot be opened.',
        cause=str(error),
        remedy='Choose an .mcap or .db3 file of rosbag2, or its folder; `ros2 bag reindex` '
        'writes a lost metadata.yaml.',
    )


def _storage_files(folder: Path) -> list[Path]:
    return sorted(
        (each for each in folder.iterdir() if each.suffix in RECORDING_SUFFIXES), key=_natural
    )


def _natural(path: Path) -> list[tuple[bool, int, str]]:
    return [
        (part.isdigit(), int(part) if part.isdigit() else 0, part)
        for part in re.split(r'(\d+)', str(path))
    ]
