"""
Writer of MCAP files that are readable while they are written, and can be continued.

Format: https://mcap.dev/spec. After each chunk, a record of private opcode 0x80 holds the position
of the caller's input. Index and footer always follow, and the next chunks overwrite them. The last
chunk grows until it is full: chunks end at the same messages whenever the file was written.
"""

from collections import Counter, defaultdict
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field
from io import FileIO
from pathlib import Path
import struct
import time
from zlib import crc32

from trt_ros.errors import ClosedError, ParameterError

MAGIC = b'\x89MCAP0\r\n'
CHUNK_NBYTES = 4 << 20
CHUNK_POSITIONS = 100  # Inputs per chunk at most.
MAX_UNWRITTEN_NBYTES = 16 << 20
SECONDS_PER_WRITE = 1.0

_HEADER, _FOOTER, _SCHEMA, _CHANNEL, _MESSAGE, _CHUNK = 0x01, 0x02, 0x03, 0x04, 0x05, 0x06
_CHUNK_HEAD_NBYTES = 9 + 8 + 8 + 8 + 4 + 4 + 8  # Without a name of a compression.
_MESSAGE_INDEX, _CHUNK_INDEX, _STATISTICS, _DATA_END, _POSITION = 0x07, 0x08, 0x0B, 0x0F, 0x80


@dataclass(frozen=True)
class OutputTopic:
    """
    A topic to write.

    :param schema_encoding: 'ros2msg' or 'ros2idl'.
    :param qos_profiles: those of its publishers, as YAML of rosbag2, or ''.
    """

    name: str
    message_type: str
    schema_encoding: str
    definition: str
    qos_profiles: str = ''


@dataclass
class _ChunkIndex:
    start_ns: int
    end_ns: int
    offset: int
    nbytes: int  # Of the chunk record.
    records_nbytes: int
    indices: dict[int, int]  # Offset of the message index by channel.
    indices_nbytes: int = 0


