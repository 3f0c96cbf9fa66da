"""Image to image: enhancement, super-resolution, dehazing."""

from collections.abc import Mapping
from dataclasses import dataclass, replace
from functools import partial
from typing import Any

import numpy as np

from trt_ros.families.family import STRETCH_PREPROCESS, Family, trained
from trt_ros.families.head import Head
from trt_ros.families.layout import Layout, Out
from trt_ros.results.arrays import Picture
from trt_ros.tensors import Arrays
from trt_ros.vision.grid import bilinear, taps
from trt_ros.vision.letterbox import Letterbox
from trt_ros.vision.thresholds import Thresholds


@dataclass(frozen=True)
class PictureHead(Head[Picture]):
    """
    A decoder of (1, 3, h, w) or (1, h, w, 3), resized to the image (bilinear).

    A network whose output is larger than its input makes the picture larger by the same factor.

    :param gain: uint8 per unit of the output; `offset`: uint8 of 0.
    """

    gain: float = 255.0
    offset: float = 0.0

    def decode(self, outputs: Arrays, letterbox: Letterbox, thresholds: Thresholds) -> Picture:
        cells = self.cells(outputs, letterbox.input_hw)
        shown = enlarged(letterbox, cells.shape[1])
        rows, cols = taps(shown, (cells.shape[1], cells.shape[2]))
        pixels = np.empty((*shown.image_wh[::-1], 3), np.uint8)
        for channel, plane in enumerate(cells):
            with np.errstate(invalid='ignore'):
                values = bilinear(plane, rows, cols) * np.float32(self.gain)
                values += np.float32(self.offset + 0.5)
            # NaN is black.
            pixels[..., channel] = np.fmin(np.fmax(values, 0), 255)
        return Picture(pixels)


def enlarged(letterbox: Letterbox, rows: int) -> Letterbox:
    """Return the placement of an image that is larger by the factor of output and input."""
    factor = max(rows // letterbox.input_hw[0], 1)
    (across, down), (width, height) = letterbox.scale_xy, letterbox.image_wh
    return replace(
        letterbox,
        scale_xy=(across / factor, down / factor),
        image_wh=(width * factor, height * factor),
    )


def _family(name: str, preprocess: Mapping[str, Any], networks: str) -> Family[PictureHead]:
    scale = preprocess['scale']
    mean, std = preprocess.get('mean', (0.0,))[0], preprocess.get('std', (1.0,))[0]
    return Family(
        name,
        'image',
        preprocess,
        layouts=tuple(Layout((Out(axes, 'image:3'),)) for axes in ('B 3 h w', 'B h w 3')),
        head=partial(PictureHead, gain=std / scale, offset=mean / scale),
        networks=networks,
        export='`torch.onnx.export`',
        remedy='Export only the image, of three channels.',
    )


IMAGE = _family('image', STRETCH_PREPROCESS, 'images of 0 to 1: Zero-DCE, Real-ESRGAN and others')
IMAGE_255 = _family('image_255', trained('stretch', scale=1.0), 'images of 0 to 255')
IMAGE_SIGNED = _family(
    'image_signed', trained('stretch', mean=(0.5,) * 3, std=(0.5,) * 3), 'images of -1 to 1'
)
