"""Tracking of detections for the nodes that publish tracks."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from typing import TYPE_CHECKING

import numpy as np
from std_msgs.msg import Header

from trt_ros.errors import BadFrameError
from trt_ros.ros.parameters import mutable_param, param
from trt_ros.tracking.options import TrackOptions

if TYPE_CHECKING:
    from trt_ros.tracking.tracker import Tracker


@dataclass(frozen=True)
class TrackingParameters:
    """Parameters of nodes that track detections."""

    track_method: str = param(
        'ocsort',
        'Tracking method: bytetrack, or ocsort, which also uses the direction of motion and finds '
        'hidden objects again.',
        choices=('bytetrack', 'ocsort'),
    )
    track_buffer: float = mutable_param(
        1.0,
        'Time in seconds for which a track without detections is kept. A longer gap between two '
        'images, or a time that goes back, ends all tracks.',
        between=(0.01, 3600.0),
    )
    track_low_threshold: float = mutable_param(
        0.1,
        'Minimum score of a detection that continues a track; one that starts a track has '
        'score_threshold, which counts here, too, where it is lower.',
        between=(0.0, 1.0),
    )
    track_min_iou: float = mutable_param(
        0.2, 'Minimum IoU of a detection with the predicted box of its track.', between=(0.0, 1.0)
    )
    track_min_hits: int = mutable_param(
        2, 'Number of consecutive detections after which a track is published.', between=(1, 100)
    )
    track_across_classes: bool = mutable_param(
        False, 'Whether a track may continue with a detection of another class.'
    )
    publish_lost_tracks: bool = mutable_param(
        False,
        'Whether to publish tracks without a detection in the image, too, with their predicted '
        'boxes and score 0.0.',
    )

    def track_options(self, high_score: float | np.ndarray) -> TrackOptions:
        """Return the options of a tracker; `high_score` is the minimum that starts a track."""
        return TrackOptions(
            high_score=high_score,
            low_score=self.track_low_threshold,
            min_iou=self.track_min_iou,
            buffer_seconds=self.track_buffer,
            min_hits=self.track_min_hits,
            across_classes=self.track_across_classes,
        )


def open_tracker(method: str, ids: Iterator[int]) -> Tracker:
    """Return a tracker of one camera by the parameter track_method, with ids of `ids`."""
    from trt_ros.tracking.tracker import Tracker

    return Tracker(method, ids)


def tracking_stamp(header: Header) -> int:
    """Return the stamp of a header in nanoseconds; raise BadFrameError if it has no time."""
    stamp_ns = int(header.stamp.sec * 1_000_000_000 + header.stamp.nanosec)
    if not stamp_ns:
        raise BadFrameError(
            'no stamp',
            'The header has no time (stamp), which tracking needs.',
            remedy='Publish images with the time of their capture in header.stamp.',
        )
    return stamp_ns
