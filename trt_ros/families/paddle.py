"""PP-YOLOE, PP-YOLO, PicoDet and other detectors of PaddleDetection, with decoded boxes."""

from dataclasses import replace
from typing import Any

from trt_ros.families.family import IMAGENET_PREPROCESS, STRETCH_PREPROCESS, Family, has_sizes
from trt_ros.families.layout import CORNERS, BoxLayout, Out, Rows
from trt_ros.families.nanodet import CENTERED_APART, STRIDES_WITH_64
from trt_ros.families.onnx_nms import SCALE_INPUT, cut_layout

#: An image that was not resized, so that boxes are in input pixels, which PP-YOLO limits to it.
_CONSTANTS = {SCALE_INPUT: (1.0, 1.0), 'im_shape': 'hw'}


_BEFORE_NMS = BoxLayout(
    (Out('B N V', 'box:4'), Out('B V N', 'scores:C')),
    Rows((STRIDES_WITH_64,), covers=True),
    CORNERS,
    select='each',
)
#: Rows of class -1 are unused; the boxes of all images are one list. Source: `MultiClassNMS` of
#: PaddleDetection, which all of its detectors end in.
_FINISHED = BoxLayout(
    (Out('N V', 'label:1 scores:1 box:4'),), coding=CORNERS, uses_nms=False, ignores_others=True
)
#: Source: `TestReader` in the configurations of PaddleDetection.
PPYOLOE: Family[Any]
PPYOLOE_PLUS: Family[Any]
PPYOLOE, PPYOLOE_PLUS = (
    Family(
        name,
        'detect',
        preprocess,
        constants=_CONSTANTS,
        layouts=(
            replace(_BEFORE_NMS, rows=Rows(), known={}, input=SCALE_INPUT),
            replace(_FINISHED, input=SCALE_INPUT),
            cut_layout(input=SCALE_INPUT),
        ),
        networks=networks,
        export='`tools/export_model.py -c mine.yml -o weights=mine`, then `paddle2onnx`, as its '
        '`EXPORT_ONNX_MODEL_en.md`',
    )
    for name, networks, preprocess in (
        ('ppyoloe', 'PP-YOLOE, PP-YOLO and PicoDet of PaddleDetection', IMAGENET_PREPROCESS),
        ('ppyoloe_plus', 'PP-YOLOE+ and RT-DETR of PaddleDetection', STRETCH_PREPROCESS),
    )
)
PICODET: Family[Any] = Family(
    'picodet',
    'detect',
    IMAGENET_PREPROCESS,
    constants=_CONSTANTS,
    layouts=(
        CENTERED_APART,
        replace(_BEFORE_NMS, evidence=(has_sizes,)),
        replace(_FINISHED, by_name=True),
        cut_layout(by_name=True),
    ),
    networks='PicoDet of PaddleDetection without NMS',
    export='`tools/export_model.py -c mine.yml -o export.nms=False weights=mine`, then '
    '`paddle2onnx`',
)
