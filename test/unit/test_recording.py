"""Recordings of rosbag2: whole, killed while written, and damaged."""

from contextlib import ExitStack, closing
import sqlite3

import numpy as np
import pytest
from rosbags.rosbag2 import CompressionMode, Reader, StoragePlugin, Writer
import zstandard

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
from support.scripts import run_script
from trt_ros.errors import BadFrameError, ParameterError
from trt_ros.recording import Recording, is_recording, recordings_in

NOISE = np.random.default_rng(0).integers(0, 256, (40, 200, 200, 3), np.uint8)


def chunks_of(data):
    """Return the offsets of the chunks of an MCAP file."""
    at, found = 8, []
    while data[at] != 0x0F:
        if data[at] == 0x06:
            found.append(at)
        at += 9 + int.from_bytes(data[at + 1 : at + 9], 'little')
    return found


def gray(value):
    return np.full((4, 6, 3), value, np.uint8)


def camera(count, pixels=gray):
    return [('/camera', index, raw_image(index, pixels(index))) for index in range(count)]


@pytest.fixture
def opened():
    with ExitStack() as stack:
        yield lambda path: stack.enter_context(closing(Recording(path)))


@pytest.fixture
def damaged(tmp_path, opened):
    """Write 40 images of 120 kB, a chunk of nine each, and change the bytes of the file."""

    def make(change) -> Recording:
        path = storage_file(
            write_recording(tmp_path / 'bag', camera(40, lambda index: NOISE[index]))
        )
        loose = tmp_path / path.name
        loose.write_bytes(change(path.read_bytes()))
        return opened(loose)

    return make


@pytest.mark.parametrize('storage', StoragePlugin)
def test_a_topic_without_messages_is_not_damaged(tmp_path, opened, storage):
    with Writer(tmp_path / 'bag', version=9, storage_plugin=storage) as writer:
        writer.add_connection('/camera', 'sensor_msgs/msg/Image', typestore=STORE)
    recording = opened(tmp_path / 'bag')
    assert recording.topics['/camera'].count == 0
    assert list(recording.messages(['/camera'])) == []


