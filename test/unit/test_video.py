"""Packets of videos are decoded from a key frame on, and after a loss from the next one on."""

import os

import numpy as np
import pytest

pytest.importorskip('av')

from support.videos import Encoded, decode, encode, moving_disc
from trt_ros.errors import BadFrameError
from trt_ros.video import DAMAGED, LOST, REPEATED, WAITING, VideoDecoder
from trt_ros.vision.frame import Frame, to_color

CODECS = ('h264', 'h265', 'av1')


@pytest.fixture(scope='module')
def streams():
    return {codec: encode(codec, moving_disc(12)) for codec in CODECS}


def outcomes(codec, packets, *, numbered=False, decoder=None):
    """Return the numbers of the pictures that each packet completes, or why it is dropped."""
    decoder = decoder or VideoDecoder()
    found = []
    for number, data in packets:
        try:
            pictures = decoder.decode(codec, data, number if numbered else None, number)
            found.append([item for item, _ in pictures])
        except BadFrameError as error:
            found.append(error.kind)
    return found


def each(*numbers):
    return [[number] for number in numbers]


def test_encoding_leaves_the_scheduling_of_its_process_alone(streams):
    assert os.sched_getscheduler(0) == os.SCHED_OTHER


@pytest.mark.parametrize('codec', CODECS)
def test_each_packet_gives_its_picture_as_pyav_decodes_it(codec, streams):
    decoder = VideoDecoder()
    frames = [
        frame
        for number, data in streams[codec]
        for _, frame in decoder.decode(codec, data, number, number)
    ]
    expected = decode(codec, streams[codec])
    assert len(frames) == len(expected) == 12
    for frame, pixels in zip(frames, expected):
        whole = Frame.from_pixels(pixels, 'nv12')
        assert (frame.wh, frame.step, frame.encoding) == ((128, 96), 128, 'nv12')
        assert frame.nbytes == whole.nbytes
        assert np.array_equal(frame.data, whole.data)
        assert not frame.is_on_gpu
    assert decoder.delay == 0 and decoder.flush() == []


@pytest.mark.parametrize('name', ['h264;yuv420p;bgr8;bgr8', 'libx264', 'h264_nvenc', 'H264'])
def test_codecs_are_known_by_the_names_of_messages_and_encoders(name, streams):
    assert outcomes(name, streams['h264'][:2]) == each(0, 1)


def test_another_codec_follows_in_mid_stream_and_an_unknown_one_is_refused(streams):
    assert outcomes('theora', streams['h264'][:1]) == ['unknown codec']
    with pytest.raises(BadFrameError, match=r"codec 'theora'\.\nRemedy: Publish H.264, H.265 or"):
        VideoDecoder().open('theora')
    decoder = VideoDecoder()
    for codec in CODECS:
        assert outcomes(codec, streams[codec][:3], decoder=decoder) == each(0, 1, 2)


@pytest.mark.parametrize('codec', CODECS)
def test_a_stream_starts_at_its_first_key_frame_and_changes_size_up_to_a_limit(codec, streams):
    assert outcomes(codec, streams[codec][2:]) == [WAITING] * 3 + each(*range(5, 12))
    packets = [*streams[codec][:3], *encode(codec, moving_disc(2, (64, 48)))]
    decoder = VideoDecoder()
    found = [frame for n, data in packets for _, frame in decoder.decode(codec, data, None, n)]
    assert [frame.wh for frame in found] == [(128, 96)] * 3 + [(64, 48)] * 2
    (found,) = set(outcomes(codec, streams[codec][:1], decoder=VideoDecoder(128 * 96 - 1)))
    assert found == (DAMAGED if codec == 'h264' else 'too many pixels')
    assert outcomes(codec, streams[codec][:1], decoder=VideoDecoder(128 * 96)) == each(0)


@pytest.mark.parametrize('codec', CODECS)
@pytest.mark.parametrize('told', ['by number', 'by the subscription'])
def test_after_a_lost_packet_the_next_key_frame_is_next(codec, told, streams):
    packets = streams[codec]
    if told == 'by number':
        found = outcomes(codec, packets[:7] + packets[8:], numbered=True)
    else:
        decoder = VideoDecoder()
        found = outcomes(codec, packets[:7], decoder=decoder)
        decoder.lose(1)
        found += outcomes(codec, packets[8:], decoder=decoder)
    assert found == [*each(*range(7)), LOST, WAITING, *each(10, 11)]


@pytest.mark.parametrize(
    ('codec', 'lost', 'numbered', 'rest'),
    [
        pytest.param('h265', 7, False, [DAMAGED, WAITING, [10], [11]], id='a picture is missing'),
        pytest.param('h264', 9, True, [[10], [11]], id='a key frame is next'),
    ],
)
def test_a_lost_packet_loses_no_more_than_it_must(codec, lost, numbered, rest, streams):
    packets = streams[codec]
    found = outcomes(codec, packets[:lost] + packets[lost + 1 :], numbered=numbered)
    assert found == [*each(*range(lost)), *rest]


