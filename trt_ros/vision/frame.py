"""One image as it came from a camera, and its colours."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Literal

import numpy as np

from trt_ros.errors import BadFrameError

Order = Literal['rgb', 'bgr']

_PACKED = {  # Bytes a pixel, order of the first three.
    'rgb8': (3, 'rgb'), 'bgr8': (3, 'bgr'), 'rgba8': (4, 'rgb'), 'bgra8': (4, 'bgr'),
    '8UC3': (3, 'bgr'),
}
_GREY = {'mono8': 1, '8UC1': 1, 'mono16': 2, '16UC1': 2}  # Bytes a pixel.
_YUV422 = {  # Where Y, U and V of the first pixel lie in the four bytes of two pixels.
    'yuv422': (1, 0, 2), 'uyvy': (1, 0, 2), 'yuv422_yuy2': (0, 1, 3), 'yuyv': (0, 1, 3),
}
_YUV420 = {'nv12': (0, 1), 'nv21': (1, 0)}  # Where U and V lie in a pair of chroma bytes.
_BAYER = {  # Row and column, modulo 2, of the red pixels.
    'bayer_rggb8': (0, 0), 'bayer_grbg8': (0, 1), 'bayer_gbrg8': (1, 0), 'bayer_bggr8': (1, 1),
}

#: Every encoding that is understood, and its bytes a pixel in a row (of the Y plane for nv12/21).
ENCODINGS: Mapping[str, int] = {
    **{name: nbytes for name, (nbytes, _) in _PACKED.items()},
    **_GREY,
    **dict.fromkeys(_YUV422, 2),
    **dict.fromkeys(_YUV420, 1),
    **dict.fromkeys(_BAYER, 1),
}


@dataclass(frozen=True)
class Frame:
    """
    One image as it came: its bytes and how to read them. Borrows `data`, never copies it.

    :param data: 1-D contiguous uint8; whole rows of `step` bytes, the last may end with its last
        pixel. nv12 and nv21 hold `height` rows of Y, then height / 2 rows of chroma pairs.
    :param step: bytes from one row to the next, at least the row's own.
    :param encoding: one of `ENCODINGS`, named as in sensor_msgs/image_encodings.hpp.
    :param is_bigendian: byte order of mono16 and 16UC1.
    :raises BadFrameError: 'unknown encoding', 'zero size', 'odd size' (yuv422 needs an even width,
        nv12 and nv21 an even width and height), 'too small' (bayer needs 3 × 3), 'wrong step',
        'short data', 'wrong data'.
    """

    data: np.ndarray
    width: int
    height: int
    step: int
    encoding: str
    is_bigendian: bool = False

    def __post_init__(self) -> None:
        size = f'{self.width} × {self.height} {self.encoding}'
        if self.encoding not in ENCODINGS:
            raise BadFrameError(
                'unknown encoding', f'Images encoded as {self.encoding!r} are not understood.',
                remedy=f'Publish one of {", ".join(ENCODINGS)}.')
        if self.width <= 0 or self.height <= 0:
            raise BadFrameError('zero size', f'The image is empty: {size}.')
        odd_width, odd_height = self.width % 2, self.height % 2
        if (self.encoding in _YUV422 and odd_width) or (
                self.encoding in _YUV420 and (odd_width or odd_height)):
            raise BadFrameError(
                'odd size', f'Pixels of {size} share their colour in pairs, so an odd size has '
                'no meaning.', remedy='Crop the image to an even size.')
        if self.encoding in _BAYER and min(self.width, self.height) < 3:
            raise BadFrameError('too small', f'{size} has too few pixels to find colours in.')
        if self.step < self.row_nbytes:
            raise BadFrameError(
                'wrong step', f'{size} needs {self.row_nbytes} bytes a row, but step is '
                f'{self.step}.')
        if self.data.dtype != np.uint8 or self.data.ndim != 1 or not self.data.flags.c_contiguous:
            raise BadFrameError(
                'wrong data', f'Image bytes come as contiguous 1-D uint8, not as '
                f'{self.data.ndim}-D {self.data.dtype}.')
        if self.data.size < self.nbytes:
            raise BadFrameError(
                'short data', f'{size} with step {self.step} needs {self.nbytes} bytes, but '
                f'{self.data.size} came.')

    @property
    def wh(self) -> tuple[int, int]:
        return self.width, self.height

    @property
    def row_nbytes(self) -> int:
        """Bytes of a row that hold pixels."""
        return self.width * ENCODINGS[self.encoding]

    @property
    def row_count(self) -> int:
        """Rows of `step` bytes, chroma rows included."""
        return self.height * 3 // 2 if self.encoding in _YUV420 else self.height

    @property
    def nbytes(self) -> int:
        """Bytes from the first pixel to the last."""
        return self.step * (self.row_count - 1) + self.row_nbytes

    @classmethod
    def from_pixels(cls, pixels: np.ndarray, encoding: str = 'bgr8') -> Frame:
        """
        Wrap an array of pixels, without a copy where its pixels lie side by side.

        :param pixels: (H, W) or (H, W, C) uint8, or uint16 for mono16; rows may be apart, as in a
            crop of a larger image. nv12 and nv21: (H * 3 / 2, W).
        :raises BadFrameError: when `pixels` do not fit the encoding.
        """
        if encoding not in ENCODINGS or pixels.ndim not in (2, 3) or 0 in pixels.shape:
            # Its own error names the encoding or the size.
            return cls(pixels.reshape(-1), *_wh(pixels), 0, encoding)
        nbytes = pixels[0, 0].nbytes
        if nbytes != ENCODINGS[encoding]:
            raise BadFrameError(
                'wrong data', f'{encoding} has {ENCODINGS[encoding]} bytes a pixel, but the '
                f'array of shape {pixels.shape} and dtype {pixels.dtype} has {nbytes}.')
        if pixels[0].strides[0] != nbytes or not pixels[0, 0].flags.c_contiguous \
                or pixels.strides[0] < pixels[0].nbytes:
            pixels = np.ascontiguousarray(pixels)
        rows, width = pixels.shape[:2]
        step = pixels.strides[0] if rows > 1 else pixels[0].nbytes
        data = np.lib.stride_tricks.as_strided(
            pixels[0, 0].reshape(-1).view(np.uint8), (step * (rows - 1) + width * nbytes,), (1,))
        height = rows * 2 // 3 if encoding in _YUV420 else rows
        is_bigendian = pixels.dtype.byteorder == '>' or (
            pixels.dtype.byteorder == '=' and not np.little_endian)
        return cls(data, width, height, step, encoding, is_bigendian)


def to_colour(frame: Frame, order: Order) -> np.ndarray:
    """
    See a frame as colours.

    rgb8, bgr8, rgba8, bgra8, 8UC3, mono8, 8UC1, mono16 and 16UC1 come back as views into the
    frame's data, without a copy; the others are converted.

    - mono16, 16UC1: the high byte.
    - yuv422, nv12, nv21: BT.601, limited range, each chroma sample for all its pixels, in integers
      as OpenCV's cvtColor (modules/imgproc/src/color_yuv.simd.hpp): with the coefficients in
      units of 2**-20 (1.164 as 1220542 and so on), y = 1220542 max(Y - 16, 0),
      r = (y + 1673527 (V - 128) + 2**19) >> 20, g, b alike, clipped to 0..255.
    - bayer: bilinear as OpenCV's cvtColor: the mean of the two or four nearest pixels of a
      colour, halves rounded up; the outermost rows and columns repeat their inner neighbours.

    :returns: (height, width, 3) uint8, channels in `order`; read it only.
    """
    if frame.encoding in _PACKED or frame.encoding in _GREY:
        return _view(frame, order)
    if frame.encoding in _BAYER:
        return _demosaic(frame, order)
    return _yuv_at(frame, order, np.arange(frame.height), np.arange(frame.width))


def colour_at(frame: Frame, order: Order, rows: np.ndarray, cols: np.ndarray) -> np.ndarray:
    """
    Equal to_colour(frame, order)[rows][:, cols], converting no more than that.

    :param rows: (R,) indices, 0 to height - 1; `cols`: (C,) alike.
    :returns: (R, C, 3) uint8, a copy.
    """
    if frame.encoding in _YUV422 or frame.encoding in _YUV420:
        return _yuv_at(frame, order, rows, cols)
    return np.ascontiguousarray(to_colour(frame, order)[rows][:, cols])


def _wh(pixels: np.ndarray) -> tuple[int, int]:
    height, width = (*pixels.shape, 0, 0)[:2]
    return width, height


def _plane(frame: Frame, shape: tuple[int, ...], strides: tuple[int, ...],
           offset: int = 0) -> np.ndarray:
    """See bytes of the frame as uint8 of this shape."""
    return np.ndarray(shape, np.uint8, frame.data, offset, strides)


def _view(frame: Frame, order: Order) -> np.ndarray:
    height, width, step = frame.height, frame.width, frame.step
    if frame.encoding in _PACKED:
        nbytes, have = _PACKED[frame.encoding]
        pixels = _plane(frame, (height, width, 3), (step, nbytes, 1))
        return pixels if have == order else pixels[..., ::-1]
    nbytes = _GREY[frame.encoding]
    high_byte = 0 if frame.is_bigendian else nbytes - 1
    grey = _plane(frame, (height, width, 1), (step, nbytes, 1), high_byte)
    return np.broadcast_to(grey, (height, width, 3))


def _yuv_at(frame: Frame, order: Order, rows: np.ndarray, cols: np.ndarray) -> np.ndarray:
    height, width, step = frame.height, frame.width, frame.step
    if frame.encoding in _YUV422:
        at_y, at_u, at_v = _YUV422[frame.encoding]
        y_plane = _plane(frame, (height, width), (step, 2), at_y)
        u_plane = _plane(frame, (height, width // 2), (step, 4), at_u)
        v_plane = _plane(frame, (height, width // 2), (step, 4), at_v)
        chroma_rows = rows
    else:
        at_u, at_v = _YUV420[frame.encoding]
        y_plane = _plane(frame, (height, width), (step, 1))
        u_plane = _plane(frame, (height // 2, width // 2), (step, 2), step * height + at_u)
        v_plane = _plane(frame, (height // 2, width // 2), (step, 2), step * height + at_v)
        chroma_rows = rows // 2
    chroma_cols = cols // 2
    u = u_plane[chroma_rows][:, chroma_cols].astype(np.int32) - 128
    v = v_plane[chroma_rows][:, chroma_cols].astype(np.int32) - 128
    y = np.maximum(y_plane[rows][:, cols].astype(np.int32) - 16, 0) * 1220542 + (1 << 19)
    red, green, blue = 1673527 * v, -852492 * v - 409993 * u, 2116026 * u
    pixels = np.empty((*y.shape, 3), np.uint8)
    for channel, chroma in enumerate(
            (red, green, blue) if order == 'rgb' else (blue, green, red)):
        pixels[..., channel] = np.clip((y + chroma) >> 20, 0, 255)
    return pixels


def _demosaic(frame: Frame, order: Order) -> np.ndarray:
    height, width = frame.height, frame.width
    raw = _plane(frame, (height, width), (frame.step, 1)).astype(np.uint16)
    beside = raw[:, :-2] + raw[:, 2:]
    across = raw[:-2] + raw[2:]
    # The interior only, (height - 2, width - 2): means of two, of two, of four and of four.
    horizontal = (beside[1:-1] + 1) >> 1
    vertical = (across[:, 1:-1] + 1) >> 1
    cross = (beside[1:-1] + across[:, 1:-1] + 2) >> 2
    diagonal = (beside[:-2] + beside[2:] + 2) >> 2
    own = raw[1:-1, 1:-1]

    pixels = np.empty((height, width, 3), np.uint8)
    inner = pixels[1:-1, 1:-1]
    red, blue = (0, 2) if order == 'rgb' else (2, 0)
    # The interior starts at pixel (1, 1), so parities are swapped there.
    red_y, red_x = (1 - parity for parity in _BAYER[frame.encoding])
    for y, x, parts in (
            (red_y, red_x, (own, cross, diagonal)),
            (red_y, 1 - red_x, (horizontal, own, vertical)),
            (1 - red_y, red_x, (vertical, own, horizontal)),
            (1 - red_y, 1 - red_x, (diagonal, cross, own))):
        for channel, part in zip((red, 1, blue), parts):
            inner[y::2, x::2, channel] = part[y::2, x::2]
    pixels[1:-1, 0], pixels[1:-1, -1] = pixels[1:-1, 1], pixels[1:-1, -2]
    pixels[0], pixels[-1] = pixels[1], pixels[-2]
    return pixels
