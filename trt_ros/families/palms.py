"""MoveNet, and palm detection of MediaPipe: keypoints of several objects."""

from typing import Any

import numpy as np

from trt_ros.families.family import Family
from trt_ros.families.layout import BoxLayout, Coding, Out, PointLayout, Rows
from trt_ros.results.boxes import OrientedBoxes
from trt_ros.results.poses import Poses

#: Source: the model cards of MoveNet: pixels 0 to 255 of a padded image; y before x, 0 to 1 of the
#: input; the 17 keypoints of COCO. Unused rows of people have a low score.
MOVENET: Family[Any] = Family(
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
        PointLayout(
            (Out('B 1 17 3', 'points:51'),),
            is_normalized=True,
            is_y_first=True,
            ignores_names=True,
        ),
        BoxLayout(
            (Out('B 6 V', 'extras:3*K box:4 scores:1'),),
            coding=Coding('corners', is_normalized=True, is_y_first=True, has_points=True),
            uses_nms=False,
            extras='keypoints',
            ignores_names=True,
            known={'K': (17,)},
            needs_known=True,
        ),
    ),
    remedy='Convert the saved model with its own output, or choose another decoder.',
    networks='MoveNet of one person, and of up to six',
    export='`python -m tf2onnx.convert --saved-model mine --output movenet.onnx` of the models of '
    'TensorFlow Hub',
)


LANDMARKS = 7
VALUES = 4 + 2 * LANDMARKS
#: Landmarks at the wrist and at the base of the middle finger.
WRIST, MIDDLE_FINGER = 0, 2
#: Of the square around a hand: shift towards the fingers, in heights of the palm, and its side.
HAND_SHIFT, HAND_SCALE = 0.4, 3.0


def hand_regions(palms: Poses) -> OrientedBoxes:
    """
    Compute the squares around hands that MediaPipe's network of hand landmarks is trained with.

    Their y axis leads from the middle finger to the wrist. The box around the landmarks in that
    direction is shifted towards the fingers, and three times its longer side is the side of the
    square. Source: `MPHandPose` of the OpenCV zoo.

    :param palms: with the landmarks of MediaPipe, in image pixels; N may be 0.
    """
    points = palms.keypoints[..., :2]
    ahead = points[:, MIDDLE_FINGER] - points[:, WRIST]
    theta = np.arctan2(ahead[:, 0], -ahead[:, 1])
    cos, sin = np.cos(theta), np.sin(theta)
    turn = np.stack([np.stack([cos, sin], 1), np.stack([-sin, cos], 1)], 1)  # To the palm's axes.
    turned = points @ turn.transpose(0, 2, 1)
    low, high = turned.min(axis=1), turned.max(axis=1)
    center = (low + high) / 2
    center[:, 1] -= HAND_SHIFT * (high - low)[:, 1]
    side = HAND_SCALE * (high - low).max(axis=1)
    found = palms.detections
    boxes = np.hstack([(center[:, None] @ turn)[:, 0], side[:, None], side[:, None]])
    return OrientedBoxes(boxes, theta, found.scores, found.labels)


#: Source: `MPPalmDet` of the OpenCV zoo.
MEDIAPIPE_PALM: Family[Any] = Family(
    'mediapipe_palm',
    'pose',
    {
        'resize': 'letterbox',
        'truncate': True,
        'pad_value': 0,
        'channel_order': 'rgb',
        'scale': 1 / 255,
    },
    layouts=(
        BoxLayout(
            (Out('B N V', f'box:4 extras:{2 * LANDMARKS}'), Out('B N V', 'scores:1')),
            Rows(((8, 16),), (2, 6), covers=True),
            Coding('offsets', place=0.5, unit='pixel', size='linear', has_points=True),
            activation='sigmoid',
            extras='keypoints',
            regions=hand_regions,
        ),
    ),
    exporter='none',
    networks='palm detection of MediaPipe',
    export='`palm_detection_mediapipe_2023feb.onnx` of the OpenCV zoo',
)
