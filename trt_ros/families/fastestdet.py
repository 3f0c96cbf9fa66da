"""FastestDet: one grid without anchors, for CPUs and small GPUs."""

from typing import Any

from trt_ros.families.family import STRETCH_PREPROCESS, Family
from trt_ros.families.layout import BoxLayout, Coding, Out, Rows
from trt_ros.families.match import COCO_CLASSES

#: The score is objectness^0.6 * class^0.4; both are probabilities. Source: `handle_preds` of
#: FastestDet.
FASTESTDET: Family[Any] = Family(
    'fastestdet',
    'detect',
    {**STRETCH_PREPROCESS, 'channel_order': 'bgr'},
    layouts=(
        BoxLayout(
            (Out('B V H W', 'objectness:1 box:4 scores:C'),),
            Rows(((16,),), is_required=True),
            Coding('offsets', size='tanh'),
            power=0.6,
            class_power=2 / 3,
            known={'C': (COCO_CLASSES,)},
            needs_known=True,
        ),
    ),
    exporter='none',
    networks='FastestDet',
    export='`python test.py --onnx` in its repository',
)
