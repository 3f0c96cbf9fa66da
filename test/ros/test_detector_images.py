"""Images of every kind go in, the right boxes come out."""

import math
import sys

import cv2
import numpy as np
import pytest
from rclpy.qos import QoSProfile
from sensor_msgs.msg import CompressedImage
from vision_msgs.msg import LabelInfo

from support.ros_messages import as_image, picture, values_of
from support.ros_nodes import Lane
from support.waiting import DEADLINE_SECONDS
from trt_ros.nodes.detector import DetectorParameters
from trt_ros.parameter_field import specifications
from trt_ros.ros.parameters import to_parameter


@pytest.fixture(scope='module')
def lane(fake_detector):
    return Lane(fake_detector('detector', autostart=True))


def test_boxes_are_floats_in_source_pixels_best_first_under_the_images_header(lane):
    found = lane.detect(as_image(picture(), 'rgb8'))
    assert lane.boxes(found) == [('red', 0.9, [32, 16, 96, 64]), ('red', 0.6, [56, 34, 72, 46])]
    for detection in found.detections:
        assert detection.header == found.header


def test_class_ids_may_be_indices(lane):
    assert lane.node.set(class_id_format='index') == ''
    blue = as_image(picture(rgb=(0, 0, 255)), 'rgb8')
    assert [class_id for class_id, _, _ in lane.boxes(lane.detect(blue))] == ['2', '2']
    assert lane.node.set(class_id_format='name') == ''
    assert [class_id for class_id, _, _ in lane.boxes(lane.detect(blue))] == ['blue', 'blue']


def test_images_that_reach_max_detections_are_counted(lane):
    def reached():
        return int(values_of(lane.diagnostics.messages[-1])['frames that reached max_detections'])

    lane.diagnostics.wait_for()
    before = reached()
    assert lane.node.set(max_detections=2) == ''
    lane.detect(as_image(picture(rgb=(0, 0, 0)), 'rgb8'))
    assert lane.node.set(max_detections=1) == ''
    lane.detect(as_image(picture(rgb=(0, 0, 0)), 'rgb8'))
    assert len(lane.detect(as_image(picture(), 'rgb8')).detections) == 1
    assert lane.node.set(max_detections=100) == ''
    lane.detect(as_image(picture(), 'rgb8'))
    lane.status('frames received', str(lane.last_stamp))
    assert reached() == before + 1


def test_bad_frame_is_dropped_counted_and_logged_once(lane):
    for count in ('1', '2'):
        bad_stamp = lane.publish(as_image(picture(), 'no_such_encoding'))
        level, message = lane.status('dropped: unknown encoding', count)
        assert (level, message.partition(': ')[0]) == (b'\x01', 'frames dropped')
    assert lane.node.log.count('A frame of /image was dropped (unknown encoding).') == 1
    assert len(lane.detect(as_image(picture(), 'rgb8')).detections) == 2
    assert bad_stamp not in {found.header.stamp.sec for found in lane.detections.messages}


def test_thresholds_change_at_run_time(lane):
    image = as_image(picture(), 'rgb8')
    label_info = lane.node.peer.inbox(LabelInfo, '/detector/label_info', QoSProfile(depth=10))
    assert lane.node.set(score_threshold=0.7) == ''
    assert [score for _, score, _ in lane.boxes(lane.detect(image))] == [0.9]
    label_info.wait_for(lambda info: info.threshold == pytest.approx(0.7))
    assert lane.node.set(score_threshold=1) == ''  # An integer stands for a number.
    assert lane.detect(image).detections == []
    assert lane.node.set(score_threshold=0.25, max_detections=1) == ''
    assert [score for _, score, _ in lane.boxes(lane.detect(image))] == [0.9]
    assert lane.node.set(max_detections=100, iou_threshold=0.0) == ''
    # Touching is overlap now.
    assert [score for _, score, _ in lane.boxes(lane.detect(image))] == [0.9]
    assert lane.node.set(iou_threshold=0.45) == ''
    assert len(lane.detect(image).detections) == 2


@pytest.mark.parametrize(
    'values, reason',
    [
        ({'score_threshold': 1.5}, 'out of range'),
        ({'score_threshold': 2}, 'out of range'),
        ({'max_detections': 0}, 'out of range'),
        ({'max_detections': 10.5}, 'Wrong parameter type'),
        ({'class_id_format': 'number'}, 'Choose one of name, index.'),
        ({'score_threshold': 'high'}, 'Wrong parameter type'),
        ({'model_path': 'other.onnx'}, 'model_path cannot change while active.'),
        ({'labels': ['a']}, 'labels cannot change'),
        ({'autostart': False}, 'read-only'),
        ({'score_threshold': 0.9, 'model_path': 'other.onnx'}, 'model_path cannot change'),
    ],
    ids=str,
)
def test_rejected_parameter_changes_nothing(lane, values, reason):
    assert reason in lane.node.set(**values)
    assert len(lane.detect(as_image(picture(), 'rgb8')).detections) == 2


