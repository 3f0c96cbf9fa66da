"""Messages published without rclpy."""

import numpy as np
import pytest
from rclpy.qos import DurabilityPolicy, QoSProfile
from rclpy.serialization import serialize_message
from std_msgs.msg import Header
from vision_msgs.msg import (
    Detection2D,
    Detection2DArray,
    ObjectHypothesis,
    ObjectHypothesisWithPose,
)

from support.dds import Inbox
from support.objects import detections
from trt_ros.results.boxes import OrientedBoxes
from trt_ros.ros.class_ids import ClassIds
from trt_ros.ros.dds.cdr_detections import DetectionWriter, read_detections
from trt_ros.ros.messages import DetectionSender, read_boxes


@pytest.mark.parametrize('value', [1e300, np.nan, -np.inf])
def test_boxes_that_are_not_finite_are_left_out(value):
    message = Detection2DArray(detections=[Detection2D(id=str(index)) for index in range(5)])
    bad = [each.bbox for each in message.detections]
    bad[0].size_x = bad[1].center.position.y = bad[3].center.theta = value
    message.detections[4].results = [
        ObjectHypothesisWithPose(hypothesis=ObjectHypothesis(class_id='cat', score=1e300))
    ]
    found = read_boxes(np.frombuffer(serialize_message(message), np.uint8), ClassIds())
    assert (found.ids_as_text(), found.scores.tolist()) == (['2', '4'], [0, np.inf])


@pytest.mark.parametrize('angle', [0.0, 0.5])
def test_boxes_are_read_with_their_angles(angle):
    cxcywh = np.array([[10, 20, 30, 40]], np.float32)
    values = [np.array([each], np.float32) for each in (angle, 0.75)]
    given = OrientedBoxes(cxcywh, *values, np.array([1], np.int32), class_names=('a', 'b'))
    message = DetectionWriter().write(given, (1, 2), 'camera', class_id_format='name')
    found = read_boxes(message, class_ids := ClassIds())
    assert ([*class_ids], found.ids, isinstance(found, OrientedBoxes)) == (['b'], None, angle > 0)
    assert found.rotated_boxes().tolist() == [[10, 20, 30, 40, angle]]


def test_a_rehearsal_writes_the_last_boxes_and_publishes_nothing(node):
    sender = DetectionSender(node, node.create_publisher(Detection2DArray, 'rehearsed', 1))
    published, written, write = [], [], sender._writer.write
    sender._publish = published.append
    sender._writer.write = lambda *args, **kwargs: written.append(args) or write(*args, **kwargs)
    sender.rehearse()
    sender.send(detections(*[(0, 0, 0, 0)] * 2), Header(frame_id='camera'), 'index')
    message = published[0].tobytes()
    sender.rehearse()
    assert [args[0].xyxy.shape for args in written] == [(2, 4)] * 2
    assert [each.tobytes() for each in published] == [message]


def test_detections_keep_their_ids_however_large(node, subscribe):
    kept = QoSProfile(depth=5, durability=DurabilityPolicy.TRANSIENT_LOCAL)
    publish = DetectionSender(node, node.create_publisher(Detection2DArray, 'found', kept)).send
    inbox = Inbox(lambda message: [name for *_, name in read_detections(message)])
    subscribe(node, inbox, kept, topic='found', kind=Detection2DArray)
    for ids in ([0, 999], [7, 1000], []):
        found = detections(*[(0, 0, 0, 0)] * len(ids))
        publish(found.with_ids(np.array(ids, np.int64)), Header(), 'index')
    publish(found, Header(), 'index')
    assert inbox.wait(4) == [['0', '999'], ['7', '1000'], [], []]
