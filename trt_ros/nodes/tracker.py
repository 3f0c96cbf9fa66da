"""Node that gives detections identities that last over time."""

from __future__ import annotations

from collections import OrderedDict
from collections.abc import Mapping
from contextlib import closing
from dataclasses import dataclass
import itertools
import sys
from typing import Any

import numpy as np
from rclpy.qos import QoSProfile
from rclpy.subscription import Subscription
from std_msgs.msg import Header
from vision_msgs.msg import Detection2DArray

from trt_ros.nodes.tracking import CameraTracker, TrackingParameters
from trt_ros.ros.dds.cdr import Fields
from trt_ros.ros.dds.rcl_subscription import MessageCallbacks
from trt_ros.ros.dds.transport import subscribe_serialized
from trt_ros.ros.diagnostics import Diagnostics, FrameCounts, LatencyMeter
from trt_ros.ros.images import dropping
from trt_ros.ros.lifecycle import ManagedNode, NodeParameters
from trt_ros.ros.messages import detection_publish, detection_reader
from trt_ros.ros.parameters import param
from trt_ros.ros.process import run_node
from trt_ros.ros.qos import overridden, why_lost, why_silent

MAX_CAMERAS = 32  # Trackers kept: those of the frame_ids received last.


# Fields come in the reverse order of the bases.
@dataclass(frozen=True)
class TrackerParameters(NodeParameters, TrackingParameters):
    """Parameters of the tracker node."""

    score_threshold: float = param(
        0.25,
        'Minimum score of a detection that starts a track.',
        between=(0.0, 1.0),
        mutable=True,
    )
    qos_depth: int = param(
        10, 'Queue depth of subscription and publisher in messages.', between=(1, 1000)
    )
    publish_latency: bool = param(
        False,
        "Whether to publish the time from each image's stamp to its tracks on ~/latency, in "
        'milliseconds.',
    )
    autostart: bool = param(
        True, 'Whether the node configures and activates itself at startup.', read_only=True
    )


class TrackerNode(ManagedNode):
    """A node that publishes the detections that belong to tracks; a camera is a frame_id."""

    Parameters = TrackerParameters

    def __init__(self, name: str = 'tracker', **kwargs: Any) -> None:
        super().__init__(name, **kwargs)
        self._counts = FrameCounts()
        self._counts.noun = 'message'
        self._ids = itertools.count(1)
        self._class_ids: list[str] = []
        self._cameras: OrderedDict[str, CameraTracker] = OrderedDict()
        Diagnostics(
            self,
            self._counts,
            task='detections',
            diagnostics=self._diagnostics,
            why_no_image=lambda node, _: why_silent(
                node, 'detections', 'vision_msgs/msg/Detection2DArray'
            ),
            why_lost=lambda node, _: why_lost(node, 'detections'),
        )

    def configure(self) -> None:
        """Create the publisher."""
        CameraTracker(self.parameters.track_method, self._ids)  # Fails here without SciPy.
        self._read = detection_reader(self)
        qos = QoSProfile(depth=self.parameters.qos_depth)
        self._publish = detection_publish(
            self, self.publisher(Detection2DArray, '~/tracks', qos), self._class_ids
        )

    def activate(self) -> None:
        """Subscribe to detections; no track outlives a deactivation."""
        self._cameras.clear()
        self._latency = LatencyMeter(self, self._counts)
        qos = QoSProfile(depth=self.parameters.qos_depth)
        self.while_active.enter_context(
            closing(
                subscribe_serialized(
                    self,
                    Detection2DArray,
                    'detections',
                    overridden(self, Subscription, 'detections', qos),
                    MessageCallbacks(self._on_detections, on_missed=self._counts.miss),
                )
            )
        )

    def _on_detections(self, message: np.ndarray) -> None:
        self._counts.receive()
        with dropping(self, self._counts):
            fields = Fields(message)
            stamp, frame_id = fields.stamp(), fields.text('frame_id')
            header = Header(frame_id=frame_id)
            header.stamp.sec, header.stamp.nanosec = stamp
            found, _ = self._read(message, self._class_ids)
            parameters: TrackerParameters = self.parameters
            with self._counts.timed('track'):
                tracked, ids = self._camera(frame_id).track(
                    found,
                    header,
                    parameters.track_options(parameters.score_threshold),
                    lost=parameters.publish_lost_tracks,
                )
            with self._counts.timed('publish'):
                self._publish(tracked, header, 'name', ids)
            self._counts.publish()
            self._latency.done(stamp)

    def _camera(self, frame_id: str) -> CameraTracker:
        camera = self._cameras.get(frame_id)
        if camera is None:
            camera = CameraTracker(self.parameters.track_method, self._ids)
            self._cameras[frame_id] = camera
            if len(self._cameras) > MAX_CAMERAS:
                self._cameras.popitem(last=False)
        self._cameras.move_to_end(frame_id)
        return camera

    def _diagnostics(self) -> Mapping[str, str]:
        resets = sum(camera.resets for camera in tuple(self._cameras.values()))
        return {'cameras': str(len(self._cameras)), 'tracks ended by time jumps': str(resets)}


def main(args: list[str] | None = None) -> int:
    """Run the node until a signal stops it."""
    return run_node(TrackerNode, args)


if __name__ == '__main__':
    sys.exit(main())
