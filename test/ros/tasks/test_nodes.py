"""The classifier, pose and enhancer nodes, over networks that ONNX Runtime really runs."""

import numpy as np
import pytest
from sensor_msgs.msg import Image
from vision_msgs.msg import Classification, Detection2DArray, LabelInfo

from support.ros_messages import GREEN, LATCHED, RED, classes_of, half_and_half, pixels_of
from support.save_network import save_network


def test_the_classifier_ranks_what_the_image_shows(start, peer, models):
    node, ask = start(
        'classifier',
        'classify',
        models['classifier'],
        labels=['red', 'green', 'blue'],
        mean=[0.0, 0.0, 0.0],
        std=[1.0, 1.0, 1.0],
    )
    results = peer.inbox(Classification, '/classify/classification')
    found = ask(half_and_half((255, 51, 0), (255, 51, 0)), results)
    odds = np.exp([1.0, 0.2, 0.0])
    assert [each.class_id for each in found.results] == ['red', 'green', 'blue']
    assert [each.score for each in found.results] == pytest.approx(
        (odds / odds.sum()).tolist(), abs=1e-5
    )
    assert node.set(score_threshold=0.25, class_id_format='index') == ''
    found = ask(half_and_half((0, 0, 255), (0, 0, 255)), results)
    assert [each.class_id for each in found.results] == ['2']
    assert node.set(score_threshold=0.0, max_classes=2) == ''
    assert len(ask(half_and_half(RED, GREEN), results).results) == 2
    info = peer.inbox(LabelInfo, '/classify/label_info', LATCHED).wait_for()
    assert classes_of(info) == [(0, 'red'), (1, 'green'), (2, 'blue')]


def test_poses_are_boxes_and_keypoints(start, peer, models):
    node, ask = start('pose', 'pose', models['pose'], keypoint_names=['nose'])
    kinds = {'detections': Detection2DArray, 'keypoints': Detection2DArray, 'overlay': Image}
    boxes, points, overlays = peer.inboxes('pose', **kinds)
    gray = np.full((64, 64, 3), 90, np.uint8)
    found, keypoints, overlay = ask(gray, boxes, points, overlays)
    assert [each.results[0].hypothesis.class_id for each in found.detections] == ['person']
    (nose,) = keypoints.detections
    assert (nose.id, nose.results[0].hypothesis.class_id) == ('0', 'nose')
    assert nose.results[0].hypothesis.score == 0.75
    assert (nose.bbox.center.position.x, nose.bbox.center.position.y) == (8, 16)
    assert (pixels_of(overlay)[16, 8] != 90).any()
    assert node.set(keypoint_threshold=0.0) == ''
    keypoints = ask(gray, points)
    assert [each.results[0].hypothesis.class_id for each in keypoints.detections] == ['nose', '1']


def test_an_image_becomes_one_of_twice_its_size_and_inverted(start, peer, tmp_path):
    model = save_network(
        tmp_path / 'twice.onnx',
        'large = Resize <mode = "nearest"> (x, "", scales) y = Sub(one, large)',
        {'x': (1, 3, 48, 64)},
        {'y': (1, 3, 96, 128)},
        constants={'scales': np.array([1, 1, 2, 2], np.float32), 'one': np.array(1, np.float32)},
    )
    _, ask = start('enhancer', 'twice', model, decoder='image')
    picture = half_and_half((255, 40, 0), (0, 10, 200))
    found = ask(picture, peer.inbox(Image, '/twice/image'))
    assert found.encoding == 'bgr8'
    assert (pixels_of(found) == 255 - picture.repeat(2, 0).repeat(2, 1)[..., ::-1]).all()
