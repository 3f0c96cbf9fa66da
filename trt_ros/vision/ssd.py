"""SSD: a box a prior, and a score a class of which the first is background."""

from __future__ import annotations

from trt_ros.errors import TensorMismatchError
from trt_ros.vision.boxes import (
    BoxesHead,
    on_a_yolo_grid,
    on_ssd_priors,
    open_parts,
    plain_outputs,
)
from trt_ros.vision.family import Family, Network


def recognises(network: Network) -> str | None:
    parts = plain_outputs(network)
    if parts is None or not parts.batched or parts.score_axes != 2 or (
            on_a_yolo_grid(network, parts)):
        return None
    if network.class_count and parts.class_count:
        if parts.class_count != 1 + network.class_count:
            return None
        return f'{parts}: {parts.class_count} scores are background and the classes'
    if on_ssd_priors(network, parts):
        return f'{parts} are the {parts.boxes.shape[1]} priors of an SSD'
    return f'{parts} may begin with background'


def open_head(network: Network) -> BoxesHead:
    """
    Read (1, N, 4) x1, y1, x2, y2, 0 to 1 of the input, and (1, N, 1 + C) softmax scores.

    Source: pytorch-ssd's `Predictor`, whose ONNX export jetson-inference runs: each class
    competes by itself. Class 0 of the result is the one after the background.
    """
    parts = open_parts(network)
    if parts.score_axes != 2 or parts.class_count == 1:
        raise TensorMismatchError(
            f'Not an SSD: expected scores (1, N, 1 + classes), got {parts.scores}.',
            remedy='Choose the decoder `boxes`, or `boxes_normalised`.')
    classes = parts.class_count
    return BoxesHead(parts, classes and classes - 1, normalised=True, has_background=True)


SSD = Family(
    'ssd', 'detect',
    {'resize': 'stretch', 'channel_order': 'rgb', 'scale': 1.0, 'mean': (127.0, 127.0, 127.0),
     'std': (128.0, 128.0, 128.0)},
    recognises, open_head)
