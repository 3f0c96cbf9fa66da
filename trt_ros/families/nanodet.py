"""NanoDet-Plus, NanoDet and PicoDet: distances to the sides as distributions over bins."""

from collections.abc import Mapping
from dataclasses import replace
from typing import Any

from trt_ros.families.family import Family, trained
from trt_ros.families.layout import BoxLayout, Coding, Out, Rows

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
NANODET: Family[Any] = Family(
    'nanodet',
    'detect',
    trained('letterbox', 'bgr', 1.0, pad_value=0, **_BGR),
    layouts=tuple(
        replace(layout, rows=Rows((STRIDES,), covers=True))
        for layout in (CENTERED_APART, CENTERED)
    ),
    output_names=('output',),
    remedy=REMEDY,
    networks='NanoDet before version 1',
    export='`python tools/export_onnx.py --cfg_path mine.yml --model_path best.ckpt` in its '
    'repository',
)
