"""Resizing of images, to colors or one channel: in blocks of rows in NumPy, or in OpenCV."""

from collections.abc import Iterator
from functools import lru_cache
import math
from typing import NamedTuple

import numpy as np

from trt_ros.errors import BadFrameError
from trt_ros.vision.frame import DEPTH_ENCODINGS, Frame, Order, plain_channels

Taps = tuple[tuple[np.ndarray, np.ndarray], ...]  # (n,) source indices, (n,) float32 weights.

BLOCK_ROWS = 32  # A block of 1080p stays in the cache; fastest of 8 to 360.


class Scaled(NamedTuple):
    """
    The size of a resized image, and the part of it that is computed.

    :param antialias: along an axis that shrinks by more than 2, take the mean of the area that
        each output pixel covers, as cv2.INTER_AREA: x from j * W / w to (j + 1) * W / w, where
        source column i covers i to i + 1 and is weighted by its share inside.
    :param crop_xy: first column and row of the part; `crop_wh`: its size; all by default.
    """

    wh: tuple[int, int]
    antialias: bool = False
    crop_xy: tuple[int, int] = (0, 0)
    crop_wh: tuple[int, int] | None = None

    @property
    def part_wh(self) -> tuple[int, int]:
        """Size of the part."""
        return self.crop_wh or self.wh

    def taps(self, image_wh: tuple[int, int]) -> tuple[Taps, Taps]:
        """Return the source pixels and weights of columns and rows for an image of a size."""
        columns, rows = (
            _taps(size, of, self.antialias, start, count)
            for size, of, start, count in zip(image_wh, self.wh, self.crop_xy, self.part_wh)
        )
        return columns, rows


def resample(
    frame: Frame, out: Scaled, order: Order = 'rgb'
) -> Iterator[tuple[slice, np.ndarray]]:
    """
    Resize a frame along each axis separately, without rounding.

    Bilinear with half-pixel centers, as cv2.INTER_LINEAR: output column j of an image W wide that
    becomes w wide lies at x = (j + 0.5) * W / w - 0.5, clamped to 0..W - 1, between columns
    floor(x) and floor(x) + 1 with weights 1 - frac(x) and frac(x); rows alike.

    :returns: rows of the part, and their (3, R, w) float32 pixels, 0 to 255, channels in `order`;
        (1, R, w) when all three are equal. The caller may modify them.
    """
    (col_count, row_count), (left, top) = out.part_wh, out.crop_xy
    plain = plain_channels(frame, order)
    if frame.width <= 2 * out.wh[0] and frame.height <= 2 * out.wh[1]:
        pixels = _resize_with_opencv(frame, plain, out.wh)[top:, left:][:row_count, :col_count]
        yield slice(0, row_count), pixels.transpose(2, 0, 1)
        return
    col_taps, row_taps = out.taps(frame.wh)
    lines, pixel_nbytes, channels = plain
    for start in range(0, row_count, BLOCK_ROWS):
        block = slice(start, min(start + BLOCK_ROWS, row_count))
        tall = _weighted_sum(
            (lines[rows[block]], weights[block, None]) for rows, weights in row_taps
        )
        planes = [
            _weighted_sum(
                (tall.take(cols * pixel_nbytes + channel, axis=1), weights)
                for cols, weights in col_taps
            )
            for channel in channels
        ]
        yield block, np.stack(planes)


def resample_values(values: np.ndarray, out: Scaled) -> np.ndarray:
    """Resize one channel, (H, W) float32, as `resample`: (h, w) float32 of the part."""
    col_taps, row_taps = out.taps((values.shape[1], values.shape[0]))
    tall = _weighted_sum((values[rows], weights[:, None]) for rows, weights in row_taps)
    return _weighted_sum((tall.take(cols, axis=1), weights) for cols, weights in col_taps)


def _resize_with_opencv(
    frame: Frame, plain: tuple[np.ndarray, int, tuple[int, ...]], out_wh: tuple[int, int]
) -> np.ndarray:
    """Resize a whole frame, as plain_channels() returned it, with OpenCV: the fastest way."""
    import cv2  # Imported here: the GPU kernel resizes without it.

    lines, pixel_nbytes, channels = plain
    pixels = lines.reshape(frame.height, frame.width, pixel_nbytes)
    used = pixels if len(channels) == 3 else pixels[..., channels[0]]
    # In float32, because the result of uint8 is rounded.
    resized: np.ndarray = cv2.resize(
        used.astype(np.float32), out_wh, interpolation=cv2.INTER_LINEAR
    )
    if resized.ndim == 2:
        return resized[..., None]
    return resized[..., :3] if channels == (0, 1, 2) else resized[..., 2::-1]


