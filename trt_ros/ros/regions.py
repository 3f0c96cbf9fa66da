"""Detections received for an image, and the choice of those to run."""

from dataclasses import dataclass

import numpy as np
from vision_msgs.msg import Detection2D, Detection2DArray

from trt_ros.ros.messages import best_hypothesis
from trt_ros.vision.regions import MAX_PIXELS


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
    """
    Choose the detections to run: the best `max_regions` by score, the first among equals.

    Boxes that are not finite, beyond MAX_PIXELS, without an area, or completely outside the
    image are invalid.
    """
    boxes = np.array([_box(each) for each in message.detections], np.float64).reshape(-1, 5)
    with np.errstate(invalid='ignore', over='ignore'):
        is_valid = (np.abs(boxes) <= MAX_PIXELS).all(axis=1) & (boxes[:, 2:4] > 0).all(axis=1)
        is_valid &= _overlaps(boxes, np.array(image_wh))
    valid = np.flatnonzero(is_valid)
    scores = np.array(
        [best_hypothesis(message.detections[index]).score for index in valid.tolist()]
    )
    best = np.sort(valid[np.argsort(-scores, kind='stable')[:max_regions]])
    return ChosenObjects(
        message, best, boxes[best], len(boxes) - len(valid), max(len(valid) - max_regions, 0)
    )


def _overlaps(boxes: np.ndarray, image_wh: np.ndarray) -> np.ndarray:
    """
    Return whether (N, 5) boxes have an area in common with the image, (N,) bool.

    Two rectangles have none if a side of one of them separates them.
    """
    cos, sin = np.cos(boxes[:, 4]), np.sin(boxes[:, 4])
    turn = np.stack([np.stack([cos, -sin], -1), np.stack([sin, cos], -1)], 1)
    half_box, half_image = boxes[:, 2:4, None] / 2, image_wh[:, None] / 2
    offset = half_image - boxes[:, :2, None]
    in_image_axes = np.abs(offset) < half_image + np.abs(turn) @ half_box
    turn = turn.swapaxes(1, 2)
    in_box_axes = np.abs(turn @ offset) < half_box + np.abs(turn) @ half_image
    overlaps: np.ndarray = (in_image_axes & in_box_axes).all(axis=(1, 2))
    return overlaps


def _box(detection: Detection2D) -> tuple[float, ...]:
    box = detection.bbox
    position = box.center.position
    return position.x, position.y, box.size_x, box.size_y, box.center.theta
