"""MCAP files whose writer was killed: opened up to their last whole record."""

from __future__ import annotations

from collections import deque
import io
from pathlib import Path
import struct
from typing import Any

_MAGIC = b'\x89MCAP0\r\n'
_FOOTER, _CHUNK, _CHUNK_INDEX, _STATISTICS, _DATA_END = 0x02, 0x06, 0x08, 0x0B, 0x0F


class UnfinishedMcap:
    """
    The path of an MCAP file without an end, which opens as if it ended after whole records.

    :param dropped: number of whole records at the end that are left out.
    :ivar file: the path itself.
    """

    def __init__(self, path: Path, dropped: int = 0) -> None:
        self.file, self._dropped, self.suffix = path, dropped, path.suffix

    def exists(self) -> bool:
        """Return True."""
        return True

    def is_dir(self) -> bool:
        """Return False."""
        return False

    def open(self, mode: str) -> _WithIndex:
        """Open the file for reading."""
        return _WithIndex(self.file, self._dropped)


class _WithIndex:
    """A file of whole records, an index of its chunks and a footer, as rosbags reads it."""

    def __init__(self, path: Path, dropped: int) -> None:
        self._file = path.open('rb')
        self._end, chunks = whole_records(self._file, dropped)
        # rosbags replaces the empty statistics by those of the data.
        index = b''.join([*chunks, _record(_STATISTICS, bytes(46))]) if chunks else b''
        footer = struct.pack('<QQI', self._end if chunks else 0, 0, 0)
        self._index = index + _record(_FOOTER, footer) + _MAGIC
        self._at = 0

    def seek(self, offset: int, whence: int = io.SEEK_SET) -> int:
        origin = (0, self._at, self._end + len(self._index))[whence]
        self._at = max(0, origin + offset)
        return self._at

    def tell(self) -> int:
        return self._at

    def read(self, size: int = -1) -> bytes:
        end = self._end + len(self._index)
        stop = end if size < 0 else min(end, self._at + size)
        self._file.seek(self._at)
        data = self._file.read(max(0, min(stop, self._end) - self._at))
        data += self._index[max(0, self._at - self._end) : max(0, stop - self._end)]
        self._at = max(self._at, stop)
        return data

    def close(self) -> None:
        self._file.close()


def whole_records(file: Any, dropped: int = 0) -> tuple[int, list[bytes]]:
    """
    Return the offset after the last whole data record of an MCAP file, and indices of its chunks.

    :param file: open for reading.
    :param dropped: number of these records to leave out.
    """
    size = file.seek(0, io.SEEK_END)
    ends = deque([len(_MAGIC)], maxlen=dropped + 1)
    chunks: list[tuple[int, bytes]] = []
    while True:
        file.seek(ends[-1])
        head = file.read(9)
        end = ends[-1] + 9 + int.from_bytes(head[1:], 'little')
        if len(head) < 9 or end > size or head[0] in (0, _FOOTER, _DATA_END):
            return ends[0], [index for chunk_end, index in chunks if chunk_end <= ends[0]]
        if head[0] == _CHUNK:
            chunks.append((end, _chunk_index(file, ends[-1], end - ends[-1])))
        ends.append(end)


def _chunk_index(file: Any, offset: int, nbytes: int) -> bytes:
    """Return the index record, without message indices, of a chunk whose head was just read."""
    start_ns, end_ns, records_nbytes, _, size = struct.unpack('<QQQII', file.read(32))
    compression = file.read(size)
    (compressed_nbytes,) = struct.unpack('<Q', file.read(8))
    body = struct.pack('<QQQQIQI', start_ns, end_ns, offset, nbytes, 0, 0, size) + compression
    return _record(_CHUNK_INDEX, body + struct.pack('<QQ', compressed_nbytes, records_nbytes))


def _record(opcode: int, body: bytes) -> bytes:
    return struct.pack('<BQ', opcode, len(body)) + body
