"""RF-DETR for instance segmentation: a fixed number of queries with boxes and masks."""

from dataclasses import replace
from typing import Any

from trt_ros.families.detr import RFDETR, RFDETR_LAYOUTS
from trt_ros.families.family import Family
from trt_ros.families.layout import Out

#: A mask is not limited to its box. Source: `PostProcess` of the package rfdetr.
RFDETR_SEG: Family[Any] = Family(
    'rfdetr_seg',
    'segment',
    RFDETR.preprocess,
    layouts=tuple(
        replace(
            layout,
            outputs=(*layout.outputs, Out('B N h w', 'masks:1', ('masks',))),
            extras='masks',
            ignores_others=False,
        )
        for layout in RFDETR_LAYOUTS
    ),
    networks='RF-DETR for segmentation: objects and their masks',
    export='`RFDETRSegNano(..).export()`',
)
