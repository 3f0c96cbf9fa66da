"""Writing MCAP files that can be read at any time, and continuing them."""

from contextlib import closing, suppress
from io import FileIO
import itertools
import math
import resource
import struct

import numpy as np
import pytest
from rosbags.rosbag2 import Reader

from trt_ros.errors import BadFrameError, ClosedError, ParameterError
from trt_ros.labelling import mcap
from trt_ros.labelling.mcap import CHUNK_POSITIONS, McapWriter
from trt_ros.recording import Recording
from trt_ros.recording.messages import RecordedTopic

TOPICS = [
    RecordedTopic('/a', 'std_msgs/msg/String', 0, 'ros2msg', b'string data\n'),
    RecordedTopic('/b', 'std_msgs/msg/UInt8', 0, 'ros2msg', b'uint8 data\n'),
]


def message(number):
    return np.array([0, 1, 0, 0, number % 256], np.uint8).tobytes()


def write(writer, numbers):
    for number in numbers:
        writer.write('/b' if number % 3 else '/a', number * 10, message(number))
        writer.checkpoint(number)


def written(path, begin, end, **options):
    """Write messages with these numbers, or from the next one where `begin` is None."""
    with closing(McapWriter(path, TOPICS, **options)) as writer:
        position = writer.position
        write(writer, range(position + 1 if begin is None else begin, end))
    return position


def read(path):
    with closing(Recording(path)) as recording:
        messages = recording.messages(['/a', '/b'])
        return [(topic, time, int(data[4])) for topic, time, data, *_ in messages]


def expected(numbers):
    return [('/b' if each % 3 else '/a', each * 10, each % 256) for each in numbers]


def test_a_file_without_messages_is_readable_not_overwritten_and_keeps_its_topics(tmp_path):
    path = tmp_path / 'a.mcap'
    McapWriter(path, TOPICS).close()
    assert read(path) == []
    with pytest.raises(ParameterError, match=r'(?s)cannot be written.*File exists'):
        McapWriter(path, TOPICS)
    with pytest.raises(ParameterError, match='Cause: It has other topics'):
        McapWriter(path, TOPICS[:1], resume=True)


def test_nothing_is_written_after_a_failed_write(tmp_path):
    path = tmp_path / 'a.mcap'
    writer = McapWriter(path, TOPICS, seconds_per_write=0.0)
    write(writer, range(1, CHUNK_POSITIONS + 1))
    limits = resource.getrlimit(resource.RLIMIT_FSIZE)
    resource.setrlimit(resource.RLIMIT_FSIZE, (path.stat().st_size + 100, limits[1]))
    try:
        with pytest.raises(ParameterError, match='cannot be written'):
            write(writer, range(CHUNK_POSITIONS + 1, 2 * CHUNK_POSITIONS + 1))
    finally:
        resource.setrlimit(resource.RLIMIT_FSIZE, limits)
    left = path.read_bytes()
    with pytest.raises(ClosedError):
        writer.checkpoint(3 * CHUNK_POSITIONS)
    writer.close()
    assert path.read_bytes() == left
    written(path, None, 3 * CHUNK_POSITIONS, resume=True)
    assert read(path) == expected(range(1, 3 * CHUNK_POSITIONS))


def test_messages_counts_and_the_index_of_chunks_are_read_by_rosbags(tmp_path):
    path = tmp_path / 'a.mcap'
    written(path, 1, 251)
    assert read(path) == expected(range(1, 251))
    with closing(Recording(path)) as recording:
        counts = {name: topic.count for name, topic in recording.topics.items()}
        assert counts == {'/a': 83, '/b': 167}
        assert (recording.start_ns, recording.end_ns) == (10, 2500)
        assert recording.topics['/a'].definition == b'string data\n'
    with Reader(path) as reader:
        (file,) = getattr(reader.storage, 'storages', [reader.storage])
        times = [(each.message_start_time, each.message_end_time) for each in file.chunks]
        starts = [each.chunk_start_offset for each in file.chunks]
    assert times == [(10, 1000), (1010, 2000), (2010, 2500)]
    assert [path.read_bytes()[start] for start in starts] == [0x06] * 3