class McapWriter:
    """
    A writer of an MCAP file of ROS 2 messages, until close().

    :param resume: continue an existing file with the same topics.
    :param seconds_per_write: how long messages wait at most before a checkpoint writes them.
    :ivar position: of the last checkpoint in the file at opening; 0 in a new file.
    :raises ParameterError: when the file cannot be written, exists already, or does not fit.
    """

    def __init__(
        self,
        path: Path,
        topics: Sequence[OutputTopic],
        *,
        resume: bool = False,
        seconds_per_write: float = SECONDS_PER_WRITE,
    ) -> None:
        self._path, self._definitions = path, _definitions(topics)
        self._channels = {topic.name: number for number, topic in enumerate(topics, 1)}
        self._schema_count = len({topic.message_type for topic in topics})
        self._chunks: list[_ChunkIndex] = []
        self._unwritten = bytearray()  # Before _data_end.
        self._counts: dict[int, int] = dict.fromkeys(self._channels.values(), 0)
        self._clear_chunk()
        self._seconds_per_write = seconds_per_write
        self._write_due = time.monotonic() + seconds_per_write
        self.position = self._pending_position = 0
        head = MAGIC + _record(_HEADER, _text('ros2') + _text('trt_ros')) + self._definitions
        self._file = _open_file(path, resume)
        try:
            if resume:
                self._continue(head)
            else:
                self._begin(head)
        except BaseException:
            self._file.close()
            raise

    def write(self, topic: str, time_ns: int, message: bytes | memoryview) -> None:
        """Append a serialized message."""
        channel = self._channels[topic]
        self._index(channel, time_ns, len(self._records))
        size = 22 + len(message)
        self._records += struct.pack('<BQHIQQ', _MESSAGE, size, channel, 0, time_ns, time_ns)
        self._records += message

    def _index(self, channel: int, time_ns: int, offset: int) -> None:
        self._messages[channel].append((time_ns, offset))
        self._start_ns = min(self._start_ns, time_ns)
        self._end_ns = max(self._end_ns, time_ns)

    def checkpoint(self, position: int) -> None:
        """
        Declare that all messages of the inputs before `position` are written.

        :raises ParameterError: when the file cannot be written; it can be continued later.
        :raises ClosedError: after that.
        """
        if self._file.closed:
            raise ClosedError(f'File {self._path}')
        self._pending_position = position
        self._chunk_positions += 1
        if len(self._records) >= CHUNK_NBYTES or self._chunk_positions >= CHUNK_POSITIONS:
            self._finish_chunk()
        if time.monotonic() >= self._write_due or len(self._unwritten) > MAX_UNWRITTEN_NBYTES:
            self._write_all()

    def close(self) -> None:
        """Write what is left, with the index; may be called twice."""
        if not self._file.closed:
            try:
                self._write_all()
                self._file.truncate()
            finally:
                self._file.close()

    _start_ns: int  # Of the last chunk.
    _end_ns: int

    def _clear_chunk(self) -> None:
        self._records, self._chunk_positions = bytearray(), 0
        self._messages: defaultdict[int, list[tuple[int, int]]] = defaultdict(list)
        self._start_ns, self._end_ns = (1 << 63) - 1, 0

    def _finish_chunk(self) -> None:
        data, index = self._chunk()
        self._unwritten += data
        self._data_end += len(data)
        self._chunks += index
        self._count(1)
        self._clear_chunk()

    def _chunk(self) -> tuple[bytes, list[_ChunkIndex]]:
        """Return the records of the last chunk and its index, if it has messages."""
        if not self._chunk_positions:
            return b'', []
        data, found = bytearray(), list[_ChunkIndex]()
        if self._records:
            body = struct.pack(
                '<QQQI', self._start_ns, self._end_ns, len(self._records), crc32(self._records)
            )
            body += _text('') + struct.pack('<Q', len(self._records)) + self._records
            data += _record(_CHUNK, body)
            index = _ChunkIndex(
                self._start_ns, self._end_ns, self._data_end, len(data), len(self._records), {}
            )
            for channel, messages in self._messages.items():
                index.indices[channel] = self._data_end + len(data)
                entries = b''.join(struct.pack('<QQ', *each) for each in messages)
                data += _record(
                    _MESSAGE_INDEX, struct.pack('<HI', channel, len(entries)) + entries
                )
            index.indices_nbytes = len(data) - index.nbytes
            found.append(index)
        return bytes(data + _record(_POSITION, struct.pack('<Q', self._pending_position))), found

    def _count(self, sign: int) -> None:
        """Add the messages of the last chunk to the counts of the others, or subtract them."""
        for channel, messages in self._messages.items():
            self._counts[channel] += sign * len(messages)

    def _write_all(self) -> None:
        """Write chunks, index and footer over the last index and footer, in one call."""
        last, last_index = self._chunk()
        self._count(1)
        data, start = self._unwritten + last, self._data_end - len(self._unwritten)
        chunks = [*self._chunks, *last_index]
        data += _record(_DATA_END, bytes(4))
        summary = start + len(data)
        data += self._definitions
        for each in chunks:
            data += _record(_CHUNK_INDEX, _chunk_index(each))
        starts = [each.start_ns for each in chunks]
        ends = [each.end_ns for each in chunks]
        data += _record(
            _STATISTICS,
            struct.pack(
                '<QHIIIIQQI',
                sum(self._counts.values()),
                self._schema_count,
                len(self._channels),
                0,
                0,
                len(chunks),
                min(starts, default=0),
                max(ends, default=0),
                10 * len(self._counts),
            )
            + b''.join(struct.pack('<HQ', *each) for each in self._counts.items()),
        )
        data += _record(_FOOTER, struct.pack('<QQI', summary, 0, 0)) + MAGIC
        self._count(-1)
        left = memoryview(data)
        try:
            self._file.seek(start)
            while left:
                left = left[self._file.write(left) :]
        except OSError as error:
            self._file.close()
            raise ParameterError(
                f'File {self._path} cannot be written.',
                cause=error.strerror or str(error),
                remedy='Free space, or whatever else prevents it, and continue with --resume; '
                'with --video or --coco, delete the files of this run and start again.',
            ) from error
        self._unwritten = bytearray()
        self._write_due = time.monotonic() + self._seconds_per_write

    def _begin(self, head: bytes) -> None:
        self._unwritten, self._data_end = bytearray(head), len(head)
        self._write_all()

    def _continue(self, head: bytes) -> None:
        """Read the index of the whole chunks, and continue in the last one."""
        file = self._file
        file.seek(0)
        start = file.read(len(head))
        if len(start) < len(head) and head.startswith(start):
            self._begin(head)  # Killed before it wrote anything else.
            return
        # Definitions of more topics would follow.
        if start != head or file.read(1) in (b'\x03', b'\x04'):
            raise ParameterError(
                f'File {self._path} cannot be resumed: it has other topics.',
                remedy='Use the options of the first run, or another output file.',
            )
        self._data_end = len(head)
        groups = list(_groups(file, len(head)))
        for group in groups:
            is_last = group is groups[-1]
            records = _records(file, group) if is_last else b''
            if records is None:
                break
            positions, self.position = group.position - self.position, group.position
            if is_last and positions < CHUNK_POSITIONS and len(records) < CHUNK_NBYTES:
                self._load(records, positions)
                break
            self._data_end = group.end
            self._chunks += group.chunks
            for channel, count in group.counts.items():
                self._counts[channel] += count
        self._pending_position = self.position
        self._write_all()
        file.truncate()

    def _load(self, records: bytes, positions: int) -> None:
        """Continue in a chunk of these records."""
        self._records, self._chunk_positions = bytearray(records), positions
        offset = 0
        while offset < len(records):
            nbytes, channel, time_ns = struct.unpack_from('<QH4xQ', records, offset + 1)
            self._index(channel, time_ns, offset)
            offset += 9 + nbytes