@pytest.mark.parametrize('storage', ['mcap', 'sqlite3'])
@pytest.mark.parametrize('as_file', [False, True])
def test_messages_come_in_order_of_time_with_their_topic(tmp_path, opened, storage, as_file):
    written = [
        ('/camera', 0, raw_image(0, gray(0))),
        ('/front/compressed', 1, compressed_image(1, gray(1))),
        ('/chatter', 2, text_message('two')),
        ('/camera', 3, raw_image(3, gray(3))),
    ]
    path = write_recording(tmp_path / 'bag', written, storage)
    recording = opened(storage_file(path) if as_file else path)
    assert recording.images() == ['/camera', '/front/compressed']
    assert recording.topics['/camera'].count == 2
    assert b'uint8 is_bigendian' in recording.topics['/camera'].definition
    found = list(recording.messages(['/camera', '/chatter']))
    assert [(topic, (time - START_NS) // STEP_NS) for topic, time, *_ in found] == [
        ('/camera', 0),
        ('/chatter', 2),
        ('/camera', 3),
    ]
    assert bytes(found[1].data[8:11]) == b'two'
    recording.close()
    recording.close()


def test_a_killed_writer_may_have_written_out_of_order(tmp_path, opened):
    """As rosbag2 does, which takes one subscription after the other."""
    times = [index ^ 1 for index in range(40)]
    images = [('/camera', time, raw_image(time, NOISE[time])) for time in times]
    path = storage_file(write_recording(tmp_path / 'bag', images))
    loose = tmp_path / path.name
    loose.write_bytes(path.read_bytes()[: path.stat().st_size * 2 // 3])
    messages, found = opened(loose).messages(['/camera']), []
    with pytest.raises(BadFrameError, match='is damaged'):
        found.extend((time - START_NS) // STEP_NS for _, time, *_ in messages)
    assert found == sorted(times[:26])


def test_messages_of_equal_times_are_not_read_ahead(tmp_path, opened):
    """As those of a simulation without /clock: of 40 images in chunks of nine, the last is bad."""
    images = [('/camera', 0, raw_image(index, NOISE[index])) for index in range(40)]
    path = storage_file(write_recording(tmp_path / 'bag', images))
    data = bytearray(path.read_bytes())
    data[chunks_of(data)[-1] + 53] = 255  # Of the size of its first record.
    loose = tmp_path / path.name
    loose.write_bytes(data)
    messages, found = opened(loose).messages(['/camera']), []
    with pytest.raises(BadFrameError, match='is damaged'):
        found.extend(bytes(each.data) for each in messages)
    whole = [bytes(each.data) for each in opened(path).messages(['/camera'])]
    assert found == whole[:36]


@pytest.mark.parametrize('compression', [None, CompressionMode.STORAGE])
def test_chunks_that_overlap_in_time_are_read_as_rosbags_does(tmp_path, opened, compression):
    times = np.random.default_rng(3).integers(0, 20, 60)  # Many are equal.
    images = [
        (f'/camera_{index % 3}', time, raw_image(index, NOISE[index % 40]))
        for index, time in enumerate(times.tolist())
    ]
    path = write_recording(tmp_path / 'bag', images, compression=compression)
    topics = ['/camera_0', '/camera_2']
    with Reader(path) as reader:
        chosen = [each for each in reader.connections if each.topic in topics]
        expected = [(each.topic, time, data) for each, time, data in reader.messages(chosen)]
    found = [(topic, time, bytes(data)) for topic, time, data, *_ in opened(path).messages(topics)]
    assert found == expected and len(found) == 40


def with_checksum(data):
    chunk = chunks_of(data)[2]
    return data[: chunk + 33] + b'\1\2\3\4' + data[chunk + 37 :]


def overwrite(data):
    middle = len(data) // 2
    return data[:middle] + b'\xff' * 130_000 + data[middle + 130_000 :]


@pytest.mark.parametrize(
    ('change', 'end', 'cause'),
    [(with_checksum, '', 'checksum'), (overwrite, r': read up to 1\.[0-9]00 s', '')],
)
def test_a_damaged_chunk_ends_the_messages_with_its_time(damaged, change, end, cause):
    with pytest.raises(BadFrameError, match=f'is damaged{end}') as caught:
        list(damaged(change).messages(['/camera']))
    assert caught.value.kind == 'damaged recording' and cause in caught.value.cause


@pytest.mark.parametrize(
    'data, why',
    [
        (b'', 'empty'),
        (b'\x89MCAP0\r\n', 'The file is damaged or truncated.'),
        (b'x' * 100, 'magic'),
    ],
)
def test_other_files_are_refused(tmp_path, data, why):
    with pytest.raises(ParameterError, match=r'a\.mcap does not exist'):
        Recording(tmp_path / 'a.mcap')
    (tmp_path / 'a.mcap').write_bytes(data)
    with pytest.raises(ParameterError, match=r'a\.mcap cannot be opened') as caught:
        Recording(tmp_path / 'a.mcap')
    assert why in caught.value.cause


def test_the_files_of_a_folder_are_those_of_its_metadata(tmp_path, opened):
    folder = write_recording(tmp_path / 'drive', camera(2), compression=CompressionMode.FILE)
    (path,) = folder.glob('*.zstd')
    metadata, copy = folder / 'metadata.yaml', path.with_suffix('')  # `ros2 bag play` leaves it.
    whole = metadata.read_text()
    with zstandard.open(path) as source:
        copy.write_bytes(source.read())

    def read(text=whole):
        metadata.write_text(text)
        return len(list(opened(folder).messages(['/camera'])))

    assert read() == 2
    for text in ('', '{', 'rosbag2_bagfile_information: []'):
        assert read(text) == 4
    path.unlink()
    assert read() == 2
    listed = f'rosbag2_bagfile_information: {{relative_file_paths: [drive/x.mcap, {copy.name}]}}'
    with pytest.raises(BadFrameError, match=r'is damaged: read up to 0\.100 s') as caught:
        read(listed)
    assert caught.value.cause == 'Files that metadata.yaml lists are missing: x.mcap.'


def test_recordings_of_a_folder_are_in_natural_order(tmp_path):
    for name in ('drive_10', 'drive_2'):
        write_recording(tmp_path / name, camera(1))
    (tmp_path / 'drive_1.mcap').touch()
    (tmp_path / 'notes.txt').touch()
    assert [each.name for each in recordings_in(tmp_path)] == [
        'drive_1.mcap',
        'drive_2',
        'drive_10',
    ]
    assert not is_recording(tmp_path)


def test_without_mcap_the_error_names_it(tmp_path):
    (tmp_path / 'a.mcap').touch()
    code = (
        'import sys; sys.modules["mcap"] = None\n'
        'from pathlib import Path; from trt_ros.recording import Recording\n'
        'Recording(Path(sys.argv[1]))'
    )
    done = run_script(code, tmp_path / 'a.mcap', check=False)
    assert 'Reading of recordings needs the Python package mcap' in done.stderr
    assert 'Remedy: pip install mcap' in done.stderr


def changed(folder, value, number):
    """Set the time of recording of a message in an SQLite recording to any value."""
    with closing(sqlite3.connect(storage_file(folder))) as database:
        database.execute('update messages set timestamp = ? where id = ?', (value, number))
        database.commit()
    return folder


@pytest.mark.parametrize('value', ['abc', b'\0\xff', 1e300])
def test_messages_without_a_time_are_damage(tmp_path, opened, value):
    recording = opened(
        changed(write_recording(tmp_path / 'drive', camera(4), 'sqlite3'), value, 2)
    )
    found = []
    with pytest.raises(BadFrameError, match='is damaged: read up to') as raised:
        found.extend(recording.messages(['/camera']))
    assert 'A message has the time ' in raised.value.cause
    assert len(found) == 3


def test_times_before_1970_come_first(tmp_path, opened):
    recording = opened(changed(write_recording(tmp_path / 'drive', camera(4), 'sqlite3'), -5, 3))
    assert [each.time_ns for each in recording.messages(['/camera'])][:2] == [-5, START_NS]
    assert recording.start_ns == -5


@pytest.mark.parametrize(('step', 'rate_hz'), [(6000, 1 / 600), (17_000_000_000, 0.0)])
def test_rate_is_unknown_if_the_clock_was_set(tmp_path, opened, step, rate_hz):
    images = [('/camera', index, raw_image(0, NOISE[0])) for index in (0, step)]
    recording = opened(write_recording(tmp_path / 'bag', images))
    assert recording.mean_rate_hz('/camera') == pytest.approx(rate_hz)
