"""Messages that `trt-ros label` writes for each task."""

from contextlib import closing

import numpy as np
import pytest
from rclpy.serialization import deserialize_message
from sensor_msgs.msg import Image
from vision_msgs.msg import Classification, Detection2DArray

from support.recordings import raw_image, write_recording
from support.ros_messages import GREEN, RED, half_and_half, pixels_of
from trt_ros.cli import main
from trt_ros.recording import Recording


@pytest.fixture
def labeled(tmp_path, models):
    """Label one image, 64 × 48, red on the left and green on the right; return all messages."""
    types = {each.__name__: each for each in (Image, Classification, Detection2DArray)}
    pixels = half_and_half(RED, GREEN)
    path = write_recording(tmp_path / 'drive', [('/camera', 0, raw_image(0, pixels, 'rgb8'))])

    def run(model, *args):
        output = tmp_path / 'labeled.mcap'
        assert main(['label', str(path), '--output', str(output), '--model', model, *args]) == 0
        with closing(Recording(output)) as recording:
            found = {
                topic: deserialize_message(
                    data.tobytes(), types[recording.topics[topic].message_type.split('/')[-1]]
                )
                for topic, _, data, *_ in recording.messages(list(recording.topics))
            }
        for message in found.values():
            assert (message.header.frame_id, message.header.stamp.nanosec) == ('camera', 999000000)
        return found

    return run


def test_label_writes_the_classes_of_an_image(labeled, models):
    found = labeled(models['classifier'], '--labels', 'red,green,blue')
    (message,) = found.values()
    assert list(found) == ['/classifier/classification']
    assert {each.class_id for each in message.results} == {'red', 'green', 'blue'}
    scores = [each.score for each in message.results]
    assert scores == sorted(scores, reverse=True) and sum(scores) == pytest.approx(1)


def test_label_writes_the_mask_of_a_semantic_network(labeled, models):
    found = labeled(models['semantic'])
    assert list(found) == ['/segmenter/mask']
    mask = found['/segmenter/mask']
    assert (pixels_of(mask) == half_and_half((0,) * 3, (1,) * 3)[..., 0]).all()


def test_label_writes_masks_and_boxes_of_instances(labeled, models):
    found = labeled(models['instances'])
    assert set(found) == {f'/segmenter/{name}' for name in ('mask', 'instances', 'detections')}
    mask, numbers = (pixels_of(found[f'/segmenter/{name}']) for name in ('mask', 'instances'))
    assert (mask == numbers).all() and set(np.unique(mask)) == {0, 1, 2}
    assert found['/segmenter/instances'].encoding == 'mono16'
    labels = [
        each.results[0].hypothesis.class_id for each in found['/segmenter/detections'].detections
    ]
    assert labels == ['left', 'right']


def test_label_writes_keypoints_and_depth(labeled, models, tmp_path):
    found = labeled(models['pose'])
    assert set(found) == {'/pose/detections', '/pose/keypoints'}
    (point,) = found['/pose/keypoints'].detections
    assert (point.id, point.results[0].hypothesis.class_id) == ('0', '0')
    assert point.results[0].hypothesis.score == 0.75
    (tmp_path / 'labeled.mcap').unlink()
    found = labeled(models['depth'])
    assert list(found) == ['/depth/depth']
    assert found['/depth/depth'].encoding == '32FC1'
    assert pixels_of(found['/depth/depth']).shape == (48, 64)
