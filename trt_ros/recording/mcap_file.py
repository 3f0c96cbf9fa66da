"""
MCAP files: their topics, and where their messages are, from the index or from all records.

Format: https://mcap.dev/spec. A file without an index, without chunks or without an end is read
record by record; of a chunk that is cut off, the messages that are left are found.
"""

from collections import Counter, deque
from collections.abc import Iterator, Mapping, Sequence, Set
from concurrent.futures import Future, ThreadPoolExecutor
from contextlib import suppress
from dataclasses import dataclass, replace
import heapq
from io import BytesIO
import os
from pathlib import Path
import re
import struct
from typing import Any
from zlib import crc32

import numpy as np

from trt_ros.recording.compression import decompressed, decompressed_start
from trt_ros.recording.messages import Attachment, RecordedMessage, RecordedTopic, damaged, int64

MAGIC = b'\x89MCAP0\r\n'
PIECE_NBYTES = 4 << 20  # Of messages outside of chunks that are read together.
MAX_AHEAD_NBYTES = 16 << 20  # Of pieces that are loaded, beyond the first two.

# Time, offset of the piece, offset in the piece: the order of messages.
_Message = tuple[int, int, int, RecordedMessage]

_FOOTER, _SCHEMA, _CHANNEL, MESSAGE, CHUNK, MESSAGE_INDEX = 0x02, 0x03, 0x04, 0x05, 0x06, 0x07
_CHUNK_INDEX, ATTACHMENT, _ATTACHMENT_INDEX, _STATISTICS, _METADATA = 0x08, 0x09, 0x0A, 0x0B, 0x0C
_METADATA_INDEX, _DATA_END = 0x0D, 0x0F
_CHUNK_HEAD_NBYTES = 9 + 40  # Without the name of a compression.
_FOOTER_NBYTES = 9 + 20 + len(MAGIC)
_ALWAYS = -(1 << 63), (1 << 63) - 1  # Times of a chunk that has some before 1970, and others.


@dataclass
class McapPiece:
    """
    Records that are read together: a chunk, or messages outside of chunks.

    :param nbytes: in the file.
    :param size: of the records, decompressed.
    :param channels: of its messages; None if unknown.
    :param is_cut: whether its end is missing.
    """

    offset: int
    nbytes: int
    size: int
    start_ns: int
    end_ns: int
    channels: set[int] | None
    is_chunk: bool = True
    is_cut: bool = False


