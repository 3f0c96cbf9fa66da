"""The pose node, over a network of one person."""

import numpy as np
from sensor_msgs.msg import Image
from vision_msgs.msg import Detection2DArray

from support.ros_messages import pixels_of


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
