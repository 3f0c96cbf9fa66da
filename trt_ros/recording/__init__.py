"""Recordings of rosbag2: .mcap and .db3 files and their folders, read without ROS."""

from collections.abc import Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import ExitStack, suppress
from dataclasses import replace
from itertools import chain
from pathlib import Path
import re
import shutil
import sqlite3
from tempfile import TemporaryDirectory
from typing import Any

import numpy as np
import yaml

from trt_ros.errors import BadFrameError, ParameterError, requires
from trt_ros.recording.db3_file import Db3File
from trt_ros.recording.mcap_file import McapFile
from trt_ros.recording.messages import Attachment, RecordedMessage, RecordedTopic
from trt_ros.video import IMAGE_TYPES

RECORDING_SUFFIXES = ('.mcap', '.db3')
ALL_TIMES = -(1 << 63), (1 << 63) - 1

LOADING_THREADS = 3
_ZSTD_MAGIC = b'\x28\xb5\x2f\xfd'


def is_recording(path: Path) -> bool:
    """Return whether a path is a recording file, or a folder with metadata.yaml."""
    return (path / 'metadata.yaml').is_file() if path.is_dir() else _is_storage_file(path)


def recordings_in(folder: Path) -> list[Path]:
    """Return the recordings of a folder in natural order of name: 2 before 10."""
    return sorted(filter(is_recording, folder.iterdir()), key=natural_order)


class Recording:
    """
    An open recording. Owns its files until close().

    A recording whose writer was killed is read as far as it goes.

    :param path: a file, or a folder of the files of one recording.
    :raises ParameterError: when it does not exist or cannot be opened, or mcap is missing.
    :ivar paths: of its files, in natural order.
    :ivar topics: by name.
    :ivar start_ns: time of the first message, 0 in an empty recording.
    :ivar end_ns: time of the last message.
    :ivar compression: of the chunks of MCAP files, as in 'zstd', or ''.
    """

    def __init__(self, path: Path) -> None:
        self.path = path
        with ExitStack() as stack:
            threads = ThreadPoolExecutor(LOADING_THREADS)
            stack.callback(threads.shutdown, cancel_futures=True)
            self._files, self._unreadable = self._open(stack, threads)
            self._read_topics()
            filled = [each for each in self._files if any(t.count for t in each.topics.values())]
            self.start_ns = min((each.start_ns for each in filled), default=0)
            self.end_ns = max((each.end_ns for each in filled), default=0)
            self.compression = self._files[0].compression
            self._stack = stack.pop_all()

    def _open(self, stack: ExitStack, threads: ThreadPoolExecutor) -> tuple[list[Any], str]:
        """Return the files in order of time, and why others cannot be read."""
        path = self.path
        if not path.exists():
            raise ParameterError(
                f'Recording {path} does not exist.', remedy='Correct the path of the recording.'
            )
        listed = _listed_files(path / 'metadata.yaml')
        paths = list(filter(_is_storage_file, path.iterdir() if path.is_dir() else [path]))
        # Others are not of the recording, such as a copy without compression. Or all were renamed.
        self.paths = [each for each in paths if each.name in listed] or paths
        self.paths.sort(key=natural_order)
        files, unreadable = list[McapFile | Db3File](), 'It has no files of a recording.'
        with requires('the Python package mcap', 'Reading of recordings', 'pip install mcap'):
            import mcap  # noqa: F401
        for each in self.paths:
            try:
                files.append(_open_file(each, stack, threads))
            except (BadFrameError, OSError, sqlite3.Error, ValueError) as error:
                unreadable = f'{each.name}: {getattr(error, "cause", "") or error}'
        if not files:
            raise ParameterError(
                f'Recording {path} cannot be opened.',
                cause=unreadable,
                remedy='Choose an .mcap or .db3 file of rosbag2, or the folder of one recording.',
            )
        files.sort(key=lambda each: each.start_ns)
        missing = [name for name in listed if name not in {each.name for each in paths}]
        if 0 < len(missing) < len(listed):
            return files, f'Files that metadata.yaml lists are missing: {", ".join(missing)}.'
        return files, unreadable if len(files) < len(self.paths) else ''

    def _read_topics(self) -> None:
        self.topics: dict[str, RecordedTopic] = {}
        for each in chain.from_iterable(file.topics.values() for file in self._files):
            known = self.topics.setdefault(each.name, replace(each, count=0))
            if not known.definition:
                known = replace(each, count=known.count)
            self.topics[each.name] = replace(known, count=known.count + each.count)

    def images(self) -> list[str]:
        """Return the names of the topics of raw and compressed images, and of videos."""
        return [
            each.name
            for each in self.topics.values()
            if each.message_type in IMAGE_TYPES
            and each.encoding == 'cdr'
            and not each.name.endswith('compressedDepth')
        ]

    def mean_rate_hz(self, topic: str) -> float:
        """
        Return the mean rate of a topic over the whole recording; 0.0 if it is unknown.

        Less than one message per day is a clock that was set while recording.
        """
        seconds = (self.end_ns - self.start_ns) / 1e9
        rate_hz = (self.topics[topic].count - 1) / seconds if seconds > 0 else 0.0
        return rate_hz if 1 / 86400 < rate_hz < 1000 else 0.0

    def messages(
        self, topics: Sequence[str], start_ns: int = ALL_TIMES[0], end_ns: int = ALL_TIMES[1]
    ) -> Iterator[RecordedMessage]:
        """Yield messages from `start_ns` to before `end_ns` by time, or raise BadFrameError."""
        last_ns = self.start_ns
        try:
            for file in self._files:
                for message in file.messages(set(topics), start_ns, end_ns):
                    last_ns = message.time_ns
                    yield _without_compression(message)
        except Exception as error:  # SQLite and decompressors raise their own.
            raise self._damaged(last_ns, getattr(error, 'cause', '') or str(error)) from error
        damage = self._unreadable or next((file.damage for file in self._files if file.damage), '')
        if damage and end_ns > last_ns:
            raise self._damaged(last_ns, damage)

    def attachments(self) -> Iterator[Attachment]:
        """Yield the attachments and metadata of MCAP files."""
        return chain.from_iterable(file.attachments() for file in self._files)

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
        self._stack.close()


