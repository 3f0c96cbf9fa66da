"""Monocular depth estimation."""

from dataclasses import dataclass, replace
from typing import Literal

import numpy as np

from trt_ros.errors import TensorMismatchError
from trt_ros.families.family import (
    IMAGENET_PREPROCESS,
    STRETCH_PREPROCESS,
    Family,
    Head,
    NetworkDescription,
)
from trt_ros.families.layout import Layout, Out
from trt_ros.families.match import Reading
from trt_ros.families.semantic import dense
from trt_ros.results.depth import Depth
from trt_ros.tensors import Arrays
from trt_ros.vision.grid import bilinear, taps
from trt_ros.vision.letterbox import Letterbox
from trt_ros.vision.thresholds import DEFAULT_THRESHOLDS, Thresholds


@dataclass(frozen=True)
class DepthHead(Head[Depth]):
    """
    A decoder of (1, h, w), (1, 1, h, w) or (1, h, w, 1), resized to the image (bilinear).

    Values keep the network's unit: meters, relative depth or its inverse. A pixel next to a
    non-finite cell is non-finite.
    """

    output_name: str
    channels_first: bool = True
    class_count: None = None

    def __call__(
        self, outputs: Arrays, letterbox: Letterbox, thresholds: Thresholds = DEFAULT_THRESHOLDS
    ) -> Depth:
        """
        Decode the output into the depth of the image.

        :raises TensorMismatchError: when the output is missing or of another shape.
        """
        cells = dense(outputs, self.output_name, self.channels_first)
        if len(cells) != 1:
            raise TensorMismatchError(
                f'The output {self.output_name!r} has {len(cells)} channels, expected one.'
            )
        rows, cols = taps(letterbox, (cells.shape[1], cells.shape[2]))
        with np.errstate(invalid='ignore'):
            return Depth(bilinear(cells[0], rows, cols))


def _head(reading: Reading) -> DepthHead:
    (part,) = reading.parts
    return DepthHead(part.spec.name, part.out.axes != 'B h w 1')


def _has_no_classes(network: NetworkDescription) -> Literal[False] | None:
    """Refuse networks with names of classes."""
    return False if network.class_count else None


REMEDY = "Export only that output, or put 'depth' in its name."
_AXES = ('B h w', 'B 1 h w', 'B h w 1')
_NAMED = tuple(
    Layout((Out(axes, 'depth:1', ('(?i).*depth.*',)),), ignores_others=True) for axes in _AXES
)
_PLAIN = tuple(Layout((Out(axes, 'depth:1'),), evidence=(_has_no_classes,)) for axes in _AXES)
DEPTH = Family(
    'depth',
    'depth',
    IMAGENET_PREPROCESS,
    layouts=(*_NAMED, *_PLAIN),
    head=_head,
    remedy=REMEDY,
    exporter='none',
    words=('depth', 'disp'),
    networks='Depth Anything, DPT, MiDaS and others',
    export='`optimum-cli export onnx --model Intel/dpt-large out`',
)
YOLO_DEPTH = Family(
    'yolo_depth',
    'depth',
    STRETCH_PREPROCESS,
    layouts=tuple(replace(layout, task='depth', evidence=()) for layout in _PLAIN),
    head=_head,
    remedy=REMEDY,
    exporter='Ultralytics',
    output_names=('output0',),
    networks='YOLO-depth',
    export='`yolo export model=yolo26n-depth.pt format=onnx`',
)
