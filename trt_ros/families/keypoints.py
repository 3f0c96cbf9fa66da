"""Keypoints of one object that the input shows, or of up to six: bodies, hands, faces."""

from typing import Any

from trt_ros.families.family import IMAGENET, Family, NetworkDescription, has_sizes, trained
from trt_ros.families.layout import BoxLayout, Coding, Layout, Out, PointLayout

#: Preprocessing of top-down pose networks by MMPose and transformers; regions are padded alike.
TOP_DOWN_PREPROCESS = trained('letterbox', pad_value=0, **IMAGENET)
#: Numbers of keypoints by which heatmaps are recognized: COCO and COCO-WholeBody.
KEYPOINT_COUNTS = (17, 133)


def _is_of_one_object(network: NetworkDescription) -> bool:
    return network.class_count in (None, 0, 1)  # It may be named.


HEATMAP_POSE: Family[Any] = Family(
    'heatmap_pose',
    'pose',
    TOP_DOWN_PREPROCESS,
    layouts=(
        PointLayout(
            (Out('B K h/4 w/4', 'heatmaps:K', ('(?i).*(heatmap|keypoint).*',)),),
            form='heatmaps',
            known={},
            evidence=(_is_of_one_object,),
        ),
        PointLayout(
            (Out('B K h/4 w/4', 'heatmaps:K'),),
            form='heatmaps',
            known={'K': KEYPOINT_COUNTS},
            needs_known=True,
            evidence=(_is_of_one_object, has_sizes),
        ),
        PointLayout((Out('B K H W', 'heatmaps:K'),), form='heatmaps', by_name=True),
    ),
    remedy='Export the heatmaps as the only output, or choose another decoder.',
    networks='ViTPose, HRNet and others: keypoints of one object',
)


#: Source: Li et al., arXiv:2107.03332. There are s bins per input pixel, 2 for RTMPose.
SIMCC: Family[Any] = Family(
    'simcc',
    'pose',
    TOP_DOWN_PREPROCESS,
    layouts=(PointLayout((Out('B K S*w', 'columns:K'), Out('B K S*h', 'rows:K')), form='bins'),),
    networks='RTMPose and others: keypoints of one object',
    export='`tools/deploy.py` of MMDeploy with '
    '`configs/mmpose/pose-detection_simcc_onnxruntime_dynamic.py`',
    near_misses=(
        (
            Layout((Out('B N V', 'box:4 scores:1'), Out('B N K 3', 'keypoints:1'))),
            'Boxes (1, N, 5) with keypoints (1, N, points, 3) are RTMO of MMPose, which is not '
            'decoded: use RTMPose on the regions of a detector.',
        ),
    ),
)


def _layout(*names: str, by_name: bool = False) -> PointLayout:
    return PointLayout(
        (Out('B V', 'points:2*K', names),),
        values=2,
        is_normalized=True,
        region_scale=1.1,
        ignores_others=True,
        by_name=by_name,
    )


#: Landmarks are 0 to 1 of a square of 1.1 times the longer side of the face. Source: PFLD (Guo et
#: al., arXiv:1902.10859), as trained by `PFLD-pytorch`.
PFLD: Family[Any] = Family(
    'pfld',
    'pose',
    trained('stretch', 'bgr'),
    layouts=(_layout('(?i).*(landm|keypoint|kpt|point|joint).*'), _layout(by_name=True)),
    networks='PFLD and others: landmarks of one face from 0 to 1, such as 98, 68 or 106',
    export='`pytorch2onnx.py` of PFLD-pytorch; `outputs` names that of the landmarks',
)


POINTS = (Out('B 63', 'points:63'), Out('B 63', 'meters:63'))
SCORES = (Out('B 1', 'score:1'), Out('B 1', 'side:1'))
#: A landmark is x, y in input pixels, and z, which is not used. Source: `MPHandPose` of the OpenCV
#: zoo. The regions of the palm detection show the hand.
MEDIAPIPE_HAND: Family[Any] = Family(
    'mediapipe_hand',
    'pose',
    trained('letterbox', pad_value=0),
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


#: Source: the model cards of MoveNet: pixels 0 to 255 of a padded image; y before x, 0 to 1 of the
#: input; the 17 keypoints of COCO. Unused rows of people have a low score.
MOVENET: Family[Any] = Family(
    'movenet',
    'pose',
    trained('letterbox', scale=1.0, truncate=True, pad_value=0),
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
