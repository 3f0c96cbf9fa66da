"""Recordings as other programs write them: each form of MCAP, SQLite, and what is left of them."""

from contextlib import closing, suppress
import shutil
import sqlite3

from mcap.writer import CompressionType, IndexType, Writer
import numpy as np
import pytest

from support.recordings import (
    START_NS,
    STEP_NS,
    STORE,
    compressed_image,
    raw_image,
    storage_file,
    text_message,
    write_recording,
)
from trt_ros.errors import BadFrameError, ParameterError
from trt_ros.recording import Recording
from trt_ros.ros.frames import color_topics

pytestmark = pytest.mark.slow

COUNT = 60
NOISE = np.random.default_rng(0).integers(0, 256, (COUNT, 60, 80, 3), np.uint8)
DIALECTS = {
    'fastwrite': {'use_chunking': False},
    'unchunked without index': {'use_chunking': False, 'index_types': IndexType.NONE},
    'no index': {'index_types': IndexType.NONE},
    'no message index': {'index_types': IndexType.CHUNK},
    'no statistics': {'use_statistics': False},
    'no summary': {
        'index_types': IndexType.NONE,
        'use_statistics': False,
        'repeat_channels': False,
        'repeat_schemas': False,
        'use_summary_offsets': False,
    },
    'topics in the chunks only': {'repeat_channels': False, 'repeat_schemas': False},
    'zstd': {'compression': CompressionType.ZSTD},
    'lz4': {'compression': CompressionType.LZ4},
    'foxglove': {'profile': '', 'compression': CompressionType.LZ4},
}


def write(path, times, *, profile='ros2', type_name='sensor_msgs/msg/Image', **dialect):
    """Write raw images and texts with the writer of the package mcap."""
    dialect = {'compression': CompressionType.NONE, 'chunk_size': 60_000, **dialect}
    with path.open('wb') as file:
        writer = Writer(file, **dialect)
        writer.start(profile=profile)
        schema = writer.register_schema(type_name, 'ros2msg', b'uint8[] data')
        text = writer.register_schema('std_msgs/msg/String', 'ros2msg', b'string data')
        camera = writer.register_channel('/camera', 'cdr', schema)
        chatter = writer.register_channel('/chatter', 'cdr', text)
        for index, time in enumerate(times):
            time_ns = (START_NS + time * STEP_NS) % (1 << 64)
            data = bytes(
                STORE.serialize_cdr(raw_image(index, NOISE[index]), 'sensor_msgs/msg/Image')
            )
            writer.add_message(camera, time_ns, data, time_ns + 5, index)
            said = bytes(STORE.serialize_cdr(text_message('a'), 'std_msgs/msg/String'))
            writer.add_message(chatter, time_ns, said, time_ns)
        writer.add_attachment(START_NS, START_NS, 'calibration.yaml', 'text/yaml', b'k: 1')
        writer.add_metadata('robot', {'name': 'go1'})
        writer.finish()
    return path


