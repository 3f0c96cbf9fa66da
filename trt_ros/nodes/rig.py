"""Tracks of the objects around a rig of cameras, in one frame."""

from collections.abc import Iterator
from dataclasses import dataclass

from geometry_msgs.msg import Point, Pose, PoseWithCovariance
import numpy as np
from std_msgs.msg import Header
from vision_msgs.msg import Detection3D, Detection3DArray, ObjectHypothesis

from trt_ros.errors import BadFrameError
from trt_ros.nodes.tracking import tracking_stamp
from trt_ros.results.boxes import Detections
from trt_ros.ros.class_ids import ClassIds
from trt_ros.ros.codecs.codec import to_header
from trt_ros.ros.messages import boxes_in_space, detection_3d
from trt_ros.tracking.options import TrackOptions
from trt_ros.vision.boxes_3d import box_corners, enclosing_boxes

#: Variance of an angle in square radians, beyond which a box is that of a visible surface.
UNKNOWN_ANGLE = 1.0


@dataclass
class _Seen:
    """The detection that stands for a track; `camera` is None once that camera missed it."""

    camera: int | None
    detection: Detection3D
    volume: float


class RigTracks:
    """
    The tracks of the objects that several cameras locate in one frame; for one thread at a time.

    :param ids: new identities.
    """

    def __init__(self, method: str, ids: Iterator[int]) -> None:
        from trt_ros.tracking.tracker import METHODS  # Needs SciPy.

        self._tracker = METHODS[method](ids, in_space=True)
        self._class_ids = ClassIds()
        self._seen: dict[int, _Seen] = {}
        self._frame_id: str | None = None

    @property
    def resets(self) -> int:
        """How often all tracks were ended because the time jumped."""
        return self._tracker.resets

    def track(self, camera: int, message: Detection3DArray, options: TrackOptions) -> None:
        """Add the detections of one camera; BadFrameError: 'no stamp' or 'other frame'."""
        stamp_ns, frame_id = tracking_stamp(message.header), message.header.frame_id
        if self._frame_id not in (None, frame_id):
            raise BadFrameError(
                'other frame',
                f'The boxes are in the frame {frame_id!r}, those of another camera in '
                f'{self._frame_id!r}.',
                remedy='Set target_frame of the detections_3d nodes of all cameras to the same '
                'frame, such as odom.',
            )
        self._frame_id = frame_id
        boxes = boxes_in_space(message, self._class_ids)
        corners = box_corners(boxes.centers, boxes.sizes, boxes.quaternions)
        is_surface = np.array([_is_surface(each) for each in boxes.detections], bool)
        found = Detections(enclosing_boxes(corners, is_surface), boxes.scores, boxes.labels)
        tracks = self._tracker.update(found, stamp_ns, options, camera=camera)
        here = dict(zip(tracks.ids.tolist(), tracks.indices.tolist()))
        for identity, seen in self._seen.items():
            if seen.camera == camera and identity not in here:
                seen.camera = None
        for identity, index in here.items():
            # Where views overlap, one may show a part of the object only.
            volume, last = float(boxes.sizes[index].prod()), self._seen.get(identity)
            if not last or last.camera in (None, camera) or volume >= last.volume:
                self._seen[identity] = _Seen(camera, boxes.detections[index], volume)

    def to_message(self, with_lost: bool) -> Detection3DArray:
        """Return all tracks at the newest time of all cameras; lost ones have the score 0."""
        header = to_header(self._frame_id or '', divmod(self._tracker.stamp_ns or 0, 10**9))
        ids, centers, is_lost = self._tracker.centers()
        self._seen = {each: self._seen[each] for each in ids.tolist()}
        chosen = with_lost | ~is_lost
        moved = [
            _moved(self._seen[identity].detection, header, center, str(identity), lost)
            for identity, center, lost in zip(
                ids[chosen].tolist(), centers[chosen], is_lost[chosen].tolist()
            )
        ]
        return Detection3DArray(header=header, detections=moved)


def _is_surface(detection: Detection3D) -> bool:
    return any(each.pose.covariance[35] > UNKNOWN_ANGLE for each in detection.results)


def _moved(
    detection: Detection3D, header: Header, center: np.ndarray, identity: str, is_lost: bool
) -> Detection3D:
    turn = detection.bbox.center.orientation
    pose = Pose(position=Point(**dict(zip('xyz', center.tolist()))), orientation=turn)
    covariance = detection.results[0].pose.covariance if detection.results else np.zeros(36)
    placed = PoseWithCovariance(pose=pose, covariance=covariance)
    moved = detection_3d(detection, header, placed, detection.bbox.size, identity)
    for result in moved.results if is_lost else ():
        result.hypothesis = ObjectHypothesis(class_id=result.hypothesis.class_id, score=0.0)
    return moved
