"""Detections out: vision_msgs as other nodes expect them."""

from __future__ import annotations

from collections.abc import Sequence

from rclpy.qos import DurabilityPolicy, QoSProfile
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


def to_label_info(header: Header, class_names: Sequence[str], threshold: float) -> LabelInfo:
    """Say which class has which name, and the score below which nothing is published."""
    return LabelInfo(
        header=header, threshold=threshold, class_map=[
            VisionClass(class_id=index, class_name=name)
            for index, name in enumerate(class_names)])
