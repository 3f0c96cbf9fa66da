"""`trt-ros label`: recordings in, recordings of results out."""

from contextlib import closing, suppress
import json
import os
from pathlib import Path
import re
import signal
import sqlite3
import struct
import subprocess
import sys

import cv2
from mcap.reader import make_reader
from mcap.writer import CompressionType, Writer
import numpy as np
import onnx
import pytest
from rosbags.highlevel import AnyReader
from rosbags.interfaces import (
    Qos,
    QosDurability,
    QosHistory,
    QosLiveliness,
    QosReliability,
    QosTime,
)

from support.recordings import (
    START_NS,
    STEP_NS,
    STORE,
    compressed_image,
    raw_image,
    storage_file,
    text_message,
    video_packet,
    write_recording,
)
from support.save_network import save_network
from support.scripts import run_script
from trt_ros.cli import main
from trt_ros.errors import BadFrameError
from trt_ros.labelling.batch import find_recordings
from trt_ros.labelling.mcap_head import definition_of
from trt_ros.recording import Recording

pytestmark = pytest.mark.slow

COLORS = [(0, 0, 255), (0, 255, 0), (255, 0, 0)]  # BGR of red, green and blue.
LABELS = ['red', 'green', 'blue']


def picture(index):
    return np.full((128, 128, 3), COLORS[index % 3], np.uint8)


def camera(count, topic='/camera/image_raw', make=raw_image):
    return [(topic, index, make(index, picture(index))) for index in range(count)]


@pytest.fixture
def label(color_detector, tmp_path, capsys):
    model, output = color_detector(), tmp_path / 'labeled.mcap'

    def run(*args, code=0):
        is_folder = tmp_path / 'drives' in args or '--retry' in args or '--split' in args
        path = output.with_suffix('') if is_folder else output
        arguments = ['label', '--model', model, '--output', path, *args]
        assert main(list(map(str, arguments))) == code
        return path, capsys.readouterr().err

    run.command = [sys.executable, '-m', 'trt_ros', 'label', '--model', str(model)]
    return run


def read(path):
    """Return [(topic, time in steps, message)]."""
    with AnyReader([path]) as reader:
        return [
            (
                connection.topic,
                (time - START_NS) / STEP_NS,
                reader.deserialize(data, connection.msgtype),
            )
            for connection, time, data in reader.messages()
        ]


@pytest.mark.parametrize(('storage', 'make'), [('mcap', raw_image), ('sqlite3', compressed_image)])
def test_every_image_has_its_result_in_order_with_its_stamp(label, tmp_path, storage, make):
    count = 25
    path = write_recording(tmp_path / 'drive', camera(count, make=make), storage)
    output, text = label(path)
    assert f'{path}: {count} frames; see {output}' in text
    found = read(output)
    assert [(topic, step) for topic, step, _ in found] == [
        ('/detector/detections', index) for index in range(count)
    ]
    for index, (_, _, message) in enumerate(found):
        stamp = message.header.stamp
        assert stamp.sec * 10**9 + stamp.nanosec == START_NS + index * STEP_NS - 1_000_000
        assert message.header.frame_id == 'camera'
        (detection,) = message.detections
        assert detection.results[0].hypothesis.class_id == LABELS[index % 3]
        box = detection.bbox
        assert (box.center.position.x, box.center.position.y, box.size_x) == (64, 64, 64)


def test_several_topics_have_topics_and_videos_of_their_own_and_the_input_is_copied(
    label, tmp_path
):
    messages = sorted(
        [
            *camera(4, '/front/image_raw'),
            *camera(4, '/back/image_raw/compressed', compressed_image),
            ('/chatter', 2, text_message('hello')),
        ],
        key=lambda message: message[1],
    )
    path = write_recording(tmp_path / 'drive', messages)
    output, _ = label(path, '--with-input', '--video')
    found = read(output)
    counts = {topic: sum(each == topic for each, *_ in found) for topic, *_ in found}
    assert counts == {
        '/front/image_raw': 4,
        '/back/image_raw/compressed': 4,
        '/chatter': 1,
        '/detector/front/image_raw/detections': 4,
        '/detector/back/image_raw/detections': 4,
    }
    with closing(Recording(path)) as before, closing(Recording(output)) as after:
        topics = ['/front/image_raw', '/back/image_raw/compressed', '/chatter']
        for old, new in zip(before.messages(topics), after.messages(topics)):
            assert (old[:2], old[2].tobytes()) == (new[:2], new[2].tobytes())
    for topic in ('front_image_raw', 'back_image_raw_compressed'):
        assert (tmp_path / f'labeled_{topic}.mp4').stat().st_size
    output.unlink()
    _, text = label(path, '--video', code=1)
    assert 'labeled_front_image_raw.mp4 exists already' in text and not output.exists()


