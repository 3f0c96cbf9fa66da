"""MoveNet: keypoints of one person, or of up to six with their boxes."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

import numpy as np

from trt_ros.errors import TensorMismatchError
from trt_ros.families.family import (
    Family,
    Head,
    image_output,
)
from trt_ros.families.heatmap_pose import OnePoseHead, one_pose
from trt_ros.families.layout import Layout, Out
from trt_ros.families.match import Reading
from trt_ros.results.poses import Poses
from trt_ros.vision.float16 import as_float32
from trt_ros.vision.letterbox import Letterbox
from trt_ros.vision.nms import choose_boxes
from trt_ros.vision.scores import check_range, finite_or_zero, passing
from trt_ros.vision.thresholds import DEFAULT_THRESHOLDS, Thresholds

KEYPOINTS = 17  # Of COCO, in its order.
VALUES = 3 * KEYPOINTS + 5
REMEDY = 'Convert the saved model with its own output, or choose another decoder.'


@dataclass(frozen=True)
class MoveNetHead(OnePoseHead):
    """
    A decoder of the keypoints of one person: (1, 1, 17, 3), each y, x, 0 to 1 of the input, score.

    The person has the whole input as its box, and the mean score of the keypoints as its score.
    Source: the model card of MoveNet.SinglePose.
    """

    output_name: str
    points: int | None = KEYPOINTS
    class_count: None = None

    def __call__(
        self,
        outputs: Mapping[str, np.ndarray],
        letterbox: Letterbox,
        thresholds: Thresholds = DEFAULT_THRESHOLDS,
    ) -> Poses:
        """
        Decode the keypoints of one person.

        :raises TensorMismatchError: when the output is missing or of another shape.
        """
        people = as_float32(image_output(outputs, self.output_name, axes=3))
        if people.shape != (1, KEYPOINTS, 3):
            raise _mismatch(f'(1, {", ".join(map(str, people.shape))})')
        points = finite_or_zero(people[0])
        # Coordinates beyond any image would overflow.
        places = np.clip(points[:, 1::-1], -1000, 1000)
        input_xy = places * np.array(letterbox.input_hw[::-1], np.float32)
        found = one_pose(input_xy, check_range(points[:, 2]), letterbox)
        return found.wanted(thresholds)


@dataclass(frozen=True)
class MoveNetPeopleHead(Head[Poses]):
    """
    A decoder of people: (1, 6, 56), each 17 keypoints, y1, x1, y2, x2 of the box, and its score.

    A keypoint is y, x and score; coordinates are 0 to 1 of the input. Unused rows have a low
    score. Source: the model card of MoveNet.MultiPose.
    """

    output_name: str
    class_count: int = 1

    @property
    def keypoint_count(self) -> int:
        """Number of keypoints per person."""
        return KEYPOINTS

    def __call__(
        self, outputs: Mapping[str, np.ndarray], letterbox: Letterbox, thresholds: Thresholds
    ) -> Poses:
        """
        Decode the output into people with keypoints; see `Head`.

        :raises TensorMismatchError: when the output is missing or of another shape.
        """
        people = as_float32(image_output(outputs, self.output_name))
        if people.shape[1] != VALUES:
            raise _mismatch(f'(1, {people.shape[0]}, {people.shape[1]})')
        input_wh = np.array(letterbox.input_hw[::-1], np.float32)
        with np.errstate(invalid='ignore', over='ignore'):  # Drops non-finite values.
            found = people[passing(people[:, -1], thresholds.score)]
            best, boxes = choose_boxes(
                found[:, [-4, -5, -2, -3]] * np.tile(input_wh, 2),
                found[:, -1],
                np.zeros(len(found), np.int32),
                letterbox,
                thresholds,
                uses_nms=False,
            )
            keypoints = found[best, :-5].reshape(-1, KEYPOINTS, 3)[..., [1, 0, 2]]
            keypoints[..., :2] = letterbox.points_to_image(keypoints[..., :2] * input_wh)
        keypoints[~np.isfinite(keypoints).all(axis=-1)] = 0  # Not visible.
        keypoints[..., 2] = check_range(keypoints[..., 2])
        return Poses(boxes, keypoints)


def _mismatch(seen: str) -> TensorMismatchError:
    return TensorMismatchError(
        f'Not a MoveNet: expected (1, 1, 17, 3) or (1, 6, 56), got {seen}.',
        remedy=REMEDY,
    )


def _head(reading: Reading) -> MoveNetHead | MoveNetPeopleHead:
    (part,) = reading.parts
    if 'people' in part.out.fields:
        return MoveNetPeopleHead(part.spec.name)
    return MoveNetHead(part.spec.name)


#: Source: the model cards of MoveNet: pixels 0 to 255 of a padded image.
MOVENET = Family(
    'movenet',
    'pose',
    {
        'resize': 'letterbox',
        'truncate': True,
        'pad_value': 0,
        'channel_order': 'rgb',
        'scale': 1.0,
    },
    layouts=(
        Layout((Out('B 1 17 3', 'keypoints:1'),), ignores_names=True),
        Layout((Out('B 6 56', 'people:6'),), ignores_names=True),
    ),
    head=_head,
    remedy=REMEDY,
    networks='MoveNet of one person, and of up to six',
    export='`python -m tf2onnx.convert --saved-model mine --output movenet.onnx` of the models of '
    'TensorFlow Hub',
)
