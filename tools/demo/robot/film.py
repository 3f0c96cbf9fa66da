"""The film of a run: the robot from behind, and what it sees and finds."""

from dataclasses import dataclass
from pathlib import Path

import cv2
import mujoco
import numpy as np

from demo.robot.pictures import PinholeCamera
from demo.robot.world import WorldLayout, to_mjcf
from trt_ros.media import VideoWriter

SIZE_WH, INSET_WH = (480, 288), (160, 120)
FRAMES_PER_SECOND = 10
_FOV = 0.85  # In radians.


@dataclass(frozen=True)
class Scene:
    """
    One time of a run.

    :param qpos: MuJoCo's generalized positions.
    :param seen: (H, W, 3) uint8 BGR, the newest annotated image of the robot's camera.
    """

    qpos: np.ndarray
    seen: np.ndarray
    caption: str


class Film:
    """Renders scenes from a camera that follows the robot and looks at the target."""

    def __init__(self, layout: WorldLayout, target: str) -> None:
        self._model = mujoco.MjModel.from_xml_string(to_mjcf(layout))
        self._data = mujoco.MjData(self._model)
        self._camera = PinholeCamera(SIZE_WH, _FOV)
        self._target = np.array([*layout.find(target).xy, 0.15])
        self._eye: np.ndarray | None = None

    def render(self, scene: Scene) -> np.ndarray:
        """Return the picture of a scene, (H, W, 3) uint8 BGR."""
        self._data.qpos[:] = scene.qpos
        mujoco.mj_kinematics(self._model, self._data)
        mujoco.mj_comPos(self._model, self._data)
        robot = self._data.qpos[:3]
        away = self._target - robot
        away /= max(np.linalg.norm(away), 1.0)
        aside = np.array([away[1], -away[0], 0])
        wanted = robot - 1.5 * away + 0.9 * aside + [0, 0, 0.75]
        self._eye = wanted if self._eye is None else self._eye + 0.08 * (wanted - self._eye)
        view = self._camera.render(
            self._model, self._data, self._eye, _looking_at(robot + 0.35 * away - self._eye)
        )
        picture = np.ascontiguousarray(view.color[..., ::-1])
        width, height = INSET_WH
        corner = picture[8 : 8 + height, -8 - width : -8]
        corner[:] = cv2.resize(scene.seen, INSET_WH, interpolation=cv2.INTER_AREA)
        cv2.rectangle(corner, (0, 0), (width - 1, height - 1), (255, 255, 255), 1)
        place = (10, SIZE_WH[1] - 12)
        for color, thickness in (((0, 0, 0), 3), ((255, 255, 255), 1)):
            cv2.putText(
                picture, scene.caption, place, 0, 0.45, color, thickness, lineType=cv2.LINE_AA
            )
        return picture


def write_film(folder: Path, pictures: list[np.ndarray]) -> Path:
    """Write robot.webp, or robot.mp4 with an OpenCV before 4.11; return its path."""
    if not hasattr(cv2, 'imwriteanimation'):
        path = folder / 'robot.mp4'
        video = VideoWriter(path, FRAMES_PER_SECOND, SIZE_WH)
        for picture in pictures:
            video.write(picture)
        video.release()
        return path
    path = folder / 'robot.webp'
    animation = cv2.Animation()
    animation.frames = pictures
    animation.durations = [1000 // FRAMES_PER_SECOND] * len(pictures)
    cv2.imwriteanimation(str(path), animation, [cv2.IMWRITE_WEBP_QUALITY, 70])
    return path


def _looking_at(direction: np.ndarray) -> np.ndarray:
    """Return the rotation of a camera that looks along a direction, upright."""
    back = -direction / np.linalg.norm(direction)
    right = np.cross([0, 0, 1], back)
    right /= np.linalg.norm(right)
    return np.column_stack([right, np.cross(back, right), back])
