"""Nodes whose networks take gray, depth, RGBA or several images, or an image and a tensor."""

import numpy as np
import pytest

pytest.importorskip('isaac_ros_tensor_list_interfaces')

from isaac_ros_tensor_list_interfaces.msg import TensorList
from sensor_msgs.msg import CameraInfo, Image
from vision_msgs.msg import Classification, Detection2DArray

from support.ros_messages import RED, as_image, at, half_and_half, pixels_of, tensor_list
from support.save_network import save_network, save_texts

PIXELS = {'mean': [0.0], 'std': [1.0]}


#: In the text format of ONNX.
NETWORKS = {
    # Class 0 where it is bright or far.
    'gray_classifier': '(float[1, 1, 32, 32] x) => (float[1, 2] scores) <float[1] one = {1}> '
    '{ mean = GlobalAveragePool(x) dark = Sub(one, mean) '
    'both = Concat <axis = 1> (mean, dark) scores = Flatten(both) }',
    'gray_depth': '(float[1, 1, 32, 32] x) => (float[1, 1, 32, 32] depth) <float[1] one = {1}> '
    '{ depth = Add(x, one) }',
    # The strongest of red, green, blue and alpha.
    'rgba_segmenter': '(float[1, 4, 32, 32] x) => (float[1, 4, 32, 32] scores) '
    '{ scores = Relu(x) }',
    'classifier_with_prior': '(float[1, 3, 32, 32] x, float[1, 3] prior) => '
    '(float[1, 3] scores) { pooled = GlobalAveragePool(x) means = Flatten(pooled) '
    'scores = Add(means, prior) }',
}


@pytest.fixture(scope='module')
def models(tmp_path_factory):
    folder = tmp_path_factory.mktemp('models')
    boxes = np.zeros((1, 4 + 2, 21), np.float32)
    boxes[0, :4, 0] = 8, 16, 16, 16  # Columns 0 to 16, rows 8 to 24.
    to_score = np.zeros((4, boxes.size), np.float32)
    to_score[3, 4 * 21] = 1  # The mean of the fourth channel is its score.
    return {
        **save_texts(folder, NETWORKS),
        'rgbd_detector': save_network(
            folder / 'rgbd_detector.onnx',
            'pooled = GlobalAveragePool(x) means = Flatten(pooled) '
            'flat = MatMul(means, to_score) scores = Reshape(flat, shape) '
            'output0 = Add(scores, boxes)',
            {'x': (1, 4, 32, 32)},
            {'output0': boxes.shape},
            constants={'boxes': boxes, 'to_score': to_score, 'shape': np.array(boxes.shape)},
            metadata={'task': 'detect', 'names': "{0: 'near', 1: 'far'}"},
        ),
    }


def test_an_rgbd_detector_takes_color_and_depth_of_two_topics(start, peer, publisher):
    node = start(
        'detector', 'rgbd', 'rgbd_detector', inputs=['x=image:color/image_raw,depth/image_raw']
    )
    assert 'input x: image on /color/image_raw, /depth/image_raw' in node.log
    assert 'Parameters without effect' not in node.log
    colors, depths = publisher(Image, '/color/image_raw'), publisher(Image, '/depth/image_raw')
    results = peer.inbox(Detection2DArray, '/rgbd/detections')
    depth = as_image(np.full((24, 32), 0.8, np.float32), '32FC1', stamp=1)
    depth.header.frame_id = 'depth_camera'
    depths.publish(depth)
    colors.publish(as_image(np.zeros((48, 64, 3), np.uint8), 'rgb8', stamp=1))
    found = results.wait_for(at(1))
    assert found.header.frame_id == 'front_camera'  # Of the color image, as are the pixels.
    (detection,) = found.detections
    assert detection.results[0].hypothesis.class_id == 'near'
    # Three quarters of the input show the image, the rest is padded with 0 m.
    assert detection.results[0].hypothesis.score == pytest.approx(0.6, abs=1e-3)
    center = detection.bbox.center.position
    assert (center.x, center.y, detection.bbox.size_x, detection.bbox.size_y) == (16, 24, 32, 32)
    assert node.set(score_threshold=0.7) == ''
    depth.header.stamp.sec = 2
    depths.publish(depth)
    colors.publish(as_image(np.zeros((48, 64, 3), np.uint8), 'rgb8', stamp=2))
    assert not results.wait_for(at(2)).detections
    depth.header.stamp.sec = 3
    colors.publish(depth)
    depths.publish(as_image(np.zeros((48, 64, 3), np.uint8), 'rgb8', stamp=3))
    node.wait_for_log('The image on /color/image_raw has the encoding 32FC1 of depth images.')
    node.wait_for_log('Swap the topics in inputs: x=image:/depth/image_raw,/color/image_raw.')


