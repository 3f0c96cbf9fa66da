"""Monocular depth estimation."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

import numpy as np

from trt_ros.errors import TensorMismatchError
from trt_ros.families.family import (
    IMAGENET_PREPROCESS,
    STRETCH_PREPROCESS,
    Family,
    Head,
    NetworkDescription,
    is_float,
)
from trt_ros.families.layout import Layout, Out
from trt_ros.families.semantic import dense
from trt_ros.results.depth import Depth
from trt_ros.tensors import TensorSpec
from trt_ros.vision.grid import bilinear, covers, taps
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
        self,
        outputs: Mapping[str, np.ndarray],
        letterbox: Letterbox,
        thresholds: Thresholds = DEFAULT_THRESHOLDS,
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


def find_output(network: NetworkDescription) -> tuple[TensorSpec, bool] | None:
    """Find the only output, or the only one with 'depth' in its name; and its channel order."""
    specs = [spec for spec in network.outputs if 'depth' in spec.name.lower()]
    if not specs:
        specs = list(network.outputs)
    if len(specs) != 1 or not is_float(specs[0]) or specs[0].shape[:1] not in ((1,), (-1,)):
        return None
    spec = specs[0]
    if len(spec.shape) == 3:
        return (spec, True) if covers((spec.shape[1], spec.shape[2]), network.input_hw) else None
    if len(spec.shape) != 4:
        return None
    _, a, b, c = spec.shape
    for channels_first, channels, grid in ((True, a, (b, c)), (False, c, (a, b))):
        if channels == 1 and covers(grid, network.input_hw):
            return spec, channels_first
    return None


def open_head(network: NetworkDescription) -> DepthHead:
    """Open the head of a depth network."""
    found = find_output(network)
    if found is None:
        raise TensorMismatchError(
            'Not a depth network: expected one output of (1, h, w) or (1, 1, h, w), got '
            f'{network}.',
            remedy="Export only that output, or put 'depth' in its name.",
        )
    return DepthHead(found[0].name, found[1])


_AXES = ('B h w', 'B 1 h w', 'B h w 1')
DEPTH = Family(
    'depth',
    'depth',
    IMAGENET_PREPROCESS,
    open_head,
    layouts=(
        *(
            Layout((Out(axes, 'depth:1', ('(?i).*depth.*',)),), ignores_others=True)
            for axes in _AXES
        ),
        *(Layout((Out(axes, 'depth:1'),)) for axes in _AXES),
    ),
    exporter='none',
    networks='Depth Anything, DPT, MiDaS and others',
    export='`optimum-cli export onnx --model Intel/dpt-large out`',
)
YOLO_DEPTH = Family(
    'yolo_depth',
    'depth',
    STRETCH_PREPROCESS,
    open_head,
    layouts=tuple(Layout((Out(axes, 'depth:1'),), task='depth') for axes in _AXES),
    exporter='Ultralytics',
    output_names=('output0',),
    networks='YOLO-depth',
    export='`yolo export model=yolo26n-depth.pt format=onnx`',
)
