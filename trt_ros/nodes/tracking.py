"""Tracking of detections for the nodes that publish tracks."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from typing import TYPE_CHECKING

import numpy as np
from std_msgs.msg import Header

from trt_ros.errors import BadFrameError
from trt_ros.ros.parameters import param
from trt_ros.vision.detections import Detections
from trt_ros.vision.results import OrientedBoxes

if TYPE_CHECKING:
    from trt_ros.tracking.tracker import TrackOptions


@dataclass(frozen=True)
class TrackingParameters:
    """Parameters of nodes that track detections."""

    track_method: str = param(
        'ocsort',
        'Tracking method: bytetrack, or ocsort, which also uses the direction of motion and finds '
        'hidden objects again.',
        choices=('bytetrack', 'ocsort'),
    )
    track_buffer: float = param(
        1.0,
        'Time in seconds for which a track without detections is kept. A longer gap between two '
        'images, or a time that goes back, ends all tracks.',
        between=(0.01, 3600.0),
        mutable=True,
    )
    track_low_threshold: float = param(
        0.1,
        'Minimum score of a detection that continues a track; one that starts a track has '
        'score_threshold.',
        between=(0.0, 1.0),
        mutable=True,
    )
    track_min_iou: float = param(
        0.2,
        'Minimum IoU of a detection with the predicted box of its track.',
        between=(0.0, 1.0),
        mutable=True,
    )
    track_min_hits: int = param(
        2,
        'Number of consecutive detections after which a track is published.',
        between=(1, 100),
        mutable=True,
    )
    track_across_classes: bool = param(
        False,
        'Whether a track may continue with a detection of another class.',
        mutable=True,
    )
    publish_lost_tracks: bool = param(
        False,
        'Whether to publish tracks without a detection in the image, too, with their predicted '
        'boxes and score 0.0.',
        mutable=True,
    )

    def track_options(self, high_score: float | np.ndarray) -> TrackOptions:
        """Return the options of a tracker; `high_score` is the minimum that starts a track."""
        from trt_ros.tracking.tracker import TrackOptions  # Needs SciPy.

        return TrackOptions(
            high_score=high_score,
            low_score=self.track_low_threshold,
            min_iou=self.track_min_iou,
            buffer_seconds=self.track_buffer,
            min_hits=self.track_min_hits,
            across_classes=self.track_across_classes,
        )


class CameraTracker:
    """
    The tracker of one camera and the conversion of its tracks, for one thread at a time.

    :param method: value of the parameter track_method.
    :param ids: new identities, shared by the cameras of a node.
    :raises TrtRosError: when SciPy is not installed.
    """

    def __init__(self, method: str, ids: Iterator[int]) -> None:
        from trt_ros.tracking.ocsort import OcSortTracker
        from trt_ros.tracking.tracker import Tracker

        self._tracker = OcSortTracker(ids) if method == 'ocsort' else Tracker(ids)

    @property
    def resets(self) -> int:
        """How often all tracks were ended because the time jumped."""
        return self._tracker.resets

    def track(
        self,
        found: Detections | OrientedBoxes,
        stamp_ns: int,
        options: TrackOptions,
        *,
        lost: bool,
        vectors: np.ndarray | None = None,
    ) -> tuple[Detections | OrientedBoxes, np.ndarray]:
        """
        Return the tracked detections with their identities, (N,) int64.

        :param stamp_ns: return value of tracking_stamp().
        :param lost: whether to append the tracks without a detection, with score 0.
        :param vectors: (N, D), the appearance of each detection.
        """
        tracks = self._tracker.update(_upright(found), stamp_ns, options, vectors)
        shown = found.take(tracks.indices)
        if not (lost and len(tracks.lost_ids)):
            return shown, tracks.ids
        return _joined(shown, tracks.lost), np.concatenate([tracks.ids, tracks.lost_ids])


def tracking_stamp(header: Header) -> int:
    """
    Return the stamp of a header in nanoseconds.

    :raises BadFrameError: when it has no time.
    """
    stamp_ns = int(header.stamp.sec * 1_000_000_000 + header.stamp.nanosec)
    if not stamp_ns:
        raise BadFrameError(
            'no stamp',
            'The header has no time (stamp), which tracking needs.',
            remedy='Publish images with the time of their capture in header.stamp.',
        )
    return stamp_ns


def _upright(found: Detections | OrientedBoxes) -> Detections:
    """Return the axis-aligned boxes around oriented ones."""
    if isinstance(found, Detections):
        return found
    cos, sin = np.abs(np.cos(found.theta)), np.abs(np.sin(found.theta))
    width, height = found.cxcywh[:, 2], found.cxcywh[:, 3]
    half = np.stack([width * cos + height * sin, width * sin + height * cos], axis=1) / 2
    center = found.cxcywh[:, :2]
    return Detections(np.hstack([center - half, center + half]), found.scores, found.labels)


def _joined(found: Detections | OrientedBoxes, lost: Detections) -> Detections | OrientedBoxes:
    scores = np.concatenate([found.scores, lost.scores])
    labels = np.concatenate([found.labels, lost.labels])
    if isinstance(found, Detections):
        return Detections(np.concatenate([found.xyxy, lost.xyxy]), scores, labels)
    low, high = lost.xyxy[:, :2], lost.xyxy[:, 2:]
    boxes = np.concatenate([found.cxcywh, np.hstack([(low + high) / 2, high - low])])
    theta = np.concatenate([found.theta, np.zeros(len(lost), np.float32)])
    return OrientedBoxes(boxes, theta, scores, labels)