@pytest.mark.parametrize('storage', ['mcap', 'sqlite3'])
def test_copied_topics_keep_their_qos_profiles(label, tmp_path, storage):
    lasting = QosTime(2147483647, 4294967295)
    qos = Qos(
        QosHistory.KEEP_LAST,
        7,
        QosReliability.RELIABLE,
        QosDurability.TRANSIENT_LOCAL,
        lasting,
        QosTime(1, 5),
        QosLiveliness.AUTOMATIC,
        lasting,
        False,
    )
    images = [*camera(1), ('/map', 2, text_message('a'))]
    path = write_recording(tmp_path / 'drive', images, storage, qos={'/map': [qos]})
    output, _ = label(path, '--with-input')
    with AnyReader([output]) as reader:
        found = {each.topic: each.ext.offered_qos_profiles for each in reader.connections}
    assert found == {'/detector/detections': [], '/camera/image_raw': [], '/map': [qos]}


@pytest.mark.parametrize(
    ('make', 'height', 'encoding', 'cause'),
    [
        (raw_image, 128, 'nonsense', 'unknown encoding'),
        (compressed_image, 129, 'bgr8', 'too many pixels'),
    ],
)
def test_an_unreadable_image_is_dropped_by_its_cause(
    label, tmp_path, make, height, encoding, cause
):
    messages = camera(3, make=make)
    bad = make(1, np.zeros((height, 128, 3), np.uint8), encoding)
    messages[1] = (*messages[1][:2], bad)
    path = write_recording(tmp_path / 'drive', messages)
    output, text = label(path, '--max-image-pixels', 128 * 128, code=1)
    assert f'2 frames, 1 dropped ({cause})' in text
    assert [step for _, step, _ in read(output)] == [0, 2]


def test_results_of_nan_are_counted(label, tmp_path):
    model = save_network(
        tmp_path / 'nan.onnx',
        'mean = ReduceMean <keepdims = 0> (images) depth = Mul(nan, mean)',
        {'images': (1, 3, 8, 8)},
        {'depth': (1, 1, 8, 8)},
        constants={'nan': np.full((1, 1, 8, 8), np.nan, np.float32)},
    )
    path = write_recording(tmp_path / 'drive', camera(2))
    _, text = label(path, '--model', model, '--decoder', 'depth', code=1)
    assert f'{path}: 2 frames, 2 results of NaN or infinite outputs; see ' in text


