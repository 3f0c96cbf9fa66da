"""Results and pictures as messages, as other nodes expect them."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
from rclpy.qos import DurabilityPolicy, QoSProfile
from sensor_msgs.msg import Image
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

from trt_ros.vision.detections import Detections
from trt_ros.vision.labels import name_of

#: For what is said once: whoever subscribes later gets it too.
LATCHED = QoSProfile(depth=1, durability=DurabilityPolicy.TRANSIENT_LOCAL)


def to_detection_array(
        detections: Detections, header: Header, class_names: Sequence[str], *,
        class_id_format: str) -> Detection2DArray:
    """
    Say detections as a message; boxes in source-image pixels, best score first, maybe none.

    :param header: the image's own, also given to each detection.
    :param class_id_format: 'name' (the number where there is no name) or 'index'.
    """
    # Plain floats: a message field takes no NumPy scalar.
    boxes, scores = detections.xyxy.astype(float).tolist(), detections.scores.tolist()
    array = Detection2DArray(header=header)
    for (left, top, right, bottom), score, label in zip(
            boxes, scores, detections.labels.tolist()):
        class_id = name_of(class_names, label) if class_id_format == 'name' else str(label)
        centre = Point2D(x=(left + right) / 2, y=(top + bottom) / 2)
        array.detections.append(Detection2D(
            header=header,
            results=[ObjectHypothesisWithPose(
                hypothesis=ObjectHypothesis(class_id=class_id, score=score))],
            bbox=BoundingBox2D(
                center=Pose2D(position=centre), size_x=right - left, size_y=bottom - top)))
    return array


def from_detection_array(
        message: Detection2DArray, class_ids: list[str]) -> Detections:
    """
    Read a message back; of each detection, what it most likely is.

    :param class_ids: those seen so far, by label; new ones are appended.
    """
    labels, scores, boxes = [], [], []
    for detection in message.detections:
        best = max((result.hypothesis for result in detection.results),
                   key=lambda hypothesis: hypothesis.score, default=ObjectHypothesis())
        if best.class_id not in class_ids:
            class_ids.append(best.class_id)
        labels.append(class_ids.index(best.class_id))
        scores.append(best.score)
        centre, half_width, half_height = (
            detection.bbox.center.position, detection.bbox.size_x / 2, detection.bbox.size_y / 2)
        boxes.append((centre.x - half_width, centre.y - half_height,
                      centre.x + half_width, centre.y + half_height))
    return Detections(
        np.array(boxes, np.float32).reshape(-1, 4), np.array(scores, np.float32),
        np.array(labels, np.int32))


def to_image(pixels_bgr: np.ndarray, header: Header) -> Image:
    """
    Say pixels as a message, which borrows them until it is published.

    :param pixels_bgr: (H, W, 3) uint8, C-contiguous.
    """
    height, width = pixels_bgr.shape[:2]
    image = Image(header=header, height=height, width=width, step=3 * width, encoding='bgr8')
    # Into the slot: the property copies (and iterates over an array that is not array.array).
    image._data = pixels_bgr.reshape(-1)
    return image


def to_label_info(header: Header, class_names: Sequence[str], threshold: float) -> LabelInfo:
    """Say which class has which name, and the score below which nothing is published."""
    return LabelInfo(
        header=header, threshold=threshold, class_map=[
            VisionClass(class_id=index, class_name=name)
            for index, name in enumerate(class_names)])
