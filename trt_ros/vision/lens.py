"""Rectification of the images of a calibrated camera."""

from dataclasses import dataclass
from functools import cached_property, lru_cache
from typing import Any

import numpy as np

Maps = tuple[np.ndarray, np.ndarray]
#: Number of coefficients of each distortion model that are used; the others are 0.
DISTORTION_MODELS = {'plumb_bob': 5, 'rational_polynomial': 12, 'equidistant': 4}


@dataclass(frozen=True)
class Lens:
    """
    The calibration of a camera, as in sensor_msgs/CameraInfo, by which its images are rectified.

    :param k: fx, fy, cx, cy of the images; `p`: of the rectified images, alike.
    :param model: one of DISTORTION_MODELS; `d`: its coefficients.
    :param r: rotation to the rectified camera, row by row.
    """

    k: tuple[float, float, float, float]
    d: tuple[float, ...]
    r: tuple[float, ...]
    p: tuple[float, float, float, float]
    model: str = 'plumb_bob'

    @cached_property
    def rays(self) -> np.ndarray:
        """Matrix (3, 3) from a rectified pixel (column, row, 1) to its ray in the camera."""
        return np.asarray(np.reshape(self.r, (3, 3)).T @ np.linalg.inv(_matrix(self.p)))

    def rectify(self, pixels: np.ndarray) -> np.ndarray:
        """Rectify pixels, (H, W[, C]), bilinear; those outside the image become 0."""
        import cv2  # Imported here: the GPU kernel rectifies without it.

        columns, rows = _maps(self, (pixels.shape[1], pixels.shape[0]))
        return np.asarray(cv2.remap(pixels, columns, rows, cv2.INTER_LINEAR))

    def covers(self, wh: tuple[int, int]) -> np.ndarray:
        """Return the pixels of the rectified image that the image shows, (H, W) bool."""
        columns, rows = _maps(self, wh)
        inside = (columns >= 0) & (columns <= wh[0] - 1) & (rows >= 0) & (rows <= wh[1] - 1)
        return np.asarray(inside)


def _matrix(camera: tuple[float, float, float, float]) -> np.ndarray:
    fx, fy, cx, cy = camera
    return np.array([[fx, 0, cx], [0, fy, cy], [0, 0, 1]])


@lru_cache(maxsize=8)
def _maps(lens: Lens, wh: tuple[int, int]) -> Maps:
    """Return column and row in the image of each pixel of the rectified one."""
    import cv2

    module: Any = cv2.fisheye if lens.model == 'equidistant' else cv2
    matrices = np.array(lens.d), np.reshape(lens.r, (3, 3)), _matrix(lens.p)
    maps: Maps = module.initUndistortRectifyMap(_matrix(lens.k), *matrices, wh, cv2.CV_32FC1)
    return maps