def test_each_message_is_readable_once_its_time_is_over(tmp_path):
    path = tmp_path / 'a.mcap'
    with closing(McapWriter(path, TOPICS, seconds_per_write=0.0)) as writer:
        for number in range(1, CHUNK_POSITIONS + 50, 7):
            write(writer, [number])
            assert read(path) == expected(range(1, number + 1, 7))


def test_messages_are_written_together_before_their_time_is_over(tmp_path):
    path = tmp_path / 'a.mcap'
    with closing(McapWriter(path, TOPICS, seconds_per_write=math.inf)) as writer:
        write(writer, range(1, 2 * CHUNK_POSITIONS))
        assert read(path) == []


class KilledFile(FileIO):
    """A file whose process is killed after some bytes, though not within a head."""

    left = 1 << 40

    def write(self, data):
        count = super().write(memoryview(data)[: max(self.left, 49)])
        type(self).left = max(0, self.left - count)
        if not self.left:
            raise KeyboardInterrupt
        return count


@pytest.mark.slow
@pytest.mark.parametrize(
    ('first', 'second', 'compression'),
    [(50, 90, ''), (50, 120, ''), (100, 200, ''), (190, 210, ''), (50, 120, 'zstd')],
)
def test_a_write_that_stops_anywhere_costs_only_itself(
    tmp_path, monkeypatch, first, second, compression
):
    monkeypatch.setattr(mcap, 'FileIO', KilledFile)
    path, whole = tmp_path / 'a.mcap', tmp_path / 'whole.mcap'
    written(whole, 1, 301, compression=compression)
    for nbytes in itertools.count(1, 397):
        path.unlink(missing_ok=True)
        written(path, 1, first, compression=compression)
        writer = McapWriter(path, TOPICS, resume=True, compression=compression)
        write(writer, range(first, second))
        KilledFile.left = nbytes
        with suppress(KeyboardInterrupt):
            writer.close()
        if KilledFile.left:
            break
        KilledFile.left = 1 << 40
        with suppress(BadFrameError):
            assert len(read(path)) >= first - 1
        begun = written(path, None, 301, resume=True, compression=compression)
        assert begun >= first - 1
        assert read(path) == expected(range(1, 301))
        if not compression:
            assert path.read_bytes() == whole.read_bytes()
    KilledFile.left = 1 << 40
    assert nbytes > 500


@pytest.mark.slow
def test_a_file_that_is_cut_anywhere_is_continued_with_its_whole_records(tmp_path):
    path, cut = tmp_path / 'whole.mcap', tmp_path / 'cut.mcap'
    with closing(McapWriter(path, TOPICS)) as writer:
        head = path.stat().st_size
        write(writer, range(1, CHUNK_POSITIONS + 4))
    whole = path.read_bytes()
    last = whole.rindex(struct.pack('<BQ', 0x80, 8)) + 17  # The end of the last position.
    for length in (*range(0, len(whole), 197), head, *range(last - 50, len(whole))):
        cut.write_bytes(whole[:length])
        with closing(McapWriter(cut, TOPICS, resume=True)) as writer:
            assert writer.position in (0, CHUNK_POSITIONS, CHUNK_POSITIONS + 3)
            assert (writer.position == CHUNK_POSITIONS + 3) is (length >= last)
            write(writer, range(writer.position + 1, CHUNK_POSITIONS + 4))
        assert cut.read_bytes() == whole


def test_a_chunk_that_was_half_overwritten_is_written_again(tmp_path):
    path = tmp_path / 'a.mcap'
    written(path, 1, CHUNK_POSITIONS + 50)
    whole = path.read_bytes()
    path.write_bytes(whole.replace(message(CHUNK_POSITIONS + 20), message(0)))
    assert written(path, None, CHUNK_POSITIONS + 50, resume=True) == CHUNK_POSITIONS
    assert path.read_bytes() == whole


def test_a_chunk_with_another_message_is_damaged(tmp_path):
    path = tmp_path / 'a.mcap'
    written(path, 1, 5)
    path.write_bytes(path.read_bytes().replace(message(2), message(77)))
    with pytest.raises(BadFrameError, match='is damaged'):
        read(path)