@dataclass
class _Group:
    """Records up to a position: a chunk, if there were messages, and their indices."""

    chunks: list[_ChunkIndex] = field(default_factory=list)
    counts: Counter[int] = field(default_factory=Counter)
    position: int = 0
    end: int = 0


def _groups(file: FileIO, at: int) -> Iterator[_Group]:
    """Yield the whole groups of a file from an offset on."""
    size, group = file.seek(0, 2), _Group()
    while True:
        file.seek(at)
        start = file.read(9 + 24)
        if len(start) < 9 + 8:
            return
        opcode, nbytes = struct.unpack_from('<BQ', start)
        end = at + 9 + nbytes
        if end > size:
            return
        if opcode == _CHUNK and not group.chunks:
            start_ns, end_ns, records_nbytes = struct.unpack_from('<QQQ', start, 9)
            group.chunks.append(_ChunkIndex(start_ns, end_ns, at, 9 + nbytes, records_nbytes, {}))
        elif opcode == _MESSAGE_INDEX and group.chunks:
            (channel,) = struct.unpack_from('<H', start, 9)
            group.chunks[0].indices[channel] = at
            group.chunks[0].indices_nbytes += 9 + nbytes
            group.counts[channel] += (nbytes - 6) // 16
        elif opcode == _POSITION:
            (group.position,), group.end = struct.unpack_from('<Q', start, 9), end
            yield group
            group = _Group()
        else:
            return
        at = end


def _records(file: FileIO, group: _Group) -> bytes | None:
    """Return the records of the chunk of a group; None if its write was interrupted."""
    if not group.chunks:
        return b''
    chunk = group.chunks[0]
    file.seek(chunk.offset)
    data = file.read(chunk.nbytes)
    records = data[_CHUNK_HEAD_NBYTES:]
    (crc,) = struct.unpack_from('<I', data, 9 + 24)
    is_whole = len(records) == chunk.records_nbytes and crc32(records) == crc
    return records if is_whole else None


def _open_file(path: Path, resume: bool) -> FileIO:
    try:
        return FileIO(path, 'r+' if resume else 'x')
    except FileExistsError as error:
        raise ParameterError(
            f'File {path} exists already.',
            remedy='Choose another output file, or continue this one with --resume.',
        ) from error
    except OSError as error:
        raise ParameterError(
            f'File {path} cannot be written.',
            cause=error.strerror or str(error),
            remedy='Choose a file in an existing, writable folder.',
        ) from error


def _record(opcode: int, body: bytes | bytearray) -> bytes:
    return struct.pack('<BQ', opcode, len(body)) + body


def _text(text: str) -> bytes:
    encoded = text.encode()
    return struct.pack('<I', len(encoded)) + encoded


def _definitions(topics: Sequence[OutputTopic]) -> bytes:
    """Return the schema and channel records of topics."""
    schemas: dict[str, int] = {}
    data = b''
    for number, topic in enumerate(topics, 1):
        if topic.message_type not in schemas:
            schemas[topic.message_type] = len(schemas) + 1
            data += _record(
                _SCHEMA,
                struct.pack('<H', schemas[topic.message_type])
                + _text(topic.message_type)
                + _text(topic.schema_encoding)
                + _text(topic.definition),
            )
        qos = topic.qos_profiles
        metadata = _text('offered_qos_profiles') + _text(qos) if qos else b''
        data += _record(
            _CHANNEL,
            struct.pack('<HH', number, schemas[topic.message_type])
            + _text(topic.name)
            + _text('cdr')
            + struct.pack('<I', len(metadata))
            + metadata,
        )
    return data


def _chunk_index(each: _ChunkIndex) -> bytes:
    offsets = b''.join(struct.pack('<HQ', *pair) for pair in each.indices.items())
    return (
        struct.pack('<QQQQI', each.start_ns, each.end_ns, each.offset, each.nbytes, len(offsets))
        + offsets
        + struct.pack('<Q', each.indices_nbytes)
        + _text('')
        + struct.pack('<QQ', each.records_nbytes, each.records_nbytes)
    )
