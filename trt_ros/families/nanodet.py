"""NanoDet, PP-YOLOE, PP-YOLO and PicoDet: sides as distributions over bins, or decoded boxes."""

from collections.abc import Mapping
from dataclasses import replace
from typing import Any

from trt_ros.families.family import (
    IMAGENET_PREPROCESS,
    STRETCH_PREPROCESS,
    Family,
    has_sizes,
    trained,
)
from trt_ros.families.layout import CORNERS, BoxLayout, Coding, Out, Rows
from trt_ros.families.onnx_nms import SCALE_INPUT, cut_layout

STRIDES = (8, 16, 32)
STRIDES_WITH_64 = (8, 16, 32, 64)
#: Bins per side of the released models: all but some of NanoDet have 8 (`reg_max` 7 or 10).
BIN_COUNTS = (8, 11)
#: Mean and standard deviation of ImageNet, in the order of BGR.
_BGR: Mapping[str, Any] = {'mean': (103.53, 116.28, 123.675), 'std': (57.375, 57.12, 58.395)}
#: Distances are the mean bins of a softmax, in strides. Source: the generalized focal loss (Li et
#: al., arXiv:2006.04388), as decoded by `NanoDetPlusHead` and `GFLHead` of NanoDet and `PicoHead`
#: of PaddleDetection.
_TOGETHER = BoxLayout(
    (Out('B N V', 'scores:C box:4*D'),),
    Rows((STRIDES_WITH_64,), covers=True),
    Coding('sides', clips=True),
    select='each',
    assume={'D': BIN_COUNTS},
)
_APART = replace(
    _TOGETHER,
    outputs=(Out('B N V', 'scores:C', per_level=True), Out('B N V', 'box:4*D', per_level=True)),
)
#: Distances are from the centers of the cells.
CENTERED, CENTERED_APART = (
    replace(layout, coding=replace(layout.coding, place=0.5)) for layout in (_TOGETHER, _APART)
)
REMEDY = (
    'Set `labels` to the names of the classes, which decide the number of bins, or choose another '
    'decoder.'
)
#: Source: `keep_ratio` and `normalize` in the configurations of NanoDet.
NANODET_PLUS: Family[Any] = Family(
    'nanodet_plus',
    'detect',
    trained('stretch', 'bgr', 1.0, **_BGR),
    layouts=(_TOGETHER,),
    output_names=('output',),
    remedy=REMEDY,
    networks='NanoDet-Plus',
    export='`python tools/export_onnx.py --cfg_path mine.yml --model_path best.ckpt` in its '
    'repository',
)
NANODET: Family[Any] = replace(
    NANODET_PLUS,
    name='nanodet',
    preprocess=trained('letterbox', 'bgr', 1.0, pad_value=0, **_BGR),
    layouts=tuple(
        replace(layout, rows=Rows((STRIDES,), covers=True))
        for layout in (CENTERED_APART, CENTERED)
    ),
    networks='NanoDet before version 1',
)


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
