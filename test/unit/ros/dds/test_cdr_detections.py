"""Detections as bytes; that rclpy reads the same is held in test/ros/dds/test_transport_cdr.py."""

import struct
import tracemalloc

from hypothesis import given
from hypothesis import strategies as st
import pytest

from support.objects import detections
from support.properties import repeatable
from trt_ros.errors import BadFrameError
from trt_ros.results.boxes import Detections
from trt_ros.ros.dds.cdr_detections import DetectionWriter, read_detections

BOX = (10, 20, 40, 80)


def written(found, stamp=(1, 2), frame_id='abc', by=None):
    return (by or DetectionWriter()).write(found, stamp, frame_id, class_id_format='name')


def test_no_detections_are_a_header_and_a_zero_and_others_are_read_back():
    message = written(Detections.empty())
    assert message.tobytes() == b'\0\1\0\0' + struct.pack('<iII', 1, 2, 4) + b'abc\0' + bytes(4)
    assert read_detections(two_boxes()) == [
        ('a dog', 0.5, (25, 50, 0, 30, 60), ''),
        ('cat', 0.25, (1, 2, 0, 2, 4), ''),
    ]


@pytest.mark.parametrize('frame_id', ['', 'abc', 'abcd'])
def test_a_box_is_written_as_center_and_size_behind_its_score(frame_id):
    message = written(detections(BOX, score=0.5, class_names=('cat',)), frame_id=frame_id)
    assert message.tobytes().count(b'\4\0\0\0cat\0') == 1
    assert struct.unpack_from('<5dI', message, message.size - 45) == (25, 50, 0, 30, 60, 1)
    assert struct.unpack_from('<d', message, message.size - 397) == (0.5,)


def test_the_same_class_in_another_place_is_written_alike_and_other_names_as_they_come():
    writer = DetectionWriter()
    found = detections(*[BOX] * 3, label=(1, 0, 1), class_names=('cat', 'a dog'))
    both = written(found, by=writer).tobytes()
    assert (both.count(b'a dog\0'), both.count(b'cat\0')) == (2, 1)
    indices = writer.write(found, (0, 0), 'abc', class_id_format='index').tobytes()
    assert indices.count(b'\2\0\0\x001\0') == 2
    assert b'dog' not in indices
    writer = DetectionWriter()
    for names in (('cat',), ('dog',)):
        message = written(detections(BOX, class_names=names), by=writer)
        assert names[0].encode() in message.tobytes()


def test_kept_message_is_not_overwritten_and_changing_frame_ids_do_not_fill_memory():
    writer = DetectionWriter()
    for number in range(200):
        written(detections(BOX), frame_id=f'frame {number}', by=writer)
    assert len(writer._layouts) < 50
    writer = DetectionWriter()
    first, second = (written(detections(BOX), (number, 0), by=writer) for number in (1, 2))
    assert (first[4], second[4]) == (1, 2)


@pytest.mark.nightly
def test_changing_classes_do_not_fill_memory():
    names = [f'{label} {"x" * 1000}' for label in range(20_000)]
    writer = DetectionWriter()
    tracemalloc.start()
    try:
        for label in range(len(names)):
            message = written(detections(BOX, label=label, class_names=names), by=writer)
            assert message.tobytes().count(names[label].encode() + b'\0') == 1
        assert tracemalloc.get_traced_memory()[0] < 4 << 20
    finally:
        tracemalloc.stop()


def two_boxes():
    names = {'class_names': ('cat', 'a dog')}
    found = detections(BOX, (0, 0, 2, 4), score=(0.5, 0.25), label=(1, 0), **names)
    return written(found).copy()


def test_rejects_message_truncated_anywhere():
    whole = two_boxes()
    for size in range(whole.size):
        with pytest.raises(BadFrameError) as caught:
            read_detections(whole[:size])
        assert caught.value.kind == 'bad CDR'


@repeatable
@given(st.lists(st.tuples(st.integers(0, 100), st.integers(0, 255)), max_size=5))
def test_a_damaged_message_is_read_or_refused(changes):
    message = two_boxes()
    for at, value in changes:
        message[at] = value
    try:
        read_detections(message)
    except BadFrameError as error:
        assert error.kind == 'bad CDR'