def test_mutable_numbers_take_their_bounds_and_refuse_values_beyond(lane):
    begun, image = len(lane.node.log), as_image(picture(), 'rgb8')
    smallest, largest = sys.float_info.min, sys.float_info.max
    odd = (0.0, 5e-324, -5e-324, smallest, 1e-11, largest, -1.0, math.inf, -math.inf, math.nan)
    for each in specifications(DetectorParameters).values():
        if not each.mutable or float not in (each.python_type, each.entry_type):
            continue
        for value in dict.fromkeys((*odd, *(each.between or ()))):
            given = value if each.entry_type is None else [value] * 3
            is_set = lane.node.set(**{each.name: given}) == ''
            if each.between:
                low, high = each.between
                assert is_set == (low <= value <= high or (each.or_zero and value == 0)), value
            if is_set:
                lane.publish(image)
                assert lane.node.set(**{each.name: to_parameter(each, each.default)}) == ''
    assert len(lane.detect(image).detections) == 2
    assert 'Traceback' not in lane.node.log[begun:]


@pytest.fixture(scope='module')
def compressed_lane(fake_detector):
    node = fake_detector(
        'compressed', '-r', 'image:=/front/image', autostart=True, image_transport='compressed'
    )
    return Lane(node, CompressedImage, '/front/image/compressed')


def test_compressed_images_are_read_and_invalid_ones_dropped(compressed_lane):
    quality = [cv2.IMWRITE_JPEG_QUALITY, 100]
    data = cv2.imencode('.jpg', picture()[..., ::-1], quality)[1].tobytes()
    good = CompressedImage(format='rgb8; jpeg compressed bgr8', data=data)
    good.header.frame_id = 'front_camera'
    for cause, bad in (
        ('undecodable image', CompressedImage(format='jpeg', data=b'no picture at all')),
        ('unknown compression', CompressedImage(format='compressedDepth png', data=data)),
    ):
        compressed_lane.publish(bad)
        compressed_lane.node.wait_for_log(
            f'A frame of /front/image/compressed was dropped ({cause}).'
        )
        found = compressed_lane.detect(good)
        (class_id, score, xyxy), _ = compressed_lane.boxes(found)
        assert (class_id, score) == ('red', 0.9)
        assert np.abs(np.subtract(xyxy, [32, 16, 96, 64])).max() <= 2
        assert found.header.frame_id == 'front_camera'


def test_jpeg_decoder_of_a_network_without_gpu(fake_detector):
    options = {'image_transport': 'compressed', 'autostart': True}
    node = fake_detector('jpegs_anywhere', **options)
    node.wait_for_log('JPEG images are decoded on the CPU (the network does not run on a GPU).')
    node = fake_detector('jpegs_on_gpu', jpeg_decoder='gpu', **options)
    node.wait_for_log(
        'jpeg_decoder is gpu, but JPEG images cannot be decoded on the GPU.\n'
        'Cause: the network does not run on a GPU\n'
        'Remedy: Install nvidia-nvimgcodec-cu13[nvjpeg] (or -cu12), or set auto.'
    )
    node.wait_for_failed_start()
    assert 'Traceback' not in node.log


def test_scores_outside_0_to_1_drop_their_frame_and_no_other(start_lane):
    lane = start_lane('logits', model_path='logits:')
    lane.publish(as_image(picture(rgb=(0, 0, 255)), 'rgb8'))
    lane.node.wait_for_log(
        'A frame of /logits was dropped (scores outside 0 to 1). The network returned '
        'a score of 315, outside 0 to 1.'
    )
    assert len(lane.detect(as_image(picture(), 'rgb8')).detections) == 2


def test_of_the_command_line_integers_stand_for_numbers_and_unknown_names_are_warned_of(
    fake_detector,
):
    node = fake_detector('whole', max_rate_hz=5, score_treshold=0.5)
    assert (node.get('max_rate_hz'), type(node.get('max_rate_hz'))) == (5.0, float)
    node.wait_for_log(
        "Unknown parameter 'score_treshold' is ignored. Did you mean 'score_threshold'"
    )


def test_a_parameter_of_the_wrong_type_ends_the_start_with_its_remedy(start_node):
    node = start_node('wrong', 'trt_ros.nodes.detector', score_threshold='high')
    assert node.process.wait(DEADLINE_SECONDS) == 1
    assert node.log == (
        "score_threshold is 'high', but must be of type double.\nRemedy: Set it to 0.0 to 1.0.\n"
    )
    node.process.returncode = 0  # As it should be: nothing left to stop.
