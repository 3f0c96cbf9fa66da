"""YOLOv8-pose, YOLO11-pose, YOLO26-pose: boxes with keypoints."""

from __future__ import annotations

import ast
from collections.abc import Mapping
from dataclasses import dataclass

import numpy as np

from trt_ros.errors import TensorMismatchError
from trt_ros.vision.decoders.family import YOLO_PREPROCESS, Family, NetworkDescription
from trt_ros.vision.decoders.yolo_rows import Rows, rows_of
from trt_ros.vision.letterbox import Letterbox
from trt_ros.vision.nms import choose_boxes
from trt_ros.vision.results import Poses
from trt_ros.vision.scores import check_range
from trt_ros.vision.thresholds import Thresholds


@dataclass(frozen=True)
class PoseHead:
    """
    Reads boxes with K keypoints behind each: x, y in input pixels, how visible (sigmoid already).

    Source: Ultralytics' `Pose` head.

    :param values: how many a keypoint has: 3, or 2 without visibility, which then counts as 1.
    """

    rows: Rows
    values: int = 3

    @property
    def class_count(self) -> int | None:
        return self.rows.class_count

    @property
    def keypoint_count(self) -> int:
        return self.rows.extra_count // self.values

    def __call__(
        self, outputs: Mapping[str, np.ndarray], letterbox: Letterbox, thresholds: Thresholds
    ) -> Poses:
        """
        Turn outputs into boxes with keypoints; the parameters are those of `Head`.

        :raises TensorMismatchError: when the output is missing or of another shape.
        """
        with np.errstate(invalid='ignore', over='ignore'):  # What is not finite is dropped.
            found = self.rows(outputs, thresholds.score)
            best, boxes = choose_boxes(
                self.rows.xyxy(found),
                found.scores,
                found.labels,
                letterbox,
                iou_threshold=None if self.rows.is_finished else thresholds.iou,
                max_detections=thresholds.max_detections,
            )
        count = self.keypoint_count
        keypoints = np.ones((len(best), count, 3), np.float32)
        keypoints[..., : self.values] = found.extras[best].reshape(len(best), count, self.values)
        keypoints[..., :2] = letterbox.points_to_image(keypoints[..., :2])
        keypoints[~np.isfinite(keypoints).all(axis=-1)] = 0  # Not visible.
        check_range(keypoints[..., 2], is_padded=self.rows.is_finished)
        return Poses(boxes, keypoints)


def _extras(network: NetworkDescription) -> tuple[int, int] | None:
    """How many values stand behind each box, and how many a keypoint has."""
    try:
        count, values = ast.literal_eval(network.metadata['kpt_shape'])
        return int(count) * int(values), int(values)
    except (KeyError, ValueError, TypeError, SyntaxError):
        pass
    if len(network.outputs) != 1 or len(network.only_output.shape) != 3:
        return None
    _, first, second = network.only_output.shape
    is_finished = second > 6 and not 0 < first < second
    extras = second - 6 if is_finished else first - 4 - (network.class_count or 1)
    return (extras, 3) if extras > 0 and extras % 3 == 0 else None


def find_head(network: NetworkDescription) -> PoseHead | None:
    extras = _extras(network)
    if extras is None or extras[1] not in (2, 3) or len(network.outputs) != 1:
        return None
    rows = rows_of(network, network.only_output, extras[0])
    return PoseHead(rows, extras[1]) if rows else None


def open_head(network: NetworkDescription) -> PoseHead:
    head = find_head(network)
    if head is None:
        raise TensorMismatchError(
            'Not a network of boxes with keypoints: expected (1, 4 + classes + 3 * keypoints, '
            f'anchors), got {network}.',
            remedy='Export it with Ultralytics, name its classes (`labels`), or choose another '
            'decoder.',
        )
    return head


YOLOV8_POSE = Family('yolov8_pose', 'pose', YOLO_PREPROCESS, open_head)
