"""Detectors of separate tensors: boxes, scores and labels, also after NMS; heatmaps of centers."""

from dataclasses import replace
from typing import Any

from trt_ros.families.family import (
    BGR_OF_COCO,
    IMAGENET,
    STRETCH_PREPROCESS,
    YOLO_PREPROCESS,
    Family,
    NetworkDescription,
    is_float,
    trained,
)
from trt_ros.families.layout import CORNERS, BoxLayout, Coding, Out, Rows
from trt_ros.families.onnx_nms import cut_layout
from trt_ros.families.yolo import is_on_no_grid

REMEDY = 'Export without further outputs, or choose another decoder.'


def finished(
    *further: Out, coding: Coding = CORNERS, batch: str = 'B ', **fields: Any
) -> BoxLayout:
    """Return the layout of boxes, a score each, and others."""
    outs = (Out(batch + 'N V', 'box:4'), Out(batch + 'N', 'scores:1'), *further)
    return BoxLayout(outs, coding=coding, select='each', **fields)


def labels(batch: str = 'B ') -> Out:
    """Return the output of a class per box."""
    return Out(batch + 'N', 'label:1', is_float=None)


def is_plain(network: NetworkDescription) -> bool:
    """Return whether no name, and no input, is evidence for another family."""
    inputs = {spec.name for spec in network.inputs}
    names = [spec.name for spec in network.outputs if is_float(spec) and len(spec.shape) == 3]
    return not inputs & {'orig_target_sizes', 'scale_factor'} and not any(
        word in name for name in names for word in ('logits', 'label')
    )


#: Parts of the names that exporters give boxes and scores.
BOX_WORDS = ('box', 'det', 'score', 'conf')
COUNT = Out('1', 'count:1', is_float=False)


def _variants(coding: Coding, rows: Rows) -> tuple[BoxLayout, ...]:
    """Return the layouts with and without a batch axis, classes, labels and a count."""
    found = []
    for batch in ('B ', ''):
        for count in ((), (COUNT,)) if batch else ((),):
            is_chosen = not count and (batch or not coding.is_normalized)
            fields: Any = {
                'coding': coding,
                'counts_background': True,
                'any_rows': True,
                'evidence': (is_plain,),
                'by_name': not is_chosen,
            }
            outs = (Out(batch + 'N V', 'box:4'), Out(batch + 'N V', 'scores:C'), *count)
            found += [
                finished(labels(batch), *count, batch=batch, uses_nms=False, **fields),
                BoxLayout(outs, rows, select='each', **fields),
                finished(*count, batch=batch, **fields),
            ]
    return tuple(found)


BOXES: Family[Any] = Family(
    'boxes',
    'detect',
    STRETCH_PREPROCESS,
    exporter='any',
    layouts=_variants(CORNERS, Rows(((8, 16, 32),))),
    remedy=REMEDY,
    words=BOX_WORDS,
    networks='x1, y1, x2, y2 in input pixels, and scores: torchvision, YOLO-NAS',
    export='`torch.onnx.export`',
)
BOXES_NORMALIZED: Family[Any] = replace(
    BOXES,
    name='boxes_normalised',
    layouts=_variants(Coding('corners', is_normalized=True), Rows()),
    networks='x1, y1, x2, y2 in 0 to 1 of the input, and scores',
)


STRIDE = 4


#: The heatmap is logits, as the repository's network returns them, where any value is below 0,
#: else probabilities: the logit of a cell without an object is far below 0. Source: `ctdet_decode`
#: of CenterNet (Zhou et al., arXiv:1904.07850); `COCO` and `BaseDetector.pre_process` (BGR).
CENTERNET: Family[Any] = Family(
    'centernet',
    'detect',
    trained('letterbox', 'bgr', pad_value=0, **BGR_OF_COCO),
    layouts=tuple(
        BoxLayout(
            (Out('B V H W', 'scores:C'), Out('B V H W', 'sizes:2'), *offsets),
            Rows(((STRIDE,),), is_required=True),
            Coding('offsets', place=0.0 if offsets else 0.5, size='linear'),
            activation='maybe_sigmoid',
            select='each',
            is_peak=True,
            uses_nms=False,
            known={},
        )
        for offsets in ((Out('B V H W', 'box:2'),), ())
    ),
    words=('hm', 'heat'),
    networks='CenterNet',
    export='`torch.onnx.export` of its network with the outputs `hm`, `wh` and `reg`, as in its '
    '`Detector`',
)