def _is_storage_file(path: Path) -> bool:
    return path.name.lower().removesuffix('.zstd').endswith(RECORDING_SUFFIXES)


def _listed_files(metadata: Path) -> list[str]:
    """Return the names of the files that rosbag2 wrote, [] without its list."""
    with suppress(OSError, ValueError, KeyError, TypeError, yaml.YAMLError):
        about = yaml.safe_load(metadata.read_bytes())['rosbag2_bagfile_information']
        return [Path(each).name for each in about['relative_file_paths']]
    return []


def _open_file(path: Path, stack: ExitStack, threads: ThreadPoolExecutor) -> McapFile | Db3File:
    """Open a file, a compressed one as a temporary copy, until the stack is closed."""
    if path.suffix.lower() == '.zstd':
        import zstandard

        folder = Path(stack.enter_context(TemporaryDirectory()))
        with zstandard.open(path, 'rb') as source, (folder / path.stem).open('wb') as copy:
            shutil.copyfileobj(source, copy)
        path = folder / path.stem
    file = McapFile(path, threads) if path.suffix.lower() == '.mcap' else Db3File(path)
    stack.callback(file.close)
    return file


def _without_compression(message: RecordedMessage) -> RecordedMessage:
    """Return a message as it was published: rosbag2 may compress each of them."""
    if bytes(message.data[:4]) != _ZSTD_MAGIC:
        return message
    import zstandard

    data = zstandard.ZstdDecompressor().decompressobj().decompress(message.data.tobytes())
    return message._replace(data=np.frombuffer(data, np.uint8))


def natural_order(path: Path) -> list[tuple[bool, int, str]]:
    """Return a key that sorts picture 2 before picture 10."""
    return [
        (part.isdigit(), int(part) if part.isdigit() else 0, part)
        for part in re.split(r'(\d+)', str(path))
    ]