class McapFile:
    """
    An open MCAP file. Owns the file until close().

    :param threads: load pieces ahead of their use.
    :raises BadFrameError: when it is no MCAP file or has no whole record; also errors of the
        operating system and of decompressors.
    :ivar topics: with their messages' number, by channel.
    :ivar pieces: in the order of the file.
    :ivar start_ns: time of the first message, 0 without messages.
    :ivar compression: of its chunks, as in 'zstd'.
    :ivar damage: why the file ends early, or ''.
    """

    def __init__(self, path: Path, threads: ThreadPoolExecutor) -> None:
        from mcap import records

        self._threads, self._records = threads, records
        self._file = path.open('rb')
        try:
            self._size = self._file.seek(0, os.SEEK_END)
            self._open()
        except BaseException:
            self._file.close()
            raise

    def _open(self) -> None:
        if bytes(self.read(0, min(len(MAGIC), self._size))) != MAGIC:
            raise damaged('The magic bytes of MCAP are missing.' if self._size else 'It is empty.')
        try:
            is_indexed = self._read_index()
        except Exception:  # Of any bytes, which the reader of records does not check.
            is_indexed = False
        if not is_indexed:
            self._read_records()
        used = [each for each in self.pieces if each.start_ns <= each.end_ns]
        self.start_ns = min((each.start_ns for each in used), default=0)
        self.end_ns = max((each.end_ns for each in used), default=0)

    def _clear(self) -> None:
        self._schemas: dict[int, Any] = {}
        self._counts, self._indexed = Counter[int](), Counter[int]()
        self._attachments: list[tuple[int, int]] = []  # Offset and size of the records.
        self.topics: dict[int, RecordedTopic] = {}
        self.pieces: list[McapPiece] = []
        self.compression = self.damage = ''

    def read(self, offset: int, nbytes: int) -> np.ndarray:
        """Return bytes of the file, (N,) uint8; for several threads."""
        data = np.empty(nbytes, np.uint8)
        left = data.data
        while left:
            count = os.preadv(self._file.fileno(), [left], offset)
            if not count:
                raise damaged(f'A record after byte {offset} is not whole.')
            left, offset = left[count:], offset + count
        return data

    def _read_index(self) -> bool:
        """Read the summary; return whether it has all topics and messages."""
        self._clear()
        data = bytes(self.read(self._size - _FOOTER_NBYTES, _FOOTER_NBYTES))
        opcode, start = struct.unpack_from('<B8xQ', data)
        if opcode != _FOOTER or not data.endswith(MAGIC) or not start:
            return False
        content = self.read(start, self._size - start)
        statistics, entries = None, 0
        for opcode, begin, end in records_in(content[: -len(MAGIC)]):
            body = bytes(content[begin:end])
            if opcode == _STATISTICS:
                statistics = self._parse('Statistics', body)
            elif opcode == _CHUNK_INDEX:
                index = self._parse('ChunkIndex', body)
                self._add_indexed(index)
                heads = 15 * len(index.message_index_offsets)
                entries += (index.message_index_length - heads) // 16
            elif opcode in (_ATTACHMENT_INDEX, _METADATA_INDEX):
                self._attachments.append(struct.unpack_from('<QQ', body))
            else:
                self._define(opcode, body)
        if (
            statistics is None
            or statistics.chunk_count != len(self.pieces)
            or statistics.channel_count != len(self.topics)
            or statistics.attachment_count + statistics.metadata_count != len(self._attachments)
            or entries not in (0, statistics.message_count)  # Others are outside of chunks.
            or (statistics.message_count and not self.pieces)
        ):
            return False
        self._counts.update(statistics.channel_message_counts)
        self._finish_topics()
        return True

    def _add_indexed(self, index: Any) -> None:
        piece = McapPiece(
            index.chunk_start_offset,
            index.chunk_length,
            index.uncompressed_size,
            *_times(index.message_start_time, index.message_end_time),
            set(index.message_index_offsets) or None,
        )
        if (piece.start_ns, piece.end_ns) == _ALWAYS:
            self._count(piece, Counter())
        self.compression = index.compression
        self.pieces.append(piece)

    def _read_records(self) -> None:
        """Read the heads of all records, and chunks with topics that are new or not indexed."""
        self._clear()
        chunk, at, is_whole = None, len(MAGIC), True
        while is_whole:
            head = os.pread(self._file.fileno(), _CHUNK_HEAD_NBYTES, at)
            opcode, nbytes = struct.unpack_from('<BQ', head.ljust(9, b'\0'))
            end = at + 9 + nbytes
            is_whole = bool(opcode) and end <= self._size
            if chunk is not None and not (opcode == MESSAGE_INDEX and is_whole):
                self._finish_chunk(chunk, is_whole)
                chunk = None
            if opcode in (_DATA_END, _FOOTER):
                break
            with suppress(Exception):  # Of any bytes, which the reader of records does not check.
                chunk = self._read_record(opcode, at, min(end, self._size), head) or chunk
                at = end
                continue
            is_whole = False
        if not is_whole:
            self.damage = 'The file ends within a record, or before the end of its records.'
            if chunk is not None:
                chunk.is_cut = True
                self._finish_chunk(chunk, is_whole)
            if not self.topics:
                raise damaged('The file is damaged or truncated.')
        self._finish_topics()

    def _read_record(self, opcode: int, at: int, end: int, head: bytes) -> McapPiece | None:
        """Read a record; return the piece of a chunk."""
        is_whole = end - at == 9 + struct.unpack_from('<Q', head, 1)[0]
        if opcode == CHUNK:
            return self._add_chunk(at, end, head)
        if not is_whole:
            return None
        if opcode == MESSAGE_INDEX:
            channel, size = struct.unpack_from('<HI', head, 9)
            self._indexed[channel] += size // 16
        elif opcode == MESSAGE:
            self._add_message(at, end, head)
        elif opcode in (ATTACHMENT, _METADATA):
            self._attachments.append((at, end - at))
        elif opcode in (_SCHEMA, _CHANNEL):
            self._define(opcode, bytes(self.read(at + 9, end - at - 9)))
        return None

    def _add_chunk(self, at: int, end: int, head: bytes) -> McapPiece:
        start_ns, end_ns, size, _, count = struct.unpack_from('<QQQII', head, 9)
        self.compression = head[41 : 41 + min(count, 4)].decode(errors='replace')
        self.pieces.append(McapPiece(at, end - at, size, *_times(start_ns, end_ns), None))
        return self.pieces[-1]

    def _finish_chunk(self, chunk: McapPiece, is_whole: bool) -> None:
        """Count the messages of a chunk by its index, or read it if it has news."""
        indexed, self._indexed = self._indexed, Counter()
        is_known = indexed and is_whole and indexed.keys() <= self.topics.keys()
        if is_known and (chunk.start_ns, chunk.end_ns) != _ALWAYS:
            self._counts.update(indexed)
            chunk.channels = set(indexed)
        else:
            self._count(chunk, self._counts)

    def _add_message(self, at: int, end: int, head: bytes) -> None:
        """Append a message outside of chunks to the last piece, or begin one with it."""
        channel, time = struct.unpack_from('<H4xQ', head[: end - at], 9)
        time_ns = int64(time)
        last = self.pieces[-1] if self.pieces else None
        is_next = last is not None and not last.is_chunk and last.offset + last.nbytes == at
        if last is None or not is_next or end - last.offset > PIECE_NBYTES:
            last = McapPiece(at, 0, 0, time_ns, time_ns, set(), is_chunk=False)
            self.pieces.append(last)
        last.channels = {*(last.channels or ()), channel}
        last.nbytes = last.size = end - last.offset
        last.start_ns, last.end_ns = min(last.start_ns, time_ns), max(last.end_ns, time_ns)
        self._counts[channel] += 1

    def _count(self, chunk: McapPiece, counts: Counter[int]) -> None:
        """Read the topics of a chunk, its channels and times, and count its messages."""
        channels, times = set[int](), list[int]()
        try:
            content = self.load(chunk)
            for opcode, begin, end in records_in(content, chunk.is_cut):
                if opcode == MESSAGE:
                    channel, time = struct.unpack_from('<H4xQ', content.data, begin)
                    channels.add(channel)
                    times.append(int64(time))
                    counts[channel] += 1
                else:
                    self._define(opcode, bytes(content[begin:end]))
        except Exception:  # Of a damaged chunk, which is reported when its messages are read.
            return
        chunk.channels = channels
        if times:
            chunk.start_ns, chunk.end_ns = min(times), max(times)

    def _parse(self, name: str, body: bytes) -> Any:
        from mcap.data_stream import ReadDataStream

        return getattr(self._records, name).read(ReadDataStream(BytesIO(body)))

    def _define(self, opcode: int, body: bytes) -> None:
        if opcode == _SCHEMA:
            schema = self._parse('Schema', body)
            self._schemas[schema.id] = schema
        elif opcode == _CHANNEL:
            each = self._parse('Channel', body)
            schema = self._schemas.get(each.schema_id)
            topic = RecordedTopic(
                each.topic, '', metadata=each.metadata, encoding=each.message_encoding
            )
            if schema is not None:
                topic = replace(
                    topic,
                    # ROS 1 leaves the middle out.
                    message_type=re.sub(r'^(\w+)/(\w+)$', r'\1/msg/\2', schema.name),
                    schema_encoding=schema.encoding,
                    definition=schema.data,
                )
            self.topics.setdefault(each.id, topic)

    def _finish_topics(self) -> None:
        for number, topic in self.topics.items():
            self.topics[number] = replace(topic, count=self._counts[number])

    def load(self, piece: McapPiece) -> np.ndarray:
        """Return the records of a piece, (N,) uint8, decompressed and checked, or raise."""
        data = self.read(piece.offset, piece.nbytes)
        if not piece.is_chunk:
            return data
        crc, count = struct.unpack_from('<II', data.data, 9 + 24)
        compression = bytes(data[41 : 41 + count]).decode(errors='replace')
        (nbytes,) = struct.unpack_from('<Q', data.data, 41 + count)
        content = data[49 + count : 49 + count + nbytes]
        if piece.is_cut:
            start = decompressed_start(content.tobytes(), compression)
            return np.frombuffer(start, np.uint8)
        content = np.frombuffer(decompressed(content, compression, piece.size), np.uint8)
        if len(content) != piece.size or (crc and crc32(content.data) != crc):
            raise damaged(f'The checksum or size of the chunk at byte {piece.offset} is wrong.')
        return content

    def messages(self, topics: Set[str], start_ns: int, end_ns: int) -> Iterator[RecordedMessage]:
        """Yield the messages of topics from `start_ns` to before `end_ns`, in order of time."""
        names = {number: each.name for number, each in self.topics.items() if each.name in topics}
        chosen = [
            each
            for each in self.pieces
            if (each.channels is None or not each.channels.isdisjoint(names))
            and each.start_ns < end_ns
            and each.end_ns >= start_ns
        ]
        chosen.sort(key=lambda each: (each.start_ns, each.offset))
        waiting: list[_Message] = []  # Pieces may overlap in time.
        for piece, loading in self._loading(chosen):
            # All times may be equal: nothing of this piece and the next ones comes before these.
            while waiting and waiting[0][:2] < (piece.start_ns, piece.offset):
                yield heapq.heappop(waiting)[3]
            for message in _messages_in(loading.result(), piece, names):
                if start_ns <= message[0] < end_ns:
                    heapq.heappush(waiting, message)
        while waiting:
            yield heapq.heappop(waiting)[3]

    def _loading(
        self, pieces: Sequence[McapPiece]
    ) -> Iterator[tuple[McapPiece, Future[np.ndarray]]]:
        """Yield pieces with their records, (N,) uint8, while the next ones are loaded."""
        left, loading = deque(pieces), deque[tuple[McapPiece, Future[np.ndarray]]]()
        while left or loading:
            ahead = sum(piece.size for piece, _ in loading)
            while left and (len(loading) < 2 or ahead < MAX_AHEAD_NBYTES):
                piece = left.popleft()
                loading.append((piece, self._threads.submit(self.load, piece)))
                ahead += piece.size
            yield loading.popleft()

    def attachments(self) -> Iterator[Attachment]:
        """Yield the attachments and metadata."""
        for offset, nbytes in self._attachments:
            data = self.read(offset, nbytes)
            yield Attachment(int(data[0]), bytes(data[9:]))

    def close(self) -> None:
        """Close the file; may be called twice."""
        self._file.close()


