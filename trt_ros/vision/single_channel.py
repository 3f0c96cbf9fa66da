"""Resizing of images to one channel: gray levels, depth, or alpha."""

from collections.abc import Iterator

import numpy as np

from trt_ros.errors import BadFrameError
from trt_ros.vision.frame import DEPTH_ENCODINGS, Frame
from trt_ros.vision.resample import resample, resample_values

#: Weights of red, green and blue in a gray level; ITU-R BT.601, as cv2.COLOR_RGB2GRAY.
LUMA = (0.299, 0.587, 0.114)

#: 16-bit encodings, and the factor on their values: gray levels of 0 to 255.996, and meters.
UNITS_16 = {'mono16': 1 / 256, '16UC1': 0.001}


_ALPHA_ENCODINGS = ('rgba8', 'bgra8')


def refuse_opaque(encoding: str) -> None:
    """
    Check that an encoding has an alpha channel, for a network of four channels and one image.

    :raises BadFrameError: 'no fourth channel', when it has none.
    """
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


def resample_gray(
    frame: Frame,
    out_wh: tuple[int, int],
    *,
    antialias: bool = False,
    crop_xy: tuple[int, int] = (0, 0),
    crop_wh: tuple[int, int] | None = None,
) -> Iterator[tuple[slice, np.ndarray]]:
    """
    Resize the gray levels of a picture, or the depths of a depth image, as `resample` does.

    Gray is 0.299 r + 0.587 g + 0.114 b; mono16 keeps all bits, as value / 256. A depth is in
    meters; one that is not finite counts as 0.

    :returns: rows, and their (1, R, w) float32 values.
    """
    if frame.encoding in UNITS_16 or is_depth(frame):
        values = resample_values(_values(frame), out_wh, antialias, crop_xy, crop_wh or out_wh)
        yield slice(0, len(values)), values[None]
        return
    for block, pixels in resample(
        frame, 'rgb', out_wh, antialias=antialias, crop_xy=crop_xy, crop_wh=crop_wh
    ):
        yield block, pixels if len(pixels) == 1 else _luma(pixels)


def resample_alpha(
    frame: Frame,
    out_wh: tuple[int, int],
    *,
    antialias: bool = False,
    crop_xy: tuple[int, int] = (0, 0),
    crop_wh: tuple[int, int] | None = None,
) -> Iterator[tuple[slice, np.ndarray]]:
    """
    Resize the alpha channel of a picture, as `resample` does.

    :returns: rows, and their (1, R, w) float32 values, 0 to 255.
    :raises BadFrameError: 'no fourth channel', when it has none.
    """
    refuse_opaque(frame.encoding)
    alpha: np.ndarray = np.ndarray(
        (frame.height, frame.width), np.uint8, frame.data, 3, (frame.step, 4)
    ).astype(np.float32)
    values = resample_values(alpha, out_wh, antialias, crop_xy, crop_wh or out_wh)
    yield slice(0, len(values)), values[None]


def _values(frame: Frame) -> np.ndarray:
    """Return mono16 as value / 256, depths in meters: (H, W) float32."""
    order = '>' if frame.is_bigendian else '<'
    dtype = np.dtype(order + ('f4' if frame.encoding == '32FC1' else 'u2'))
    shape = (frame.height, frame.width)
    raw: np.ndarray = np.ndarray(shape, dtype, frame.data, 0, (frame.step, dtype.itemsize))
    values = raw.astype(np.float32)
    if frame.encoding == '32FC1':
        values[~np.isfinite(values)] = 0
        return values
    return values * np.float32(UNITS_16[frame.encoding])


def _luma(pixels: np.ndarray) -> np.ndarray:
    red, green, blue = map(np.float32, LUMA)
    gray: np.ndarray = pixels[:1] * red + pixels[1:2] * green + pixels[2:] * blue
    return gray
