"""Messages of detections that are cut, mutated or hold numbers that are not finite."""

from itertools import product

import numpy as np
import pytest

pytest.importorskip('rclpy')

from geometry_msgs.msg import Point, Pose, Quaternion, Vector3
from std_msgs.msg import Header
from vision_msgs.msg import (
    BoundingBox3D,
    Detection2DArray,
    Detection3D,
    Detection3DArray,
    ObjectHypothesis,
    ObjectHypothesisWithPose,
)

from support.objects import detections
from support.ros_messages import serialized
from support.typed_detections import to_detection_array
from trt_ros.errors import BadFrameError
from trt_ros.ros.class_ids import ClassIds
from trt_ros.ros.dds.cdr_detections import read_detections
from trt_ros.ros.messages import boxes_in_space, read_boxes, read_message


def message_of(*scores):
    found = detections(*[(0, 1, 2, 3)] * len(scores), score=scores)
    return to_detection_array(found, Header(frame_id='camera'), class_id_format='index')


@pytest.mark.slow
def test_every_cut_or_mutated_message_is_a_bad_frame_or_a_message():
    whole = serialized(message_of(0.5, 0.25))
    rng = np.random.default_rng(0)
    mutated = [whole[:length] for length in range(len(whole))]
    for _ in range(1000):
        message = whole.copy()
        message[rng.integers(0, len(whole), 3)] = rng.choice([0, 1, 127, 128, 255], 3)
        mutated.append(message)
    refused = 0
    for message in mutated:
        for kind in (Detection2DArray, Detection3DArray):
            try:
                read_message(message, kind)
            except BadFrameError as error:
                assert error.kind == 'bad CDR'
                refused += 1
    assert refused > len(whole)


@pytest.mark.parametrize('score', [float('nan'), float('inf')])
def test_detections_whose_score_is_not_finite_are_left_out(score):
    message = message_of(0.5, 0.25, 0.75)
    message.detections[1].results[0].hypothesis.score = score
    found = read_boxes(serialized(message), ClassIds())
    assert found.scores.tolist() == [0.5, 0.75]


def test_a_score_of_nan_does_not_hide_the_best_one_and_no_boxes_in_space_are_none():
    message = message_of(0.5)
    for score, name in ((0.75, 'best'), (float('nan'), 'none')):
        hypothesis = ObjectHypothesis(class_id=name, score=score)
        for at in (0, len(message.detections[0].results)):
            message.detections[0].results.insert(
                at, ObjectHypothesisWithPose(hypothesis=hypothesis)
            )
    assert read_boxes(serialized(message), ClassIds()).scores.tolist() == [0.75]
    entries = read_detections(serialized(message))
    assert entries[0][:2] == ('best', 0.75)
    found = boxes_in_space(Detection3DArray(), ClassIds())
    assert (found.detections, found.centers.shape, found.quaternions.shape) == ([], (0, 3), (0, 4))


@pytest.mark.parametrize(
    ('field', 'number'),
    [
        *product(('center', 'size', 'orientation', 'score'), (np.nan, np.inf, -np.inf)),
        *product(('center', 'size', 'orientation'), (1e300, -1e7)),
        ('size', -1.0),
    ],
)
def test_boxes_in_space_whose_numbers_no_box_has_are_left_out(field, number):
    message = Detection3DArray(header=Header(frame_id='odom'))
    for identity in 'abc':
        is_bad = identity == 'b'
        values = {'center': 1.0, 'size': 2.0, 'orientation': 0.5, 'score': 0.25}
        values |= {field: number} if is_bad else {}
        pose = Pose(
            position=Point(y=values['center']), orientation=Quaternion(w=values['orientation'])
        )
        hypothesis = ObjectHypothesis(class_id=identity, score=values['score'])
        message.detections.append(
            Detection3D(
                id=identity,
                bbox=BoundingBox3D(center=pose, size=Vector3(x=values['size'], y=0.0, z=3.0)),
                results=[ObjectHypothesisWithPose(hypothesis=hypothesis)],
            )
        )
    class_ids = ClassIds()
    found = boxes_in_space(message, class_ids)
    assert [each.id for each in found.detections] == ['a', 'c']
    assert [class_ids[label] for label in found.labels.tolist()] == ['a', 'c']
    assert found.centers.tolist() == [[0, 1, 0]] * 2
    assert found.sizes.tolist() == [[2, 0, 3]] * 2
    assert found.quaternions.tolist() == [[0, 0, 0, 0.5]] * 2
    assert (found.frame_id, found.scores.tolist()) == ('odom', [0.25] * 2)
