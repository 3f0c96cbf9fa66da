"""Depth of one image, or of a pair of images."""

from dataclasses import dataclass, replace
from functools import cached_property

import numpy as np

from trt_ros.families.family import IMAGENET_PREPROCESS, STRETCH_PREPROCESS, Family, trained
from trt_ros.families.head import Head
from trt_ros.families.layout import Layout, Out
from trt_ros.results.arrays import Depth
from trt_ros.tensors import Arrays
from trt_ros.vision.grid import bilinear, taps
from trt_ros.vision.letterbox import Letterbox
from trt_ros.vision.thresholds import Thresholds


@dataclass(frozen=True)
class DepthHead(Head[Depth]):
    """
    A decoder of (1, h, w), (1, 1, h, w) or (1, h, w, 1), resized to the image (bilinear).

    Values keep the network's unit: meters, relative depth or its inverse. A pixel next to a
    non-finite cell is non-finite.
    """

    @cached_property
    def confidence_name(self) -> str:
        """Output of the same size with the confidence; '': none."""
        spec = self.reading.parts[0].spec
        others = [
            each.name
            for each in self.reading.network.outputs
            if each.shape == spec.shape and each is not spec
        ]
        return next((name for word in _CONFIDENCE for name in others if word in name.lower()), '')

    @property
    def is_sky(self) -> bool:
        """Whether that output is the probability of sky."""
        return 'sky' in self.confidence_name.lower()

    @property
    def kind(self) -> str:
        """Meaning of the values by the name: 'relative', 'metric' or 'disparity'."""
        name = self.output_name
        if 'disp' in name.lower() or name in _ESS:
            return 'disparity'
        return 'metric' if 'metric' in name.lower() else 'relative'

    def decode(self, outputs: Arrays, letterbox: Letterbox, thresholds: Thresholds) -> Depth:
        (cells,) = self.cells(outputs, letterbox.input_hw)
        rows, cols = taps(letterbox, cells.shape)
        with np.errstate(invalid='ignore'):
            found = Depth(bilinear(cells, rows, cols))
            if self.confidence_name:
                plane = np.reshape(outputs[self.confidence_name], cells.shape)
                found.confidence = self.confidence(bilinear(plane, rows, cols))
            return found

    def confidence(self, values: np.ndarray) -> np.ndarray:
        """Return the confidences that interpolated values of that output are."""
        return 1 - values if self.is_sky else values


@dataclass(frozen=True)
class PointsHead(Head[Depth]):
    """
    A decoder of (1, h, w, 3) points whose z lacks an offset, with validity and scale.

    Depth is (z + offset) * scale. The offset follows from the calibration of the camera.
    """

    kind = 'affine'

    @cached_property
    def confidence_name(self) -> str:
        """Output of the validity; '': none."""
        names = {each.name.lower(): each.name for each in self.reading.network.outputs}
        return names.get('mask', '')

    @cached_property
    def scale_name(self) -> str:
        """Output of the scale; '': none."""
        names = (each.name for each in self.reading.network.outputs)
        return next((name for name in names if 'scale' in name.lower()), '')

    def decode(self, outputs: Arrays, letterbox: Letterbox, thresholds: Thresholds) -> Depth:
        (points,) = self.arrays(outputs, letterbox.input_hw)
        cells = points.transpose(2, 0, 1).astype(np.float32)
        if self.scale_name:
            cells *= np.float32(np.asarray(outputs[self.scale_name]).reshape(-1)[0])
        height, width = cells.shape[1:]
        rows, cols = taps(letterbox, (height, width))
        input_height, input_width = letterbox.input_hw
        some_rows, some_cols = (np.arange(0, n, -(-n // POINTS)) for n in (height, width))
        down, across = np.meshgrid(some_rows, some_cols, indexing='ij')
        xy = (across + 0.5) * input_width / width, (down + 0.5) * input_height / height
        at = letterbox.points_to_image(np.stack(xy, -1))
        some = cells[:, down, across].transpose(1, 2, 0)
        is_valid = np.isfinite(some).all(axis=2) & (at > 0).all(axis=2)
        is_valid &= (at < letterbox.image_wh).all(axis=2)
        with np.errstate(invalid='ignore'):
            found = Depth(bilinear(cells[2], rows, cols))
            if self.confidence_name:
                plane = np.reshape(outputs[self.confidence_name], (height, width))
                plane = plane.astype(np.float32)
                found.confidence = bilinear(plane, rows, cols)
                is_valid &= plane[down, across] > 0.5
        found.points = np.concatenate([at[is_valid] - 0.5, some[is_valid]], axis=1)
        return found


REMEDY = "Export only that output, or put 'depth' in its name."
POINTS = 64  # Rows and columns of points for the offset.
_CONFIDENCE = ('sky', 'mask', 'valid', 'conf')  # The last one may have any unit.
_ESS = ('output_left',)  # Of Isaac ROS.
_NAME = f'(?i).*(depth|disp)(?!.*({"|".join(_CONFIDENCE)})).*'
_AXES = ('B h w', 'B 1 h w', 'B h w 1')
_NAMED = tuple(
    Layout((Out(axes, 'depth:1', (_NAME, *_ESS)),), ignores_others=True) for axes in _AXES
)
_PLAIN = tuple(
    Layout((Out(axes, 'depth:1'),), evidence=(lambda network: not network.class_count,))
    for axes in _AXES
)
DEPTH = Family(
    'depth',
    'depth',
    IMAGENET_PREPROCESS,
    layouts=(*_NAMED, *_PLAIN),
    head=DepthHead,
    remedy=REMEDY,
    words=('depth', 'disp'),
    networks='Depth Anything, DPT, MiDaS and others',
    export='`optimum-cli export onnx --model Intel/dpt-large out`',
)
MOGE = Family(
    'moge',
    'depth',
    trained('letterbox'),  # A stretched image has another geometry.
    layouts=(Layout((Out('B h w 3', 'points:3', ('(?i)points',)),), ignores_others=True),),
    head=PointsHead,
    networks='MoGe-2: points up to an offset of z, validity, scale',
    export='`torch.onnx.export` as in docs/onnx.md of MoGe',
)
YOLO_DEPTH = Family(
    'yolo_depth',
    'depth',
    STRETCH_PREPROCESS,
    layouts=tuple(replace(layout, task='depth', evidence=()) for layout in _PLAIN),
    head=DepthHead,
    remedy=REMEDY,
    exporter='Ultralytics',
    output_names=('output0',),
    networks='YOLO-depth',
    export='`yolo export model=yolo26n-depth.pt format=onnx`',
)
