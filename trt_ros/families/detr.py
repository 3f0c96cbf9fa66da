"""DETR, RT-DETR, RT-DETRv2, D-FINE, RF-DETR: a fixed number of queries, without NMS."""

from dataclasses import replace
from typing import Any, Literal

from trt_ros.families.family import (
    IMAGENET_PREPROCESS,
    STRETCH_PREPROCESS,
    Family,
    NetworkDescription,
)
from trt_ros.families.layout import CORNERS, BoxLayout, Coding, Out
from trt_ros.families.yolo import YOLO, is_rtdetr

SIZES_INPUT = 'orig_target_sizes'


def ultralytics_rows(network: NetworkDescription) -> Literal['', 'scores', 'decoded']:
    """
    Return the layout of an RT-DETR exported by Ultralytics; '' for other networks.

    It has one row per query: cx, cy, w, h, 0 to 1 of the input, then C scores ('scores') or, since
    version 8.4, the score and the class ('decoded').
    """
    if network.metadata.get('task') != 'detect' or len(network.outputs) != 1:
        return ''
    spec, classes = network.only_output, network.class_count
    if len(spec.shape) != 3 or network.metadata.get('end2end') == 'True':
        return ''
    if is_rtdetr(network):
        is_decoded = spec.shape[2] == 6 and ('head' in network.metadata or classes != 2)
        return 'decoded' if is_decoded else 'scores'
    # Other networks of Ultralytics have one box per column, or decoded boxes.
    if (
        classes is not None
        and spec.shape[2] == 4 + classes
        and YOLO.strides_of(network.input_hw, spec.shape[1]) is None
    ):
        return 'scores'
    return ''


REMEDY = 'Export logits (1, queries, classes) and pred_boxes (1, queries, 4) under these names.'
LOGITS, BOXES = ('.*logits',), ('.*boxes',)
#: The Q best of the Q * C scores are used, so one query may be detected as two classes. Source:
#: `RTDETRPostProcessor` of RT-DETR; `post_process_object_detection` of transformers'
#: RTDetrImageProcessor and DetrImageProcessor.
_SIGMOID = BoxLayout(
    (Out('B N V', 'scores:C', LOGITS), Out('B N V', 'box:4', BOXES)),
    coding=Coding('centers', is_normalized=True),
    activation='sigmoid',
    select='each',
    uses_nms=False,
    is_limited=True,
    counts_background=True,
    ignores_others=True,
    known={'C': (80,)},
)
#: Exported by Ultralytics: one output, with scores.
_ROWS = replace(
    _SIGMOID, outputs=(Out('B N V', 'box:4 scores:C'),), activation='none', ignores_others=False
)


def _has_decoded_rows(network: NetworkDescription) -> str | bool:
    return ultralytics_rows(network) == 'decoded' and 'RT-DETR in the metadata'


def _has_rows(network: NetworkDescription) -> str | bool:
    if ultralytics_rows(network) != 'scores':
        return False
    return not is_rtdetr(network) or 'RT-DETR in the metadata'


DETR: Family[Any] = Family(
    'detr',
    'detect',
    IMAGENET_PREPROCESS,
    exporter='any',
    layouts=(
        replace(
            _SIGMOID,
            outputs=(Out('B N V', 'scores:C none:1', LOGITS), _SIGMOID.outputs[1]),
            activation='softmax',
            select='best',
            known={'C': (91,)},
        ),
    ),
    remedy=REMEDY,
    networks='DETR, YOLOS, Table Transformer',
    export='`optimum-cli export onnx --model facebook/detr-resnet-50 out`',
)
RTDETR: Family[Any] = Family(
    'rtdetr',
    'detect',
    STRETCH_PREPROCESS,
    constants={SIZES_INPUT: 'wh'},
    exporter='any',
    layouts=(
        _SIGMOID,
        BoxLayout(
            (Out('B N', 'label:1', is_float=None), Out('B N V', 'box:4'), Out('B N', 'scores:1')),
            coding=CORNERS,
            uses_nms=False,
            input=SIZES_INPUT,
        ),
        replace(
            _ROWS,
            outputs=(Out('B N V', 'box:4 scores:1 label:1'),),
            is_limited=False,
            counts_background=False,
            guards=(_has_decoded_rows,),
        ),
        replace(_ROWS, evidence=(_has_rows,)),
    ),
    output_names=('output0',),
    remedy=REMEDY,
    networks='RT-DETR, RT-DETRv2, D-FINE',
    export='`export_onnx.py -c config.yml -r best.pth` under `tools` in their repositories; `yolo '
    'export` for that of Ultralytics',
)
#: Trained on C classes it has C + 1 logits; the 91 logits of COCO are all classes, with gaps. Only
#: the number of named classes tells them apart. Source: `decode_detections` of the package rfdetr.
RFDETR_LAYOUTS = tuple(
    replace(
        _SIGMOID,
        outputs=(Out('B N V', scores, names), Out('B N V', 'box:4', boxes)),
        needs_names='none' in scores,
        by_name=names == LOGITS,
    )
    for scores in ('scores:C none:1', 'scores:C')
    for names, boxes in ((('labels',), ('dets',)), (LOGITS, BOXES))
)
RFDETR: Family[Any] = Family(
    'rfdetr',
    'detect',
    IMAGENET_PREPROCESS,
    exporter='any',
    layouts=RFDETR_LAYOUTS,
    remedy=REMEDY,
    networks='RF-DETR; by name also Deformable, Conditional and LW-DETR',
    export='`RFDETRMedium(..).export()`',
)


#: A mask is not limited to its box. Source: `PostProcess` of the package rfdetr.
RFDETR_SEG: Family[Any] = Family(
    'rfdetr_seg',
    'segment',
    RFDETR.preprocess,
    exporter='any',
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
