"""Rendered scenes around a rig: six depth cameras in a ring, and objects that walk around it."""

from dataclasses import dataclass

import numpy as np

from support.rgbd_scenes import Scene, Solid, render
from trt_ros.vision.depth_points import Intrinsics

CAMERAS = 6
#: A view of 70 degrees every 60: neighbors overlap by 10.
CAMERA = Intrinsics(*[48 / np.tan(np.radians(35))] * 2, 47.5, 35.5, (96, 72))
SIZE = (0.5, 0.4, 1.6)


def turn(yaw: float) -> np.ndarray:
    """Rotation about z by radians."""
    cos, sin = np.cos(yaw), np.sin(yaw)
    return np.array([[cos, -sin, 0], [sin, cos, 0], [0, 0, 1.0]])


def pose(camera: int) -> tuple[np.ndarray, np.ndarray]:
    """Rotation and place of the optical frame of a camera in the frame of the rig, with z up."""
    rotation = turn(np.radians(60 * camera)) @ np.array([[0, 0, 1], [-1, 0, 0], [0, -1, 0.0]])
    return rotation, rotation @ [0, 0, 0.15] + [0, 0, 1]


@dataclass(frozen=True)
class Walker:
    """An object on a circle around the rig, from an angle at an angular speed."""

    radius: float
    begin: float
    speed: float

    def place(self, seconds: float) -> np.ndarray:
        angle = self.begin + self.speed * seconds
        return np.array([self.radius * np.cos(angle), self.radius * np.sin(angle), 0.9])


#: The first two are 1 m apart, side by side; the last one goes behind all others.
WALKERS = (
    Walker(2.5, 0.0, 0.5),
    Walker(2.5, 2 * np.arcsin(0.2), 0.5),
    Walker(2.0, 3.5, 0.5),
    Walker(3.6, 2.5, -0.3),
)


def look(
    camera: int,
    seconds: float,
    walkers: tuple[Walker, ...] = WALKERS,
    base: tuple[np.ndarray, np.ndarray] = (np.eye(3), np.zeros(3)),
) -> Scene:
    """Render what a camera sees at a time; `base`: rotation and place of the rig."""
    rotation, place = pose(camera)
    rotation, place = base[0] @ rotation, base[0] @ place + base[1]
    solids = []
    for each in walkers:
        heading = turn(each.begin + each.speed * seconds)
        center = (each.place(seconds) - place) @ rotation
        solids.append(Solid(tuple(center), SIZE, rotation.T @ heading))
    return render(solids, CAMERA)


def detect(scene: Scene, count: int = len(WALKERS), least: int = 40) -> dict[int, np.ndarray]:
    """Return the (5,) box of the visible part of each object with at least so many pixels."""
    pixels = [np.count_nonzero(scene.owners == index + 1) for index in range(count)]
    return {index: np.array(scene.box(index)) for index in range(count) if pixels[index] >= least}
