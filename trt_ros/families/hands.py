"""Hand landmarks of MediaPipe: 21 keypoints of the one hand that the input shows."""

from typing import Any

from trt_ros.families.family import Family
from trt_ros.families.layout import Out, PointLayout

POINTS = (Out('B 63', 'points:63'), Out('B 63', 'meters:63'))
SCORES = (Out('B 1', 'score:1'), Out('B 1', 'side:1'))
#: A landmark is x, y in input pixels, and z, which is not used. Source: `MPHandPose` of the OpenCV
#: zoo. The regions of the palm detection show the hand.
MEDIAPIPE_HAND: Family[Any] = Family(
    'mediapipe_hand',
    'pose',
    {'resize': 'letterbox', 'pad_value': 0, 'channel_order': 'rgb', 'scale': 1 / 255},
    layouts=tuple(
        PointLayout(
            (*POINTS[:rows], *SCORES[:scores]),
            region_scale=1.0,
            class_names=('left', 'right') if scores > 1 else ('hand',),
        )
        for rows in (1, 2)
        for scores in (1, 2)
    ),
    remedy='Use handpose_estimation_mediapipe of the OpenCV zoo, or choose another decoder.',
    networks='hand landmarks of MediaPipe: 21 keypoints of one hand',
    export='`handpose_estimation_mediapipe_2023feb.onnx` of the OpenCV zoo',
)
