"""Hand landmarks of MediaPipe: 21 keypoints of the one hand that the input shows."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

import numpy as np

from trt_ros.errors import TensorMismatchError
from trt_ros.families.family import Family, image_output
from trt_ros.families.heatmap_pose import OnePoseHead, one_pose
from trt_ros.families.layout import Layout, Out
from trt_ros.families.match import Reading
from trt_ros.results.poses import HAND, Poses
from trt_ros.vision.float16 import as_float32
from trt_ros.vision.letterbox import Letterbox
from trt_ros.vision.scores import check_range, finite_or_zero
from trt_ros.vision.thresholds import DEFAULT_THRESHOLDS, Thresholds

VALUES = 3 * len(HAND)
REMEDY = 'Use handpose_estimation_mediapipe of the OpenCV zoo, or choose another decoder.'


@dataclass(frozen=True)
class HandHead(OnePoseHead):
    """
    A decoder of the landmarks of one hand, (1, 63), and the score (1, 1) that there is a hand.

    A landmark is x, y in input pixels, and z, which is not used. The score of the hand is also the
    visibility of its keypoints. Handedness (1, 1) of 0.5 and more is class 1, "right". Source:
    `MPHandPose` of the OpenCV zoo.

    :param handedness_name: '': the network has none, and all hands are of class 0.
    """

    points_name: str
    score_name: str
    handedness_name: str = ''
    points: int | None = len(HAND)

    @property
    def class_count(self) -> int:
        """Number of classes: left and right hands, or hands only."""
        return 2 if self.handedness_name else 1

    @property
    def own_class_names(self) -> tuple[str, ...]:
        """Names of the classes."""
        return ('left', 'right') if self.handedness_name else ('hand',)

    @property
    def region_scale(self) -> float:
        """Factor on the regions: those of the palm detection show the hand."""
        return 1.0

    def __call__(
        self,
        outputs: Mapping[str, np.ndarray],
        letterbox: Letterbox,
        thresholds: Thresholds = DEFAULT_THRESHOLDS,
    ) -> Poses:
        """
        Decode the keypoints of one hand.

        :raises TensorMismatchError: when an output is missing or of another shape.
        """
        points = self._values(outputs, self.points_name, VALUES).reshape(-1, 3)
        score = self._score(outputs, self.score_name)
        is_finite = np.isfinite(points[:, :2]).all(axis=1)
        found = one_pose(
            np.where(is_finite[:, None], points[:, :2], 0),
            np.where(is_finite, score, 0),
            letterbox,
        )
        found.detections.scores[:] = score
        if self.handedness_name:
            found.detections.labels[:] = self._score(outputs, self.handedness_name) >= 0.5
        return found.wanted(thresholds)

    def _score(self, outputs: Mapping[str, np.ndarray], name: str) -> np.float32:
        scores = check_range(self._values(outputs, name, 1))
        return np.float32(finite_or_zero(scores)[0])

    def _values(self, outputs: Mapping[str, np.ndarray], name: str, count: int) -> np.ndarray:
        values = as_float32(image_output(outputs, name, axes=1))
        if len(values) != count:
            raise _mismatch(f'{name} (1, {len(values)})')
        return values


def _mismatch(seen: str) -> TensorMismatchError:
    return TensorMismatchError(
        'Not the hand landmarks of MediaPipe: expected landmarks (1, 63), a score (1, 1), '
        f'handedness (1, 1) and landmarks in meters (1, 63), in this order, got {seen}.',
        remedy=REMEDY,
    )


def _head(reading: Reading) -> HandHead:
    names: dict[str, list[str]] = {}
    for part in reading.parts:
        names.setdefault(part.out.values, []).append(part.spec.name)
    (points, *_), (score, *handedness) = names.values()
    return HandHead(points, score, ''.join(handedness))


#: Source: `MPHandPose._preprocess` of the OpenCV zoo.
MEDIAPIPE_HAND = Family(
    'mediapipe_hand',
    'pose',
    {'resize': 'letterbox', 'pad_value': 0, 'channel_order': 'rgb', 'scale': 1 / 255},
    layouts=tuple(
        Layout((*(Out('B 63', 'landmarks:63'),) * rows, *(Out('B 1', 'score:1'),) * scores))
        for rows in (1, 2)
        for scores in (1, 2)
    ),
    head=_head,
    remedy=REMEDY,
    networks='hand landmarks of MediaPipe: 21 keypoints of one hand',
    export='`handpose_estimation_mediapipe_2023feb.onnx` of the OpenCV zoo',
)
