"""Images of every kind go in, the right boxes come out."""

import math
import struct
import sys

import cv2
import numpy as np
import pytest
from rclpy.qos import DurabilityPolicy, QoSProfile
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


def test_an_image_without_objects_gives_an_empty_array_with_its_header(lane):
    found = lane.detect(as_image(picture(rgb=(0, 0, 0)), 'rgb8'))
    assert found.detections == []
    assert found.header.frame_id == 'front_camera'
    assert found.header.stamp.nanosec == 7


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


def encoded(rgb, encoding):
    """The picture in one encoding, as (rows, ..) array."""
    red, green, blue = (rgb[..., channel] for channel in range(3))
    gray = rgb.max(axis=2)
    alpha = np.full(gray.shape, 9, np.uint8)
    height, width = gray.shape
    yuv = cv2.cvtColor(rgb, cv2.COLOR_RGB2YUV_I420)
    luma = yuv[:height]
    u, v = (
        plane.reshape(height // 2, width // 2) for plane in np.split(yuv[height:].reshape(-1), 2)
    )
    u_422, v_422 = np.repeat(u, 2, axis=0), np.repeat(v, 2, axis=0)

    def packed_422(order):
        planes = {'Y': luma[:, 0::2], 'U': u_422, 'y': luma[:, 1::2], 'V': v_422}
        return np.stack([planes[name] for name in order], axis=2).reshape(height, width, 2)

    def mosaic(first_row, second_row):
        planes = {'R': red, 'G': green, 'B': blue}
        raw = np.empty_like(red)
        for (y, x), name in zip(np.ndindex(2, 2), first_row + second_row):
            raw[y::2, x::2] = planes[name][y::2, x::2]
        return raw

    return {
        'rgb8': lambda: rgb,
        'bgr8': lambda: rgb[..., ::-1],
        '8UC3': lambda: rgb[..., ::-1],
        'rgba8': lambda: np.dstack([rgb, alpha]),
        'bgra8': lambda: np.dstack([rgb[..., ::-1], alpha]),
        'mono8': lambda: gray,
        '8UC1': lambda: gray,
        'mono16': lambda: gray.astype(np.uint16) << 8 | 0x11,
        'yuv422': lambda: packed_422('UYVy'),
        'yuv422_yuy2': lambda: packed_422('YUyV'),
        'nv12': lambda: np.vstack([luma, np.stack([u, v], axis=2).reshape(height // 2, width)]),
        'nv21': lambda: np.vstack([luma, np.stack([v, u], axis=2).reshape(height // 2, width)]),
        'bayer_rggb8': lambda: mosaic('RG', 'GB'),
        'bayer_bggr8': lambda: mosaic('BG', 'GR'),
        'bayer_gbrg8': lambda: mosaic('GB', 'RG'),
        'bayer_grbg8': lambda: mosaic('GR', 'BG'),
    }[encoding]()


@pytest.mark.parametrize('padding', [0, 12], ids=['', 'padded'])
@pytest.mark.parametrize(
    'encoding',
    [
        'rgb8',
        'bgr8',
        '8UC3',
        'rgba8',
        'bgra8',
        'mono8',
        '8UC1',
        'mono16',
        'yuv422',
        'yuv422_yuy2',
        'nv12',
        'nv21',
        'bayer_rggb8',
        'bayer_bggr8',
        'bayer_gbrg8',
        'bayer_grbg8',
    ],
)
def test_every_encoding_shows_the_box_and_its_color(lane, encoding, padding):
    pixels = np.ascontiguousarray(encoded(picture(), encoding))
    is_gray = encoding in ('mono8', '8UC1', 'mono16')
    step = pixels.reshape(len(pixels), -1).view(np.uint8).shape[1] + padding
    image = as_image(pixels, encoding, size_wh=(128, 128), step=step)
    (best_class, score, xyxy), _ = lane.boxes(lane.detect(image))
    assert (best_class, score) == ('white' if is_gray else 'red', 0.9)
    # Bayer's colors come from neighbors: the edge may be off by a pixel of the network, 2 here.
    tolerance = 2 if encoding.startswith('bayer') else 0
    assert np.abs(np.subtract(xyxy, [32, 16, 96, 64])).max() <= tolerance


BAD_FRAMES = {
    'zero size': lambda image: setattr(image, 'width', 0),
    'short data': lambda image: setattr(image, 'data', b'\0' * 100),
    'wrong step': lambda image: setattr(image, 'step', 3 * 128 - 1),
    'unknown encoding': lambda image: setattr(image, 'encoding', 'no_such_encoding'),
}


@pytest.mark.parametrize('cause', BAD_FRAMES)
def test_bad_frame_is_dropped_counted_and_logged(lane, cause):
    for count in ('1', '2'):
        bad = as_image(picture(), 'rgb8')
        BAD_FRAMES[cause](bad)
        bad_stamp = lane.publish(bad)
        level, message = lane.status(f'dropped: {cause}', count)
        assert (level, message.partition(': ')[0]) == (b'\x01', 'frames dropped')
    assert lane.node.log.count(f'A frame of /image was dropped ({cause}).') == 1
    assert len(lane.detect(as_image(picture(), 'rgb8')).detections) == 2
    assert bad_stamp not in {found.header.stamp.sec for found in lane.detections.messages}


def test_an_encoding_for_cv_bridge_says_so_where_that_is_missing(lane):
    try:
        import cv_bridge  # noqa: F401

        pytest.skip('cv_bridge is installed')
    except ImportError:
        pass
    lane.publish(as_image(picture().astype(np.float32), '32FC3'))
    lane.diagnostics.wait_for(
        lambda array: any(
            "'32FC3' needs cv_bridge" in value.value for value in array.status[0].values
        )
    )


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
        (
            {'model_path': 'other.onnx'},
            'model_path cannot change while active.',
        ),
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


def test_label_info_reaches_late_subscriber(lane):
    late = QoSProfile(depth=1, durability=DurabilityPolicy.TRANSIENT_LOCAL)
    info = lane.node.peer.inbox(LabelInfo, '/detector/label_info', late).wait_for()
    assert [(each.class_id, each.class_name) for each in info.class_map] == [
        (0, 'red'),
        (1, 'green'),
        (2, 'blue'),
        (3, 'white'),
    ]
    assert info.threshold == 0.25


@pytest.fixture(scope='module')
def compressed_lane(fake_detector):
    node = fake_detector(
        'compressed', '-r', 'image:=/front/image', autostart=True, image_transport='compressed'
    )
    return Lane(node, CompressedImage, '/front/image/compressed')


def jpeg_or_png(suffix, pixels):
    return cv2.imencode(suffix, pixels, [cv2.IMWRITE_JPEG_QUALITY, 100])[1].tobytes()


@pytest.mark.parametrize(
    'format_, suffix, convert, best_class',
    [
        ('jpeg', '.jpg', lambda rgb: rgb[..., ::-1], 'red'),
        ('png', '.png', lambda rgb: rgb[..., ::-1], 'red'),
        ('bgr8; jpeg compressed bgr8', '.jpg', lambda rgb: rgb[..., ::-1], 'red'),
        ('rgb8; jpeg compressed bgr8', '.jpg', lambda rgb: rgb[..., ::-1], 'red'),
        ('rgb8; png compressed rgb8', '.png', lambda rgb: rgb, 'red'),
        (
            'bgra8; png compressed bgra8',
            '.png',
            lambda rgb: np.dstack([rgb[..., ::-1], rgb[..., :1]]),
            'red',
        ),
        ('mono8; jpeg compressed ', '.jpg', lambda rgb: rgb[..., 0], 'white'),
        (
            'mono16; png compressed ',
            '.png',
            lambda rgb: rgb[..., 0].astype(np.uint16) << 8,
            'white',
        ),
        (
            'bgr16; png compressed bgr16',
            '.png',
            lambda rgb: rgb[..., ::-1].astype(np.uint16) << 8,
            'red',
        ),
        (
            'bayer_rggb8; png compressed bayer_rggb8',
            '.png',
            lambda rgb: encoded(rgb, 'bayer_rggb8'),
            'red',
        ),
        ('', '.png', lambda rgb: rgb[..., ::-1], 'red'),
    ],
)
def test_compressed_images_are_read(compressed_lane, format_, suffix, convert, best_class):
    data = jpeg_or_png(suffix, np.ascontiguousarray(convert(picture())))
    image = CompressedImage(format=format_, data=data)
    image.header.frame_id = 'front_camera'
    found = compressed_lane.detect(image)
    (class_id, score, xyxy), _ = compressed_lane.boxes(found)
    assert (class_id, score) == (best_class, 0.9)
    assert np.abs(np.subtract(xyxy, [32, 16, 96, 64])).max() <= 2
    assert found.header.frame_id == 'front_camera'


JPEG = jpeg_or_png('.jpg', np.zeros((48, 64, 3), np.uint8))
SIZE_AT = JPEG.index(b'\xff\xc0') + 5  # Of height and width.


def jpeg_of_size(width, height):
    """Return a JPEG whose header has this size, with as many bytes as that needs."""
    size = struct.pack('>HH', height, width)
    return JPEG[:SIZE_AT] + size + JPEG[SIZE_AT + 4 :] + bytes(width * height // 1024)


@pytest.mark.parametrize(
    'cause, format_, data',
    [
        ('undecodable image', 'jpeg', b''),
        ('undecodable image', 'jpeg', b'no picture at all'),
        ('undecodable image', 'jpeg', JPEG[: len(JPEG) // 2]),
        ('undecodable image', 'jpeg', JPEG[:SIZE_AT] + b'\xff' * 4 + JPEG[SIZE_AT + 4 :]),
        ('too many pixels', 'jpeg', jpeg_of_size(9000, 9000)),
        ('unknown compression', 'jpeg', jpeg_or_png('.webp', np.zeros((48, 64, 3), np.uint8))),
        ('unknown compression', '16UC1; compressedDepth png', b'whatever'),
        (
            'depth image',
            '16UC1; png compressed ',
            cv2.imencode('.png', np.zeros((2, 2), np.uint16))[1].tobytes(),
        ),
    ],
)
def test_invalid_compressed_image_is_dropped(compressed_lane, cause, format_, data):
    compressed_lane.publish(CompressedImage(format=format_, data=data))
    compressed_lane.node.wait_for_log(f'A frame of /front/image/compressed was dropped ({cause}).')
    good = CompressedImage(format='png', data=jpeg_or_png('.png', picture()))
    assert len(compressed_lane.detect(good).detections) == 2


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


def test_a_depth_image_is_dropped_and_the_log_names_the_topic_to_use(lane):
    lane.publish(as_image(np.full((48, 64), 3000, np.uint16), '16UC1'))
    lane.node.wait_for_log(
        'A frame of /image was dropped (depth image). Encoding 16UC1 is of depth images, not of '
        'pictures.\nCause: By REP 118, 16UC1 is depth in millimeters and 32FC1 in meters.\n'
        'Remedy: Use the color or mono topic of the camera'
    )
    assert len(lane.detect(as_image(picture(), 'rgb8')).detections) == 2


def test_scores_outside_0_to_1_drop_their_frame_and_no_other(start_lane):
    lane = start_lane('logits', model_path='logits:')
    lane.publish(as_image(picture(rgb=(0, 0, 255)), 'rgb8'))
    lane.node.wait_for_log(
        'A frame of /logits was dropped (scores outside 0 to 1). The network returned '
        'a score of 315, outside 0 to 1.'
    )
    assert len(lane.detect(as_image(picture(), 'rgb8')).detections) == 2


def test_deactivated_detector_receives_nothing_until_reactivated(start_lane):
    lane = start_lane('paused')
    assert lane.node.change('deactivate')
    lane.node.peer.wait_until(
        lambda: not lane.images.get_subscription_count(), 'the detector to unsubscribe'
    )
    ignored = lane.publish(as_image(picture(), 'rgb8'))
    assert lane.node.change('activate')
    lane.node.peer.wait_until(lane.images.get_subscription_count, 'a subscription')
    assert len(lane.detect(as_image(picture(), 'rgb8')).detections) == 2
    assert ignored not in {found.header.stamp.sec for found in lane.detections.messages}


def test_an_integer_from_the_command_line_stands_for_a_number(fake_detector):
    node = fake_detector('whole', max_rate_hz=5)
    assert (node.get('max_rate_hz'), type(node.get('max_rate_hz'))) == (5.0, float)


def test_unknown_parameter_warns_with_suggestion(fake_detector):
    node = fake_detector('mistyped', score_treshold=0.5)
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
