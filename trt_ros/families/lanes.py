"""Base class of the decoders of lanes, whose points are keypoints."""

from abc import abstractmethod

import numpy as np

from trt_ros.families.family import Head
from trt_ros.results.boxes import Detections
from trt_ros.results.poses import Poses
from trt_ros.tensors import Arrays
from trt_ros.vision.letterbox import Letterbox
from trt_ros.vision.scores import check_range, passing
from trt_ros.vision.thresholds import DEFAULT_THRESHOLDS, Thresholds

UNKNOWN_ROWS = (
    'Run the node `tensor`, which publishes its undecoded outputs: the rows of other networks are '
    'not in their files.'
)


class LaneHead(Head[Poses]):
    """
    Base class of the decoders of lanes.

    The score of a lane is the mean visibility of its visible points, its class is its place among
    the lanes, from left to right, unless there is only one, and its box surrounds its visible
    points.
    """

    @abstractmethod
    def lanes(self, outputs: Arrays, input_hw: tuple[int, int]) -> tuple[np.ndarray, np.ndarray]:
        """
        Return the points of all lanes.

        :returns: (L, K, 3) float32, x, y in input pixels and visibility, and (L,) the least number
            of visible points of a lane, at least 1.
        :raises TensorMismatchError: when an output is missing or of another shape.
        """

    def __call__(
        self, outputs: Arrays, letterbox: Letterbox, thresholds: Thresholds = DEFAULT_THRESHOLDS
    ) -> Poses:
        """Decode the lanes, best score first; `thresholds.iou` has no effect."""
        keypoints, least = self.lanes(outputs, letterbox.input_hw)
        keypoints[..., :2] = letterbox.points_to_image(keypoints[..., :2])
        keypoints[~np.isfinite(keypoints).all(axis=-1)] = 0  # Not visible.
        labels = np.arange(len(keypoints), dtype=np.int32) * (self.class_count != 1)
        visible = keypoints[..., 2] > 0
        counts = visible.sum(axis=1)
        scores = keypoints[..., 2].sum(axis=1) / np.maximum(counts, 1).astype(np.float32)
        passes = (counts >= least) & passing(scores, thresholds.score)
        if thresholds.chooses_classes:
            passes &= scores >= thresholds.min_scores(labels)
        found = np.flatnonzero(passes)
        best = found[np.argsort(-scores[found], kind='stable')][: thresholds.max_detections]
        points = [keypoints[lane, visible[lane], :2] for lane in best]
        boxes = [np.concatenate([each.min(axis=0), each.max(axis=0)]) for each in points]
        limits = np.array(letterbox.image_wh * 2, np.float32)
        xyxy = np.clip(np.reshape(np.array(boxes, np.float32), (-1, 4)), 0, limits)
        return Poses(Detections(xyxy, check_range(scores[best]), labels[best]), keypoints[best])
