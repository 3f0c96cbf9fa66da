"""Boxes of known sizes, put behind the surface of objects that a depth camera sees."""

from collections.abc import Sequence

import numpy as np

from trt_ros.errors import ParameterError

_YAWS, _POINTS = 60, 400  # Candidates in half a turn, and points that choose one.
_TRIM = 1.0  # Percent of the points beyond each side.
_MIN_SHARE = 0.1  # Of the points; a face with fewer is not seen.


def parse_sizes(texts: Sequence[str]) -> dict[str, np.ndarray]:
    """
    Parse the sizes of classes: length, width and height in meters.

    >>> parse_sizes(['car:4.5,1.8,1.5'])
    {'car': array([4.5, 1.8, 1.5])}

    :param texts: 'CLASS:L,W,H' each.
    :raises ParameterError: when a size is not three numbers above 0, or a class has two.
    """
    sizes: dict[str, np.ndarray] = {}
    for text in texts:
        name, found, numbers = text.rpartition(':')
        try:
            size = np.array([float(each) for each in numbers.split(',')])
        except ValueError:
            size = np.zeros(0)
        valid = found and size.shape == (3,) and np.isfinite(size).all() and (size > 0).all()
        if not valid or name.strip() in sizes:
            raise ParameterError(
                f'sizes contains {text!r}' + (', a second size of its class.' if valid else '.'),
                remedy='Write CLASS:LENGTH,WIDTH,HEIGHT once per class, in meters, as in '
                "'car:4.5,1.8,1.5'.",
            )
        sizes[name.strip()] = size
    return sizes


def level_axes(up: np.ndarray) -> np.ndarray:
    """
    Return horizontal axes and `up` in the optical frame, as the columns of a rotation, (3, 3).

    :param up: (3,) unit vector. The first axis is where the camera looks, or its upper edge if it
        looks straight up or down.
    """
    look = np.array([0.0, -1.0, 0.0]) if abs(up[2]) > 0.99 else np.array([0.0, 0.0, 1.0])
    forward = look - up * (look @ up)
    forward /= np.linalg.norm(forward)
    return np.stack([forward, np.cross(up, forward), up], axis=1)


def fit_upright(
    points: np.ndarray, size: np.ndarray, level: np.ndarray
) -> tuple[np.ndarray, np.ndarray]:
    """
    Fit an upright box of known size to the points of its object that a camera sees.

    Of 60 yaw angles in half a turn, the one is taken whose sides next to the camera, and whose
    top, are nearest to the points, and are as wide as the points. A side that is not seen
    lies opposite to one that is, or, where neither is, both are equally far from the points. The
    top is that of the points.

    :param points: (K, 3) in the optical frame, in meters.
    :param size: (3,) length, width and height in meters.
    :param level: (3, 3) as of level_axes().
    :returns: the center, (3,), and the rotation of the box, (3, 3): its columns are the axes of
        length, width and height in the optical frame.
    """
    # By the golden ratio: a constant step could meet the same column in every row.
    some = (np.arange(_POINTS) * 0.6180339887 % 1 * len(points)).astype(np.intp)
    forward, left, heights = (points[some].astype(np.float64) @ level).T
    yaws = np.arange(_YAWS) * (np.pi / _YAWS)
    cos, sin = np.cos(yaws)[:, None], np.sin(yaws)[:, None]
    # Along length, width and height, away from the camera or the top: (3, yaws, points).
    along = np.stack([cos * forward + sin * left, cos * left - sin * forward, 0 * cos - heights])
    low, high = np.percentile(along, [_TRIM, 100 - _TRIM], axis=2)
    toward = np.where(low + high < 0, -1, 1)
    toward[2] = 1
    along *= toward[..., None]
    near, span = np.where(toward > 0, low, -high), high - low
    beyond = np.abs(along - near[..., None])
    is_on = beyond.argmin(axis=0) == np.arange(3)[:, None, None]
    shares = is_on.mean(axis=2)
    misfit = beyond.min(axis=0).mean(axis=1)
    # A side is as wide as the box in one direction, the top in both.
    trimmed = (1 - _TRIM / 50) * size[:2, None]
    wide = (1 - shares[:2]) * np.abs(span[:2] - trimmed)
    misfit += wide.sum(axis=0) / 2
    best = int(misfit.argmin())
    # A side that is seen; of one that is not, the opposite one is not, either.
    nearest = np.where(np.arange(3) < 2, near[:, best] + (span[:, best] - size) / 2, near[:, best])
    for axis in np.flatnonzero(shares[:, best] >= _MIN_SHARE):
        nearest[axis] = np.median(along[axis, best][is_on[axis, best]])
    place = toward[:, best] * (nearest + size / 2) * (1, 1, -1)
    c, s = cos[best, 0], sin[best, 0]
    rotation = level @ np.array([[c, -s, 0], [s, c, 0], [0, 0, 1]])
    return rotation @ place, rotation


def quaternion_of(rotation: np.ndarray) -> np.ndarray:
    """
    Return the quaternion of a rotation matrix, (3, 3), as (4,) x, y, z, w with w >= 0.

    It is the eigenvector of the largest eigenvalue of Bar-Itzhack's matrix
    (https://doi.org/10.2514/2.4654).
    """
    (a, b, c), (d, e, f), (g, h, i) = rotation
    symmetric = np.array(
        [
            [a - e - i, b + d, c + g, h - f],
            [b + d, e - a - i, f + h, c - g],
            [c + g, f + h, i - a - e, d - b],
            [h - f, c - g, d - b, a + e + i],
        ]
    )
    vector: np.ndarray = np.linalg.eigh(symmetric)[1][:, -1]
    return -vector if vector[3] < 0 else vector
