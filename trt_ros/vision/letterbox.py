"""Preprocessing of images for a network, and conversion of boxes to image pixels."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass, replace
from functools import partial
import math
from typing import Any, Literal, get_args

import numpy as np

from trt_ros.errors import ParameterError, counted
from trt_ros.vision.frame import Frame, Order
from trt_ros.vision.resample import Scaled, is_depth, resample, resample_alpha, resample_gray

Resize = Literal['letterbox', 'letterbox_topleft', 'stretch', 'center_crop', 'bottom_crop']
#: Integer dtypes of network inputs, which take pixels of 0 to 255.
INTEGERS = ('uint8', 'int32')
RESIZES: tuple[Resize, ...] = get_args(Resize)


@dataclass(frozen=True)
class Letterbox:
    """
    The placement of an image in a network's input, also for 'stretch' and the crops.

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
        truncate: bool | None = None,
    ) -> Letterbox:
        """
        Fit an image into an input.

        Both letterboxes keep the aspect ratio up to whole pixels: with s the smaller of the two
        ratios, the image becomes floor(W * s + 0.5) × floor(H * s + 0.5) pixels, truncated
        floor(W * s) × floor(H * s), at least 1 × 1; scale_xy are those sizes over W and H. If
        centered, half the free pixels (rounded down) are
        left of and above the image.

        The center crop is that of torchvision: the side with the smaller excess is resized to the
        input's side / `crop_fraction` (rounded), the other side by the same factor (rounded down),
        and half of the excess (rounded to even) is cropped on the left and above.

        The bottom crop stretches the image to the width of the input and to its height /
        `crop_fraction` (rounded down), of which the lower part is in the input.

        :param image_wh: pixels, at least 1 × 1.
        :param resize: one of `RESIZES`.
        :param crop_fraction: with a crop, above 0, at most 1.
        :param truncate: see `Preprocess`.
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
        elif resize == 'bottom_crop':
            inner_width, inner_height = input_width, int(input_height / crop_fraction)
            top = input_height - inner_height
        else:
            scale = min(input_width / width, input_height / height)
            is_truncated = resize == 'letterbox_topleft' if truncate is None else truncate
            half = 0.0 if is_truncated else 0.5
            inner_width = max(1, math.floor(width * scale + half))
            inner_height = max(1, math.floor(height * scale + half))
        if resize == 'letterbox':
            left, top = (input_width - inner_width) // 2, (input_height - inner_height) // 2
        scale_xy = inner_width / width, inner_height / height
        return cls(scale_xy, (float(left), float(top)), image_wh, input_hw)

    @property
    def inner_wh(self) -> tuple[int, int]:
        """Size of the whole image in input pixels; larger than the input if cropped."""
        return (
            round(self.scale_xy[0] * self.image_wh[0]),
            round(self.scale_xy[1] * self.image_wh[1]),
        )

    def to_image(self, xyxy: np.ndarray) -> np.ndarray:
        """Convert (N, 4) boxes from input to image pixels, float32, clipped to the image."""
        corners = self.points_to_image(np.reshape(xyxy, (-1, 2, 2)))
        return np.clip(corners, 0, np.array(self.image_wh, np.float32)).reshape(-1, 4)

    def points_to_image(self, xy: np.ndarray) -> np.ndarray:
        """Convert (..., 2) points from input to image pixels, float32, not clipped."""
        pad, scale = np.array(self.pad_xy, np.float32), np.array(self.scale_xy, np.float32)
        return (np.asarray(xy, np.float32) - pad) / scale


@dataclass(frozen=True)
class Preprocess:
    """
    The preprocessing of images for a network; the reference for the GPU kernel.

    value = pixel * (scale / std) - mean / std per channel, in float32, that is
    (pixel * scale - mean) / std. Pixels are those of `resample`, unrounded, padded with
    `pad_value`. Depths are in meters, padded with 0; `scale` does not apply to them.

    :param input_hw: height and width of the input.
    :param resize: one of `RESIZES`.
    :param crop_fraction: with 'center_crop', visible share of the image's shorter side; with
        'bottom_crop', of its height.
    :param pad_value: pixel value around a letterboxed image, 0 to 255.
    :param truncate: whether the size of a letterboxed image is truncated to whole pixels, instead
        of rounded; None truncates for 'letterbox_topleft' only.
    :param channels: 3 for colors; 1 for gray levels, or the depths of a depth image; 4 for
        colors and, as fourth channel, the gray levels or depths of a second image, or else the
        alpha channel of the image, padded with 0.
    :param channel_order: order of the colors, 'rgb' or 'bgr', also in `mean` and `std`.
    :param mean: one value per channel, as is `std`; a single one counts for all channels.
    :param layout: 'nchw' or 'nhwc'.
    :param dtype: 'float32', 'float16' (rounded to nearest even) or one of `INTEGERS` (rounded to
        nearest even, then clipped to 0..255). 'bfloat16' is supported only on the GPU, 'int32'
        only on the CPU.
    :param antialias: average areas where an axis shrinks by more than 2; see `resample`.
    :raises ParameterError: when a value is not one of these.
    """

    input_hw: tuple[int, int]
    resize: str = 'letterbox'
    pad_value: int = 114
    channel_order: str = 'rgb'
    scale: float = 1 / 255
    mean: tuple[float, ...] = (0.0,)
    std: tuple[float, ...] = (1.0,)
    layout: str = 'nchw'
    dtype: str = 'float32'
    antialias: bool = False
    crop_fraction: float = 1.0
    truncate: bool | None = None
    channels: int = 3

    def __post_init__(self) -> None:
        choices: tuple[tuple[str, Any, tuple[Any, ...]], ...] = (
            ('resize', self.resize, RESIZES),
            ('channel_order', self.channel_order, ('rgb', 'bgr')),
            ('layout', self.layout, ('nchw', 'nhwc')),
            ('dtype', self.dtype, ('float32', 'float16', 'bfloat16', *INTEGERS)),
            ('channels', self.channels, (1, 3, 4)),
        )
        for name, value, allowed in choices:
            if value not in allowed:
                raise ParameterError(
                    f'{name} is {value!r}.',
                    remedy=f'Choose one of {", ".join(map(str, allowed))}.',
                )
        if min(self.input_hw) < 1:
            raise ParameterError(f'input_hw is {self.input_hw}, expected at least 1 × 1.')
        if not 0 <= self.pad_value <= 255:
            raise ParameterError(f'pad_value is {self.pad_value}, expected 0 to 255.')
        for name, values in (('mean', self.mean), ('std', self.std)):
            if len(values) not in (1, self.channels):
                raise ParameterError(
                    f'{name} has {counted(len(values), "value")}, but the network takes '
                    f'{counted(self.channels, "channel")}.',
                    remedy=f'Set {name} to one value per channel.',
                )
            if len(values) < self.channels:
                object.__setattr__(self, name, tuple(values) * self.channels)
        if not 0 < self.crop_fraction <= 1:
            raise ParameterError(
                f'crop_fraction is {self.crop_fraction}, expected above 0 and at most 1.'
            )
        if 0.0 in self.std:
            raise ParameterError('std contains 0, but pixels are divided by it.')

    def letterbox(self, image_wh: tuple[int, int]) -> Letterbox:
        """Compute the placement of an image of this size in the input."""
        return Letterbox.fit(
            image_wh,
            self.input_hw,
            self.resize,
            crop_fraction=self.crop_fraction,
            truncate=self.truncate,
        )

    @property
    def gain(self) -> np.ndarray:
        """Factor per channel, (channels,) float32: scale / std."""
        return np.float32(self.scale) / np.array(self.std, np.float32)

    @property
    def bias(self) -> np.ndarray:
        """Subtrahend per channel, (channels,) float32: mean / std."""
        return np.array(self.mean, np.float32) / np.array(self.std, np.float32)

    def for_depth(self) -> Preprocess:
        """Return the preprocessing of an image whose values are depths in meters."""
        return replace(self, scale=1.0, pad_value=0)

    @property
    def shape(self) -> tuple[int, int, int, int]:
        """Shape of the network's input for one image."""
        rows, cols = self.input_hw
        if self.layout == 'nchw':
            return (1, self.channels, rows, cols)
        return (1, rows, cols, self.channels)

    def __call__(self, frame: Frame, second: Frame | None = None) -> tuple[np.ndarray, Letterbox]:
        """
        Compute the network's input for an image.

        :param second: with 4 channels, the image of the fourth one; default the alpha channel. It
            shows what the first one shows, in any size, and is placed where the first one is.
        :returns: `shape`, C-contiguous; and the placement of the (first) image.
        :raises BadFrameError: 'depth image', for one where colors are expected; 'no fourth
            channel', with 4 channels, for an image without alpha and no second one.
        :raises ParameterError: for 'bfloat16', which NumPy lacks.
        """
        if self.dtype == 'bfloat16':
            raise ParameterError(
                'Unsupported input dtype bfloat16 on the CPU.',
                remedy='Export with float32 inputs.',
            )
        tensor = np.empty(self.shape, self.dtype)
        planes = tensor[0] if self.layout == 'nchw' else tensor[0].transpose(2, 0, 1)
        letterbox = self.letterbox(frame.wh)
        if self.channels == 1:
            self._write(planes, slice(0, 1), frame, letterbox, resample_gray)
        else:
            order: Order = 'rgb' if self.channel_order == 'rgb' else 'bgr'
            self._write(planes, slice(0, 3), frame, letterbox, partial(resample, order=order))
        if self.channels == 4:
            padded_with_0 = replace(self, pad_value=0)
            if second is None:
                padded_with_0._write(planes, slice(3, 4), frame, letterbox, resample_alpha)
            else:
                padded_with_0._write(planes, slice(3, 4), second, letterbox, resample_gray)
        return tensor, letterbox

    def _write(
        self,
        planes: np.ndarray,
        channels: slice,
        frame: Frame,
        letterbox: Letterbox,
        resized: Callable[..., Iterator[tuple[slice, np.ndarray]]],
    ) -> None:
        """Write channels of the input, a (channels, H, W) view, by a function like `resample`."""
        if is_depth(frame) and channels != slice(0, 3):
            self = self.for_depth()
        (left, top), (width, height) = map(int, letterbox.pad_xy), letterbox.inner_wh
        planes, gain, bias = planes[channels], self.gain[channels], self.bias[channels]
        inner = planes[:, max(top, 0) : top + height, max(left, 0) : left + width]
        if inner.shape != planes.shape:
            pad = np.float32(self.pad_value) * gain - bias
            planes[:] = self._rounded(pad)[:, None, None]
        crop_xy, crop_wh = (max(-left, 0), max(-top, 0)), (inner.shape[2], inner.shape[1])
        for block, pixels in resized(
            frame, Scaled((width, height), self.antialias, crop_xy, crop_wh)
        ):
            # One channel at a time: channels may be interleaved in memory.
            for channel in range(len(planes)):
                values = pixels[channel % len(pixels)] * gain[channel]
                values -= bias[channel]
                inner[channel, block] = self._rounded(values)

    def _rounded(self, values: np.ndarray) -> np.ndarray:
        return np.clip(np.rint(values), 0, 255) if self.dtype in INTEGERS else values