@pytest.mark.parametrize('step', [1_000, -1])
def test_numbers_that_do_not_count_packets_tell_of_no_loss(step, streams):
    packets = [Encoded(step * number, data) for number, data in streams['h264']]
    found = outcomes('h264', packets[:7] + packets[8:], numbered=True)
    assert not {LOST, DAMAGED, WAITING} & {each for each in found if isinstance(each, str)}


@pytest.mark.parametrize('codec', CODECS)
@pytest.mark.parametrize(
    'damage',
    [lambda data: data[:0], lambda data: np.full(40, 7, np.uint8)],
    ids=['empty', 'other bytes'],
)
def test_after_a_damaged_packet_the_next_key_frame_is_next(codec, damage, streams):
    packets = list(streams[codec])
    packets[2] = Encoded(2, damage(packets[2].data))
    assert outcomes(codec, packets) == [
        *each(0, 1),
        DAMAGED,
        WAITING,
        WAITING,
        *each(*range(5, 12)),
    ]


@pytest.mark.parametrize(
    ('codec', 'repeated'), [('h264', REPEATED), ('h265', REPEATED), ('av1', [3])]
)
@pytest.mark.parametrize('numbered', [True, False])
def test_a_repeated_packet_changes_no_picture(codec, repeated, numbered, streams):
    decoder, packets = VideoDecoder(), [streams[codec][index] for index in (0, 0, 1, 2, 3, 3)]
    found = outcomes(codec, packets, numbered=numbered, decoder=decoder)
    assert found == [*each(0, 0, 1, 2, 3), repeated]
    frames = [
        frame
        for number, data in streams[codec][4:8]
        for _, frame in decoder.decode(codec, data, number if numbered else None, number)
    ]
    expected = decode(codec, streams[codec])[4:8]
    for frame, pixels in zip(frames, expected, strict=True):
        assert np.array_equal(frame.data, Frame.from_pixels(pixels, 'nv12').data)


def test_half_a_packet_is_damaged(streams):
    packets = list(streams['h264'])
    packets[2] = Encoded(2, packets[2].data[: packets[2].data.size // 2])
    assert outcomes('h264', packets)[2:5] == [DAMAGED, WAITING, WAITING]


@pytest.mark.parametrize('codec', CODECS)
def test_no_bytes_whatever_end_the_decoder(codec, streams):
    rng, decoder = np.random.default_rng(1), VideoDecoder()
    for index in range(200):
        data = streams[codec][index % 12].data.copy()
        at = rng.integers(0, data.size, rng.integers(1, 9))
        data[at] = rng.integers(0, 256, len(at))
        outcomes(codec, [Encoded(index, data)], numbered=True, decoder=decoder)
    decoder.close()
    assert outcomes(codec, streams[codec], decoder=decoder) == each(*range(12))


@pytest.mark.parametrize('codec', ['h264', 'h265'])
def test_b_frames_come_in_order_of_display_with_the_items_of_their_packets(codec):
    packets = encode(codec, moving_disc(12), b_frames=2)
    assert [number for number, _ in packets] != sorted(number for number, _ in packets)
    decoder = VideoDecoder()
    found = outcomes(codec, packets, numbered=True, decoder=decoder)
    assert decoder.delay > 0
    assert found[: decoder.delay] == [[]] * decoder.delay
    rest = [item for item, _ in decoder.flush()]
    assert sum(found, rest[:0]) + rest == list(range(12))
    assert outcomes(codec, packets, decoder=decoder)[: decoder.delay] == [[]] * decoder.delay


@pytest.mark.parametrize(
    ('codec', 'wh', 'options'),
    [
        ('h264', (128, 96), {'x264-params': 'colormatrix=bt709'}),
        ('h264', (128, 96), {'x264-params': 'fullrange=on'}),
        ('av1', (127, 95), {}),
        ('h265', (128, 96), {'pix_fmt': 'yuv420p10le'}),
    ],
    ids=['BT.709', 'full range', 'odd size', '10 bits'],
)
def test_pictures_that_nv12_cannot_hold_are_converted(codec, wh, options):
    (packet,) = encode(codec, moving_disc(1, wh), **options)
    [(_, frame)] = VideoDecoder().decode(codec, packet.data, None, 0)
    assert (frame.encoding, frame.wh, frame.step) == ('bgr8', wh, 3 * wh[0])
    assert np.array_equal(to_color(frame, 'bgr'), decode(codec, [packet], 'bgr24')[0])
