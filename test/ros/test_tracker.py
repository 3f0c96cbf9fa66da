"""Tracks of the detector and of the tracker node: ids that last, times from the headers."""

from diagnostic_msgs.msg import DiagnosticArray
import pytest
from vision_msgs.msg import Detection2DArray

from support.ros_messages import as_image, detection, picture, stamped, wait_for_values


def array_of(seconds, *boxes, frame_id='front', theta=0.0):
    """Build a message of (class id, score, center x) with boxes of 40 x 80 pixels."""
    found = [
        detection(x, theta=theta, score=score, class_id=class_id) for class_id, score, x in boxes
    ]
    return stamped(Detection2DArray(detections=found), seconds, frame_id)


class Tracking:
    def __init__(self, node):
        self.node = node
        node.wait_for_log('Started: active.')
        self.detections = node.peer.connected(Detection2DArray, '/detections')
        self.tracks = node.peer.inbox(Detection2DArray, f'/{node.name}/tracks')
        self.diagnostics = node.peer.inbox(DiagnosticArray, '/diagnostics')

    def track(self, message):
        """Publish detections; return id, class id, score and center x of each track."""
        count = len(self.tracks.messages)
        self.detections.publish(message)
        self.node.peer.wait_until(lambda: len(self.tracks.messages) > count, 'tracks')
        tracked = self.tracks.messages[-1]
        assert tracked.header == message.header
        return [
            (
                each.id,
                each.results[0].hypothesis.class_id,
                round(each.results[0].hypothesis.score, 3),
                round(each.bbox.center.position.x),
            )
            for each in tracked.detections
        ]

    def wait_for_value(self, key, value):
        wait_for_values(self.diagnostics, f'{self.node.name}: detections', **{key: value})


@pytest.fixture(scope='module')
def tracking(start_node):
    return Tracking(start_node('tracker', 'trt_ros.nodes.tracker'))


def test_objects_keep_their_ids_and_cameras_share_none(tracking):
    assert tracking.track(array_of(10.0, ('car', 0.9, 100.0), ('dog', 0.8, 300.0))) == []
    both = tracking.track(array_of(10.1, ('dog', 0.9, 305.0), ('car', 0.8, 102.0)))
    assert both == [('1', 'dog', 0.9, 305), ('2', 'car', 0.8, 102)]
    tracking.track(array_of(10.1, ('car', 0.9, 100.0), frame_id='rear'))
    other = tracking.track(array_of(10.2, ('car', 0.9, 101.0), frame_id='rear'))
    assert other == [('3', 'car', 0.9, 101)]
    assert tracking.track(array_of(10.3, ('car', 0.15, 106.0))) == [('2', 'car', 0.15, 106)]
    tracking.wait_for_value('cameras', '2')


def test_rotated_boxes_are_tracked_and_keep_their_angle(tracking):
    for seconds in (50.0, 50.1):
        message = array_of(seconds, ('ship', 0.9, 100.0), frame_id='above', theta=0.5)
        tracked = tracking.track(message)
    assert len(tracked) == 1
    assert tracking.tracks.messages[-1].detections[0].bbox.center.theta == 0.5


def test_a_time_that_goes_back_ends_all_tracks(tracking):
    for seconds in (90.0, 90.1):
        before = tracking.track(array_of(seconds, ('car', 0.9, 100.0), frame_id='bag'))
    assert tracking.track(array_of(80.0, ('car', 0.9, 100.0), frame_id='bag')) == []
    after = tracking.track(array_of(80.1, ('car', 0.9, 100.0), frame_id='bag'))
    assert int(after[0][0]) > int(before[0][0])
    tracking.wait_for_value('tracks ended by time jumps', '1')


def test_lost_tracks_are_published_on_request(tracking):
    for seconds in (20.0, 20.1):
        number = tracking.track(array_of(seconds, ('car', 0.9, 100.0), frame_id='left'))[0:1]
    assert tracking.track(array_of(20.2, frame_id='left')) == []
    assert tracking.node.set(publish_lost_tracks=True) == ''
    lost = tracking.track(array_of(20.3, frame_id='left'))
    assert lost == [(number[0][0], 'car', 0.0, 100)]
    assert tracking.node.set(publish_lost_tracks=False) == ''


def test_a_message_without_a_time_is_dropped_and_named(tracking):
    tracking.detections.publish(array_of(0.0, ('car', 0.9, 100.0)))
    tracking.wait_for_value('dropped: no stamp', '1')
    tracking.node.wait_for_log('Publish images with the time of their capture')
    assert tracking.track(array_of(30.0)) == []


def test_the_detector_tracks_what_has_a_time_also_if_it_does_not_publish_it(start_lane):
    thresholds = {'score_threshold': 0.8, 'track_low_threshold': 0.5}
    lane = start_lane('tracked', track=True, track_buffer=5.0, **thresholds)
    node, tracks = lane.node, lane.node.peer.inbox(Detection2DArray, '/tracked/tracks')

    def ids(found):
        tracked = tracks.wait_for(lambda each: each.header.stamp == found.header.stamp)
        return [each.id for each in tracked.detections]

    image = as_image(picture(), 'rgb8')
    lane.images.publish(stamped(image, 0))
    lane.status('dropped: no stamp', '1')
    assert [ids(lane.detect(image)) for _ in range(3)] == [[], ['1'], ['1']]
    assert len(lane.detections.messages) == 3  # None of the image without a time.
    assert len(lane.detect(image).detections) == 1
    assert node.set(score_threshold=0.95) == ''
    found = lane.detect(image)
    assert (len(found.detections), ids(found)) == (0, ['1'])
