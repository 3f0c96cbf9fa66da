"""Bytes that we read and write, against rclpy's own."""

from dataclasses import replace

from hypothesis import given
from hypothesis import strategies as st
from hypothesis.extra import numpy as hnp
import numpy as np
from rclpy.serialization import deserialize_message
from sensor_msgs.msg import CompressedImage, Image
from std_msgs.msg import Header
from vision_msgs.msg import (
    BoundingBox2D,
    Detection2D,
    Detection2DArray,
    ObjectHypothesis,
    ObjectHypothesisWithPose,
    Point2D,
    Pose2D,
)

from support.properties import repeatable, texts
from support.ros_messages import serialized
from support.typed_detections import to_detection_array
from trt_ros.results.boxes import Detections, OrientedBoxes
from trt_ros.ros.dds.cdr import ImageWriter, read_compressed_image, read_image, read_stamp
from trt_ros.ros.dds.cdr_detections import DetectionWriter, read_detections

uint32 = st.integers(0, 2**32 - 1)
stamps = st.tuples(st.integers(-(2**31), 2**31 - 1), uint32)
NAMES = ('cat', '', 'Fußgänger', 'traffic light', '猫')
scores = st.floats(0, 1, width=32)
coordinates = st.floats(-1e4, 1e4, width=32)


def header_of(stamp, frame_id):
    header = Header(frame_id=frame_id)
    header.stamp.sec, header.stamp.nanosec = stamp
    return header


@repeatable
@given(stamps, texts, uint32, uint32, texts, st.integers(0, 255), uint32, st.binary(max_size=99))
def test_images_are_read_as_rclpy_reads_them(
    stamp, frame_id, height, width, encoding, is_bigendian, step, data
):
    image = Image(
        header=header_of(stamp, frame_id),
        height=height,
        width=width,
        encoding=encoding,
        is_bigendian=is_bigendian,
        step=step,
        data=data,
    )
    found = read_image(serialized(image))
    assert image == Image(
        header=header_of(found.stamp, found.frame_id),
        height=found.height,
        width=found.width,
        encoding=found.encoding,
        is_bigendian=found.is_bigendian,
        step=found.step,
        data=found.data.tobytes(),
    )


@repeatable
@given(stamps, texts, texts, st.binary(max_size=99))
def test_compressed_images_are_read_as_rclpy_reads_them(stamp, frame_id, format_, data):
    image = CompressedImage(header=header_of(stamp, frame_id), format=format_, data=data)
    found = read_compressed_image(serialized(image))
    assert image == CompressedImage(
        header=header_of(found.stamp, found.frame_id),
        format=found.format,
        data=found.data.tobytes(),
    )


@repeatable
@given(stamps, texts, st.integers(1, 9), st.integers(1, 9), texts)
def test_images_are_written_so_that_rclpy_reads_them(stamp, frame_id, width, height, encoding):
    writer = ImageWriter()
    pixels = writer.begin(stamp, frame_id, (width, height), encoding)
    pixels[:] = np.arange(pixels.size).reshape(pixels.shape)
    assert deserialize_message(writer.message.tobytes(), Image) == Image(
        header=header_of(stamp, frame_id),
        height=height,
        width=width,
        encoding=encoding,
        step=3 * width,
        data=pixels.tobytes(),
    )


@st.composite
def detections(draw):
    count = draw(st.integers(0, 8))
    boxes = draw(hnp.arrays(np.float32, (count, 4), elements=coordinates))
    scored = (
        draw(hnp.arrays(np.float32, count, elements=scores)),
        draw(hnp.arrays(np.int32, count, elements=st.integers(0, len(NAMES) + 2))),
    )
    if draw(st.booleans()):
        return OrientedBoxes(
            boxes,
            draw(hnp.arrays(np.float32, count, elements=st.floats(-4, 4, width=32))),
            *scored,
        )
    return Detections(boxes, *scored)


@repeatable
@given(
    st.lists(detections(), min_size=1, max_size=4),
    stamps,
    texts,
    st.sampled_from(['name', 'index']),
    st.sampled_from([0, 990, 9_999_900, 10**11]),
    st.booleans(),
)
def test_detections_are_written_like_typed_messages(
    found, stamp, frame_id, class_id_format, first_id, has_ids
):
    writer = DetectionWriter()
    for boxes in found:  # One after another into the same memory.
        ids = np.arange(len(boxes)) * 137 + first_id if has_ids else None
        each = replace(boxes, ids=ids, class_names=NAMES)
        message = writer.write(each, stamp, frame_id, class_id_format=class_id_format)
        header = header_of(stamp, frame_id)
        typed = to_detection_array(each, header, class_id_format=class_id_format)
        assert deserialize_message(message.tobytes(), Detection2DArray) == typed
        assert message.size == serialized(typed).size


typed_results = st.lists(st.tuples(texts, st.floats(0, 1)), max_size=3)
typed_boxes = st.tuples(*[st.floats(-1e4, 1e4)] * 5)


@repeatable
@given(stamps, texts, st.lists(st.tuples(typed_results, typed_boxes, texts), max_size=4))
def test_detections_are_read_as_rclpy_reads_them(stamp, frame_id, entries):
    header = header_of(stamp, frame_id)
    array = Detection2DArray(
        header=header,
        detections=[
            Detection2D(
                header=header,
                id=name,
                results=[
                    ObjectHypothesisWithPose(
                        hypothesis=ObjectHypothesis(class_id=class_id, score=score)
                    )
                    for class_id, score in results
                ],
                bbox=BoundingBox2D(
                    center=Pose2D(position=Point2D(x=x, y=y), theta=theta),
                    size_x=width,
                    size_y=height,
                ),
            )
            for results, (x, y, theta, width, height), name in entries
        ],
    )
    assert read_stamp(serialized(array)) == stamp
    best = [
        max(results, key=lambda result: result[1], default=('', 0.0)) for results, _, _ in entries
    ]
    assert read_detections(serialized(array)) == [
        (class_id, score, box, name) for (class_id, score), (_, box, name) in zip(best, entries)
    ]
