"""Depth images as distances, and their points, also as a picture of points with colors."""

from __future__ import annotations

from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
import os

import cv2
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
    """Raise BadFrameError 'not a depth image' unless an encoding is 16UC1 (mm) or 32FC1 (m)."""
    if encoding not in DEPTH_ENCODINGS:
        raise BadFrameError(
            'not a depth image',
            f'Encoding {encoding} is not one of depth images.',
            cause='By REP 118, depth is 16UC1 in millimeters or 32FC1 in meters.',
            remedy='Remap depth_image to the depth topic of the camera.',
        )


@dataclass(frozen=True)
class DepthImage:
    """A depth image (REP 118): z in the optical frame, not the length of the ray."""

    values: np.ndarray
    unit: float

    @classmethod
    def of(cls, frame: Frame) -> DepthImage:
        """Return the depths of a frame, without a copy, or raise as `check_is_depth`."""
        check_is_depth(frame.encoding)
        return cls(frame.plane(), 1.0 if frame.encoding == '32FC1' else 0.001)

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


#: Points per band of rows; the arrays of a band fit into the L2 cache of a core.
BAND_POINTS = 24 * 1280
#: Smaller clouds are computed by one thread.
SHARED_POINTS = 4 * BAND_POINTS


def organized_wh(image_wh: tuple[int, int], stride: int) -> tuple[int, int]:
    """Return width and height of the points of every `stride`-th row and column."""
    return -(-image_wh[0] // stride), -(-image_wh[1] // stride)


class OrganizedPoints:
    """
    Colored points of depth images, computed by two threads where there is more than one core.

    Owns the second thread, from the first large cloud until close(), and working memory that is
    kept between images; one thread at a time calls compute().
    """

    def __init__(self) -> None:
        self._helper = ThreadPoolExecutor(1, 'points')
        self._rays: _Rays | None = None
        self._bands: tuple[_Band, ...] = ()

    def close(self) -> None:
        """End the second thread; may be called twice."""
        self._helper.shutdown()

    def compute(
        self,
        out: np.ndarray,
        meters: np.ndarray,
        bgr: np.ndarray,
        camera: Intrinsics,
        *,
        stride: int = 1,
        max_range: float = np.inf,
    ) -> None:
        """
        Compute the points of a depth image in the optical frame of its camera.

        :param out: (h, w, 4) float32 of organized_wh(), written: x, y, z in meters, NaN where
            there is no depth, and rgb: the bits of the integer 0x00RRGGBB, as PCL has it.
        :param meters: (H, W) float32; no depth where it is not above 0 and at most `max_range`.
        :param bgr: (H, W, 3) uint8.
        :param stride: every n-th row and column; 1 for all, pixel by pixel.
        """
        rays = self._rays
        if rays is None or rays.key != (camera, stride):
            rays = self._rays = _Rays(camera, stride)
            self._bands = tuple(_Band(rays, camera.image_wh[0]) for _ in range(2))
        limit = np.float32(min(float(max_range), float(np.finfo(np.float32).max)))
        height, width = out.shape[:2]
        # Both threads take the next band from it.
        starts = iter(range(0, height, rays.rows))
        work = out, meters, bgr, rays, limit, starts
        if height * width < SHARED_POINTS or len(os.sched_getaffinity(0)) == 1:
            self._bands[0].compute(*work)
            return
        second = self._helper.submit(self._bands[1].compute, *work)
        self._bands[0].compute(*work)
        if not second.cancel():
            second.result()


class _Rays:
    """Directions of the pixels' rays at z = 1: x across and y down, for bands of rows."""

    def __init__(self, camera: Intrinsics, stride: int) -> None:
        self.key, self.stride = (camera, stride), stride
        width, height = organized_wh(camera.image_wh, stride)
        down = ((np.arange(height) * stride - camera.cy) / camera.fy).astype(np.float32)
        self.across = ((np.arange(width) * stride - camera.cx) / camera.fx).astype(np.float32)
        self.down, self.rows = down[:, None], max(BAND_POINTS // width, 1)


class _Band:
    """Working memory of one thread for a band of rows; `columns`: width of the image."""

    def __init__(self, rays: _Rays, columns: int) -> None:
        shape = rays.rows, len(rays.across)
        self._x, self._y, self._z = np.empty((3, *shape), np.float32)
        self._bgra = np.empty((rays.rows, columns, 4), np.uint8)
        self._rgb = np.empty(shape, np.uint32)
        self._is_valid, self._is_near = np.empty((2, *shape), bool)

    def compute(
        self,
        out: np.ndarray,
        meters: np.ndarray,
        bgr: np.ndarray,
        rays: _Rays,
        limit: np.float32,
        starts: Iterator[int],
    ) -> None:
        """Compute the bands of `out` that begin at the rows `starts`."""
        stride = rays.stride
        for start in starts:
            band = out[start : start + rays.rows]
            count = len(band)
            pixels = slice(stride * start, stride * (start + count), stride)
            z = self._valid(np.ascontiguousarray(meters[pixels, ::stride]), limit)
            x = np.multiply(z, rays.across, out=self._x[:count])
            y = np.multiply(z, rays.down[start : start + count], out=self._y[:count])
            # It interleaves several times as fast as NumPy.
            cv2.merge([x, y, z, self._colors(bgr[pixels], stride)], band)

    def _valid(self, z: np.ndarray, limit: np.float32) -> np.ndarray:
        """Return the depths with NaN where they are not above 0 and at most `limit`."""
        count = len(z)
        is_valid = np.greater(z, 0, out=self._is_valid[:count])
        is_valid &= np.less_equal(z, limit, out=self._is_near[:count])
        if np.count_nonzero(is_valid) == z.size:  # Faster than all().
            return z
        marked = self._z[:count]
        mask_invalid(marked, z, is_valid)
        return marked

    def _colors(self, bgr: np.ndarray, stride: int) -> np.ndarray:
        """Return 0x00RRGGBB of every `stride`-th column, as the bits of float32."""
        count = len(bgr)
        # A view of rgb8 has its channels in reverse, which is slow to copy.
        is_rgb = bgr.strides[2] < 0
        packed = np.ascontiguousarray(bgr[..., ::-1] if is_rgb else bgr)
        to_bgra = cv2.COLOR_RGB2BGRA if is_rgb else cv2.COLOR_BGR2BGRA
        bgra = cv2.cvtColor(packed, to_bgra, self._bgra[:count])
        rgb = self._rgb[:count]
        np.bitwise_and(bgra.view('<u4')[:, ::stride, 0], np.uint32(0xFFFFFF), out=rgb)
        return rgb.view(np.float32)


#: Focal length in pixels at which the metric network of Depth Anything 3 gives meters: depth =
#: focal * output / 300 (https://github.com/ByteDance-Seed/Depth-Anything-3).
CANONICAL_FOCAL = 300.0


def depth_of_disparity(
    disparity: np.ndarray,
    focal: float,
    baseline: float,
    offset: float = 0.0,
    out: np.ndarray | None = None,
) -> np.ndarray:
    """Triangulate pixels, (H, W) float32: depth = focal * baseline / (disparity - offset)."""
    with np.errstate(divide='ignore', invalid='ignore'):
        depth: np.ndarray = np.subtract(disparity, np.float32(offset), out=out)
        np.divide(np.float32(focal * baseline), depth, out=depth)
    return depth


def canonical_factor(camera: Intrinsics, scale: float) -> np.float32:
    """Return what the depths of a camera of CANONICAL_FOCAL are multiplied by for another one."""
    return np.float32(scale * (camera.fx + camera.fy) / 2 / CANONICAL_FOCAL)


def missing_offset(points: np.ndarray, camera: Intrinsics) -> float:
    """
    Return the offset of z by which points lie on the rays of their pixels.

    With a = (column - cx) / fx and b = (row - cy) / fy, a point is on its ray if
    x = a (z + offset) and y = b (z + offset); the offset is that of the least squares of both.
    MoGe (https://arxiv.org/abs/2410.19115) minimizes distances in pixels instead, and finds the
    focal length, too.

    :param points: (K, 5): columns, rows, x, y, z; NaN without points.
    """
    columns, rows, x, y, z = points.astype(np.float64).T
    a, b = (columns - camera.cx) / camera.fx, (rows - camera.cy) / camera.fy
    weight = (a * a + b * b).sum()
    return float((a * (x - a * z) + b * (y - b * z)).sum() / weight) if weight else float('nan')
