"""Monocular depth: how far each pixel is."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, replace

import numpy as np

from trt_ros.errors import TensorMismatchError
from trt_ros.tensors import TensorSpec
from trt_ros.vision.decoders.family import Family, NetworkDescription, is_float
from trt_ros.vision.decoders.semantic import IMAGENET, dense
from trt_ros.vision.grid import bilinear, covers, taps
from trt_ros.vision.letterbox import Letterbox
from trt_ros.vision.results import Depth
from trt_ros.vision.thresholds import DEFAULT_THRESHOLDS, Thresholds


@dataclass(frozen=True)
class DepthHead:
    """
    Reads (1, h, w), (1, 1, h, w) or (1, h, w, 1), and resizes it to the image (bilinear).

    The numbers stay what the network makes them: metres, relative depth or its inverse. A pixel
    beside a cell that is not finite is not finite.
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
        Turn the output into the image's depth.

        :raises TensorMismatchError: when the output is missing or of another shape.
        """
        cells = dense(outputs, self.output_name, self.channels_first)
        if len(cells) != 1:
            raise TensorMismatchError(
                f'The output {self.output_name!r} has {len(cells)} channels, depth has one.'
            )
        rows, cols = taps(letterbox, (cells.shape[1], cells.shape[2]))
        with np.errstate(invalid='ignore'):
            return Depth(bilinear(cells[0], rows, cols))


def find_output(network: NetworkDescription) -> tuple[TensorSpec, bool] | None:
    """The depth, alone or the only one that says so, and whether its channel comes first."""
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
    found = find_output(network)
    if found is None:
        raise TensorMismatchError(
            f'Not depth: expected one output of (1, h, w) or (1, 1, h, w), got {network}.',
            remedy="Export with that output alone, or with 'depth' in its name.",
        )
    return DepthHead(found[0].name, found[1])


DEPTH = Family('depth', 'depth', IMAGENET, open_head)
YOLO_DEPTH = replace(
    DEPTH,
    name='yolo_depth',
    preprocess={'resize': 'stretch', 'channel_order': 'rgb', 'scale': 1 / 255},
)
