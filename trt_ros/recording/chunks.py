"""Messages of the pieces of an MCAP file, loaded by several threads ahead of their use."""

from collections import deque
from collections.abc import Iterator, Sequence, Set
from concurrent.futures import Future, ThreadPoolExecutor
import heapq
import struct

import numpy as np

from trt_ros.recording.mcap_file import MESSAGE, McapFile, McapPiece, records_in
from trt_ros.recording.messages import RecordedMessage, int64

MAX_AHEAD_NBYTES = 16 << 20  # Of pieces that are loaded, beyond the first two.

# Time, offset of the piece, offset in the piece: the order of messages.
_Message = tuple[int, int, int, RecordedMessage]


def piece_messages(
    file: McapFile, topics: Set[str], start_ns: int, end_ns: int, threads: ThreadPoolExecutor
) -> Iterator[RecordedMessage]:
    """Yield the messages of topics from `start_ns` to before `end_ns`, in order of time."""
    topic_of = {number: each.name for number, each in file.topics.items() if each.name in topics}
    chosen = [
        each
        for each in file.pieces
        if (each.channels is None or not each.channels.isdisjoint(topic_of))
        and each.start_ns < end_ns
        and each.end_ns >= start_ns
    ]
    chosen.sort(key=lambda each: (each.start_ns, each.offset))
    waiting: list[_Message] = []  # Pieces may overlap in time.
    for piece, loading in _loading(file, chosen, threads):
        # All times may be equal: nothing of this piece and the next ones comes before these.
        while waiting and waiting[0][:2] < (piece.start_ns, piece.offset):
            yield heapq.heappop(waiting)[3]
        for message in _messages_in(loading.result(), piece, topic_of):
            if start_ns <= message[0] < end_ns:
                heapq.heappush(waiting, message)
    while waiting:
        yield heapq.heappop(waiting)[3]


def _loading(
    file: McapFile, pieces: Sequence[McapPiece], threads: ThreadPoolExecutor
) -> Iterator[tuple[McapPiece, Future[np.ndarray]]]:
    """Yield pieces with their records, (N,) uint8, while the next ones are loaded."""
    left, loading = deque(pieces), deque[tuple[McapPiece, Future[np.ndarray]]]()
    while left or loading:
        ahead = sum(piece.size for piece, _ in loading)
        while left and (len(loading) < 2 or ahead < MAX_AHEAD_NBYTES):
            piece = left.popleft()
            loading.append((piece, threads.submit(file.load, piece)))
            ahead += piece.size
        yield loading.popleft()


def _messages_in(
    records: np.ndarray, piece: McapPiece, topic_of: dict[int, str]
) -> Iterator[_Message]:
    """Yield the messages of a piece on the topics."""
    for opcode, at, end in records_in(records, piece.is_cut):
        if opcode == MESSAGE:
            channel, sequence, time, publish = struct.unpack_from('<HIQQ', records.data, at)
            if channel in topic_of:
                time_ns, data = int64(time), records[at + 22 : end]
                found = RecordedMessage(topic_of[channel], time_ns, data, int64(publish), sequence)
                yield time_ns, piece.offset, at, found
