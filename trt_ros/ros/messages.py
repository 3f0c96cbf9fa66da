"""Conversion of results and images to messages, and back."""

from __future__ import annotations

from dataclasses import dataclass, replace
from itertools import compress
from typing import TYPE_CHECKING, TypeVar

import numpy as np
from rclpy.impl.implementation_singleton import rclpy_implementation
from rclpy.node import Node
from rclpy.publisher import Publisher
from rclpy.serialization import deserialize_message
from std_msgs.msg import Header
from vision_msgs.msg import (
    BoundingBox3D,
    Detection2D,
    Detection3D,
    Detection3DArray,
    ObjectHypothesis,
    ObjectHypothesisWithPose,
)

from trt_ros.errors import BadFrameError
from trt_ros.results.boxes import Boxes, Detections, Objects, OrientedBoxes
from trt_ros.ros.class_ids import ClassIds
from trt_ros.ros.dds.cdr import ImageWriter
from trt_ros.ros.dds.cdr_detections import DetectionWriter, read_detections
from trt_ros.ros.dds.cdr_points import XYZ, Field, PointWriter
from trt_ros.ros.dds.transport import serialized_publish, should_publish
from trt_ros.vision.frame import DEPTH_ENCODINGS, ENCODINGS
from trt_ros.vision.regions import MAX_PIXELS

if TYPE_CHECKING:  # Imports 40 modules.
    from geometry_msgs.msg import PoseWithCovariance, Vector3

MessageT = TypeVar('MessageT')

#: Boxes in space that are larger or farther away are invalid.
MAX_METERS = 1e6


def best_hypothesis(detection: Detection2D | Detection3D) -> ObjectHypothesis:
    """Return the hypothesis with the highest score; NaN only if there is no other score."""
    return max(
        (result.hypothesis for result in detection.results),
        key=lambda hypothesis: (hypothesis.score == hypothesis.score, hypothesis.score),
        default=ObjectHypothesis(),
    )


def read_message(message: np.ndarray, kind: type[MessageT]) -> MessageT:
    """Read a serialized message, (N,) uint8, or raise BadFrameError 'bad CDR'."""
    try:
        read: MessageT = deserialize_message(message.tobytes(), kind)
    # The middleware reports the length, rclpy the text: two classes without a common one.
    except (
        rclpy_implementation.RCLError,
        rclpy_implementation.RMWError,
        UnicodeDecodeError,
    ) as error:
        raise BadFrameError(
            'bad CDR',
            f'A message cannot be read as {kind.__name__}.',
            cause=str(error),
            remedy=f'Publish vision_msgs/msg/{kind.__name__}.',
        ) from error
    return read


def read_boxes(message: np.ndarray, class_ids: ClassIds) -> Boxes:
    """Return the valid boxes of a serialized message, by their best results, or raise."""
    entries = read_detections(message)
    boxes = np.array([entry[2] for entry in entries]).reshape(-1, 5)
    is_box = (np.abs(boxes) <= MAX_PIXELS).all(axis=1)  # False for NaN, too.
    is_box &= np.isfinite([entry[1] for entry in entries])
    if not is_box.all():
        entries, boxes = list(compress(entries, is_box)), boxes[is_box]
    labels = class_ids.labels(entry[0] for entry in entries)
    with np.errstate(over='ignore'):
        scores = np.array([entry[1] for entry in entries], np.float32)
    ids = np.array([entry[3] for entry in entries], object)
    angles = boxes[:, 2]
    center, half = boxes[:, :2], boxes[:, 3:] / 2
    found: Boxes
    if angles.any():
        cxcywh = np.hstack([center, boxes[:, 3:]]).astype(np.float32)
        found = OrientedBoxes(cxcywh, angles.astype(np.float32), scores, labels)
    else:
        xyxy = np.hstack([center - half, center + half]).astype(np.float32)
        found = Detections(xyxy, scores, labels)
    return replace(found, ids=ids if ids.any() else None, class_names=class_ids)


# Bytes per pixel of the encodings that are sent, and types other than uint8.
_PIXEL_NBYTES = {
    encoding: nbytes
    for encoding, nbytes in {**ENCODINGS, **DEPTH_ENCODINGS}.items()
    if encoding not in ('nv12', 'nv21')  # They have more rows than the image.
}
_DTYPES = {'mono16': np.dtype('<u2'), '16UC1': np.dtype('<u2'), '32FC1': np.dtype('<f4')}


class Sender:
    """A publisher of messages that are written in place; for one thread at a time."""

    def __init__(self, node: Node, publisher: Publisher) -> None:
        self.publisher, self._publish = publisher, serialized_publish(node, publisher)

    def is_wanted(self) -> bool:
        """Return whether a message would reach a subscriber, as should_publish() does."""
        return should_publish(self.publisher)


class DetectionSender(Sender):
    """
    A publisher of the boxes of objects.

    Serialized messages take a tenth of the time of rclpy's typed ones.
    """

    def __init__(self, node: Node, publisher: Publisher) -> None:
        super().__init__(node, publisher)
        self._writer = DetectionWriter()
        self._last: tuple[Objects, Header, str] | None = None

    def send(self, found: Objects, header: Header, class_id_format: str) -> None:
        """Publish the boxes of one image."""
        self._publish(self._write(found, header, class_id_format))
        if isinstance(found, Boxes):  # Others may have large masks.
            self._last = found, header, class_id_format

    def rehearse(self) -> None:
        """Write the last message again, so that the next one finds its code in the caches."""
        if self._last is not None:
            self._write(*self._last)

    def _write(self, found: Objects, header: Header, class_id_format: str) -> np.ndarray:
        stamp = header.stamp.sec, header.stamp.nanosec
        return self._writer.write(found, stamp, header.frame_id, class_id_format=class_id_format)


