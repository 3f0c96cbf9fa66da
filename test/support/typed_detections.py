"""Detections as typed messages, with which those written by NumPy are compared."""

from std_msgs.msg import Header
from vision_msgs.msg import Detection2DArray, ObjectHypothesis, ObjectHypothesisWithPose

from support.ros_messages import detection
from trt_ros.results.boxes import Objects


def to_detection_array(
    found: Objects, header: Header, *, class_id_format: str
) -> Detection2DArray:
    """Convert objects, best score first, and classes of a further network to a message."""
    # Python floats: message fields do not accept NumPy scalars.
    boxes, scores = found.rotated_boxes().tolist(), found.scores.tolist()
    class_ids = found.names if class_id_format == 'name' else map(str, found.labels.tolist())
    ids = found.ids_as_text() or [''] * len(boxes)
    regions = found.region_classes(class_id_format) or [[]] * len(boxes)
    array = Detection2DArray(header=header)
    for (*box, theta), score, class_id, identity, classes in zip(
        boxes, scores, class_ids, ids, regions
    ):
        each = detection(*box, theta=theta, score=score, class_id=class_id, id=identity)
        each.header = header
        more = (ObjectHypothesis(class_id=name, score=value) for name, value in classes)
        results = (ObjectHypothesisWithPose(hypothesis=hypothesis) for hypothesis in more)
        each.results = [*each.results, *results]
        array.detections.append(each)
    return array
