"""Camera images in their encodings, and the conversion to colors."""

from __future__ import annotations

from collections.abc import Mapping
from copy import copy
from dataclasses import dataclass
from functools import cached_property
import math
import sys
from typing import Any, Literal

import numpy as np

from trt_ros.errors import BadFrameError
from trt_ros.vision.lens import Lens

Order = Literal['rgb', 'bgr']

_PACKED = {  # Bytes per pixel, order of the first three.
    'rgb8': (3, 'rgb'),
    'bgr8': (3, 'bgr'),
    'rgba8': (4, 'rgb'),
    'bgra8': (4, 'bgr'),
    '8UC3': (3, 'bgr'),
}
_GRAY = {'mono8': 1, '8UC1': 1, 'mono16': 2}  # Bytes per pixel.
#: Other encodings, by the names of OpenCV's conversions to RGB. OpenCV names a mosaic by the
#: second row's second and third pixel, ROS by the first two rows.
_CONVERSIONS = {
    'yuv422': 'YUV2RGB_UYVY',
    'uyvy': 'YUV2RGB_UYVY',
    'yuv422_yuy2': 'YUV2RGB_YUY2',
    'yuyv': 'YUV2RGB_YUY2',
    'nv12': 'YUV2RGB_NV12',
    'nv21': 'YUV2RGB_NV21',
    'bayer_rggb8': 'BayerBG2RGB',
    'bayer_grbg8': 'BayerGB2RGB',
    'bayer_gbrg8': 'BayerGR2RGB',
    'bayer_bggr8': 'BayerRG2RGB',
}
_YUV422 = ('yuv422', 'uyvy', 'yuv422_yuy2', 'yuyv')
_YUV420 = ('nv12', 'nv21')

#: Supported encodings, and their bytes per pixel in a row (of the Y plane for nv12 and nv21).
ENCODINGS: Mapping[str, int] = {
    **{name: nbytes for name, (nbytes, _) in _PACKED.items()},
    **_GRAY,
    **{name: 2 if name in _YUV422 else 1 for name in _CONVERSIONS},
}

#: Encodings of depth images, in millimeters and in meters (REP 118), and their bytes per pixel.
DEPTH_ENCODINGS: Mapping[str, int] = {'16UC1': 2, '32FC1': 4}
#: The supported encodings in a sentence.
ENCODING_ADVICE = (
    f'one of {", ".join(ENCODINGS)}; for a network of one channel or a depth input, also '
    f'{" or ".join(DEPTH_ENCODINGS)}'
)

_PIXEL_NBYTES = {**ENCODINGS, **DEPTH_ENCODINGS}
_ARRAY_DTYPES = {'mono16': 'u2', '16UC1': 'u2', '32FC1': 'f4'}  # Of any byte order.


def refuse_depth(encoding: str) -> None:
    """Raise BadFrameError 'depth image' for an encoding of depth images."""
    if encoding in DEPTH_ENCODINGS:
        raise BadFrameError(
            'depth image',
            f'Encoding {encoding} is of depth images, not of pictures.',
            cause='By REP 118, 16UC1 is depth in millimeters and 32FC1 in meters.',
            remedy='Use the color or mono topic of the camera instead (often '
            '.../color/image_raw or .../rgb/image_raw). Publish 16-bit pictures as '
            'mono16.',
        )


