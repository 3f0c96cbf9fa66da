"""Images as bytes; that rclpy reads the same is held in test/ros/dds/test_transport_cdr.py."""

import struct

from hypothesis import given
from hypothesis import strategies as st
import numpy as np
import pytest

from support.properties import repeatable
from trt_ros.errors import BadFrameError
from trt_ros.ros.dds.cdr import (
    Fields,
    ImageWriter,
    append_aligned,
    append_data,
    append_numbers,
    append_text,
    begin_message,
    read_compressed_image,
    read_ffmpeg_packet,
    read_image,
    with_data,
)


def text(value, order='<'):
    return struct.pack(f'{order}I', len(value) + 1) + value + b'\0'


def aligned(message):
    return message + bytes(-len(message) % 4)


def image(*, frame_id=b'camera', encoding=b'mono8', data=b'\1\2\3\4\5\6', order='<', head=None):
    """Write a sensor_msgs/Image by hand."""
    message = b'\0\1\0\0' if order == '<' else b'\0\0\0\0'
    message += struct.pack(f'{order}iI', -7, 999_999_999) + text(frame_id, order)
    message = aligned(message) + struct.pack(f'{order}II', 2, 3) + text(encoding, order) + b'\1'
    message = aligned(message) + struct.pack(f'{order}II', 3, len(data)) + data
    return np.frombuffer((head or message[:4]) + message[4:], np.uint8)


@pytest.mark.parametrize('order', ['<', '>'])
def test_every_field_is_read_in_both_byte_orders(order):
    found = read_image(image(order=order))
    assert (found.stamp, found.frame_id) == ((-7, 999_999_999), 'camera')
    assert (found.height, found.width, found.encoding) == (2, 3, 'mono8')
    assert (found.is_bigendian, found.step, found.data.tolist()) == (1, 3, [1, 2, 3, 4, 5, 6])


@pytest.mark.parametrize(
    'encoded, decoded',
    [
        (b'', ''),
        ('vorn, ü'.encode(), 'vorn, ü'),
        (b'front\0camera', 'front'),
        (b'\xff!', '\ufffd!'),
    ],
)
def test_texts_are_read_as_rclpy_does(encoded, decoded):
    assert read_image(image(frame_id=encoded)).frame_id == decoded
    assert read_image(image(encoding=encoded)).encoding == decoded


@pytest.mark.parametrize(
    ('head', 'shown'),
    [
        (b'', 'missing'),
        (b'\0', '00'),
        (b'\0\1\0', '00 01 00'),
        (b'\1\1\0\0', '01 01 00 00'),
        (b'\0\2\0\0', '00 02 00 00'),
        (b'\0\7\0\0', '00 07 00 00'),
    ],
)
def test_rejects_unsupported_cdr_encapsulation(head, shown):
    message = image(head=head) if len(head) == 4 else np.frombuffer(head, np.uint8)
    wanted = f'Unsupported message encoding: header {shown}, not plain CDR'
    with pytest.raises(BadFrameError, match=wanted) as caught:
        read_image(message)
    assert caught.value.kind == 'bad CDR'


def test_rejects_message_truncated_anywhere():
    whole = image()
    for size in range(whole.size):
        with pytest.raises(BadFrameError) as caught:
            read_image(whole[:size])
        assert caught.value.kind == 'bad CDR'


@pytest.mark.parametrize('at, field', [(12, 'frame_id'), (32, 'encoding'), (48, 'data')])
def test_length_beyond_message_names_the_field(at, field):
    message = image().copy()
    message[at : at + 4] = 255
    with pytest.raises(BadFrameError, match=f'truncated in field {field}'):
        read_image(message)


@repeatable
@given(st.lists(st.tuples(st.integers(0, 57), st.integers(0, 255)), max_size=5))
def test_a_damaged_image_is_read_or_refused(changes):
    message = image().copy()
    assert message.size == 58
    for at, value in changes:
        message[at] = value
    for read in (read_image, read_compressed_image):
        try:
            found = read(message)
        except BadFrameError as error:
            assert error.kind == 'bad CDR'
        else:
            assert found.data.size == 0 or np.shares_memory(found.data, message)  # A view.


