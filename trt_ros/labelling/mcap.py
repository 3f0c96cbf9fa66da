"""
Writer of MCAP files that are readable while they are written, and can be continued.

Format: https://mcap.dev/spec. After the messages of each input, a record of private opcode 0x80
holds its position. The last chunk grows until it is full, so that chunks end at the same messages
whenever the file was written; its head is written after the rest. Until then the old head
describes the old messages, which are still there: an interrupted write costs only itself.
Compressed chunks cannot grow: one ends with each write.
"""

from collections import Counter, defaultdict
from collections.abc import Iterable, Iterator, Mapping, Sequence
from contextlib import ExitStack, suppress
from io import FileIO
from pathlib import Path
import struct
import time
from typing import Any
from zlib import crc32

from mcap import records
import numpy as np

from trt_ros.errors import ClosedError, ParameterError
from trt_ros.labelling.mcap_head import McapHead, record_bytes
from trt_ros.recording.compression import compressed, decompressed
from trt_ros.recording.mcap_file import CHUNK, MAGIC, MESSAGE, MESSAGE_INDEX, records_in
from trt_ros.recording.messages import Attachment, RecordedTopic, int64
from trt_ros.regular_file import writing

CHUNK_NBYTES = 4 << 20
CHUNK_POSITIONS = 100  # Inputs per chunk at most.
MAX_UNWRITTEN_NBYTES = 16 << 20
SECONDS_PER_WRITE = 1.0

_POSITION = 0x80
_CHUNK_HEAD = struct.Struct('<BQQQQI')  # Up to the name and size of the compressed records.
_Entry = tuple[bytes, tuple[int, ...]]  # Index of a chunk, and its first and last time.
_HEAD_NBYTES = _CHUNK_HEAD.size + 12


