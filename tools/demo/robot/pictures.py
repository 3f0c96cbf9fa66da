"""Pictures of random worlds through the robot's camera, with exact boxes, for its detector."""

from collections.abc import Iterator
from dataclasses import dataclass
import math
from pathlib import Path

import mujoco
import numpy as np

from demo.robot.world import CLASSES, COLORS, IMAGE_WH, Thing, WorldLayout, to_mjcf
from demo.scene import HELD_OUT

SUN = np.array([-3.0, -5.0, 9.0])  # Position relative to the ground below the camera, in meters.
FAR = 60.0  # In meters.
_SKY = np.array([[0.93, 0.95, 0.97], [0.45, 0.65, 0.9]])  # Horizon, zenith; RGB.
_TILES = np.array([[0.56, 0.6, 0.55], [0.46, 0.5, 0.46]])


@dataclass(frozen=True)
class View:
    """
    Color and depth of what a camera sees.

    :param color: (H, W, 3) uint8 RGB.
    :param depth: (H, W) float32 meters along the optical axis, 0 where nothing is.
    :param bodies: (H, W) int32, index of the body, -1 where nothing is.
    """

    color: np.ndarray
    depth: np.ndarray
    bodies: np.ndarray


class PinholeCamera:
    """
    A pinhole camera.

    :param fovy: vertical field of view in radians.
    :param samples: rays per pixel in each direction.
    """

    def __init__(self, size_wh: tuple[int, int], fovy: float, *, samples: int = 1) -> None:
        self.size_wh, self.samples = size_wh, samples
        width, height = (samples * size for size in size_wh)
        self.focal = size_wh[1] / 2 / math.tan(fovy / 2)  # In pixels.
        across, down = np.meshgrid(
            (np.arange(width) + 0.5 - width / 2) / (samples * self.focal),
            (np.arange(height) + 0.5 - height / 2) / (samples * self.focal),
        )
        rays = np.stack([across, -down, -np.ones_like(across)], -1).reshape(-1, 3)
        self._cosine = 1 / np.linalg.norm(rays, axis=1)
        self._rays = rays * self._cosine[:, None]

    def render(
        self,
        model: mujoco.MjModel,
        data: mujoco.MjData,
        position: np.ndarray,
        rotation: np.ndarray,
        *,
        light: float = 1.0,
    ) -> View:
        """
        Render a view.

        :param position: (3,) in meters; `rotation`: (3, 3), camera to world; the camera looks
            along its negative z axis, its y axis points up.
        :param light: brightness of the sun, around 1.
        """
        rays = self._rays @ rotation.T
        geoms, distances, normals = _cast(model, data, position, rays)
        hit = np.flatnonzero(geoms >= 0)
        near, normals, geom = distances[hit, None], normals[hit], geoms[hit]
        points = position + near * rays[hit]
        sun = SUN + position * (1, 1, 0)
        to_sun = sun - points
        away = np.sqrt(np.einsum('ij,ij->i', to_sun, to_sun))
        to_sun /= away[:, None]
        facing = np.einsum('ij,ij->i', normals, to_sun)
        _, lit, _ = _cast(model, data, sun, -to_sun)
        shade = 0.45 + 0.6 * light * facing.clip(0) * (lit > away - 0.01)
        surface = model.geom_rgba[geom, :3]
        ground = model.geom_type[geom] == mujoco.mjtGeom.mjGEOM_PLANE
        tiles = np.floor(points[ground, :2] * 2).astype(int).sum(1) % 2
        surface[ground] = _TILES[tiles]
        haze = np.exp(-((near / 25) ** 2))
        color = _SKY[0] + np.sqrt(rays[:, 2:].clip(0, 1)) * (_SKY[1] - _SKY[0])
        color[hit] = _SKY[0] + haze * (surface * shade[:, None] - _SKY[0])
        depth = np.where(geoms < 0, 0, distances * self._cosine).astype(np.float32)
        bodies = np.where(geoms < 0, -1, model.geom_bodyid[geoms]).astype(np.int32)
        width, height = self.size_wh
        tall = (height, self.samples, width, self.samples)
        pixels = color.reshape(*tall, 3).mean(axis=(1, 3))
        return View(
            (255 * pixels.clip(0, 1) + 0.5).astype(np.uint8),
            depth.reshape(tall)[:, 0, :, 0],
            bodies.reshape(tall)[:, 0, :, 0],
        )


