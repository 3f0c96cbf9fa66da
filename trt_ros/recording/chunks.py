"""
Messages of the chunks of an MCAP file, loaded by several threads ahead of their use.

Format: https://mcap.dev/spec. rosbags reads the index; its own reading of messages copies each
three times while it holds the interpreter lock, in one thread.
"""

from collections import deque
from collections.abc import Iterator, Mapping, Sequence
from concurrent.futures import Future, ThreadPoolExecutor
import heapq
import os
from pathlib import Path
import struct
from typing import IO, Any

import numpy as np

from trt_ros.errors import BadFrameError

MAX_AHEAD_NBYTES = 16 << 20  # Of chunks that are loaded, beyond the first two.

_MESSAGE = 0x05
# Time, offset of the chunk, offset in the chunk: the order of messages.
_Message = tuple[int, int, int, str, np.ndarray]


def chunk_messages(
    path: Path, chunks: Sequence[Any], topic_of: Mapping[int, str], threads: ThreadPoolExecutor
) -> Iterator[tuple[str, int, np.ndarray]]:
    """
    Yield topic, time in nanoseconds and serialized message, (N,) uint8, in order of time.

    :param chunks: index records, as rosbags reads them.
    :param topic_of: topics of the channels to read, by number.
    :param threads: load the chunks.
    :raises BadFrameError: when a chunk is damaged; also errors of rosbags and decompressors.
    """
    ordered = sorted(chunks, key=lambda each: (each.message_start_time, each.chunk_start_offset))
    waiting: list[_Message] = []  # Chunks may overlap in time.
    for chunk, data in _loaded(path, ordered, threads):
        # All times may be equal: nothing of this chunk and the next ones comes before these.
        while waiting and waiting[0][:2] < (chunk.message_start_time, chunk.chunk_start_offset):
            yield _content(heapq.heappop(waiting))
        for message in _messages_in(data, chunk.chunk_start_offset, topic_of):
            heapq.heappush(waiting, message)
    while waiting:
        yield _content(heapq.heappop(waiting))


def _content(message: _Message) -> tuple[str, int, np.ndarray]:
    time_ns, _, _, topic, data = message
    return topic, time_ns, data


def _loaded(
    path: Path, chunks: Sequence[Any], threads: ThreadPoolExecutor
) -> Iterator[tuple[Any, np.ndarray]]:
    """Yield chunks with their records, (N,) uint8, while the next ones are loaded."""
    left, loading = deque(chunks), deque[tuple[Any, Future[np.ndarray]]]()
    with path.open('rb') as file:
        while left or loading:
            ahead = sum(chunk.uncompressed_size for chunk, _ in loading)
            while left and (len(loading) < 2 or ahead < MAX_AHEAD_NBYTES):
                chunk = left.popleft()
                loading.append((chunk, threads.submit(_load, file, chunk)))
                ahead += chunk.uncompressed_size
            chunk, future = loading.popleft()
            yield chunk, future.result()


def _load(file: IO[bytes], chunk: Any) -> np.ndarray:
    """Return the records of a chunk, (N,) uint8, decompressed and checked."""
    from rosbags.rosbag2.storage_mcap import decompress

    start = chunk.chunk_start_offset + 9
    (crc,) = struct.unpack('<I', _read(file, start + 24, 4).data)
    data = _read(file, start + 40 + len(chunk.compression), chunk.compressed_size)
    return np.frombuffer(
        decompress(data, chunk.compression, chunk.uncompressed_size, crc), np.uint8
    )


def _read(file: IO[bytes], offset: int, nbytes: int) -> np.ndarray:
    data = np.empty(nbytes, np.uint8)
    left = data.data
    while left:
        count = os.preadv(file.fileno(), [left], offset)
        if not count:
            raise _damaged(offset)
        left, offset = left[count:], offset + count
    return data


def _messages_in(
    records: np.ndarray, chunk_offset: int, topic_of: Mapping[int, str]
) -> Iterator[_Message]:
    """Yield the messages of a chunk on the topics."""
    at, size, view = 0, len(records), records.data
    while at < size:
        if at + 9 > size:
            raise _damaged(chunk_offset)
        opcode, nbytes = struct.unpack_from('<BQ', view, at)
        end = at + 9 + nbytes
        if end > size or (opcode == _MESSAGE and nbytes < 22):
            raise _damaged(chunk_offset)
        if opcode == _MESSAGE:
            channel, _, time_ns = struct.unpack_from('<HIQ', view, at + 9)
            if channel in topic_of:
                yield time_ns, chunk_offset, at, topic_of[channel], records[at + 31 : end]
        at = end


def _damaged(offset: int) -> BadFrameError:
    return BadFrameError('damaged recording', f'A record after byte {offset} is not whole.')
