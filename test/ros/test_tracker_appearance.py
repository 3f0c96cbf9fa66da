"""Tracks by appearance: the vectors of the detections, on a topic of their own."""

import numpy as np
import pytest

pytest.importorskip('isaac_ros_tensor_list_interfaces.msg')

from diagnostic_msgs.msg import DiagnosticArray
from isaac_ros_tensor_list_interfaces.msg import TensorList
from vision_msgs.msg import Detection2DArray

from support.ros_messages import detection, stamped, tensor_list, wait_for_values
from support.ros_nodes import own_topics

RED, BLUE = (1.0, 0.1, 0.0), (0.0, 0.1, 1.0)


def detections_at(seconds, *centers):
    return stamped(Detection2DArray(detections=[*map(detection, centers)]), seconds, 'front')


class Tracker:
    def __init__(self, node):
        self.node = node
        node.wait_for_log('Started: active.')
        peer = node.peer
        self.detections = peer.connected(Detection2DArray, f'/{node.name}/detections')
        self.tensors = peer.connected(TensorList, f'/{node.name}/tensors')
        self.tracks = peer.inbox(Detection2DArray, f'/{node.name}/tracks')
        self.diagnostics = peer.inbox(DiagnosticArray, '/diagnostics')

    def send_vectors(self, seconds, **tensors):
        tensors = {name: np.asarray(tensor, np.float32) for name, tensor in tensors.items()}
        self.tensors.publish(tensor_list(seconds, 'front', **tensors))

    def track(self, seconds, objects):
        """Publish objects, {center x: vector}, in both orders of arrival; return their ids."""
        tensors = {'vectors': list(objects.values())} if objects else {}
        if seconds % 2:
            self.send_vectors(seconds, **tensors)
        self.detections.publish(detections_at(seconds, *objects))
        if seconds % 2 == 0:
            self.send_vectors(seconds, **tensors)
        tracked = self.tracks.wait_for(
            lambda each: each.header.stamp.sec == seconds, f'tracks at {seconds} s'
        )
        return {round(each.bbox.center.position.x): each.id for each in tracked.detections}

    def wait_for_value(self, key, value):
        wait_for_values(self.diagnostics, f'{self.node.name}: detections', **{key: value})


@pytest.fixture(scope='module')
def start_tracker(start_node):
    def start(name, **parameters):
        return start_node(
            name,
            'trt_ros.nodes.tracker',
            *own_topics(name, 'detections', 'tensors'),
            use_appearance=True,
            track_buffer=10.0,
            **parameters,
        )

    return start


@pytest.fixture(scope='module')
def tracker(start_tracker):
    return Tracker(start_tracker('by_appearance'))


def test_objects_that_appear_elsewhere_keep_their_ids(tracker):
    assert tracker.track(1, {100: RED, 300: BLUE}) == {}
    assert tracker.track(2, {100: RED, 300: BLUE}) == {100: '1', 300: '2'}
    assert tracker.track(3, {}) == {}
    assert tracker.track(4, {500: BLUE, 700: RED}) == {500: '2', 700: '1'}
    assert tracker.track(5, {900: (0.0, 1.0, 0.0)}) == {}  # Another object.
    assert tracker.node.set(track_min_similarity=1.0) == ''
    assert tracker.track(6, {1200: RED}) == {}


def test_vectors_of_other_detections_are_refused(tracker):
    tracker.detections.publish(detections_at(10, 100, 300))
    tracker.send_vectors(10, vectors=[RED])
    tracker.wait_for_value('dropped: bad appearance', '1')
    tracker.node.wait_for_log('Tensors for 2 detections: vectors (1, 3), expected one (2, val')
    tracker.detections.publish(detections_at(11, 100))
    tracker.send_vectors(11, vectors=[RED], others=[RED])
    tracker.wait_for_value('dropped: bad appearance', '2')
    tracker.wait_for_value('tensors: dropped: bad appearance', '2')
    assert tracker.track(12, {}) == {}


def test_messages_without_partner_are_counted(start_tracker):
    tracker = Tracker(start_tracker('alone'))
    for seconds in range(1, 11):  # As many as qos_depth: DDS loses none.
        tracker.detections.publish(detections_at(seconds, 100))
    tracker.wait_for_value('detections: frames received', '10')
    tracker.detections.publish(detections_at(11, 100))
    tracker.wait_for_value('detections: dropped: no partner', '1')
    tracker.track(12, {100: RED})
    tracker.wait_for_value('detections: dropped: no partner', '11')
