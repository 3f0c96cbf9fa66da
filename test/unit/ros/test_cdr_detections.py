"""Detections as bytes; that rclpy reads the same is held in test/ros/test_transport_cdr.py."""

from __future__ import annotations

import struct

import numpy as np
import pytest

from trt_ros.ros.cdr_detections import DetectionWriter
from trt_ros.vision.detections import Detections


def one_box(label=0):
    return Detections(
        np.array([[10, 20, 40, 80]], np.float32), np.array([0.5], np.float32),
        np.array([label], np.int32))


def test_no_detections_are_a_header_and_a_zero():
    message = DetectionWriter(()).write(
        Detections.empty(), (1, 2), 'abc', class_id_format='name')
    assert message.tobytes() == b'\0\1\0\0' + struct.pack('<iII', 1, 2, 4) + b'abc\0' + bytes(4)


@pytest.mark.parametrize('frame_id', ['', 'abc', 'abcd'])
def test_a_box_is_written_as_centre_and_size_behind_its_score(frame_id):
    message = DetectionWriter(('cat',)).write(
        one_box(), (1, 2), frame_id, class_id_format='name')
    assert message.tobytes().count(b'\4\0\0\0cat\0') == 1
    assert struct.unpack_from('<5dI', message, message.size - 45) == (25, 50, 0, 30, 60, 1)
    assert struct.unpack_from('<d', message, message.size - 397) == (0.5,)


def test_the_same_class_in_another_place_is_written_alike():
    writer = DetectionWriter(('cat', 'a dog'))
    found = Detections(np.zeros((3, 4), np.float32), np.zeros(3, np.float32), np.array([1, 0, 1]))
    both = writer.write(found, (0, 0), 'abc', class_id_format='name').tobytes()
    assert (both.count(b'a dog\0'), both.count(b'cat\0')) == (2, 1)
    indices = writer.write(found, (0, 0), 'abc', class_id_format='index').tobytes()
    assert indices.count(b'\2\0\0\x001\0') == 2
    assert b'dog' not in indices


def test_a_frame_id_that_never_stays_the_same_does_not_fill_the_memory():
    writer = DetectionWriter(())
    for number in range(200):
        writer.write(one_box(), (0, 0), f'frame {number}', class_id_format='name')
    assert len(writer._layouts) < 50
