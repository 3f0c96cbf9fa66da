"""Boxes in space of messages."""

from dataclasses import dataclass

import numpy as np
from vision_msgs.msg import Detection3DArray

from trt_ros.ros.class_ids import ClassIds
from trt_ros.ros.messages import best_hypothesis, read_message


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


def read_boxes_in_space(message: np.ndarray, class_ids: ClassIds) -> BoxesInSpace:
    """
    Read a serialized Detection3DArray, (N,) uint8; the result with the highest score counts.

    :param class_ids: gives the labels; new class ids are added.
    :raises BadFrameError: 'bad CDR'.
    """
    array = read_message(message, Detection3DArray)
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
