"""Detections received for an image, and the choice of those to run."""

from dataclasses import dataclass

import numpy as np
from vision_msgs.msg import Detection2D, Detection2DArray

from trt_ros.ros.messages import best_hypothesis
from trt_ros.vision.regions import are_in_image


@dataclass(frozen=True)
class ChosenObjects:
    """
    The detections of an image, and those that are run.

    :param message: all detections, as received.
    :param indices: (N,) indices of those that are run, ascending.
    :param boxes: (N, 5) float64: center x, y, width, height in source pixels, angle in radians.
    :param invalid: number of detections without an area in the image.
    :param surplus: number of other detections that are not run.
    """

    message: Detection2DArray
    indices: np.ndarray
    boxes: np.ndarray
    invalid: int
    surplus: int

    @property
    def detections(self) -> list[Detection2D]:
        """The detections that are run."""
        return [self.message.detections[index] for index in self.indices.tolist()]


def choose_objects(
    message: Detection2DArray, image_wh: tuple[int, int], max_regions: int
) -> ChosenObjects:
    """Choose the best `max_regions` valid detections by score, the first among equals."""
    boxes = np.array([_box(each) for each in message.detections], np.float64).reshape(-1, 5)
    valid = np.flatnonzero(are_in_image(boxes, image_wh))
    scores = np.array(
        [best_hypothesis(message.detections[index]).score for index in valid.tolist()]
    )
    best = np.sort(valid[np.argsort(-scores, kind='stable')[:max_regions]])
    return ChosenObjects(
        message, best, boxes[best], len(boxes) - len(valid), max(len(valid) - max_regions, 0)
    )


def _box(detection: Detection2D) -> tuple[float, ...]:
    box = detection.bbox
    position = box.center.position
    return position.x, position.y, box.size_x, box.size_y, box.center.theta
