"""Depth images as distances, and their points in the optical frame of the camera."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from trt_ros.errors import BadFrameError
from trt_ros.vision.frame import DEPTH_ENCODINGS, Frame


@dataclass(frozen=True)
class Intrinsics:
    """
    A pinhole camera without distortion.

    Coordinates are those of sensor_msgs/CameraInfo: pixel centers are at whole numbers. The frame
    is the optical one of REP 103: x to the right, y down, z forward, in meters.

    :param fx, fy: focal lengths in pixels; `cx`, `cy`: principal point in pixels.
    :param image_wh: size of the images.
    """

    fx: float
    fy: float
    cx: float
    cy: float
    image_wh: tuple[int, int]


def check_is_depth(encoding: str) -> None:
    """
    Check that an encoding is one of depth images.

    :raises BadFrameError: 'not a depth image', unless it is 16UC1 (mm) or 32FC1 (m).
    """
    if encoding not in DEPTH_ENCODINGS:
        raise BadFrameError(
            'not a depth image',
            f'Encoding {encoding} is not one of depth images.',
            cause='By REP 118, depth is 16UC1 in millimeters or 32FC1 in meters.',
            remedy='Remap depth_image to the depth topic of the camera.',
        )


@dataclass(frozen=True)
class DepthImage:
    """
    A depth image (REP 118): z in the optical frame, not the length of the ray.

    :param values: (H, W) uint16 or float32, a view of the frame's data.
    :param unit: meters per unit of `values`.
    """

    values: np.ndarray
    unit: float

    @classmethod
    def of(cls, frame: Frame) -> DepthImage:
        """
        Return the depths of a frame, without a copy.

        :raises BadFrameError: 'not a depth image', unless it is 16UC1 (mm) or 32FC1 (m).
        """
        check_is_depth(frame.encoding)
        is_float = frame.encoding == '32FC1'
        dtype = np.dtype(('>' if frame.is_bigendian else '<') + ('f4' if is_float else 'u2'))
        shape, strides = (frame.height, frame.width), (frame.step, dtype.itemsize)
        values: np.ndarray = np.ndarray(shape, dtype, frame.data, 0, strides)
        return cls(values, 1.0 if is_float else 0.001)

    def meters(self, index: tuple[np.ndarray, np.ndarray] | tuple[slice, slice]) -> np.ndarray:
        """
        Return the depths of some pixels in meters, float32; 0 and not finite: no depth.

        Neither is the maximum of uint16, which stands for all that it cannot hold.
        """
        values = self.values[index]
        meters = values.astype(np.float32)
        if self.unit != 1:
            meters[values == np.iinfo(np.uint16).max] = 0
            meters *= np.float32(self.unit)
        return meters


def deproject(
    meters: np.ndarray, cols: np.ndarray, rows: np.ndarray, camera: Intrinsics
) -> tuple[np.ndarray, np.ndarray]:
    """
    Compute x and y of pixels: x = (col - cx) z / fx and y = (row - cy) z / fy.

    This inverts the projection (u, v) = (fx x / z + cx, fy y / z + cy) of sensor_msgs/CameraInfo.

    :param meters: z of the pixels; the other arrays broadcast to its shape.
    :returns: x and y in meters, of the shape and dtype of `meters`.
    """
    dtype = meters.dtype
    across = ((cols - camera.cx) / camera.fx).astype(dtype)
    down = ((rows - camera.cy) / camera.fy).astype(dtype)
    return meters * across, meters * down


def mask_invalid(out: np.ndarray, meters: np.ndarray, is_valid: np.ndarray) -> None:
    """
    Write depths, and NaN where they are not valid; without branches, so at one speed.

    :param out: (H, W) float32, written; may be `meters`.
    :param meters: (H, W) float32.
    :param is_valid: (H, W) bool; overwritten.
    """
    lost = is_valid.view(np.int8)
    lost -= 1  # 0 where valid, else all bits set, which are a NaN in float32.
    np.bitwise_or(meters.view(np.int32), lost, out=out.view(np.int32))