@dataclass(frozen=True, eq=False)
class Frame:
    """
    One image as received: its bytes and their layout. Borrows `data` and never copies it.

    :param data: 1-D contiguous uint8; rows of `step` bytes, the last row may end with its last
        pixel. nv12 and nv21 hold `height` rows of Y, then height / 2 rows of chroma pairs.
    :param step: bytes from one row to the next, at least those of the row's pixels.
    :param encoding: one of `ENCODINGS` or `DEPTH_ENCODINGS`, named as in
        sensor_msgs/image_encodings.hpp.
    :param is_bigendian: byte order of mono16, 16UC1 and 32FC1.
    :param lens: calibration by which a pipeline rectifies the image; None where it needs none.
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
    lens: Lens | None = None

    def __post_init__(self) -> None:
        self._check_layout()
        self._check_data()

    def _check_layout(self) -> None:
        if self.encoding not in _PIXEL_NBYTES:
            raise BadFrameError(
                'unknown encoding',
                f'Unsupported image encoding {self.encoding!r}.',
                remedy=f'Publish {ENCODING_ADVICE}.',
            )
        if self.width <= 0 or self.height <= 0:
            raise BadFrameError('zero size', f'The image is empty: {self._size}.')
        odd_width, odd_height = self.width % 2, self.height % 2
        if (self.encoding in _YUV422 and odd_width) or (
            self.encoding in _YUV420 and (odd_width or odd_height)
        ):
            raise BadFrameError(
                'odd size',
                f'An odd size is impossible in {self._size}: two pixels share their chroma.',
                remedy='Crop the image to an even size.',
            )
        if self.encoding.startswith('bayer') and min(self.width, self.height) < 3:
            raise BadFrameError(
                'too small',
                f'{self._size} is too small for demosaicing.',
                remedy='Publish at least 3 × 3 pixels.',
            )
        if self.step < self.row_nbytes:
            raise BadFrameError(
                'wrong step',
                f'{self._size} needs {self.row_nbytes} bytes per row, but step is {self.step}.',
            )

    def _check_data(self) -> None:
        if not isinstance(self.data, np.ndarray):
            raise BadFrameError(
                'wrong data',
                f'Image data is of type {type(self.data).__name__}, expected a NumPy array.',
                remedy='Pass np.frombuffer(data, np.uint8), which does not copy.',
            )
        if self.data.dtype != np.uint8 or self.data.ndim != 1 or not self.data.flags.c_contiguous:
            raise BadFrameError(
                'wrong data',
                f'Image data is {self.data.ndim}-D {self.data.dtype}, expected contiguous 1-D '
                'uint8.',
            )
        if self.data.size < self.nbytes:
            raise BadFrameError(
                'short data',
                f'{self._size} with step {self.step} needs {self.nbytes} bytes, but '
                f'the data has {self.data.size}.',
            )

    @property
    def _size(self) -> str:
        return f'{self.width} × {self.height} {self.encoding}'

    @property
    def wh(self) -> tuple[int, int]:
        """Width and height in pixels."""
        return self.width, self.height

    @cached_property
    def layout(self) -> tuple[int, int, int, str, bool, Lens | None]:
        """Width, height, step, encoding, byte order and lens."""
        size = self.width, self.height, self.step
        return (*size, self.encoding, self.is_bigendian, self.lens)

    @property
    def row_nbytes(self) -> int:
        """Bytes of the pixels of a row, without padding."""
        return self.width * _PIXEL_NBYTES[self.encoding]

    @property
    def row_count(self) -> int:
        """Number of rows of `step` bytes, including chroma rows."""
        return self.height * 3 // 2 if self.encoding in _YUV420 else self.height

    @cached_property
    def nbytes(self) -> int:
        """Number of bytes from the first pixel to the last."""
        return self.step * (self.row_count - 1) + self.row_nbytes

    def plane(self) -> np.ndarray:
        """Return a view of the values of an image of one channel: (H, W), in its byte order."""
        kind = _ARRAY_DTYPES.get(self.encoding, 'u1')
        dtype = np.dtype(('>' if self.is_bigendian else '<') + kind)
        shape, strides = (self.height, self.width), (self.step, dtype.itemsize)
        return np.ndarray(shape, dtype, self.data, 0, strides)

    def with_data(self, data: np.ndarray) -> Frame:
        """Return a frame of this layout with other bytes, as many; they are not checked."""
        frame = object.__new__(type(self))
        fields = frame.__dict__
        fields.update(self.__dict__)
        fields['data'] = data
        return frame

    def with_lens(self, lens: Lens | None) -> Frame:
        """Return the same image with a lens; raises BadFrameError for a depth image."""
        refuse_depth(self.encoding)
        frame = copy(self)
        frame.__dict__['lens'] = lens
        frame.__dict__.pop('layout', None)
        return frame

    def rectified(self) -> Frame:
        """Return the rectified image, with colors as bgr8; the image itself without a lens."""
        if self.lens is None:
            return self
        encoding, shape = self.encoding, (self.height, self.width, 4)
        if encoding in _GRAY:
            pixels = self.plane()
            pixels = pixels.astype(pixels.dtype.newbyteorder('='))
        elif encoding in ('rgba8', 'bgra8'):
            pixels = np.ndarray(shape, np.uint8, self.data, 0, (self.step, 4, 1))
        else:
            pixels, encoding = to_color(self, 'bgr'), 'bgr8'
        return Frame.from_pixels(self.lens.rectify(pixels), encoding)

    @classmethod
    def from_pixels(cls, pixels: np.ndarray, encoding: str = 'bgr8') -> Frame:
        """
        Wrap an array of pixels; copies only where pixels of a row are not contiguous.

        :param pixels: uint8 (H, W) or (H, W, bytes per pixel), uint16 (H, W) for mono16 and 16UC1,
            float32 (H, W) for 32FC1, (H * 3 / 2, W) for nv12 and nv21. Rows may be padded, as in a
            crop of an image.
        :raises BadFrameError: when `pixels` do not fit the encoding.
        """
        width, height, row_nbytes = pixel_rows(pixels.shape, pixels.dtype, encoding)
        rows = len(pixels)
        step = row_nbytes if pixels.flags.c_contiguous else pixels.strides[0]
        if step < row_nbytes or not pixels[0].flags.c_contiguous:
            step, pixels = row_nbytes, np.ascontiguousarray(pixels)
        if step == row_nbytes:
            data = pixels.reshape(-1).view(np.uint8)
        else:
            first = pixels[:1, :1].reshape(-1).view(np.uint8)
            total = step * (rows - 1) + row_nbytes
            data = np.lib.stride_tricks.as_strided(first, (total,), (1,))
        big = '>' if sys.byteorder == 'little' else '='
        return cls(data, width, height, step, encoding, pixels.dtype.byteorder == big)


def pixel_rows(
    shape: tuple[int, ...], dtype: np.dtype[Any], encoding: str
) -> tuple[int, int, int]:
    """Return width, height and bytes per row of pixels as from_pixels() takes them, or raise."""
    if len(shape) not in (2, 3):
        raise BadFrameError(
            'wrong data', f'Unsupported pixel array shape {shape}, expected (H, W[, C]).'
        )
    rows, width = shape[:2]
    if 0 in shape or encoding not in _PIXEL_NBYTES:
        Frame(np.empty(0, np.uint8), width, rows, 0, encoding)  # Raises the specific error.
    nbytes, row_nbytes = _PIXEL_NBYTES[encoding], math.prod(shape[1:]) * dtype.itemsize
    if row_nbytes != nbytes * width or dtype.str[1:] != _ARRAY_DTYPES.get(encoding, 'u1'):
        raise BadFrameError(
            'wrong data',
            f'A pixel array {shape} {dtype} does not match {encoding} with '
            f'{nbytes} bytes per pixel.',
            remedy='Pass an array (H, W, 3) uint8 in BGR order, or name the encoding of other '
            "pixels: Frame.from_pixels(array, 'mono8').",
        )
    return width, rows * 2 // 3 if encoding in _YUV420 else rows, row_nbytes


def to_color(frame: Frame, order: Order) -> np.ndarray:
    """
    Convert a frame to colors.

    For rgb8, bgr8, rgba8, bgra8, 8UC3, mono8, 8UC1 and mono16 (its high byte), the result is a
    view of the frame's data. The others are converted by OpenCV; the GPU kernels do the same
    arithmetic (modules/imgproc/src/color_yuv.simd.hpp and demosaicing.cpp):

    - yuv422, nv12, nv21: BT.601, limited range, chroma not interpolated. With the coefficients
      1.164, 1.596, -0.813, -0.391 and 2.018 in units of 2**-20 and
      y = 1220542 max(Y - 16, 0) + 2**19, r = (y + 1673527 (V - 128)) >> 20,
      g = (y - 852492 (V - 128) - 409993 (U - 128)) >> 20 and
      b = (y + 2116026 (U - 128)) >> 20, clipped to 0..255.
    - bayer: the mean of the two or four nearest pixels of a color, 0.5 rounded up; the outermost
      rows and columns repeat their inner neighbors.

    :returns: (height, width, 3) uint8, channels in `order`; read-only.
    :raises BadFrameError: 'depth image', for an encoding of depth images.
    """
    lines, pixel_nbytes, channels = plain_channels(frame, order)
    pixels = lines.reshape(frame.height, frame.width, pixel_nbytes)
    if len(channels) == 1:
        gray = pixels[..., channels[0]]
        return np.broadcast_to(gray[..., None], (frame.height, frame.width, 3))
    return pixels[..., :3] if channels == (0, 1, 2) else pixels[..., 2::-1]


def plain_channels(frame: Frame, order: Order) -> tuple[np.ndarray, int, tuple[int, ...]]:
    """
    Return the frame's channels: a view, or converted.

    :returns: (height, bytes per row) uint8; the bytes per pixel; and the offsets of the three
        channels in `order`, or of the one channel of a gray image.
    :raises BadFrameError: 'depth image', for an encoding of depth images.
    """
    refuse_depth(frame.encoding)
    if frame.encoding in _PACKED:
        pixel_nbytes, have = _PACKED[frame.encoding]
        channels: tuple[int, ...] = (0, 1, 2) if have == order else (2, 1, 0)
    elif frame.encoding in _GRAY:
        pixel_nbytes = _GRAY[frame.encoding]
        channels = (0,) if frame.is_bigendian else (pixel_nbytes - 1,)
    else:
        return _converted(frame, order).reshape(frame.height, -1), 3, (0, 1, 2)
    shape, strides = (frame.height, frame.row_nbytes), (frame.step, 1)
    return np.ndarray(shape, np.uint8, frame.data, 0, strides), pixel_nbytes, channels


def without_conversion(frame: Frame) -> Frame:
    """Return a frame whose channels can be viewed often: converted to bgr8, or itself."""
    is_plain = frame.encoding not in _CONVERSIONS
    return frame if is_plain else Frame.from_pixels(_converted(frame, 'bgr'))


def _converted(frame: Frame, order: Order) -> np.ndarray:
    import cv2  # Imported here: the GPU kernel converts without it.

    nbytes = ENCODINGS[frame.encoding]
    shape, strides = (frame.row_count, frame.width, 2), (frame.step, nbytes, 1)
    pixels: np.ndarray = np.ndarray(
        shape[: 1 + nbytes], np.uint8, frame.data, 0, strides[: 1 + nbytes]
    )
    name = _CONVERSIONS[frame.encoding].replace('2RGB', f'2{order.upper()}')
    return np.asarray(cv2.cvtColor(pixels, getattr(cv2, f'COLOR_{name}')))
