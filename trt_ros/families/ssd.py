"""SSD: one box per prior, and one score per class, the first of which is the background."""

from typing import Any

from trt_ros.families.boxes import BOX_WORDS, is_plain
from trt_ros.families.family import Family
from trt_ros.families.layout import BoxLayout, Coding, Out, Rows
from trt_ros.families.yolo import is_on_no_grid

#: Source: pytorch-ssd's `Predictor`, whose ONNX export jetson-inference runs: NMS per class.
SSD: Family[Any] = Family(
    'ssd',
    'detect',
    {
        'resize': 'stretch',
        'channel_order': 'rgb',
        'scale': 1.0,
        'mean': (127.0, 127.0, 127.0),
        'std': (128.0, 128.0, 128.0),
    },
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