@lru_cache(maxsize=32)
def _taps(size: int, out_size: int, antialias: bool, start: int, count: int) -> Taps:
    """Compute source pixels and weights of `count` outputs of an axis, from `start` on."""
    shrink = size / out_size
    at = np.arange(start, start + count)
    if antialias and shrink > 2:
        low, high = at * shrink, np.minimum((at + 1) * shrink, size)
        first = np.floor(low)
        taps = []
        for index in first + np.arange(math.ceil(shrink) + 1)[:, None]:
            inside = np.minimum(index + 1, high) - np.maximum(index, low)
            taps.append((index, np.maximum(inside, 0) / (high - low)))
    else:
        center = np.clip((at + 0.5) * shrink - 0.5, 0, size - 1)
        first = np.floor(center)
        taps = [(first, 1 - (center - first)), (first + 1, center - first)]
    return tuple(
        (np.minimum(index, size - 1).astype(np.intp), weights.astype(np.float32))
        for index, weights in taps
        if weights.any()
    )


def _weighted_sum(parts: Iterator[tuple[np.ndarray, np.ndarray]]) -> np.ndarray:
    total: np.ndarray | None = None
    for part, weights in parts:
        weighted = part.astype(np.float32)
        weighted *= weights
        total = weighted if total is None else np.add(total, weighted, out=total)
    assert total is not None  # The weights of an output add up to 1.
    return total


#: Weights of red, green and blue in a gray level; ITU-R BT.601, as cv2.COLOR_RGB2GRAY.
LUMA = (0.299, 0.587, 0.114)

#: 16-bit encodings, and the factor on their values: gray levels of 0 to 255.996, and meters.
UNITS_16 = {'mono16': 1 / 256, '16UC1': 0.001}


_ALPHA_ENCODINGS = ('rgba8', 'bgra8')


def refuse_opaque(encoding: str) -> None:
    """Raise BadFrameError 'no fourth channel' for an encoding without alpha."""
    if encoding not in _ALPHA_ENCODINGS:
        raise BadFrameError(
            'no fourth channel',
            f'Encoding {encoding} has no fourth channel, which the network takes.',
            remedy=f'Publish {" or ".join(_ALPHA_ENCODINGS)}, or bind a second image as the '
            'fourth channel: inputs:=["INPUT=image:COLOR_TOPIC,DEPTH_TOPIC"].',
        )


def is_depth(frame: Frame) -> bool:
    """Return whether the values of a frame are depths in meters instead of pixels of 0 to 255."""
    return frame.encoding in DEPTH_ENCODINGS


def resample_gray(frame: Frame, out: Scaled) -> Iterator[tuple[slice, np.ndarray]]:
    """
    Resize the gray levels of a picture, or the depths of a depth image, as `resample` does.

    Gray is 0.299 r + 0.587 g + 0.114 b; mono16 keeps all bits, as value / 256. A depth is in
    meters; one that is not finite counts as 0.

    :returns: rows, and their (1, R, w) float32 values.
    """
    if frame.encoding in UNITS_16 or is_depth(frame):
        values = resample_values(_values(frame), out)
        yield slice(0, len(values)), values[None]
        return
    weights = np.array(LUMA, np.float32)[:, None, None]
    for block, pixels in resample(frame, out):
        yield block, pixels if len(pixels) == 1 else (pixels * weights).sum(axis=0, keepdims=True)


def resample_alpha(frame: Frame, out: Scaled) -> Iterator[tuple[slice, np.ndarray]]:
    """Resize the alpha channel of a picture as `resample` does, (1, R, w); or BadFrameError."""
    refuse_opaque(frame.encoding)
    alpha: np.ndarray = np.ndarray(
        (frame.height, frame.width), np.uint8, frame.data, 3, (frame.step, 4)
    ).astype(np.float32)
    values = resample_values(alpha, out)
    yield slice(0, len(values)), values[None]


def _values(frame: Frame) -> np.ndarray:
    """Return mono16 as value / 256, depths in meters: (H, W) float32."""
    values = frame.plane().astype(np.float32)
    if frame.encoding == '32FC1':
        values[~np.isfinite(values)] = 0
        return values
    return values * np.float32(UNITS_16[frame.encoding])