def _times(start: int, end: int) -> tuple[int, int]:
    times = int64(start), int64(end)
    return times if times[0] <= times[1] or start > end else _ALWAYS


def records_in(content: np.ndarray, is_cut: bool = False) -> Iterator[tuple[int, int, int]]:
    """Yield opcode, begin and end of records, (N,) uint8; BadFrameError unless `is_cut`."""
    at, size, view = 0, len(content), content.data
    while at < size:
        opcode, nbytes = struct.unpack_from('<BQ', view, at) if at + 9 <= size else (0, 0)
        end = at + 9 + nbytes
        if not opcode or end > size or (opcode == MESSAGE and nbytes < 22):
            if is_cut:
                return
            raise damaged('A record of a chunk is not whole.')
        yield opcode, at + 9, end
        at = end


def _messages_in(
    records: np.ndarray, piece: McapPiece, names: Mapping[int, str]
) -> Iterator[_Message]:
    """Yield the messages of a piece on the channels of `names`."""
    for opcode, at, end in records_in(records, piece.is_cut):
        if opcode == MESSAGE:
            channel, sequence, time, publish = struct.unpack_from('<HIQQ', records.data, at)
            if channel in names:
                time_ns, data = int64(time), records[at + 22 : end]
                found = RecordedMessage(names[channel], time_ns, data, int64(publish), sequence)
                yield time_ns, piece.offset, at, found