BOX_NORM = 35.0  # Divisor of the boxes in TAO; fixed in all its specifications.
OFFSET = 0.5  # From a cell's corner, in pixels: not half a cell.


#: One box per class. Source: the box parser in DeepStream's nvdsinfer_customparser. TAO clusters
#: with DBSCAN or NMS; this decoder uses NMS.
DETECTNET_V2: Family[Any] = Family(
    'detectnet_v2',
    'detect',
    STRETCH_PREPROCESS,
    layouts=(
        BoxLayout(
            (Out('B V H W', 'scores:C'), Out('B V H W', 'box:4*C')),
            Rows(((16,),), covers=True),
            Coding('sides', pixel=OFFSET, unit='pixel', gain=BOX_NORM),
            select='each',
            known={},
        ),
    ),
    networks='PeopleNet, TrafficCamNet, DashCamNet, your own of TAO',
    export='`tao model detectnet_v2 export`',
)


#: Source: pytorch-ssd's `Predictor`, whose ONNX export jetson-inference runs: NMS per class.
SSD: Family[Any] = Family(
    'ssd',
    'detect',
    trained('stretch', scale=1.0, mean=(127.0,) * 3, std=(128.0,) * 3),
    exporter='any',
    layouts=(
        BoxLayout(
            (Out('B N V', 'box:4'), Out('B N V', 'background:1 scores:C')),
            # With MobileNet (Caffe and PyTorch, TensorFlow), with VGG, and SSD512 with VGG.
            Rows(counts=(3000, 1917, 8732, 24564)),
            Coding('corners', is_normalized=True),
            select='each',
            any_rows=True,
            evidence=(is_plain, is_on_no_grid),
        ),
    ),
    remedy='Set `decoder` to `boxes` or `boxes_normalised`.',
    words=BOX_WORDS,
    networks='SSD as trained by jetson-inference',
    export='`python onnx_export.py --model-dir=models/mine`',
)


#: Unused rows have a score of 0 or less, or the class -1. Source: MMDeploy, whose exports of
#: MMDetection end in NMS.
MMDETECTION: Family[Any] = Family(
    'mmdetection',
    'detect',
    trained('letterbox_topleft', truncate=False, pad_value=114, **IMAGENET),
    exporter='any',
    layouts=(
        BoxLayout(
            (Out('B N V', 'box:4 scores:1'), Out('B N', 'label:1', is_float=False)),
            coding=CORNERS,
            uses_nms=False,
        ),
    ),
    networks='MMDetection exported by MMDeploy: RTMDet, Faster R-CNN and others',
    export='`tools/deploy.py` of MMDeploy with '
    '`configs/mmdet/detection/detection_onnxruntime_static.py`',
)
#: TensorFlow's class 0 is the background. Source: the object detection API, `postprocess` and its
#: documented outputs.
TENSORFLOW: Family[Any] = Family(
    'tensorflow',
    'detect',
    trained('stretch', scale=1.0),
    exporter='any',
    layouts=tuple(
        BoxLayout(
            (
                Out('B N V', 'box:4', ('detection_boxes',)),
                Out('B N', 'scores:1', ('detection_scores',)),
                Out('B N', 'label:1', ('detection_classes',), is_float=None),
                *count,
            ),
            coding=Coding('corners', is_normalized=True, is_y_first=True),
            label_offset=1,
            uses_nms=False,
            ignores_others=True,
        )
        for count in ((Out('1', 'count:1', ('num_detections',), is_float=None),), ())
    ),
    networks='the object detection API of TensorFlow',
    export='`python -m tf2onnx.convert --saved-model mine --output mine.onnx`',
)


#: Rows after the first num_dets are undefined. Source: the README of efficientNMSPlugin.
EFFICIENT_NMS: Family[Any] = Family(
    'efficient_nms',
    'detect',
    YOLO_PREPROCESS,
    exporter='any',
    layouts=(finished(labels(), COUNT, uses_nms=False), cut_layout(is_of_tensorrt=True)),
    remedy='Set `decoder` to `boxes` or `boxes_normalised`.',
    networks='networks that end in EfficientNMS or BatchedNMS of TensorRT; MMYOLO',
    export='YOLOv7: `export.py --end2end --grid`',
)
