"""SSD: one box per prior, and one score per class, the first of which is the background."""

from __future__ import annotations

from trt_ros.errors import TensorMismatchError
from trt_ros.families.boxes import BoxesHead, is_plain, open_parts
from trt_ros.families.family import Family, NetworkDescription
from trt_ros.families.layout import BoxLayout, Coding, Out, Rows
from trt_ros.families.yolo import is_on_no_grid


def open_head(network: NetworkDescription) -> BoxesHead:
    """
    Open the head of an SSD.

    Its outputs are (1, N, 4) x1, y1, x2, y2, 0 to 1 of the input, and (1, N, 1 + C) softmax
    scores. Source: pytorch-ssd's `Predictor`, whose ONNX export jetson-inference runs: NMS per
    class. Class 0 of the result is the one after the background.
    """
    parts = open_parts(network)
    if parts.score_axes != 2 or parts.class_count == 1:
        raise TensorMismatchError(
            f'Not an SSD: expected scores (1, N, 1 + classes), got {parts.scores}.',
            remedy='Set `decoder` to `boxes` or `boxes_normalised`.',
        )
    classes = parts.class_count
    return BoxesHead(parts, classes and classes - 1, normalized=True, has_background=True)


SSD = Family(
    'ssd',
    'detect',
    {
        'resize': 'stretch',
        'channel_order': 'rgb',
        'scale': 1.0,
        'mean': (127.0, 127.0, 127.0),
        'std': (128.0, 128.0, 128.0),
    },
    open_head,
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
)
