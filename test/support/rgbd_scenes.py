"""Rendered depth images of boxes in front of a wall."""

from dataclasses import dataclass

import numpy as np

from trt_ros.vision.depth_points import DepthImage, Intrinsics
from trt_ros.vision.frame import Frame

CAMERA = Intrinsics(610.0, 612.0, 318.3, 241.7, (640, 480))
HD = Intrinsics(920.0, 921.0, 637.1, 362.4, (1280, 720))


def yaw(degrees: float) -> np.ndarray:
    """Rotation about the y axis of the optical frame."""
    cos, sin = np.cos(np.radians(degrees)), np.sin(np.radians(degrees))
    return np.array([[cos, 0, sin], [0, 1, 0], [-sin, 0, cos]])


@dataclass
class Solid:
    """A box: center and size in meters, and its rotation."""

    center: tuple[float, float, float]
    size: tuple[float, float, float]
    rotation: np.ndarray


@dataclass
class Scene:
    """
    A rendered scene.

    :param meters: (H, W) float64, exact z of each pixel.
    :param owners: (H, W) uint16, index of the solid + 1; 0 for the wall.
    """

    camera: Intrinsics
    meters: np.ndarray
    owners: np.ndarray

    def rays(self) -> np.ndarray:
        return rays(self.camera)

    def surface(self, index: int) -> tuple[np.ndarray, np.ndarray]:
        """Center and size of the visible surface of a solid, from exact depths of all pixels."""
        own = self.owners == index + 1
        points = self.rays()[own] * self.meters[own][:, None]
        trim = [1, 1, 5]
        low = np.array([np.percentile(points[:, axis], trim[axis]) for axis in range(3)])
        high = np.array([np.percentile(points[:, axis], 100 - trim[axis]) for axis in range(3)])
        center = (low + high) / 2
        center[2] = np.median(points[:, 2])
        return center, high - low

    def box(self, index: int, background: float = 0.0) -> tuple[float, ...]:
        """2D box (x, y, w, h, 0) around a solid with this share of other pixels in it."""
        rows, cols = np.nonzero(self.owners == index + 1)
        left, top, right, bottom = cols.min(), rows.min(), cols.max() + 1, rows.max() + 1
        filled = len(rows) / ((right - left) * (bottom - top))
        grow = max(np.sqrt(filled / (1 - background)), 1.0)
        return (
            (left + right) / 2,
            (top + bottom) / 2,
            (right - left) * grow,
            (bottom - top) * grow,
            0.0,
        )

    def frame(self, encoding: str, noise: float = 0.0, seed: int = 0) -> Frame:
        """Depth image with relative Gaussian noise."""
        rng = np.random.default_rng(seed)
        noisy = self.meters * (1 + noise * rng.standard_normal(self.meters.shape))
        if encoding == '16UC1':
            return Frame.from_pixels(np.rint(1000 * noisy).astype(np.uint16), encoding)
        return Frame.from_pixels(noisy.astype(np.float32), encoding)

    def depth(self, encoding: str = '16UC1', noise: float = 0.0, seed: int = 0) -> DepthImage:
        return DepthImage.of(self.frame(encoding, noise, seed))


def rays(camera: Intrinsics) -> np.ndarray:
    """Points of the pixels at z = 1: (H, W, 3)."""
    width, height = camera.image_wh
    cols, rows = np.meshgrid(np.arange(width), np.arange(height))
    return np.stack(
        [(cols - camera.cx) / camera.fx, (rows - camera.cy) / camera.fy, np.ones(cols.shape)],
        axis=2,
    )


def render(solids: list[Solid], camera: Intrinsics = CAMERA, wall: float = 4.5) -> Scene:
    """Intersect the ray of each pixel with the slabs of each box."""
    directions = rays(camera)
    meters = np.full(directions.shape[:2], wall)
    owners = np.zeros(meters.shape, np.uint16)
    for number, solid in enumerate(solids, 1):
        local = directions @ solid.rotation
        origin = -np.asarray(solid.center) @ solid.rotation
        with np.errstate(divide='ignore'):
            one = (-np.asarray(solid.size) / 2 - origin) / local
            two = (np.asarray(solid.size) / 2 - origin) / local
        enter, leave = np.minimum(one, two).max(axis=2), np.maximum(one, two).min(axis=2)
        is_hit = (enter < leave) & (enter > 0) & (enter < meters)
        meters[is_hit], owners[is_hit] = enter[is_hit], number
    return Scene(camera, meters, owners)
