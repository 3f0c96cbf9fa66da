"""Detections as typed messages, with which those written by NumPy are compared."""

from std_msgs.msg import Header
from vision_msgs.msg import (
    BoundingBox2D,
    Detection2D,
    Detection2DArray,
    ObjectHypothesis,
    ObjectHypothesisWithPose,
    Point2D,
    Pose2D,
)

from trt_ros.results.boxes import Objects


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