def test_a_classifier_of_one_channel_takes_gray_thermal_and_depth_images(start, peer, publisher):
    start('classifier', 'thermal', 'gray_classifier', '-r', 'image:=/thermal_camera/image')
    images = publisher(Image, '/thermal_camera/image')
    results = peer.inbox(Classification, '/thermal/classification')
    for stamp, (value, encoding, best) in enumerate(
        (
            (np.uint16(60000), 'mono16', '0'),
            (np.uint16(600), 'mono16', '1'),
            (np.float32(0.25), '32FC1', '1'),
            (np.float32(5), '32FC1', '0'),
            (np.uint16(1000), '16UC1', '0'),
            (np.uint8(255), 'mono8', '0'),
            (np.uint8(0), 'mono8', '1'),
        ),
        1,
    ):
        images.publish(as_image(np.full((48, 64), value), encoding, stamp=stamp))
        assert results.wait_for(at(stamp)).results[0].class_id == best


def test_a_depth_network_of_one_channel_takes_depth_of_a_bound_topic(start, peer, publisher):
    start('depth', 'completed', 'gray_depth', inputs=['x=image:raw_depth/image'])
    images, infos = (
        publisher(Image, '/raw_depth/image'),
        publisher(CameraInfo, '/raw_depth/camera_info'),
    )
    depths, calibrations = peer.inboxes('completed', depth=Image, camera_info=CameraInfo)
    infos.publish(CameraInfo(width=32, height=32))
    stamps = iter(range(1, 1000))

    def is_calibrated():
        stamp = next(stamps)
        images.publish(as_image(np.full((32, 32), 2, np.float32), '32FC1', stamp=stamp))
        found = depths.wait_for(at(stamp))
        assert np.unique(np.frombuffer(bytes(found.data), np.float32)).tolist() == [3]
        return calibrations.messages

    peer.wait_until(is_calibrated, 'camera_info beside the bound topic')


def test_a_network_of_four_channels_takes_alpha(start, peer, publisher):
    start(
        'segmenter', 'rgba', 'rgba_segmenter', '-r', 'image:=/rgba_camera/image', resize='stretch'
    )
    images = publisher(Image, '/rgba_camera/image')
    masks = peer.inbox(Image, '/rgba/mask')
    pixels = half_and_half((10, 200, 10, 100), (10, 10, 20, 100))
    images.publish(as_image(pixels, 'rgba8', stamp=1))
    assert (pixels_of(masks.wait_for(at(1))) == half_and_half(1, 3)).all()


def test_a_classifier_takes_an_image_and_a_tensor(start, peer, publisher):
    start(
        'classifier',
        'informed',
        'classifier_with_prior',
        inputs=['x=image:informed_camera/image', 'prior=tensor:informed_camera/prior'],
        **PIXELS,
    )
    images = publisher(Image, '/informed_camera/image')
    priors = publisher(TensorList, '/informed_camera/prior')
    results = peer.inbox(Classification, '/informed/classification')
    for stamp, prior, best in ((1, (0, 0, 0), '0'), (2, (0, 0, 5), '2')):
        message = tensor_list(stamp, prior=np.array([prior], np.float32))
        image = as_image(half_and_half(RED, RED), 'rgb8', stamp=stamp)
        message.header.stamp = image.header.stamp
        priors.publish(message)
        images.publish(image)
        found = results.wait_for(at(stamp))
        assert found.header.frame_id == 'front_camera'
        assert found.results[0].class_id == best