def _cast(
    model: mujoco.MjModel, data: mujoco.MjData, origin: np.ndarray, rays: np.ndarray
) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    """Return geom, distance and normal of what each ray, (N, 3), hits; geom -1 is nothing."""
    count = len(rays)
    geoms = np.full(count, -1, np.int32)
    distances = np.full(count, -1.0)
    normals = np.zeros((count, 3))
    mujoco.mj_multiRay(
        model,
        data,
        origin,
        np.ascontiguousarray(rays).ravel(),
        None,
        1,
        -1,
        geoms,
        distances,
        normals.ravel(),
        count,
        FAR,
    )
    return geoms, distances, normals


MODEL = Path(__file__).with_name('robot.onnx')
MIN_PIXELS = 30  # Visible pixels below which an object is not annotated.


def eye_of(model: mujoco.MjModel) -> PinholeCamera:
    """Return the robot's camera."""
    return PinholeCamera(IMAGE_WH, math.radians(model.camera('eye').fovy[0]))


def boxes_in(view: View, model: mujoco.MjModel) -> tuple[np.ndarray, np.ndarray]:
    """
    Return the boxes of what is visible of the objects of a view.

    :returns: (N, 4) float32 x1, y1, x2, y2 in pixels; (N,) int32 indices into CLASSES.
    """
    xyxy, labels = [], []
    for label, name in enumerate(CLASSES):
        body = mujoco.mj_name2id(model, mujoco.mjtObj.mjOBJ_BODY, name)
        rows, columns = np.nonzero(view.bodies == body)
        if body >= 0 and len(rows) >= MIN_PIXELS:
            xyxy.append([columns.min(), rows.min(), columns.max() + 1, rows.max() + 1])
            labels.append(label)
    return np.array(xyxy, np.float32).reshape(-1, 4), np.array(labels, np.int32)


def draw_picture(rng: np.random.Generator) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    """
    Draw one picture of 0 to 4 objects.

    :returns: (H, W, 3) uint8 BGR; the boxes and classes as boxes_in does.
    """
    things: list[Thing] = []
    for name in rng.permutation(CLASSES):
        distance, bearing = 0.7 + 4.8 * rng.random() ** 1.3, rng.uniform(-0.7, 0.7)
        xy = (distance * math.cos(bearing), distance * math.sin(bearing))
        if rng.random() < 0.7 and all(math.dist(xy, other.xy) > 0.4 for other in things):
            color = (np.array(COLORS[name]) + rng.normal(0, 0.06, 3)).clip(0, 1)
            things.append(Thing(str(name), xy, rng.uniform(-np.pi, np.pi), tuple(color)))
    model = mujoco.MjModel.from_xml_string(to_mjcf(WorldLayout(tuple(things))))
    data = mujoco.MjData(model)
    # The trunk sways while it trots.
    data.qpos[2] += rng.normal(-0.02, 0.012)
    roll, pitch, yaw = rng.normal(0, (0.04, 0.05, 0.1))
    mujoco.mju_euler2Quat(data.qpos[3:7], [roll, pitch, yaw], 'xyz')
    model.body_pos[model.body('trunk').id, :2] = 0
    mujoco.mj_kinematics(model, data)
    mujoco.mj_camlight(model, data)
    position, rotation = data.cam_xpos[0], data.cam_xmat[0].reshape(3, 3)
    light = float(rng.uniform(0.75, 1.15))
    view = eye_of(model).render(model, data, position, rotation, light=light)
    image = view.color[..., ::-1] + rng.normal(0, rng.uniform(0, 4), view.color.shape)
    return (image.clip(0, 255).astype(np.uint8), *boxes_in(view, model))


def held_out_pictures(count: int) -> Iterator[tuple[np.ndarray, np.ndarray, np.ndarray]]:
    """Yield the first `count` pictures that are not used in training."""
    for index in range(count):
        yield draw_picture(np.random.default_rng([HELD_OUT, index]))