class McapWriter:
    """
    A writer of an MCAP file of ROS 2 messages, until close().

    :param resume: continue an existing file with the same topics and provenance.
    :param provenance: what the results depend on, JSON values by name.
    :param attachments: of the input, to copy.
    :param compression: of the chunks, 'zstd', 'lz4' or ''.
    :param seconds_per_write: how long messages wait at most before a checkpoint writes them.
    :ivar position: of the last checkpoint in the file at opening; 0 in a new file.
    :raises ParameterError: when the file cannot be written, exists already, or does not fit.
    """

    def __init__(
        self,
        path: Path,
        topics: Sequence[RecordedTopic],
        *,
        resume: bool = False,
        provenance: Mapping[str, Any] | None = None,
        attachments: Iterable[Attachment] = (),
        compression: str = '',
        seconds_per_write: float = SECONDS_PER_WRITE,
    ) -> None:
        self._path, self._compression = path, compression
        self._channels = {topic.name: number for number, topic in enumerate(topics, 1)}
        self._chunks = list[_Entry]()
        self._unwritten = bytearray()  # Before _data_end.
        self._counts = Counter(dict.fromkeys(self._channels.values(), 0))
        self._clear_chunk()
        self._seconds_per_write = seconds_per_write
        self._write_due = time.monotonic() + seconds_per_write
        self.position = 0
        self._head = McapHead(topics, provenance or {}, attachments)
        with writing(path, 'Choose a new file in an existing, writable folder, or --resume.'):
            self._file = FileIO(path, 'r+' if resume else 'x')
        try:
            if resume:
                self._continue()
            else:
                self._begin()
        except BaseException:
            self._file.close()
            raise

    def write(
        self,
        topic: str,
        time_ns: int,
        message: bytes | memoryview,
        publish_ns: int | None = None,
        sequence: int = 0,
    ) -> None:
        """Append a serialized message."""
        channel = self._channels[topic]
        publish_ns = time_ns if publish_ns is None else publish_ns
        times = time_ns % (1 << 64), publish_ns % (1 << 64)
        self._messages[channel].append((times[0], len(self._records)))
        size = 22 + len(message)
        self._records += struct.pack('<BQHIQQ', MESSAGE, size, channel, sequence, *times)
        self._records += message

    def checkpoint(self, position: int) -> None:
        """Declare that all messages before `position` are written, or raise ParameterError."""
        if self._file.closed:
            raise ClosedError(f'File {self._path}')
        self._records += struct.pack('<BQQ', _POSITION, 8, position)
        self._chunk_positions += 1
        if self._is_full:
            self._finish_chunk()
        if time.monotonic() >= self._write_due or len(self._unwritten) > MAX_UNWRITTEN_NBYTES:
            self._write_all()

    @property
    def _is_full(self) -> bool:
        return len(self._records) >= CHUNK_NBYTES or self._chunk_positions >= CHUNK_POSITIONS

    def close(self) -> None:
        """Write what is left, with the index; may be called twice."""
        if not self._file.closed:
            try:
                self._write_all()
                self._file.truncate()
            finally:
                self._file.close()

    def _clear_chunk(self) -> None:
        self._records, self._chunk_positions = bytearray(), 0
        self._messages: defaultdict[int, list[tuple[int, int]]] = defaultdict(list)

    def _finish_chunk(self) -> None:
        data, index = self._chunk()
        self._unwritten += data
        self._data_end += len(data)
        self._chunks += index
        self._count(1)
        self._clear_chunk()

    def _chunk(self) -> tuple[bytes, list[_Entry]]:
        if not self._records:
            return b'', []
        times = [int64(time) for each in self._messages.values() for time, _ in each]
        start, end = (each % (1 << 64) for each in (min(times, default=0), max(times, default=0)))
        content = compressed(bytes(self._records), self._compression)
        size = len(self._records)
        chunk = records.Chunk(self._compression, content, end, start, crc32(self._records), size)
        data = bytearray(record_bytes(chunk))
        index = records.ChunkIndex(
            len(data), self._data_end, self._compression, len(content), end, 0, {}, start, size
        )
        for channel, messages in self._messages.items():
            index.message_index_offsets[channel] = self._data_end + len(data)
            data += record_bytes(records.MessageIndex(channel, messages))
        index.message_index_length = len(data) - index.chunk_length
        return bytes(data), [_entry(index)]

    def _count(self, sign: int) -> None:
        """Add the messages of the last chunk to the counts of the others, or subtract them."""
        for channel, messages in self._messages.items():
            self._counts[channel] += sign * len(messages)

    def _write_all(self) -> None:
        """Write chunks, index and footer over the last index and footer; heads come last."""
        if self._compression:
            self._finish_chunk()
        last, last_index = self._chunk()
        self._count(1)
        data, start = self._unwritten + last, self._data_end - len(self._unwritten)
        summary = self._data_end + len(last) + 13
        data += record_bytes(records.DataEnd(0)) + self._summary([*self._chunks, *last_index])
        data += record_bytes(records.Footer(summary, 0, 0)) + MAGIC
        self._count(-1)
        # In a chunk that grows, the head and the old messages after it are the same for now.
        kept = min(_HEAD_NBYTES, len(data)) if self._has_growing_chunk else 0
        remedy = (
            'Free space, or whatever else prevents it, and continue with --resume; with --video '
            'or --coco, delete the files of this run and start again.'
        )
        with writing(f'File {self._path}', remedy), ExitStack() as undo:
            undo.callback(self._file.close)
            self._write_at(start + kept, data[kept:])
            self._write_at(start, data[:kept])
            self._file.seek(start + len(data))
            undo.pop_all()
        self._unwritten = bytearray()
        self._has_growing_chunk = bool(last_index)
        self._write_due = time.monotonic() + self._seconds_per_write

    _has_growing_chunk = False

    def _write_at(self, offset: int, data: bytes | bytearray) -> None:
        self._file.seek(offset)
        left = memoryview(data)
        while left:
            left = left[self._file.write(left) :]

    def _summary(self, chunks: Sequence[_Entry]) -> bytes:
        times = [time for _, times in chunks for time in times]
        statistics = records.Statistics(
            self._head.attachment_count,
            len(self._channels),
            self._counts,
            len(chunks),
            sum(self._counts.values()),
            max(times, default=0) % (1 << 64),
            min(times, default=0) % (1 << 64),
            self._head.metadata_count,
            self._head.schema_count,
        )
        return self._head.summary + b''.join(data for data, _ in chunks) + record_bytes(statistics)

    def _begin(self) -> None:
        self._unwritten, self._data_end = bytearray(self._head.data), len(self._head.data)
        self._write_all()

    def _continue(self) -> None:
        file, head = self._file, self._head.data
        file.seek(0)
        start = file.read(len(head))
        if len(start) < len(head) and head.startswith(start):
            self._begin()  # Killed before it wrote anything else.
            return
        # Definitions of more topics would follow.
        if start != head or file.read(1) in (b'\x03', b'\x04'):
            raise ParameterError(
                f'File {self._path} cannot be resumed: it is of another run.',
                cause=self._head.difference(start) or 'It has other topics.',
                remedy='Use the recording, model, versions and options of the first run, or '
                'another output file.',
            )
        self._data_end, content = len(head), b''
        chunks = list(self._whole_chunks(len(head)))
        while chunks and not content:
            index, counts = chunks.pop()
            self._data_end, content = index.chunk_start_offset, self._content(index)
        for index, counts in chunks:
            self._chunks.append(_entry(index))
            self._counts.update(counts)
        self._load(content)
        if self._is_full or self._compression:
            self._finish_chunk()
        else:
            self._has_growing_chunk = len(self._records) == len(content)
        self._write_all()
        file.truncate()

    def _whole_chunks(self, at: int) -> Iterator[tuple[records.ChunkIndex, Counter[int]]]:
        """Yield the index and the message counts of the chunks of the file from an offset on."""
        size, found = self._file.seek(0, 2), None
        while True:
            self._file.seek(at)
            start = self._file.read(_HEAD_NBYTES)
            opcode, nbytes = struct.unpack_from('<BQ', start.ljust(9, b'\0'))
            if opcode not in (CHUNK, MESSAGE_INDEX) or (at := at + 9 + nbytes) > size:
                break
            if opcode == CHUNK and nbytes < 40 + len(self._compression):
                break
            if opcode == CHUNK:
                if found is not None:
                    yield found
                _, _, start_ns, end_ns, content_nbytes, _ = _CHUNK_HEAD.unpack_from(start)
                index = records.ChunkIndex(
                    chunk_length=9 + nbytes,
                    chunk_start_offset=at - 9 - nbytes,
                    compression=self._compression,
                    compressed_size=nbytes - 40 - len(self._compression),
                    message_end_time=end_ns,
                    message_index_length=0,
                    message_index_offsets={},
                    message_start_time=start_ns,
                    uncompressed_size=content_nbytes,
                )
                found = index, Counter[int]()
            elif found is not None:
                channel, entries = struct.unpack_from('<HI', start, 9)
                found[0].message_index_offsets[channel] = at - 9 - nbytes
                found[0].message_index_length += 9 + nbytes
                found[1][channel] += entries // 16
        if found is not None:
            yield found

    def _content(self, index: records.ChunkIndex) -> bytes:
        """Return the records of a chunk; b'' if its write was interrupted."""
        self._file.seek(index.chunk_start_offset)
        data = self._file.read(index.chunk_length)
        with suppress(Exception):  # Of any type: the bytes may be any.
            content = data[-index.compressed_size :]
            found: bytes = decompressed(content, self._compression, index.uncompressed_size)
            if crc32(found) == _CHUNK_HEAD.unpack_from(data)[5]:
                return found
        return b''

    def _load(self, content: bytes) -> None:
        """Continue in a chunk of these records, up to its last position."""
        offset = 0
        for opcode, begin, end in records_in(np.frombuffer(content, np.uint8)):
            if opcode == _POSITION:
                (self.position,) = struct.unpack_from('<Q', content, begin)
                self._chunk_positions, offset = self._chunk_positions + 1, end
        self._records = bytearray(content[:offset])
        for opcode, begin, _ in records_in(np.frombuffer(content[:offset], np.uint8)):
            if opcode == MESSAGE:
                channel, time = struct.unpack_from('<H4xQ', content, begin)
                self._messages[channel].append((time, begin - 9))


def _entry(index: records.ChunkIndex) -> _Entry:
    times = int64(index.message_start_time), int64(index.message_end_time)
    return record_bytes(index), times if index.message_index_length else ()
