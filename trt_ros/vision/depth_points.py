"""Depth images as distances, and their points in the optical frame of the camera."""

from __future__ import annotations

from dataclasses import dataclass

import cv2
import numpy as np

from trt_ros.errors import BadFrameError
from trt_ros.vision.frame import DEPTH_ENCODINGS, Frame


@dataclass(frozen=True)
class Intrinsics:
    """
    A pinhole camera without distortion.

    Coordinates are those of sensor_msgs/CameraInfo: pixel centres are at whole numbers. The frame
    is the optical one of REP 103: x to the right, y down, z forward, in metres.

    :param fx, fy: focal lengths in pixels; `cx`, `cy`: principal point in pixels.
    :param image_wh: size of the images.
    """

    fx: float
    fy: float
    cx: float
    cy: float
    image_wh: tuple[int, int]


@dataclass(frozen=True)
class DepthImage:
    """
    A depth image (REP 118): z in the optical frame, not the length of the ray.

    :param values: (H, W) uint16 or float32, a view of the frame's data.
    :param unit: metres per unit of `values`.
    """

    values: np.ndarray
    unit: float

    @classmethod
    def of(cls, frame: Frame) -> DepthImage:
        """
        Return the depths of a frame, without a copy.

        :raises BadFrameError: 'not a depth image', unless it is 16UC1 (mm) or 32FC1 (m).
        """
        if frame.encoding not in DEPTH_ENCODINGS:
            raise BadFrameError(
                'not a depth image',
                f'Encoding {frame.encoding} is not one of depth images.',
                cause='By REP 118, depth is 16UC1 in millimetres or 32FC1 in metres.',
                remedy='Remap depth_image to the depth topic of the camera.',
            )
        is_float = frame.encoding == '32FC1'
        dtype = np.dtype(('>' if frame.is_bigendian else '<') + ('f4' if is_float else 'u2'))
        shape, strides = (frame.height, frame.width), (frame.step, dtype.itemsize)
        values: np.ndarray = np.ndarray(shape, dtype, frame.data, 0, strides)
        return cls(values, 1.0 if is_float else 0.001)

    def metres(self, index: tuple[np.ndarray, np.ndarray] | tuple[slice, slice]) -> np.ndarray:
        """Return the depths of some pixels in metres, float32; 0 and not finite: no depth."""
        metres = self.values[index].astype(np.float32)
        if self.unit != 1:
            metres *= np.float32(self.unit)
        return metres


def deproject(
    metres: np.ndarray, cols: np.ndarray, rows: np.ndarray, camera: Intrinsics
) -> tuple[np.ndarray, np.ndarray]:
    """
    Compute x and y of pixels: x = (col - cx) z / fx and y = (row - cy) z / fy.

    This inverts the projection (u, v) = (fx x / z + cx, fy y / z + cy) of sensor_msgs/CameraInfo.

    :param metres: z of the pixels; the other arrays broadcast to its shape.
    :returns: x and y in metres, of the shape and dtype of `metres`.
    """
    dtype = metres.dtype
    across = ((cols - camera.cx) / camera.fx).astype(dtype)
    down = ((rows - camera.cy) / camera.fy).astype(dtype)
    return metres * across, metres * down


_BLOCK_ROWS = 16  # They fit into the cache.
_NAN_BITS = np.uint32(0x7FC00000)


def organised_wh(image_wh: tuple[int, int], stride: int) -> tuple[int, int]:
    """Return width and height of the points of every `stride`-th row and column."""
    return -(-image_wh[0] // stride), -(-image_wh[1] // stride)


def organised_points(
    out: np.ndarray,
    metres: np.ndarray,
    bgr: np.ndarray,
    camera: Intrinsics,
    *,
    stride: int = 1,
    max_range: float = np.inf,
) -> None:
    """
    Compute the coloured points of a depth image in the optical frame of its camera.

    :param out: (h, w, 4) float32 of organised_wh(), written: x, y, z in metres, NaN where there is
        no depth, and rgb: the bits of the integer 0x00RRGGBB, as PCL has it.
    :param metres: (H, W) float32; no depth where it is not above 0 and at most `max_range`.
    :param bgr: (H, W, 3) uint8.
    :param stride: every n-th row and column; 1 for all, pixel by pixel.
    """
    width, height = organised_wh(camera.image_wh, stride)
    across = ((np.arange(width) * stride - camera.cx) / camera.fx).astype(np.float32)
    down = ((np.arange(height) * stride - camera.cy) / camera.fy).astype(np.float32)[:, None]
    limit = np.float32(min(float(max_range), float(np.finfo(np.float32).max)))
    # A view of rgb8 has its channels in reverse, which is slow to copy.
    is_rgb = bgr.strides[2] < 0
    packed = bgr[..., ::-1] if is_rgb else bgr
    to_bgra = cv2.COLOR_RGB2BGRA if is_rgb else cv2.COLOR_BGR2BGRA
    for start in range(0, height, _BLOCK_ROWS):
        block = slice(start, start + _BLOCK_ROWS)
        pixels = slice(stride * start, stride * (start + _BLOCK_ROWS), stride)
        z = np.ascontiguousarray(metres[pixels, ::stride])
        is_lost = ~((z > 0) & (z <= limit))  # True for NaN, too.
        bits = is_lost.view(np.uint8).astype(np.uint32)
        bits *= _NAN_BITS  # A NaN with any other bits is one, too; np.where is slower.
        bits |= z.view(np.uint32)
        z = bits.view(np.float32)
        colours = cv2.cvtColor(np.ascontiguousarray(packed[pixels]), to_bgra)
        rgb = np.bitwise_and(colours.view('<u4')[:, ::stride, 0], 0xFFFFFF)
        # It interleaves several times as fast as NumPy.
        cv2.merge([z * across, z * down[block], z, rgb.view(np.float32)], out[block])
