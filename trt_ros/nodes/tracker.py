"""Node that gives detections identities that last over time."""

from __future__ import annotations

from collections import OrderedDict
from collections.abc import Callable, Mapping
from dataclasses import dataclass, replace
from functools import partial
import itertools
import math
import threading
from typing import TYPE_CHECKING, Any

import numpy as np
from rclpy.qos import QoSProfile
from rclpy.subscription import Subscription
from vision_msgs.msg import Detection2DArray, Detection3DArray

from trt_ros.errors import BadFrameError, ParameterError
from trt_ros.nodes.rig import RigTracks
from trt_ros.nodes.tracking import TrackingParameters, open_tracker, tracking_stamp
from trt_ros.ros.class_ids import ClassIds
from trt_ros.ros.codecs import open_format
from trt_ros.ros.codecs.codec import to_header
from trt_ros.ros.codecs.detections import DetectionCodec
from trt_ros.ros.codecs.tensors import TensorLists
from trt_ros.ros.dds.cdr import Fields, read_stamp
from trt_ros.ros.dds.rcl_subscription import MessageCallbacks
from trt_ros.ros.dds.transport import subscribe_serialized
from trt_ros.ros.diagnostics import CountingNode, FrameCounts, LatencyMeter
from trt_ros.ros.lifecycle import NodeParameters
from trt_ros.ros.message_sets import MessageSets
from trt_ros.ros.messages import DetectionSender, read_boxes, read_message
from trt_ros.ros.parameters import mutable_param, param, with_default
from trt_ros.ros.qos import overridden
from trt_ros.ros.topic import Topic, resolve_topic, without_partner
from trt_ros.tensors import Arrays

if TYPE_CHECKING:
    from trt_ros.tracking.tracker import Tracker

DETECTIONS, TENSORS = 'detections', 'tensors'
MAX_CAMERAS = 32  # Trackers kept: those of the frame_ids received last.


@dataclass(frozen=True)
class TrackerParameters(NodeParameters, TrackingParameters):
    """Parameters of the tracker node."""

    score_threshold: float = mutable_param(
        0.25, 'Minimum score of a detection that starts a track.', between=(0.0, 1.0)
    )
    use_appearance: bool = param(
        False,
        'Whether to compare the appearance of objects, too, by the vectors on `tensors`: '
        '~/tensors of a node `tensor` with regions, whose ~/detections are the detections.',
    )
    track_min_similarity: float = mutable_param(
        0.7,
        'Minimum cosine similarity of a detection with a track that it does not overlap, for '
        'use_appearance.',
        between=(0.0, 1.0),
    )
    detections_3d_topics: tuple[str, ...] = param(
        (),
        'Topics of boxes in space, one per camera of a rig, all in one frame; empty tracks boxes '
        'in images on `detections`.',
    )
    track_min_size: float = mutable_param(
        0.3,
        'Minimum side in meters of the boxes in space that are compared: above the errors of '
        'depths and extrinsics, below the distance of objects of a class.',
        between=(0.001, 100.0),
    )
    qos_depth: int = param(
        10, 'Queue depth of subscriptions and publisher in messages.', between=(1, 1000)
    )
    publish_latency: bool = param(
        False,
        "Whether to publish the time from each image's stamp to its tracks on ~/latency, in "
        'milliseconds.',
    )
    autostart: bool = with_default(NodeParameters, 'autostart', True)


