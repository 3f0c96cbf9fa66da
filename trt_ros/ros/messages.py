"""Conversion of results and images to messages, and back."""

from collections.abc import Callable, Mapping
from dataclasses import dataclass, replace
from itertools import compress
from typing import Any, TypeVar

from geometry_msgs.msg import PoseWithCovariance, Vector3
import numpy as np
from rclpy.impl.implementation_singleton import rclpy_implementation
from rclpy.node import Node
from rclpy.publisher import Publisher
from rclpy.serialization import deserialize_message, serialize_message
from std_msgs.msg import Header
from vision_msgs.msg import (
    BoundingBox2D,
    BoundingBox3D,
    Detection2D,
    Detection2DArray,
    Detection3D,
    Detection3DArray,
    LabelInfo,
    ObjectHypothesis,
    ObjectHypothesisWithPose,
    Point2D,
    Pose2D,
    VisionClass,
)

from trt_ros.errors import BadFrameError
from trt_ros.results.boxes import Boxes, Detections, Objects, OrientedBoxes
from trt_ros.results.classes import Classification
from trt_ros.ros.class_ids import ClassIds
from trt_ros.ros.dds.cdr import ImageWriter
from trt_ros.ros.dds.cdr_detections import (
    DetectionWriter,
    Entry,
    read_detections,
)
from trt_ros.ros.dds.transport import serialized_publish
from trt_ros.vision.regions import MAX_PIXELS

MessageT = TypeVar('MessageT')

#: For messages that are published once: later subscribers get them, too.


def to_detection_array(
    found: Objects, header: Header, *, class_id_format: str
) -> Detection2DArray:
    """Convert objects, best score first, and classes of a further network to a message."""
    # Python floats: message fields do not accept NumPy scalars.
    boxes, scores = found.rotated_boxes().tolist(), found.scores.tolist()
    class_ids = found.names if class_id_format == 'name' else map(str, found.labels.tolist())
    array = Detection2DArray(header=header)
    for (x, y, width, height, theta), score, class_id in zip(boxes, scores, class_ids):
        array.detections.append(
            Detection2D(
                header=header,
                results=[
                    ObjectHypothesisWithPose(
                        hypothesis=ObjectHypothesis(class_id=class_id, score=score)
                    )
                ],
                bbox=BoundingBox2D(
                    center=Pose2D(position=Point2D(x=x, y=y), theta=theta),
                    size_x=width,
                    size_y=height,
                ),
            )
        )
    for detection, identity in zip(array.detections, found.ids_as_text()):
        detection.id = identity
    for detection, classes in zip(array.detections, found.region_classes(class_id_format)):
        more = (ObjectHypothesis(class_id=name, score=score) for name, score in classes)
        detection.results = [
            *detection.results,
            *(ObjectHypothesisWithPose(hypothesis=each) for each in more),
        ]
    return array


def detection_publish(node: Node, publisher: Publisher) -> Callable[[Objects, Header, str], None]:
    """
    Return a function that publishes the boxes of objects.

    Its arguments (found, header, class_id_format) are those of to_detection_array(). It
    writes serialized messages, which takes a tenth of the time of rclpy's typed ones, and falls
    back to typed messages where rclpy reads the bytes differently (another vision_msgs). Call it
    from one thread at a time.
    """

    def publish_typed(found: Objects, header: Header, class_id_format: str) -> None:
        publisher.publish(to_detection_array(found, header, class_id_format=class_id_format))

    writer = DetectionWriter()
    if not _is_read_by_rclpy(writer):
        node.get_logger().warning(
            'Detections are published as typed messages, which is slow. Cause: this version of '
            'vision_msgs has another layout.'
        )
        return publish_typed
    publish = serialized_publish(node, publisher)

    def write_and_publish(found: Objects, header: Header, class_id_format: str) -> None:
        stamp = header.stamp.sec, header.stamp.nanosec
        publish(writer.write(found, stamp, header.frame_id, class_id_format=class_id_format))

    return write_and_publish


_SAMPLE = OrientedBoxes(
    np.arange(8, dtype=np.float32).reshape(2, 4),
    np.array([0.25, -0.5], np.float32),
    np.array([0.75, 0.5], np.float32),
    np.array([0, 1], np.int32),
    ids=np.array([7, 12345]),
    class_names=('a', 'bird'),
    region_results=(
        None,
        Classification(np.array([0.75, 0.25], np.float32), class_names=('c', 'dragon')),
    ),
)


def _is_read_by_rclpy(writer: DetectionWriter) -> bool:
    header = Header(frame_id='camera')
    header.stamp.sec, header.stamp.nanosec = 1, 2
    written = writer.write(_SAMPLE, (1, 2), header.frame_id, class_id_format='name')
    try:
        read = read_message(written, Detection2DArray)
    except BadFrameError:
        return False
    return bool(read == to_detection_array(_SAMPLE, header, class_id_format='name'))


def from_detection_array(message: Detection2DArray, class_ids: ClassIds) -> Boxes:
    """Convert the valid boxes of a message, by their best results, to Detections or others."""
    return _gather(_entries(message), class_ids)


