"""Results and pictures as messages, as other nodes expect them."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence

import numpy as np
from rclpy.impl.implementation_singleton import rclpy_implementation
from rclpy.node import Node
from rclpy.publisher import Publisher
from rclpy.qos import DurabilityPolicy, QoSProfile
from rclpy.serialization import deserialize_message, serialize_message
from std_msgs.msg import Header
from vision_msgs.msg import (
    BoundingBox2D,
    Detection2D,
    Detection2DArray,
    LabelInfo,
    ObjectHypothesis,
    ObjectHypothesisWithPose,
    Point2D,
    Pose2D,
    VisionClass,
)

from trt_ros.errors import BadFrameError
from trt_ros.ros.dds.cdr import ImageWriter
from trt_ros.ros.dds.cdr_detections import (
    MAX_ID,
    DetectionWriter,
    Entry,
    bounding_boxes,
    read_detections,
)
from trt_ros.ros.dds.transport import serialized_publish
from trt_ros.vision.detections import Detections
from trt_ros.vision.labels import name_of
from trt_ros.vision.results import OrientedBoxes, Poses

#: For what is said once: whoever subscribes later gets it too.
LATCHED = QoSProfile(depth=1, durability=DurabilityPolicy.TRANSIENT_LOCAL)


def to_detection_array(
    detections: Detections | OrientedBoxes,
    header: Header,
    class_names: Sequence[str],
    *,
    class_id_format: str,
    ids: np.ndarray | None = None,
) -> Detection2DArray:
    """
    Say detections as a message; boxes in source-image pixels, best score first, maybe none.

    :param header: the image's own, also given to each detection.
    :param class_id_format: 'name' (the number where there is no name) or 'index'.
    :param ids: (N,) integers from 0; None: no ids.
    """
    # Plain floats: a message field takes no NumPy scalar.
    boxes, scores = bounding_boxes(detections).tolist(), detections.scores.tolist()
    array = Detection2DArray(header=header)
    for (x, y, theta, width, height), score, label in zip(
        boxes, scores, detections.labels.tolist()
    ):
        class_id = name_of(class_names, label) if class_id_format == 'name' else str(label)
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
    for detection, number in zip(array.detections, () if ids is None else ids.tolist()):
        detection.id = str(number)
    return array


def keypoint_boxes(poses: Poses, min_visibility: float) -> tuple[OrientedBoxes, np.ndarray]:
    """
    See keypoints as boxes without size, in source-image pixels; the score is how visible each is.

    :param min_visibility: what is less visible is left out.
    :returns: the boxes, labelled with the keypoint's index, and of each the place of its object.
    """
    places, indices = np.nonzero(poses.keypoints[..., 2] >= min_visibility)
    points = poses.keypoints[places, indices]
    boxes = np.zeros((len(points), 4), np.float32)
    boxes[:, :2] = points[:, :2]
    return OrientedBoxes(
        boxes, np.zeros(len(points), np.float32), points[:, 2], indices.astype(np.int32)
    ), places


def detection_publish(
    node: Node, publisher: Publisher, class_names: Sequence[str]
) -> Callable[..., None]:
    """
    Return what publishes detections: with (found, header, class_id_format, ids=None), which are
    to_detection_array's.

    They are written as bytes, a tenth of the work of rclpy's messages; where that is not what
    rclpy reads (another vision_msgs), they are those messages. For one thread at a time.
    """

    def publish_typed(
        found: Detections | OrientedBoxes,
        header: Header,
        class_id_format: str,
        ids: np.ndarray | None = None,
    ) -> None:
        publisher.publish(
            to_detection_array(
                found, header, class_names, class_id_format=class_id_format, ids=ids
            )
        )

    writer = DetectionWriter(class_names)
    if not _is_read_by_rclpy(writer):
        node.get_logger().warning(
            "Detections are published as rclpy's messages, which is slow. Cause: this "
            'vision_msgs lays them out in another way.'
        )
        return publish_typed
    publish = serialized_publish(node, publisher)

    def write_and_publish(
        found: Detections | OrientedBoxes,
        header: Header,
        class_id_format: str,
        ids: np.ndarray | None = None,
    ) -> None:
        if ids is not None and ids.max(initial=0) > MAX_ID:
            publish_typed(found, header, class_id_format, ids)
            return
        stamp = header.stamp.sec, header.stamp.nanosec
        publish(
            writer.write(found, stamp, header.frame_id, class_id_format=class_id_format, ids=ids)
        )

    return write_and_publish


def _is_read_by_rclpy(writer: DetectionWriter) -> bool:
    found = OrientedBoxes(
        np.arange(8, dtype=np.float32).reshape(2, 4),
        np.array([0.25, -0.5], np.float32),
        np.array([0.75, 0.5], np.float32),
        np.array([10, 2], np.int32),
    )
    header = Header(frame_id='camera')
    header.stamp.sec, header.stamp.nanosec = 1, 2
    written = writer.write(found, (1, 2), header.frame_id, class_id_format='index')
    try:
        read = deserialize_message(written.tobytes(), Detection2DArray)
    except rclpy_implementation.RCLError:
        return False
    return read == to_detection_array(found, header, (), class_id_format='index')


def from_detection_array(
    message: Detection2DArray, class_ids: list[str]
) -> Detections | OrientedBoxes:
    """
    Read a message back; of each detection, what it most likely is.

    :param class_ids: those seen so far, by label; new ones are appended.
    :returns: upright boxes where all are.
    """
    return _gather(_entries(message), class_ids)


def detection_reader(node: Node) -> Callable[[np.ndarray, list[str]], Detections | OrientedBoxes]:
    """Return what reads serialized messages, (N,) uint8, as from_detection_array does others."""
    sample = to_detection_array(
        OrientedBoxes(
            np.arange(8, dtype=np.float32).reshape(2, 4),
            np.array([0.25, -0.5], np.float32),
            np.array([0.75, 0.5], np.float32),
            np.array([0, 1], np.int32),
        ),
        Header(frame_id='camera'),
        ('a', 'bird'),
        class_id_format='name',
    )
    try:
        is_as_expected = _entries(sample) == read_detections(
            np.frombuffer(serialize_message(sample), np.uint8)
        )
    except BadFrameError:
        is_as_expected = False
    if is_as_expected:
        return lambda message, class_ids: _gather(read_detections(message), class_ids)
    node.get_logger().warning(
        "Detections are read as rclpy's messages, which is slow. Cause: this vision_msgs lays "
        'them out in another way.'
    )
    return lambda message, class_ids: from_detection_array(
        deserialize_message(message.tobytes(), Detection2DArray), class_ids
    )


def _entries(message: Detection2DArray) -> list[Entry]:
    entries = []
    for detection in message.detections:
        best = max(
            (result.hypothesis for result in detection.results),
            key=lambda hypothesis: hypothesis.score,
            default=ObjectHypothesis(),
        )
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
            )
        )
    return entries


def _gather(entries: list[Entry], class_ids: list[str]) -> Detections | OrientedBoxes:
    for class_id, _, _ in entries:
        if class_id not in class_ids:
            class_ids.append(class_id)
    labels = np.array([class_ids.index(class_id) for class_id, _, _ in entries], np.int32)
    scores = np.array([score for _, score, _ in entries], np.float32)
    boxes = np.array([box for _, _, box in entries]).reshape(-1, 5)
    angles = boxes[:, 2]
    if angles.any():
        return OrientedBoxes(
            boxes[:, [0, 1, 3, 4]].astype(np.float32), angles.astype(np.float32), scores, labels
        )
    centre, half = boxes[:, :2], boxes[:, 3:] / 2
    return Detections(np.hstack([centre - half, centre + half]).astype(np.float32), scores, labels)


# What is published: the type of a value, and values a pixel.
_PIXELS = {
    'bgr8': (np.dtype('u1'), 3),
    'mono8': (np.dtype('u1'), 1),
    'mono16': (np.dtype('<u2'), 1),
    '32FC1': (np.dtype('<f4'), 1),
}


class ImageSender:
    """
    Publishes pictures that are drawn where they are sent from; for one thread at a time.

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
        Return the picture to be filled, C-contiguous.

        :returns: 'bgr8': (H, W, 3) uint8; 'mono8', 'mono16', '32FC1': (H, W) of that type.
        """
        stamp = header.stamp
        dtype, channels = _PIXELS[encoding]
        self._pixels = None  # Else their memory would still be in use.
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
        """Publish the picture that was begun, as it is now; it cannot be drawn on any more."""
        self._pixels.setflags(write=False)  # Subscribers in this process see this very memory.
        self._publish(self._writer.message)


def to_label_info(header: Header, class_map: Mapping[int, str], threshold: float) -> LabelInfo:
    """Say which class has which name, and the score below which nothing is published."""
    return LabelInfo(
        header=header,
        threshold=threshold,
        class_map=[
            VisionClass(class_id=index, class_name=name) for index, name in class_map.items()
        ],
    )
