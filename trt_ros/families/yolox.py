"""YOLOX: raw heads over strides 8, 16 and 32, as YOLOX's exporter writes them."""

from typing import Any

from trt_ros.families.family import Family
from trt_ros.families.layout import BoxLayout, Coding, Out, Rows

#: Scores are 0 to 1. Source: `decode_outputs` of YOLOX's head.
YOLOX: Family[Any] = Family(
    'yolox',
    'detect',
    {'resize': 'letterbox_topleft', 'pad_value': 114, 'channel_order': 'bgr', 'scale': 1.0},
    layouts=(
        BoxLayout(
            (Out('B N V', 'box:4 objectness:1 scores:C'),),
            Rows(((8, 16, 32),)),
            Coding('offsets'),
        ),
    ),
    exporter='none',
    output_names=('output',),
    remedy="Export with YOLOX's tools/export_onnx.py without --decode_in_inference; or set "
    '`decoder` to yolov5, and for YOLOX also `resize` to letterbox_topleft, `channel_order` to '
    'bgr and `scale` to 1.0.',
    networks='YOLOX',
    export='`python tools/export_onnx.py -n yolox-s -c best.pth --output-name yolox.onnx`',
)
