"""Meters of disparities, of depths at another focal length, and of points that lack an offset."""

import numpy as np

from trt_ros.vision.depth_points import Intrinsics

#: Focal length in pixels at which the metric network of Depth Anything 3 gives meters: depth =
#: focal * output / 300 (https://github.com/ByteDance-Seed/Depth-Anything-3).
CANONICAL_FOCAL = 300.0


def depth_of_disparity(
    disparity: np.ndarray, focal: float, baseline: float, offset: float = 0.0
) -> np.ndarray:
    """Triangulate pixels, (H, W) float32: depth = focal * baseline / (disparity - offset)."""
    with np.errstate(divide='ignore', invalid='ignore'):
        depth: np.ndarray = np.float32(focal * baseline) / (disparity - np.float32(offset))
    return depth


def depth_of_canonical(values: np.ndarray, camera: Intrinsics, scale: float) -> np.ndarray:
    """Convert the depths of a camera of CANONICAL_FOCAL to those of another one."""
    focal = scale * (camera.fx + camera.fy) / 2
    depth: np.ndarray = values * np.float32(focal / CANONICAL_FOCAL)
    return depth


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