@pytest.mark.parametrize(
    'damaged',
    [
        lambda data: data[: len(data) * 2 // 3],
        # As after a power failure: a size without content, also within a record.
        lambda data: data[: len(data) // 2].ljust(len(data), b'\0'),
    ],
    ids=['cut', 'zeros'],
)
def test_a_damaged_recording_is_labeled_up_to_its_damage(label, tmp_path, damaged):
    path = storage_file(write_recording(tmp_path / 'drive', camera(60)))
    loose = tmp_path / 'loose.mcap'
    loose.write_bytes(damaged(path.read_bytes()))
    output, text = label(loose, code=1)
    steps = [step for _, step, _ in read(output)]
    assert steps == list(range(len(steps))) and 10 < len(steps) < 50
    assert f'is damaged: read up to {(len(steps) - 1) / 10:.3f} s after its start' in text


def test_images_of_times_before_1970_are_labeled(label, tmp_path):
    folder = write_recording(tmp_path / 'drive', camera(4), 'sqlite3')
    with closing(sqlite3.connect(storage_file(folder))) as database:
        database.execute('update messages set timestamp = -timestamp where id = 2')
        # As the stamps of the header: -1.5 s.
        data = database.execute('select data from messages where id = 3').fetchone()[0]
        stamp = struct.pack('<iI', -2, 500_000_000)
        database.execute(
            'update messages set data = ? where id = 3', [data[:4] + stamp + data[12:]]
        )
        database.commit()
    output, _ = label(folder, '--video', '--coco', '--with-input')
    names = [
        each['file_name'] for each in json.loads(output.with_suffix('.json').read_text())['images']
    ]
    assert names.count('camera/image_raw/-1.500000000.png') == 1
    with closing(Recording(output)) as recording:
        times = [each.time_ns for each in recording.messages(['/detector/detections'])]
    assert times == [-START_NS - STEP_NS, *(START_NS + step * STEP_NS for step in (0, 2, 3))]


def test_a_part_of_a_recording_is_labeled(label, tmp_path):
    path = write_recording(tmp_path / 'drive', [*camera(20), *camera(20, '/back')])
    output, text = label(path, '--start', '0.5', '--end', '1.6', '--every', 5)
    assert [step for _, step, _ in read(output)] == [5, 5, 10, 10, 15, 15]
    assert ' 6/6 ' in text
    output.unlink()
    output, _ = label(path, '--end', '0.6', '--every', 4, '--with-input')
    assert len(read(output)) == 12 + 4


@pytest.mark.parametrize('compression', ['zstd', 'lz4', ''])
def test_copied_messages_keep_all_that_was_recorded(label, tmp_path, compression):
    path = tmp_path / 'drive.mcap'
    with path.open('wb') as file:
        writer = Writer(file, compression=CompressionType[compression.upper() or 'NONE'])
        writer.start('ros2')
        kind = 'sensor_msgs/msg/Image'
        schema = writer.register_schema(kind, 'ros2msg', definition_of(kind))
        camera_id = writer.register_channel('/camera', 'cdr', schema, {'maker': 'ACME'})
        other = writer.register_schema('robot.State', 'protobuf', b'\1\2')
        state = writer.register_channel('/state', 'protobuf', other)
        for index in range(5):
            time_ns, data = START_NS + index * STEP_NS, raw_image(index, picture(index))
            data = bytes(STORE.serialize_cdr(data, kind))
            writer.add_message(camera_id, time_ns, data, time_ns - 7, 100 + index)
            writer.add_message(state, time_ns, b'any', time_ns)
        writer.add_attachment(1, 2, 'calibration.yaml', 'text/yaml', b'k: 1')
        writer.add_metadata('robot', {'name': 'go1'})
        writer.finish()
    output, _ = label(path, '--with-input')

    def content(path):
        with path.open('rb') as file:
            reader = make_reader(file)
            compressions = {each.compression for each in reader.get_summary().chunk_indexes}
            return (
                list(reader.iter_messages(['/camera', '/state'])),
                list(reader.iter_attachments()),
                [each for each in reader.iter_metadata() if each.name == 'robot'],
                compressions,
            )

    (old, *others), (new, *copied) = content(path), content(output)
    assert copied == others and copied[2] == {compression}
    assert len(old) == len(new) == 10
    for before, after in zip(old, new):
        for name in ('log_time', 'publish_time', 'sequence', 'data'):
            assert getattr(before[2], name) == getattr(after[2], name)
        assert before[1].metadata == after[1].metadata
        assert before[0].data == after[0].data and before[0].encoding == after[0].encoding


def test_video_shows_each_image_with_its_result(label, tmp_path):
    output, _ = label(write_recording(tmp_path / 'drive', camera(9)), '--video')
    capture = cv2.VideoCapture(str(output.with_suffix('.mp4')))
    assert capture.get(cv2.CAP_PROP_FPS) == pytest.approx(10, abs=0.2)
    for index in range(9):
        pixels = capture.read()[1].astype(int)
        # The corner is as it was; the edge of the box at 32 to 96 has another color.
        assert np.abs(pixels[4, 4] - COLORS[index % 3]).max() < 40
        assert np.abs(pixels[30:35, 64] - pixels[4, 4]).max() > 40
    assert not capture.read()[0]
    capture.release()


def test_a_video_over_a_jump_of_the_clock_has_the_default_rate(label, tmp_path):
    images = [(topic, index * 10_000, image) for topic, index, image in camera(3)]
    output, _ = label(write_recording(tmp_path / 'drive', images), '--video')
    capture = cv2.VideoCapture(str(output.with_suffix('.mp4')))
    assert capture.get(cv2.CAP_PROP_FPS) == pytest.approx(10, abs=0.2)
    assert capture.get(cv2.CAP_PROP_FRAME_COUNT) == 3


def test_coco_has_the_images_and_their_objects(label, tmp_path):
    output, _ = label(write_recording(tmp_path / 'drive', camera(4)), '--coco')
    found = json.loads(output.with_suffix('.json').read_text())
    assert found['categories'] == [
        {'id': number, 'name': name} for number, name in enumerate(LABELS, 1)
    ]
    assert [image['id'] for image in found['images']] == [1, 2, 3, 4]
    assert found['images'][1] == {
        'id': 2,
        'file_name': 'camera/image_raw/1700000000.099000000.png',
        'width': 128,
        'height': 128,
    }
    assert found['annotations'][1] == {
        'id': 2,
        'image_id': 2,
        'category_id': 2,
        'bbox': [32.0, 32.0, 64.0, 64.0],
        'score': 1.0,
        'area': 4096.0,
        'iscrowd': 0,
    }
    assert len(found['annotations']) == 4
    origin = found['info']['trt_ros']
    assert origin['thresholds']['score'] == 0.25 and origin['backend'] == 'onnxruntime'
    with output.open('rb') as file:
        (metadata,) = make_reader(file).iter_metadata()
    assert metadata.name == 'trt_ros'
    assert {name: json.loads(text) for name, text in metadata.metadata.items()} == origin


def test_a_run_of_other_options_or_of_another_model_is_not_resumed(label, tmp_path):
    path = write_recording(tmp_path / 'drive', [*camera(2), *camera(2, '/camera')])
    topic = ['--topic', '/camera/image_raw']
    output, _ = label(path, *topic)
    before = output.read_bytes()
    for more, difference in (
        ([*topic, '--score-threshold', '0.5'], 'thresholds.score: 0.25 -> 0.5\n'),
        ([*topic, '--every', '2'], 'Cause: selection.every: 1 -> 2\n'),
        ([*topic, '--resize', 'stretch'], 'options.resize: unset -> stretch\n'),
        (['--topic', '/camera'], "selection.topics: ['/camera/image_raw'] -> ['/camera']\n"),
    ):
        _, text = label(path, '--resume', *more, code=1)
        assert 'cannot be resumed' in text and difference in text
        assert output.read_bytes() == before
    _, text = label(path, '--resume', '--video', code=1)
    assert 'The video of' in text and 'Leave --video, --coco, --parquet and --select or' in text
    model = onnx.load(label.command[-1])
    model.graph.doc_string = 'trained again'
    onnx.save(model, label.command[-1])
    _, text = label(path, *topic, '--resume', '--cpu-threads', 1, code=1)
    assert 'Cause: model_sha256.' in text and 'cannot be resumed' in text
    assert 'options.' not in text


def test_another_recording_is_not_resumed_but_a_copy_is(label, tmp_path):
    drive = storage_file(write_recording(tmp_path / 'drive', camera(4)))
    other = storage_file(write_recording(tmp_path / 'other', camera(5)[1:]))
    copy = tmp_path / 'copy.mcap'
    copy.write_bytes(drive.read_bytes())
    output, _ = label(drive)
    before = output.read_bytes()
    _, text = label(other, '--resume', code=1)
    assert 'Cause: recording.sha256_of_ends: ' in text and output.read_bytes() == before
    label(copy, '--resume')
    assert output.read_bytes() == before


def test_a_data_set_with_its_images_is_loaded_by_supervision(label, tmp_path):
    supervision = pytest.importorskip('supervision')
    path = write_recording(tmp_path / 'drive', camera(3, make=compressed_image))
    output, _ = label(path, '--coco', '--images')
    loaded = supervision.DetectionDataset.from_coco(
        str(output.with_suffix('')), str(output.with_suffix('.json'))
    )
    assert sorted(loaded.classes) == sorted(LABELS) and len(loaded) == 3
    for index, (_, pixels, found) in enumerate(loaded):
        assert (pixels == picture(index)).all()
        assert found.xyxy.tolist() == [[32, 32, 96, 96]]


@pytest.mark.parametrize(
    'flags, message',
    [
        ('--images', 'Use --coco, or'),
        ('--track', 'Use --coco, --parquet, --video or --select'),
        ('--budget 9', 'Use --select, or'),
        ('--gpus-per-worker 0', 'Use --ray, or'),
        ('--frames-in-flight 3 --backend onnxruntime', 'Use a GPU or a server, or'),
        ('--start 2 --end 1', 'no part from 2 s to 1 s'),
        ('--report none/report.jsonl', 'The folder none does not exist'),
        ('--end 0', 'no part from 0 s to 0 s'),
        ('--split 0', '--split is 0 s'),
        ('--retry report.jsonl --split 5', 'takes no recordings, split.'),
    ],
)
def test_flags_without_effect_are_refused(label, tmp_path, flags, message):
    output, text = label(tmp_path / 'none', *flags.split(), code=1)
    assert message in text and not output.exists()


@pytest.mark.parametrize('more', [['--start', '2'], ['--start', '0.12', '--end', '0.18']])
def test_a_part_without_images_is_an_error(label, tmp_path, more):
    path = write_recording(tmp_path / 'drive', camera(10))
    output, text = label(path, *more, '--with-input', '--coco', code=1)
    assert f'has no images from {more[1]} s' in text and not output.exists()
    (tmp_path / 'none.mcap').touch()
    output, text = label(path, tmp_path / 'none.mcap', *more, '--split', '0.5', code=1)
    assert 'none.mcap cannot be opened' in text and 'Traceback' not in text
    assert [*output.rglob('*.mcap')] == [output / 'drive/drive_0.mcap'][: more[1] != '2']


@pytest.mark.parametrize('more', [['drives'], ['drive', '--split', '1'], ['drive', 'other']])
def test_several_results_are_not_written_to_one_file(label, tmp_path, more):
    for name in ('drive', 'other', 'drives/drive'):
        write_recording(tmp_path / name, camera(1))
    path, *more = (tmp_path / each if each[0] in 'do' else each for each in more)
    _, text = label(path, *more, '--output', tmp_path / 'out.mcap', code=1)
    assert 'Set --output to a folder' in text and not (tmp_path / 'out.mcap').exists()


def test_objects_of_data_sets_have_tracks(label, tmp_path):
    parquet = pytest.importorskip('pyarrow.parquet', reason='pip install pyarrow')
    path = write_recording(tmp_path / 'drive', camera(6))  # One object per color.
    output, _ = label(path, '--coco', '--parquet', '--track')
    found = json.loads(output.with_suffix('.json').read_text())
    assert [each['track_id'] for each in found['annotations']] == [1, 2, 3, 1, 2, 3]
    table = parquet.read_table(output.with_suffix('.parquet'))
    assert table['track_id'].to_pylist() == [1, 2, 3, 1, 2, 3]
    assert table['class'].to_pylist() == 2 * LABELS
    assert json.loads(table.schema.metadata[b'trt_ros']) == found['info']['trt_ros']


KILLED = """
import os, signal, sys
from io import FileIO
from trt_ros.cli import main
from trt_ros.labelling import mcap

path, nbytes, *arguments = sys.argv[1:]

class Killed(FileIO):
    left = int(nbytes)

    def write(self, data):
        if str(self.name) != path:
            return super().write(data)
        self.left -= super().write(data[: self.left])
        if self.left == 0:
            os.kill(os.getpid(), signal.SIGKILL)
        return len(data)

mcap.FileIO = Killed
mcap.McapWriter.__init__.__kwdefaults__['seconds_per_write'] = 0.0
main(arguments)
"""


def kill_in_a_write(command, path, nbytes):
    """Run a command that writes at every frame, until it has written so many bytes to a file."""
    done = run_script(KILLED, path, nbytes, *command[3:], check=False)
    assert done.returncode == -signal.SIGKILL, done.stderr


def test_a_killed_run_is_readable_and_resumed(label, tmp_path):
    count = 300
    path = write_recording(tmp_path / 'drive', camera(count))
    whole, _ = label(path)
    output = tmp_path / 'killed.mcap'
    command = [*label.command, '--output', str(output), str(path)]
    # Each frame writes its chunk of up to 100 frames anew.
    kill_in_a_write(command, output, 20 * whole.stat().st_size)
    done = len(read_steps(output))
    assert 100 < done < count
    process = subprocess.run([*command, '--resume'], check=True, capture_output=True, text=True)
    left, kept = re.search(r'(\d+) frames after the (\d+) of', process.stderr).groups()
    assert int(left) + int(kept) == count
    assert f' {count}/{count} ' in process.stderr  # The bar is full.
    assert 0 < int(kept) <= done  # Less where a write was interrupted.
    assert output.read_bytes() == whole.read_bytes()


def read_steps(path):
    """Return the steps of the detections that can be read, also of an interrupted write."""
    found = []
    with closing(Recording(path)) as recording, suppress(BadFrameError):
        for _, time, *_ in recording.messages(['/detector/detections']):
            found.append((time - START_NS) / STEP_NS)
    return found


@pytest.mark.parametrize('more', [(), ('--workers', '1')])
def test_failed_recordings_are_labeled_again_and_done_ones_left_out(label, tmp_path, more):
    drives, report = tmp_path / 'drives', tmp_path / 'report.jsonl'
    for name in ('day_1/drive', 'day_2/drive', 'day_3/other'):
        write_recording(drives / name, camera(2))
    broken = storage_file(drives / 'day_2/drive')
    data = broken.read_bytes()
    broken.write_bytes(b'not a recording')
    output, text = label(drives, '--recursive', '--report', report, *more, code=1)
    assert 'day_2/drive cannot be opened' in text
    status = [json.loads(line)['status'] for line in report.read_text().splitlines()[1:]]
    assert sorted(status) == ['done', 'done', 'failed']
    broken.write_bytes(data)
    _, text = label('--retry', report, *more)
    assert 'day_2/drive: 2 frames' in text and 'day_1' not in text
    assert len(read(output / 'day_2/drive.mcap')) == 2
    _, text = label(drives, '--recursive', '--report', report, '--resume')
    assert '3 of 3 recordings are done already' in text and 'frames;' not in text
    (output / 'day_1/drive.mcap').unlink()
    label(drives, '--recursive', '--report', report, '--resume')
    assert len(read(output / 'day_1/drive.mcap')) == 2
    _, text = label('--retry', tmp_path / 'misspelled.jsonl', code=1)
    assert 'misspelled.jsonl names no recording.' in text


def test_all_recordings_of_a_killed_job_are_labeled_by_retry(label, tmp_path):
    paths = [write_recording(tmp_path / name, camera(40)) for name in 'abc']
    output, report = tmp_path / 'killed', tmp_path / 'report.jsonl'
    command = [*label.command, '--output', str(output), '--report', str(report), *map(str, paths)]
    kill_in_a_write(command, output / 'b.mcap', 1)
    report.write_text(report.read_text()[:-9])  # Of one recording a part, of another nothing.
    label('--retry', report, '--output', output)
    assert [len(read(output / f'{path.name}.mcap')) for path in paths] == [40, 40, 40]


def test_a_job_is_not_resumed_with_other_options_nor_by_mistake(label, tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    drives, report = tmp_path / 'drives', tmp_path / 'report.jsonl'
    write_recording(drives / 'drive', camera(2))
    output, _ = label(drives, '--report', report)
    before = report.read_text()
    for more, difference in (
        (['--split', '1'], 'split: None -> 1.0.'),
        (['--start', '0.1'], 'start: 0.0 -> 0.1.'),
        (['--output', 'other'], 'labeled -> other.'),
        (['--score-threshold', '0.5'], 'thresholds.score: 0.25 -> 0.5.'),
        (['--coco'], "outputs.data_sets: [] -> ['coco']."),
    ):
        _, text = label(drives, '--report', report, '--resume', *more, code=1)
        assert difference in text
        if not {'--start', '--split'} & {*more}:
            _, text = label('--retry', report, *more, code=1)
            assert difference in text
        assert report.read_text() == before
    _, text = label(drives, '--report', report, code=1)
    assert 'report.jsonl exists already' in text and '--resume' in text
    write_recording(tmp_path / 'others/drive', camera(1))
    others = ['--output', output, '--report', report, '--resume']
    _, text = label(tmp_path / 'others', *others, code=1)
    assert 'drives/drive -> ' in text and report.read_text() == before


@pytest.mark.parametrize('flags', [[], ['--coco']])
def test_a_damaged_recording_is_labeled_again_from_its_start(label, tmp_path, flags):
    drives, report = tmp_path / 'drives', tmp_path / 'report.jsonl'
    for name in ('a', 'b'):
        path = storage_file(write_recording(drives / name, camera(60)))
    data = path.read_bytes()
    path.write_bytes(data[: len(data) * 2 // 3])
    for again in ([drives, '--report', report], [drives, '--report', report, '--resume']):
        output, text = label(*again, *flags, code=1)
        assert (
            'is damaged' in text
            and json.loads(report.read_text().splitlines()[-1])['status'] == 'damaged'
        )
    path.write_bytes(data)
    _, text = label('--retry', report, *flags)
    assert 'b: 60 frames;' in text and 'a: ' not in text
    assert len(read(output / 'b.mcap')) == 60


def test_shards_label_each_recording_once(label, tmp_path):
    for number in range(5):
        write_recording(tmp_path / 'drives' / f'drive_{number}', camera(1))
    for shard, count in (('0/2', 3), ('1/2', 5), ('7/9', 5)):
        output, text = label(tmp_path / 'drives', '--shard', shard)
        assert ('no recordings in this part' in text) is (shard == '7/9')
        assert len([*output.glob('*.mcap')]) == count


@pytest.fixture
def bucket(tmp_path):
    """Return the root of an empty storage of fsspec, which this process has in memory."""
    upath = pytest.importorskip('upath')
    root = upath.UPath('memory://bucket')
    yield root
    root.fs.rm('/', recursive=True)


def test_recordings_by_url_are_labeled_to_urls(label, tmp_path, bucket):
    for name in ('day_1/drive', 'day_2/drive'):
        write_recording(tmp_path / 'drives' / name, camera(2))
    bucket.fs.put(f'{tmp_path}/drives/', f'{bucket.path}/', recursive=True)
    report = tmp_path / 'report.jsonl'
    flags = ['--recursive', '--coco', '--images', '--report', report]
    _, text = label('memory://bucket', '--output', 'memory://results', *flags)
    assert 'memory://bucket/day_2/drive: 2 frames; see memory://results/day_2/drive.mcap' in text
    results = type(bucket)('memory://results/day_1')
    found = json.loads((results / 'drive.json').read_text())
    for image in found['images']:
        assert (results / 'drive' / image['file_name']).exists()
    local = tmp_path / 'copy.mcap'
    local.write_bytes((results / 'drive.mcap').read_bytes())
    assert len(read(local)) == 2
    _, text = label('memory://bucket', '--output', 'memory://results', '--recursive', code=1)
    assert text.count('exists already') == 2
    _, text = label('memory://bucket/day_1/drive', '--output', 'memory://results/a.mcap')
    assert 'drive: 2 frames' in text
    _, text = label('memry://bucket', '--output', 'memory://results', code=1)
    assert "filesystem: 'memry'.\nRemedy: Correct the scheme" in text


@pytest.mark.parametrize('is_retried', [False, True])
def test_a_data_set_of_a_killed_job_is_made_again(label, tmp_path, is_retried):
    drives, report = tmp_path / 'drives', tmp_path / 'report.jsonl'
    for name in ('a', 'b'):
        write_recording(drives / name, camera(3))
    flags = ['--coco', '--images', '--select', 'rare:red', '--report', report]
    output, _ = label(drives, *flags)
    wanted = json.loads((output / 'b.json').read_text())
    lines = report.read_text().splitlines(keepends=True)
    report.write_text(''.join(lines[:-1]) + lines[-1][:20])  # As after a kill.
    (output / 'b.json').unlink()
    again = ['--retry', report] if is_retried else [drives, '--resume', '--report', report]
    _, text = label(*flags[:-2], *again)
    assert 'b: 3 frames' in text and 'a: 3 frames' not in text
    assert json.loads((output / 'b.json').read_text()) == wanted
    assert len(json.loads((output / 'selected.json').read_text())['images']) == 2
    (output / 'c.mcap').write_text('mine')
    write_recording(drives / 'c', camera(1))
    for _ in range(2):
        _, text = label(drives, *flags, '--resume', code=1)
        assert 'cannot be continued' in text and (output / 'c.mcap').read_text() == 'mine'


def test_a_url_without_its_package_names_it(label):
    _, text = label('s3://bucket/drive.mcap', code=1)
    assert 'pip install' in text and 's3fs' in text


@pytest.mark.parametrize('more', [(), ('--workers', '1')])
def test_parts_of_a_recording_have_the_results_of_the_whole(label, tmp_path, more):
    path = write_recording(tmp_path / 'drive', camera(40))
    output, _ = label(path, '--split', 1.5, '--start', 0.5, *more)
    folder = output / 'drive'
    assert sorted(each.name for each in folder.iterdir()) == [
        f'drive_{number}.mcap' for number in range(3)
    ]
    with closing(Recording(folder)) as recording:
        times = [each.time_ns for each in recording.messages(['/detector/detections'])]
    assert times == [START_NS + step * STEP_NS for step in range(5, 40)]
    assert find_recordings([folder]) == [(folder, Path('drive'))]


def test_a_part_without_images_is_labeled_again_by_retry(label, tmp_path):
    images = [('/camera', step, raw_image(0, picture(0))) for step in (0, 45)]
    report = tmp_path / 'report.jsonl'
    output, _ = label(
        write_recording(tmp_path / 'drive', images), '--split', 1, '--report', report
    )
    empty = output / 'drive/drive_1.mcap'
    whole = empty.read_bytes()
    empty.unlink()
    label('--retry', report)
    assert empty.read_bytes() == whole


@pytest.mark.parametrize(
    'make, seconds, message',
    [
        (raw_image, '600', 'times from 5.000 to 1700000000.000, 1699999995.000 s'),
        (raw_image, '1e-300', 'parts of 1e-300 s, of at most 10000'),
        (lambda *_: video_packet(0, np.zeros(9, np.uint8), 'h264'), '600', 'is a video'),
    ],
)
def test_parts_that_cannot_be_labeled_are_refused(label, tmp_path, make, seconds, message):
    first = (5 * 10**9 - START_NS) // STEP_NS
    images = [('/camera', step, make(0, picture(0))) for step in (first, 0)]
    path = write_recording(tmp_path / 'drive', images)
    output, text = label(path, '--split', seconds, code=1)
    assert message in text and not output.exists()


@pytest.mark.parametrize('shard', ['2/2', '-1/2', 'x', '0/0'])
def test_shards_that_do_not_exist_are_refused(shard, tmp_path, capsys):
    with pytest.raises(SystemExit):
        main(['label', str(tmp_path), '--output', 'a', '--model', 'b', f'--shard={shard}'])
    assert f'argument --shard: {shard!r} is not I/N' in capsys.readouterr().err


def test_a_full_disk_is_reported_and_the_run_continues_later(label, tmp_path):
    path = write_recording(tmp_path / 'drive', camera(250))
    output = tmp_path / 'full.mcap'
    said = fill_disk([*label.command, '--output', output, '--with-input', path], 200)
    assert 'full.mcap cannot be written.' in said
    label(path, '--with-input', '--resume', '--output', output)
    whole, _ = label(path, '--with-input')
    assert output.read_bytes() == whole.read_bytes()


def fill_disk(command, kilobytes):
    """Run a command whose files may have so many bytes; return what it says when it fails."""
    limited = ['bash', '-c', f'ulimit -f {kilobytes}; exec "$@"', 'bash', *map(str, command)]
    # Coverage writes a file of its own.
    plain = {name: value for name, value in os.environ.items() if 'COVERAGE' not in name}
    done = subprocess.run(limited, capture_output=True, text=True, env=plain)
    assert done.returncode == 1 and 'Traceback' not in done.stderr
    return done.stderr


def test_images_are_looked_for_before_the_network_is_loaded(label, tmp_path):
    path = write_recording(tmp_path / 'drive', [('/chatter', 2, text_message('a'))])
    _, text = label(path, '--model', tmp_path / 'none.onnx', code=1)
    assert 'has no images' in text and 'none.onnx' not in text
    assert 'Its topics are /chatter (std_msgs/msg/String, cdr).' in text


@pytest.mark.parametrize(
    'args, why',
    [
        (['--topic', '/none'], 'has no images on topic /none.\nCause: Its image topics are /c'),
        (['--topic', '/chatter'], 'Its image topics are /camera/image_raw.'),
    ],
)
def test_topics_without_images_are_refused(label, tmp_path, args, why):
    depth = ('/depth', 1, raw_image(1, np.zeros((4, 4, 1), np.uint16), '16UC1'))
    messages = [*camera(1), depth, ('/chatter', 2, text_message('a'))]
    output, text = label(write_recording(tmp_path / 'drive', messages), *args, code=1)
    assert why in text and '/depth' not in text and not output.exists()


@pytest.mark.parametrize('more', [(), ('--workers', '1')])
@pytest.mark.parametrize('suffix', ['.mcap', '.mp4', '.json'])
def test_existing_files_are_kept_and_refused_before_the_network_is_loaded(
    label, tmp_path, more, suffix
):
    path = write_recording(tmp_path / 'drive', camera(1))
    existing = (tmp_path / 'labeled').with_suffix(suffix)
    existing.write_text('mine')
    model = tmp_path / 'none.onnx'
    _, text = label(path, '--video', '--coco', '--model', model, *more, code=1)
    assert f'{existing.name} exists already' in text and 'none.onnx' not in text
    assert [*tmp_path.glob('labeled.*')] == [existing] and existing.read_text() == 'mine'


@pytest.mark.parametrize(
    'name, why',
    [
        ('none/out.mcap', 'out.mcap cannot be written'),
        *((f'out{suffix}', 'suffix .mcap') for suffix in ('.mp4', '.json', '.txt', '')),
    ],
)
def test_other_outputs_are_refused_before_the_network_is_loaded(label, tmp_path, name, why):
    path, output = write_recording(tmp_path / 'drive', camera(1)), tmp_path / name
    flags = ('--video', '--coco', '--model', tmp_path / 'none.onnx')
    _, text = label(path, *flags, '--output', output, code=1)
    assert why in text and 'none.onnx' not in text and not output.exists()


def test_it_needs_no_ros(color_detector, tmp_path):
    path = write_recording(tmp_path / 'drive', camera(2))
    code = (
        'import sys\n'
        'for name in ("rclpy", "sensor_msgs", "vision_msgs"): sys.modules[name] = None\n'
        'from trt_ros.cli import main\n'
        'sys.exit(main(sys.argv[1:]))'
    )
    output, model = tmp_path / 'out.mcap', color_detector()
    run_script(code, 'label', path, '--output', output, '--model', model)
    assert len(read(output)) == 2


@pytest.mark.nightly
def test_memory_does_not_grow_with_the_recording(label, tmp_path):
    """The larger recording has 295 MB more, and the smaller one fills all buffers, too."""
    code = (
        'import re, sys\n'
        'from trt_ros.cli import main\n'
        'assert main(sys.argv[1:]) == 0\n'
        'print(re.search(r"VmHWM:\\s+(\\d+) kB", open("/proc/self/status").read())[1])'
    )
    peaks_kb = []
    for count in (80, 400):
        path = tmp_path / f'drive_{count}'
        images = [
            ('/camera/image_raw', index, raw_image(index, np.zeros((480, 640, 3), np.uint8)))
            for index in range(count)
        ]
        write_recording(path, images)
        output = tmp_path / f'{count}.mcap'
        done = run_script(code, *label.command[3:], '--output', output, '--with-input', path)
        peaks_kb.append(int(done.stdout))
    assert peaks_kb[1] - peaks_kb[0] < 100_000


@pytest.mark.parametrize('more', [(), ('--workers', '1')])
def test_recordings_without_images_leave_the_others(label, tmp_path, more):
    for number, images in enumerate((camera(1), [('/chatter', 2, text_message('a'))], camera(2))):
        write_recording(tmp_path / 'drives' / f'drive_{number}', images)
    (tmp_path / 'drives/notes.mcap').write_bytes(b'not a recording')
    output, text = label(tmp_path / 'drives', *more, code=1)
    assert [len(read(output / f'drive_{number}.mcap')) for number in (0, 2)] == [1, 2]
    assert 'drive_1 has no images.' in text
    assert 'notes.mcap cannot be opened.' in text


@pytest.mark.nightly
@pytest.mark.parametrize('more, kilobytes', [(['--with-input'], 200), ([], 20)])
def test_a_full_disk_is_reported_also_with_a_data_set(label, tmp_path, more, kilobytes):
    path = write_recording(tmp_path / 'drive', camera(250))
    output = tmp_path / 'full.mcap'
    command = [*label.command, '--output', output, '--coco', *more, path]
    said = fill_disk(command, kilobytes)
    assert 'cannot be written.' in said and 'delete the files of this run' in said
