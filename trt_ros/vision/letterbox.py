"""Preprocessing of images for a network, and conversion of boxes to image pixels."""

from __future__ import annotations

from dataclasses import dataclass
import math
from typing import Literal

import numpy as np

from trt_ros.errors import ParameterError
from trt_ros.vision.frame import Frame, Order
from trt_ros.vision.resample import resample

Resize = Literal['letterbox', 'letterbox_topleft', 'stretch', 'center_crop']
RESIZES: tuple[Resize, ...] = ('letterbox', 'letterbox_topleft', 'stretch', 'center_crop')


@dataclass(frozen=True)
class Letterbox:
    """
    The placement of an image in a network's input, also for 'stretch' and 'center_crop'.

    Coordinates are continuous: pixel i covers i to i + 1, so input = image * scale + pad. For a
    cropped image `pad_xy` is negative: the image begins left of and above the input.

    >>> Letterbox.fit((200, 100), (64, 64), 'letterbox')
    Letterbox(scale_xy=(0.32, 0.32), pad_xy=(0.0, 16.0), image_wh=(200, 100), input_hw=(64, 64))
    """

    scale_xy: tuple[float, float]
    pad_xy: tuple[float, float]
    image_wh: tuple[int, int]
    input_hw: tuple[int, int]

    @classmethod
    def fit(
        cls,
        image_wh: tuple[int, int],
        input_hw: tuple[int, int],
        resize: str,
        *,
        crop_fraction: float = 1.0,
    ) -> Letterbox:
        """
        Fit an image into an input.

        Both letterboxes keep the aspect ratio up to whole pixels: with s the smaller of the two
        ratios, the image becomes floor(W * s + 0.5) × floor(H * s + 0.5) pixels, at least 1 × 1;
        scale_xy are those sizes over W and H. If centred, half the free pixels (rounded down) are
        left of and above the image.

        The centre crop is that of torchvision: the side with the smaller excess is resized to the
        input's side / `crop_fraction` (rounded), the other side by the same factor (rounded down),
        and half of the excess (rounded to even) is cropped on the left and above.

        :param image_wh: pixels, at least 1 × 1.
        :param resize: one of `RESIZES`.
        :param crop_fraction: with 'center_crop', above 0, at most 1.
        :raises ParameterError: for another `resize`.
        """
        if resize not in RESIZES:
            raise ParameterError(
                f'resize is {resize!r}.', remedy=f'Choose one of {", ".join(RESIZES)}.'
            )
        width, height = image_wh
        input_height, input_width = input_hw
        left, top = 0, 0
        if resize == 'stretch':
            inner_width, inner_height = input_width, input_height
        elif resize == 'center_crop':
            if input_width * height >= input_height * width:
                inner_width = round(input_width / crop_fraction)
                inner_height = max(height * inner_width // width, input_height)
            else:
                inner_height = round(input_height / crop_fraction)
                inner_width = max(width * inner_height // height, input_width)
            left = -round((inner_width - input_width) / 2)
            top = -round((inner_height - input_height) / 2)
        else:
            scale = min(input_width / width, input_height / height)
            inner_width = max(1, math.floor(width * scale + 0.5))
            inner_height = max(1, math.floor(height * scale + 0.5))
        if resize == 'letterbox':
            left, top = (input_width - inner_width) // 2, (input_height - inner_height) // 2
        return cls(
            (inner_width / width, inner_height / height),
            (float(left), float(top)),
            image_wh,
            input_hw,
        )

    @property
    def inner_wh(self) -> tuple[int, int]:
        """Size of the whole image in input pixels; larger than the input if cropped."""
        return (
            round(self.scale_xy[0] * self.image_wh[0]),
            round(self.scale_xy[1] * self.image_wh[1]),
        )

    def to_image(self, xyxy: np.ndarray) -> np.ndarray:
        """
        Convert boxes from input to image pixels, clipped to the image.

        :param xyxy: (N, 4), x1, y1, x2, y2 in input pixels.
        :returns: (N, 4) float32 in image pixels, 0 to image_wh.
        """
        pad = np.array(self.pad_xy * 2, np.float32)
        scale = np.array(self.scale_xy * 2, np.float32)
        limit = np.array(self.image_wh * 2, np.float32)
        return np.clip((np.asarray(xyxy, np.float32) - pad) / scale, np.float32(0), limit)

    def points_to_image(self, xy: np.ndarray) -> np.ndarray:
        """Convert (..., 2) points from input to image pixels, float32, not clipped."""
        pad, scale = np.array(self.pad_xy, np.float32), np.array(self.scale_xy, np.float32)
        return (np.asarray(xy, np.float32) - pad) / scale

    def to_input(self, xyxy: np.ndarray) -> np.ndarray:
        """Convert boxes from image to input pixels: the inverse of to_image inside the image."""
        pad = np.array(self.pad_xy * 2, np.float32)
        scale = np.array(self.scale_xy * 2, np.float32)
        return np.asarray(xyxy, np.float32) * scale + pad


@dataclass(frozen=True)
class Preprocess:
    """
    The preprocessing of images for a network; the reference for the GPU kernel.

    value = pixel * (scale / std) - mean / std per channel, in float32, that is
    (pixel * scale - mean) / std. Pixels are those of `resample`, unrounded, padded with
    `pad_value`.

    :param input_hw: height and width of the input.
    :param resize: one of `RESIZES`.
    :param crop_fraction: with 'center_crop', visible share of the image's shorter side.
    :param pad_value: pixel value around a letterboxed image, 0 to 255.
    :param channel_order: order of the input's channels, 'rgb' or 'bgr', also for `mean` and `std`.
    :param layout: 'nchw' or 'nhwc'.
    :param dtype: 'float32', 'float16' (rounded to nearest even) or 'uint8' (rounded to nearest
        even, then clipped to 0..255). 'bfloat16' is supported only on the GPU.
    :param antialias: average areas where an axis shrinks by more than 2; see `resample`.
    :raises ParameterError: when a value is not one of these.
    """

    input_hw: tuple[int, int]
    resize: str = 'letterbox'
    pad_value: int = 114
    channel_order: str = 'rgb'
    scale: float = 1 / 255
    mean: tuple[float, float, float] = (0.0, 0.0, 0.0)
    std: tuple[float, float, float] = (1.0, 1.0, 1.0)
    layout: str = 'nchw'
    dtype: str = 'float32'
    antialias: bool = False
    crop_fraction: float = 1.0

    def __post_init__(self) -> None:
        choices: tuple[tuple[str, str, tuple[str, ...]], ...] = (
            ('resize', self.resize, RESIZES),
            ('channel_order', self.channel_order, ('rgb', 'bgr')),
            ('layout', self.layout, ('nchw', 'nhwc')),
            ('dtype', self.dtype, ('float32', 'float16', 'bfloat16', 'uint8')),
        )
        for name, value, allowed in choices:
            if value not in allowed:
                raise ParameterError(
                    f'{name} is {value!r}.', remedy=f'Choose one of {", ".join(allowed)}.'
                )
        if min(self.input_hw) < 1:
            raise ParameterError(f'input_hw is {self.input_hw}, expected at least 1 × 1.')
        if not 0 <= self.pad_value <= 255:
            raise ParameterError(f'pad_value is {self.pad_value}, expected 0 to 255.')
        for name, values in (('mean', self.mean), ('std', self.std)):
            if len(values) != 3:
                raise ParameterError(f'{name} has {len(values)} values, expected 3.')
        if not 0 < self.crop_fraction <= 1:
            raise ParameterError(
                f'crop_fraction is {self.crop_fraction}, expected above 0 and at most 1.'
            )
        if 0.0 in self.std:
            raise ParameterError('std contains 0, but pixels are divided by it.')

    def letterbox(self, image_wh: tuple[int, int]) -> Letterbox:
        """Compute the placement of an image of this size in the input."""
        return Letterbox.fit(
            image_wh, self.input_hw, self.resize, crop_fraction=self.crop_fraction
        )

    def __call__(self, frame: Frame) -> tuple[np.ndarray, Letterbox]:
        """
        Compute the network's input for a frame.

        :returns: (1, 3, H, W) or (1, H, W, 3), C-contiguous; and the placement of the image.
        :raises ParameterError: for 'bfloat16', which NumPy lacks.
        """
        if self.dtype == 'bfloat16':
            raise ParameterError(
                'Unsupported input dtype bfloat16 on the CPU.',
                remedy='Export with float32 inputs.',
            )
        letterbox = self.letterbox(frame.wh)
        order: Order = 'rgb' if self.channel_order == 'rgb' else 'bgr'
        (left, top), (width, height) = map(int, letterbox.pad_xy), letterbox.inner_wh
        std = np.array(self.std, np.float32).reshape(3, 1, 1)
        gain = np.float32(self.scale) / std
        bias = np.array(self.mean, np.float32).reshape(3, 1, 1) / std
        rows, cols = self.input_hw
        tensor = np.empty(
            (1, 3, rows, cols) if self.layout == 'nchw' else (1, rows, cols, 3), self.dtype
        )
        planes = tensor[0] if self.layout == 'nchw' else tensor[0].transpose(2, 0, 1)
        inner = planes[:, max(top, 0) : top + height, max(left, 0) : left + width]
        if inner.shape != planes.shape:
            planes[:] = self._rounded(np.float32(self.pad_value) * gain - bias)
        for block, pixels in resample(
            frame,
            order,
            (width, height),
            antialias=self.antialias,
            crop_xy=(max(-left, 0), max(-top, 0)),
            crop_wh=(inner.shape[2], inner.shape[1]),
        ):
            # One channel at a time: channels may be interleaved in memory.
            for channel in range(3):
                values = pixels[channel % len(pixels)] * gain[channel]
                values -= bias[channel]
                inner[channel, block] = self._rounded(values)
        return tensor, letterbox

    def _rounded(self, values: np.ndarray) -> np.ndarray:
        return np.clip(np.rint(values), 0, 255) if self.dtype == 'uint8' else values
