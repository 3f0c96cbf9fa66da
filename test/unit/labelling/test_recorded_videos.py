"""Recordings of videos: their pictures give the results of the raw images."""

from contextlib import closing

import numpy as np
import pytest

pytest.importorskip('av')

from rosbags.highlevel import AnyReader

from support.recordings import raw_image, video_packet, write_recording
from support.videos import decode, encode, moving_disc
from trt_ros.cli import main
from trt_ros.cli._samples import count_frames, frames
from trt_ros.errors import BadFrameError
from trt_ros.recording import Recording
from trt_ros.ros.sources import open_source
from trt_ros.vision.frame import Frame, to_color

pytestmark = pytest.mark.slow

COUNT = 23
KINDS = pytest.mark.parametrize('has_pts', [False, True], ids=['CompressedVideo', 'FFMPEGPacket'])


@pytest.fixture
def label(color_detector, tmp_path, capsys):
    model = color_detector()

    def run(path, *flags, name='results.mcap', code=0):
        command = ['label', path, '--model', model, '--output', tmp_path / name, *flags]
        assert main(list(map(str, command))) == code
        return (tmp_path / name).read_bytes(), capsys.readouterr().err

    return run


def record(folder, codec, has_pts=False, lost=(), **options):
    """Write a video, and its pictures as PyAV decodes them; return both recordings."""
    packets = encode(codec, moving_disc(COUNT), **options)
    pictures = [
        ('/camera', index, raw_image(index, to_color(Frame.from_pixels(pixels, 'nv12'), 'bgr')))
        for index, pixels in enumerate(decode(codec, packets))
    ]
    sent = [
        ('/camera', place, video_packet(number, data, codec, number if has_pts else None))
        for place, (number, data) in enumerate(packets)
        if place not in lost
    ]
    return write_recording(folder / 'video', sent), write_recording(folder / 'raw', pictures)


def messages(path):
    with closing(Recording(path)) as recording:
        return [
            (topic, time_ns, data.tobytes())
            for topic, time_ns, data, *_ in recording.messages([*recording.topics])
        ]


@KINDS
@pytest.mark.parametrize('codec', ['h264', 'h265', 'av1'])
def test_a_video_is_labeled_as_its_pictures_are(label, tmp_path, codec, has_pts):
    video, raw = record(tmp_path, codec, has_pts)
    _, text = label(video)
    assert f'{COUNT} frames' in text
    label(raw, name='raw.mcap')
    found, expected = (messages(tmp_path / name) for name in ('results.mcap', 'raw.mcap'))
    assert found == expected and len(found) == COUNT


def test_a_run_that_was_cut_within_a_group_of_pictures_is_resumed(label, tmp_path):
    video, _ = record(tmp_path, 'h264')
    whole, _ = label(video)
    for part in (0.3, 0.6, 0.8):
        (tmp_path / 'cut.mcap').write_bytes(whole[: int(len(whole) * part)])
        assert label(video, '--resume', name='cut.mcap')[0] == whole


@pytest.mark.parametrize('codec', ['h264', 'h265'])
def test_with_b_frames_each_picture_has_its_result(label, tmp_path, codec):
    video, _ = record(tmp_path, codec, b_frames=2)
    _, text = label(video, '--with-input')
    assert f'{COUNT} frames' in text
    with AnyReader([tmp_path / 'results.mcap']) as reader:
        stamps = [
            reader.deserialize(data, connection.msgtype).header.stamp
            for connection, _, data in reader.messages()
            if connection.topic == '/detector/detections'
        ]
        assert sum(each.msgcount for each in reader.connections) == 2 * COUNT
    assert len({(stamp.sec, stamp.nanosec) for stamp in stamps}) == COUNT
    assert stamps == sorted(stamps, key=lambda stamp: (stamp.sec, stamp.nanosec))


@pytest.mark.parametrize(
    ('codec', 'has_pts', 'cause'),
    [('h264', True, 'lost video packets'), ('h265', False, 'damaged video packet')],
)
def test_pictures_between_a_lost_packet_and_the_next_key_frame_are_dropped(
    label, tmp_path, codec, has_pts, cause
):
    video, _ = record(tmp_path, codec, has_pts, lost=[7])
    _, text = label(video, code=1)
    assert f'{COUNT - 3} frames' in text
    assert f'1 dropped ({cause}), 1 dropped (waiting for a key frame)' in text


def test_a_recorded_video_is_read_as_pictures(tmp_path):
    video, _ = record(tmp_path, 'h264', b_frames=2)
    expected = decode('h264', encode('h264', moving_disc(COUNT), b_frames=2))
    found = [frame for _, frame in frames([video], 1 << 20)]
    assert count_frames([video], 1 << 20) == len(found) == len(expected) == COUNT
    source = open_source(str(video))
    for _ in range(2):
        for frame, pixels in zip(found, expected):
            assert np.array_equal(frame.data, pixels.reshape(-1))
            assert np.array_equal(source.read(), to_color(frame, 'bgr'))
        assert source.read() is None
        source.rewind()
    source.close()


def test_a_recording_that_starts_within_a_group_of_pictures_is_read_from_its_key_frame(tmp_path):
    video, _ = record(tmp_path, 'h264', lost=[0])
    bad = []
    assert len(list(frames([video], 1 << 20, bad.append))) == COUNT - 5
    assert [error.kind for error in bad] == ['waiting for a key frame'] * 4
    source = open_source(str(video))
    with pytest.raises(BadFrameError, match='did not begin with a key frame'):
        source.read()
    source.close()