def steps(recording, **times):
    """Return the times that can be read in steps, and the error that ended them."""
    found, error = [], None
    try:
        for each in recording.messages(['/camera'], **times):
            found.append((each.time_ns - START_NS) // STEP_NS)
    except BadFrameError as raised:
        error = raised
    return found, error


@pytest.mark.parametrize('dialect', DIALECTS)
@pytest.mark.parametrize('order', ['sorted', 'reversed', 'shuffled'])
def test_each_dialect_is_read_in_order_of_time(tmp_path, dialect, order):
    times = list(range(COUNT))
    if order != 'sorted':
        times = times[::-1] if order == 'reversed' else [each ^ 5 for each in range(56)]
    with closing(Recording(write(tmp_path / 'a.mcap', times, **DIALECTS[dialect]))) as recording:
        assert recording.images() == ['/camera']
        assert recording.topics['/camera'].count == len(times)
        assert (recording.start_ns - START_NS) // STEP_NS == 0
        assert (recording.end_ns - START_NS) // STEP_NS == max(times)
        assert steps(recording) == (sorted(times), None)
        first = next(recording.messages(['/camera']))
        assert first.publish_ns == first.time_ns + 5
        assert first.sequence == times.index(0)
        assert sorted(each.opcode for each in recording.attachments()) == [0x09, 0x0C]
        begin = START_NS + 10 * STEP_NS
        some = steps(recording, start_ns=begin, end_ns=begin + 5 * STEP_NS)
        assert some == ([10, 11, 12, 13, 14], None)


@pytest.mark.parametrize('dialect', DIALECTS)
def test_a_file_that_is_cut_is_read_up_to_the_cut(tmp_path, dialect):
    path = write(tmp_path / 'a.mcap', range(COUNT), **DIALECTS[dialect])
    whole, compression = path.read_bytes(), DIALECTS[dialect].get('compression')
    for percent in (3, 10, 37, 50, 90, 97):
        path.write_bytes(whole[: len(whole) * percent // 100])
        if percent == 3 and compression == CompressionType.LZ4:
            with pytest.raises(ParameterError, match='cannot be opened'):  # A part of one block.
                Recording(path)
            continue
        with closing(Recording(path)) as recording:
            found, error = steps(recording)
        assert found == list(range(len(found)))
        assert len(found) >= COUNT * percent // 100 - (6 if compression else 3)
        assert f'read up to {max(0, len(found) - 1) / 10:.3f} s' in str(error)


def test_cuts_are_read_or_refused(tmp_path):
    path = write(tmp_path / 'a.mcap', range(3), compression=CompressionType.ZSTD)
    whole = path.read_bytes()
    for size in range(len(whole) - 3000, len(whole), 7):
        path.write_bytes(whole[:size])
        with suppress(ParameterError), closing(Recording(path)) as recording:
            found, error = steps(recording)
            assert found == list(range(len(found))) and (error is not None or len(found) == 3)


@pytest.mark.parametrize('dialect', ['fastwrite', 'zstd', 'no index'])
def test_times_before_1970_are_read(tmp_path, dialect):
    epoch = -START_NS // STEP_NS
    times = [epoch + 1, epoch - 2, epoch - 1]
    with closing(Recording(write(tmp_path / 'a.mcap', times, **DIALECTS[dialect]))) as recording:
        assert steps(recording) == (sorted(times), None)
        assert recording.start_ns == -2 * STEP_NS


def test_types_of_ros_1_are_images(tmp_path):
    path = write(tmp_path / 'a.mcap', [0], type_name='sensor_msgs/Image')
    with closing(Recording(path)) as recording:
        assert recording.images() == ['/camera']


@pytest.mark.parametrize('percent', [20, 50, 80, 97])
def test_a_database_that_is_cut_is_read_up_to_the_cut(tmp_path, percent):
    images = [('/camera', index, raw_image(index, NOISE[index])) for index in range(COUNT)]
    path = storage_file(write_recording(tmp_path / 'bag', images, 'sqlite3'))
    cut = tmp_path / 'cut.db3'
    shutil.copy(path, cut)
    with cut.open('r+b') as file:
        file.truncate(path.stat().st_size * percent // 100 + 77)
    with closing(Recording(cut)) as recording:
        found, error = steps(recording)
    assert found == list(range(len(found))) and error is not None
    assert len(found) >= COUNT * percent // 100 - 4


def test_the_log_of_a_killed_recorder_is_read(tmp_path):
    """As the preset `resilient` of rosbag2 leaves it."""
    images = [('/camera', index, raw_image(index, NOISE[index])) for index in range(8)]
    path = storage_file(write_recording(tmp_path / 'bag', images[:4], 'sqlite3'))
    killed = tmp_path / 'killed'
    killed.mkdir()
    with closing(sqlite3.connect(path)) as database:
        database.execute('PRAGMA journal_mode=WAL')
        database.execute('PRAGMA wal_autocheckpoint=0')
        database.execute(
            'INSERT INTO messages SELECT id + 4, topic_id, timestamp + ?, data FROM messages',
            [4 * STEP_NS],
        )
        database.commit()
        for each in path.parent.glob(f'{path.name}*'):
            if not each.name.endswith('-shm'):
                shutil.copy(each, killed)
    with closing(Recording(killed)) as recording:
        assert steps(recording) == (list(range(8)), None)


@pytest.mark.parametrize('make', [raw_image, compressed_image])
def test_depth_beside_color_is_no_topic_of_color(tmp_path, make):
    depth = np.full((4, 6), 1000, np.uint16)
    messages = [('/depth', 0, make(0, depth, '16UC1')), ('/color', 1, raw_image(1, NOISE[1]))]
    for number, written in enumerate((messages, messages[:1])):
        with closing(Recording(write_recording(tmp_path / f'{number}', written))) as recording:
            assert color_topics(recording) == [['/color'], ['/depth']][number]
