"""MoveNet: keypoints of one person, or of up to six with their boxes."""

from typing import Any

from trt_ros.families.family import Family
from trt_ros.families.layout import BoxLayout, Coding, Out, PointLayout

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