@pytest.mark.parametrize('is_prepared', [False, True])
def test_rewritten_buffer_updates_changes_and_kept_messages_stay_intact(is_prepared):
    writer, written, kept = ImageWriter(), [], []
    sent = [
        ((1, 2), 'left', (4, 2), 'bgr8', 3),
        ((3, 4), 'left', (4, 2), 'bgr8', 3),
        ((3, 4), 'right', (4, 2), 'bgr8', 3),
        ((3, 4), 'right', (4, 2), 'rgb8', 3),
        ((3, 4), 'right', (2, 4), 'rgb8', 3),
        ((5, 6), 'right', (2, 4), 'mono8', 1),
        ((-1, 5), 'vörn', (1, 1), 'bgr8', 3),
    ]
    for number, (stamp, frame_id, image_wh, encoding, channels) in enumerate(sent):
        pixels = writer.begin(stamp, frame_id, image_wh, encoding, channels=channels)
        assert pixels.shape == (*image_wh[::-1], channels)
        pixels[:] = number
        kept.append(writer.message)
        if is_prepared:
            writer.prepare()
    for number, message in enumerate(kept):
        found = read_image(message)
        assert (found.data == number).all()
        wh, channels = (found.width, found.height), found.step // found.width
        written.append((found.stamp, found.frame_id, wh, found.encoding, channels))
    assert written == sent


@pytest.mark.parametrize('is_prepared', [False, True])
def test_images_of_one_size_are_written_into_the_same_memory(is_prepared):
    writer = ImageWriter()
    first = writer.begin((0, 0), 'camera', (8, 8), 'bgr8').ctypes.data
    if is_prepared:
        writer.prepare()
    assert writer.begin((1, 1), 'camera', (8, 8), 'bgr8').ctypes.data == first


@pytest.mark.parametrize('size', [0, 1, 3, 7, 8, 9, 23])
def test_fields_behind_texts_and_data_of_any_size_are_read_back(size):
    message, inserted = begin_message((5, 6), 'x' * size), []
    data = np.arange(size, dtype=np.uint8)
    append_numbers(message, 'Q', [2**40])
    append_data(message, data, inserted)
    append_numbers(message, 'd', [0.5] * size)
    append_data(message, data[::-1].copy(), inserted)
    append_aligned(message, 'I', 2)
    append_text(message, 'a' * size)
    append_text(message, 'end')
    whole = with_data(message, inserted)
    found = np.empty(0, np.uint8), ()
    for _ in range(2):
        fields = Fields(whole)
        assert (fields.stamp(), fields.text('frame_id')) == ((5, 6), 'x' * size)
        assert fields.numbers('long', 'Q') == (2**40,)
        assert fields.bytes('data').tolist() == data.tolist()
        assert fields.array('doubles', np.dtype('d')).tolist() == [0.5] * size
        assert fields.bytes('data').tolist() == data[::-1].tolist()
        found = fields.texts('names', None, found)  # The second time, those of the first.
        assert found[1] == ('a' * size, 'end')
        with pytest.raises(BadFrameError, match='truncated in field more'):
            fields.byte('more')


def test_a_packet_of_ffmpeg_is_read():
    message, inserted = begin_message((1, 2), 'camera'), []
    append_aligned(message, 'I', 640, 480)
    append_text(message, 'h264')
    append_aligned(message, 'Q', 12)
    message += b'\1\0'
    append_data(message, np.arange(9, dtype=np.uint8), inserted)
    found = read_ffmpeg_packet(with_data(message, inserted))
    assert found[:3] == ((1, 2), 'camera', 'h264') and found.number == 12
    assert found.data.tolist() == [*range(9)]