class PointSender(Sender):
    """A publisher of point clouds, with `extra` fields after z."""

    def __init__(self, node: Node, publisher: Publisher, *extra: Field) -> None:
        super().__init__(node, publisher)
        self._writer = PointWriter((*XYZ, *extra))

    def begin(self, header: Header, cloud_wh: tuple[int, int]) -> np.ndarray:
        """Return the points of a new cloud, (height, width, values) float32, to be filled."""
        stamp = header.stamp
        return self._writer.begin((stamp.sec, stamp.nanosec), header.frame_id, cloud_wh)

    def send(self) -> None:
        """Publish the cloud of the last begin(); its points must not change any more."""
        self._publish(self._writer.message)


class ImageSender(Sender):
    """
    A publisher of images that are drawn directly into the message.

    >>> pixels = sender.begin(header, (640, 480))
    >>> pixels[:] = 0
    >>> sender.send()
    """

    def __init__(self, node: Node, publisher: Publisher) -> None:
        super().__init__(node, publisher)
        self._writer = ImageWriter()
        self._pixels: np.ndarray | None = None

    def begin(
        self, header: Header, image_wh: tuple[int, int], encoding: str = 'bgr8'
    ) -> np.ndarray:
        """
        Return the pixels of a new image, C-contiguous, to be filled.

        :returns: (H, W, channels) uint8, or (H, W) with one channel, as of a mosaic; 'mono16' and
            '16UC1' uint16, '32FC1' float32.
        :raises BadFrameError: 'unknown encoding'.
        """
        if encoding not in _PIXEL_NBYTES:
            raise BadFrameError(
                'unknown encoding',
                f'Images of the encoding {encoding!r} cannot be sent.',
                remedy=f'Use one of {", ".join(_PIXEL_NBYTES)}.',
            )
        stamp, nbytes = (header.stamp.sec, header.stamp.nanosec), _PIXEL_NBYTES[encoding]
        self._pixels = None  # Otherwise their memory would still be in use.
        pixels = self._writer.begin(stamp, header.frame_id, image_wh, encoding, channels=nbytes)
        if encoding in _DTYPES:
            pixels = pixels.view(_DTYPES[encoding])
        self._pixels = pixels if pixels.shape[-1] > 1 else pixels[..., 0]
        return self._pixels

    def send(self) -> None:
        """Publish the image of the last begin(); its pixels become read-only."""
        if self._pixels is None:
            raise RuntimeError('send() without begin()')
        self._publish(self._writer.message)
        self._pixels.setflags(write=False)  # Subscribers in this process share the memory.
        self._pixels = None
        self._writer.prepare()  # Not in `begin`, whose image would be later.


@dataclass(frozen=True)
class BoxesInSpace:
    """
    N boxes in space, in the order of the message.

    :param detections: those of the message that have a valid box, N of them.
    :param centers: (N, 3) meters in `frame_id`; `sizes`: (N, 3) meters.
    :param quaternions: (N, 4) x, y, z, w.
    :param scores: (N,) float64; `labels`: (N,) indices of the class ids.
    """

    frame_id: str
    detections: list[Detection3D]
    centers: np.ndarray
    sizes: np.ndarray
    quaternions: np.ndarray
    scores: np.ndarray
    labels: np.ndarray


def boxes_in_space(array: Detection3DArray, class_ids: ClassIds) -> BoxesInSpace:
    """Return the valid boxes of a message, by their best results; new class ids are added."""
    boxes = np.array([_box_in_space(each) for each in array.detections]).reshape(-1, 10)
    is_box = (np.abs(boxes) <= MAX_METERS).all(axis=1)  # False for NaN, too.
    is_box &= (boxes[:, 3:6] >= 0).all(axis=1)
    best = [best_hypothesis(detection) for detection in array.detections]
    is_box &= np.isfinite([each.score for each in best])
    detections, best = (list(compress(each, is_box)) for each in (array.detections, best))
    centers, sizes, quaternions = np.split(boxes[is_box], [3, 6], axis=1)
    return BoxesInSpace(
        array.header.frame_id,
        detections,
        centers,
        sizes,
        quaternions,
        np.array([each.score for each in best]),
        class_ids.labels(each.class_id for each in best),
    )


def _box_in_space(detection: Detection3D) -> tuple[float, ...]:
    center, size = detection.bbox.center, detection.bbox.size
    at, turn = center.position, center.orientation
    return at.x, at.y, at.z, size.x, size.y, size.z, turn.x, turn.y, turn.z, turn.w


def detection_3d(
    detection: Detection2D | Detection3D,
    header: Header,
    pose: PoseWithCovariance,
    size: Vector3,
    identity: str,
) -> Detection3D:
    """Return a box in space with the classes and scores of a detection."""
    return Detection3D(
        header=header,
        bbox=BoundingBox3D(center=pose.pose, size=size),
        id=identity,
        results=[
            ObjectHypothesisWithPose(hypothesis=result.hypothesis, pose=pose)
            for result in detection.results
        ],
    )