def detection_reader(node: Node) -> Callable[[np.ndarray, ClassIds], Boxes]:
    """Return a function like from_detection_array() for serialized messages, (N,) uint8."""
    sample = to_detection_array(_SAMPLE, Header(frame_id='camera'), class_id_format='name')
    try:
        is_as_expected = _entries(sample) == read_detections(
            np.frombuffer(serialize_message(sample), np.uint8)
        )
    except BadFrameError:
        is_as_expected = False
    if is_as_expected:
        return lambda message, class_ids: _gather(read_detections(message), class_ids)
    node.get_logger().warning(
        'Detections are read as typed messages, which is slow. Cause: this version of vision_msgs '
        'has another layout.'
    )
    return lambda message, class_ids: from_detection_array(
        read_message(message, Detection2DArray), class_ids
    )


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


def _entries(message: Detection2DArray) -> list[Entry]:
    entries: list[Entry] = []
    for detection in message.detections:
        best = best_hypothesis(detection)
        box = detection.bbox
        entries.append(
            (
                best.class_id,
                best.score,
                (
                    box.center.position.x,
                    box.center.position.y,
                    box.center.theta,
                    box.size_x,
                    box.size_y,
                ),
                detection.id,
            )
        )
    return entries


def _gather(entries: list[Entry], class_ids: ClassIds) -> Boxes:
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


# Data type and number of channels of the published encodings.
_PIXELS: dict[str, tuple[np.dtype[Any], int]] = {
    'bgr8': (np.dtype('u1'), 3),
    'rgb8': (np.dtype('u1'), 3),
    'bgra8': (np.dtype('u1'), 4),
    'mono8': (np.dtype('u1'), 1),
    'mono16': (np.dtype('<u2'), 1),
    '32FC1': (np.dtype('<f4'), 1),
}


class ImageSender:
    """
    A publisher of images that are drawn directly into the message; for one thread at a time.

    >>> pixels = sender.begin(header, (640, 480))
    >>> pixels[:] = 0
    >>> sender.send()
    """

    def __init__(self, node: Node, publisher: Publisher) -> None:
        self.publisher = publisher
        self._writer, self._publish = ImageWriter(), serialized_publish(node, publisher)
        self._pixels: np.ndarray | None = None

    def begin(
        self, header: Header, image_wh: tuple[int, int], encoding: str = 'bgr8'
    ) -> np.ndarray:
        """
        Return the pixels of a new image, C-contiguous, to be filled.

        :returns: 'bgr8', 'rgb8', 'bgra8': (H, W, 3 or 4) uint8; 'mono8', 'mono16', '32FC1':
            (H, W) of that type.
        """
        stamp = header.stamp
        dtype, channels = _PIXELS[encoding]
        self._pixels = None  # Otherwise their memory would still be in use.
        pixels = self._writer.begin(
            (stamp.sec, stamp.nanosec),
            header.frame_id,
            image_wh,
            encoding,
            channels=channels * dtype.itemsize,
        )
        self._pixels = pixels if channels > 1 else pixels.view(dtype)[..., 0]
        return self._pixels

    def send(self) -> None:
        """Publish the image of the last begin(); its pixels become read-only."""
        if self._pixels is None:
            raise RuntimeError('send() without begin()')
        self._pixels.setflags(write=False)  # Subscribers in this process share the memory.
        self._publish(self._writer.message)


def to_label_info(header: Header, class_map: Mapping[int, str], threshold: float) -> LabelInfo:
    """Return the class names and the score threshold as a message."""
    return LabelInfo(
        header=header,
        threshold=threshold,
        class_map=[
            VisionClass(class_id=index, class_name=name) for index, name in class_map.items()
        ],
    )


@dataclass(frozen=True)
class BoxesInSpace:
    """
    N boxes in space, in the order of the message.

    :param centers: (N, 3) meters in `frame_id`; `sizes`: (N, 3) meters.
    :param quaternions: (N, 4) x, y, z, w.
    :param scores: (N,) float64; `labels`: (N,) indices of the class ids.
    :param ids: one per box; '' for none.
    """

    frame_id: str
    centers: np.ndarray
    sizes: np.ndarray
    quaternions: np.ndarray
    scores: np.ndarray
    labels: np.ndarray
    ids: list[str]


def boxes_in_space(array: Detection3DArray, class_ids: ClassIds) -> BoxesInSpace:
    """Return the boxes of a message, by their best results; new class ids are added."""
    best = [best_hypothesis(detection) for detection in array.detections]
    boxes = [detection.bbox for detection in array.detections]
    centers = [box.center.position for box in boxes]
    turns = [box.center.orientation for box in boxes]
    return BoxesInSpace(
        array.header.frame_id,
        np.array([(each.x, each.y, each.z) for each in centers]).reshape(-1, 3),
        np.array([(box.size.x, box.size.y, box.size.z) for box in boxes]).reshape(-1, 3),
        np.array([(each.x, each.y, each.z, each.w) for each in turns]).reshape(-1, 4),
        np.array([each.score for each in best]),
        class_ids.labels(each.class_id for each in best),
        [detection.id for detection in array.detections],
    )


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