class TrackerNode(CountingNode):
    """A node that publishes the detections that belong to tracks; a camera is a frame_id."""

    Parameters = TrackerParameters
    task = 'detections'

    def __init__(self, name: str = '', **kwargs: Any) -> None:
        self._ids = itertools.count(1)
        self._class_ids = ClassIds()
        self._cameras: OrderedDict[str, Tracker] = OrderedDict()
        self._rig: RigTracks | None = None
        self._rig_lock = threading.Lock()  # Each camera's subscription has a thread.
        super().__init__(name, **kwargs)
        self._counts.noun = 'message'

    def configure(self) -> None:
        open_tracker(self.parameters.track_method, self._ids)  # Fails here without SciPy.
        qos = QoSProfile(depth=self.parameters.qos_depth)
        if self.parameters.detections_3d_topics:
            self._configure_rig(qos)
            return
        detections = DetectionCodec(self, DETECTIONS)
        self._topics = (Topic(self, DETECTIONS, detections, self._counts),)
        if self.parameters.use_appearance:
            tensors = open_format('auto')
            if not isinstance(tensors, TensorLists):
                raise ParameterError(
                    'use_appearance is true, but no tensor lists are installed.',
                    cause='The multi-arrays of std_msgs have no stamp, by which they would meet '
                    'the detections.',
                    remedy='Install isaac_ros_tensor_list_interfaces, or set use_appearance to '
                    'false.',
                )
            codec = tensors.codec(self, TENSORS)
            self._read_tensors = codec.reader()
            self._topics = (
                Topic(self, DETECTIONS, detections, FrameCounts(self._counts)),
                Topic(self, TENSORS, codec, FrameCounts()),
            )
        self._tracks = DetectionSender(self, self.publisher(Detection2DArray, '~/tracks', qos))

    def _configure_rig(self, qos: QoSProfile) -> None:
        names = self.parameters.detections_3d_topics
        resolved = {resolve_topic(self, name, 'detections_3d_topics') for name in names}
        if self.parameters.use_appearance or len(resolved) < len(names):
            raise ParameterError(
                'detections_3d_topics goes without use_appearance, and names each topic once.',
                remedy='Set use_appearance to false, and remove double topics.',
            )
        self._topics = tuple(
            Topic(
                self, name, DetectionCodec(self, name, Detection3DArray), FrameCounts(self._counts)
            )
            for name in names
        )
        self._rig_publisher = self.publisher(Detection3DArray, '~/tracks_3d', qos)

    def activate(self) -> None:
        """Subscribe to detections, and their vectors; no track outlives a deactivation."""
        self._cameras.clear()
        self._rig = None
        self._latency = LatencyMeter(self, self._counts)
        if self.parameters.detections_3d_topics:
            self._rig = RigTracks(self.parameters.track_method, self._ids)
            for camera, topic in enumerate(self._topics):
                self._subscribe(topic, partial(self._on_boxes, self._rig, camera, topic))
            return
        if len(self._topics) == 1:
            self._subscribe(self._topics[0], self._on_detections)
            return
        self._sets = self.while_active.own(
            MessageSets[np.ndarray](
                self, self._topics, self._on_set, queue_size=self.parameters.qos_depth
            )
        )
        for index, topic in enumerate(self._topics):
            self._subscribe(topic, partial(self._on_message, index, topic))

    def _subscribe(self, topic: Topic, on_message: Callable[[np.ndarray], None]) -> None:
        kind, name = topic.codec.message_type, topic.name
        qos = overridden(self, Subscription, name, QoSProfile(depth=self.parameters.qos_depth))
        callbacks = MessageCallbacks(on_message, on_missed=topic.counts.miss)
        self.while_active.own(subscribe_serialized(self, kind, name, qos, callbacks))

    def _on_detections(self, message: np.ndarray) -> None:
        self._counts.receive()
        with self._topics[0].dropping:
            self._track(message)
            self._counts.publish()

    def _on_boxes(self, rig: RigTracks, camera: int, topic: Topic, message: np.ndarray) -> None:
        topic.counts.receive()
        parameters: TrackerParameters = self.parameters
        with topic.dropping, self._rig_lock:
            with self._counts.timed('track'):
                boxes = read_message(message, Detection3DArray)
                options = parameters.track_options(parameters.score_threshold)
                rig.track(camera, boxes, replace(options, min_size=parameters.track_min_size))
            with self._counts.timed('publish'):
                self._rig_publisher.publish(rig.to_message(parameters.publish_lost_tracks))
            topic.counts.publish()
            self._latency.done((boxes.header.stamp.sec, boxes.header.stamp.nanosec))

    def _on_message(self, index: int, topic: Topic, message: np.ndarray) -> None:
        topic.counts.receive()
        with topic.dropping:
            self._sets.add(index, read_stamp(message), message)

    def _on_set(self, messages: tuple[np.ndarray, ...]) -> None:
        """Track the detections that have the stamp of a message of vectors."""
        with self._sets.dropping():
            self._track(*messages)
            self._sets.publish_all()

    def _track(self, message: np.ndarray, tensors: np.ndarray | None = None) -> None:
        fields = Fields(message)
        stamp, frame_id = fields.stamp(), fields.text('frame_id')
        header = to_header(frame_id, stamp)
        found = read_boxes(message, self._class_ids)
        vectors = (
            None if tensors is None else _vectors(self._read_tensors(tensors).value, len(found))
        )
        parameters: TrackerParameters = self.parameters
        with self._counts.timed('track'):
            options = parameters.track_options(parameters.score_threshold)
            tracker = self._camera(frame_id)
            tracked = tracker(
                found,
                tracking_stamp(header),
                options=replace(options, min_similarity=parameters.track_min_similarity),
                vectors=vectors,
            )
            if parameters.publish_lost_tracks:
                tracked = tracked.extended(tracker.lost)
        with self._counts.timed('publish'):
            self._tracks.send(tracked, header, 'name')
        self._latency.done(stamp)

    def _camera(self, frame_id: str) -> Tracker:
        camera = self._cameras.get(frame_id)
        if camera is None:
            camera = open_tracker(self.parameters.track_method, self._ids)
            self._cameras[frame_id] = camera
            if len(self._cameras) > MAX_CAMERAS:
                self._cameras.popitem(last=False)
        self._cameras.move_to_end(frame_id)
        return camera

    def _why_no_result(self) -> str:
        return without_partner(self, self._topics, 'both need the same stamp')

    def _diagnostics(self) -> Mapping[str, str]:
        cameras = tuple(self._cameras.values()) if self._rig is None else (self._rig,)
        resets = sum(each.resets for each in cameras)
        count = len(cameras) if self._rig is None else len(self._topics)
        return {'cameras': str(count), 'tracks ended by time jumps': str(resets)}


def _vectors(named: Arrays, count: int) -> np.ndarray | None:
    """Return a message's tensor, a vector per detection, or None; raises BadFrameError."""
    tensors = list(named.values())
    if not (tensors or count):
        return None
    if len(tensors) == 1 and tensors[0].ndim > 1 and len(tensors[0]) == count:
        return tensors[0].reshape(count, math.prod(tensors[0].shape[1:]))
    shapes = ', '.join(f'{name} {tensor.shape}' for name, tensor in named.items())
    raise BadFrameError(
        'bad appearance',
        f'Tensors for {count} detections: {shapes or "none"}, expected one ({count}, values).',
        remedy='Remap detections and tensors to ~/detections and ~/tensors of one node `tensor` '
        'with regions, and choose one of its outputs with its parameter outputs.',
    )
