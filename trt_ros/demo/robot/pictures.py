"""Pictures of random worlds through the robot's camera, with exact boxes, for its detector."""

from collections.abc import Iterator
import math
from pathlib import Path

import mujoco
import numpy as np

from trt_ros.demo.robot.rendering import PinholeCamera, View
from trt_ros.demo.robot.world import CLASSES, COLORS, IMAGE_WH, Thing, WorldLayout, to_mjcf
from trt_ros.demo.scene import HELD_OUT

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
