"""The way to an object: located objects in, velocities out."""

from collections.abc import Iterable
import math

import numpy as np

from demo.robot.world import EYE_POSITION, EYE_TILT, RADIUS

ROBOT_RADIUS = 0.42  # Of the circle that the robot keeps free around it, in meters.
STOP_DISTANCE = 0.5  # From the trunk's center to the surface of the object.
SEARCH_TURN = 0.7  # In rad/s.
MAX_SPEED, MAX_TURN = 0.5, 0.9  # In m/s, rad/s.
ARRIVED_DISTANCE, ARRIVED_ANGLE = 0.08, 0.2
MERGE = 0.3  # Share of a new measurement in a known position.

# The camera's optical frame (x right, y down, z forward) in that of the trunk.
_RIGHT = np.array([0.0, -1.0, 0.0])
_DOWN = np.array([-math.sin(EYE_TILT), 0.0, -math.cos(EYE_TILT)])
EYE_ROTATION = np.column_stack([_RIGHT, _DOWN, np.cross(_RIGHT, _DOWN)])


def rotation_of(quaternion: np.ndarray) -> np.ndarray:
    """Return the rotation matrix, (3, 3), of w, x, y, z."""
    w, vector = quaternion[0], quaternion[1:]
    cross = np.cross(np.eye(3), vector)
    matrix: np.ndarray = np.eye(3) + 2 * w * cross + 2 * cross @ cross
    return matrix


class Seeker:
    """
    Remembers where objects are, and walks to one of them around the others.

    :param target: class of the object to find.
    """

    def __init__(self, target: str) -> None:
        self.target = target
        self.has_arrived = False
        self.known: dict[str, np.ndarray] = {}  # Centers on the ground, (2,) meters.
        self._side: dict[str, float] = {}  # On which an obstacle is passed, 1 is left.

    def see(
        self,
        objects: Iterable[tuple[str, np.ndarray]],
        position: np.ndarray,
        quaternion: np.ndarray,
    ) -> None:
        """
        Take located objects into account.

        :param objects: class and center of the visible surface, (3,) in the camera's frame.
        :param position: (3,) of the trunk when the image was taken; `quaternion`: w, x, y, z.
        """
        rotation = rotation_of(quaternion)
        eye = position + rotation @ EYE_POSITION
        for name, surface in objects:
            if name not in RADIUS:
                continue
            away = (rotation @ EYE_ROTATION @ surface)[:2]
            distance = float(np.linalg.norm(away))
            center = eye[:2] + away * (1 + RADIUS[name] / max(distance, 0.1))
            before = self.known.get(name, center)
            # Something else than before, such as after a false detection.
            is_other = np.linalg.norm(center - before) > 1.0
            self.known[name] = center if is_other else before + MERGE * (center - before)

    def steer(self, position: np.ndarray, yaw: float) -> np.ndarray:
        """
        Return the velocity to walk with, (3,): forward and left in m/s, yaw rate in rad/s.

        :param position: (2,) of the trunk in meters; `yaw` in radians.
        """
        target = self.known.get(self.target)
        if target is None:
            return np.array([0.0, 0.0, SEARCH_TURN])
        to_target = target - position
        distance = float(np.linalg.norm(to_target))
        left = distance - RADIUS[self.target] - STOP_DISTANCE
        facing = _wrap(math.atan2(to_target[1], to_target[0]) - yaw)
        if left < ARRIVED_DISTANCE and abs(facing) < ARRIVED_ANGLE:
            self.has_arrived = True
        if self.has_arrived:
            return np.zeros(3)
        waypoint = target if left < ARRIVED_DISTANCE else self._around(position, target)
        ahead = waypoint - position
        error = _wrap(math.atan2(ahead[1], ahead[0]) - yaw)
        turn = float(np.clip(2.0 * error, -MAX_TURN, MAX_TURN))
        speed = MAX_SPEED * max(0.0, math.cos(error)) ** 3 * min(1.0, max(0.0, left) / 0.4 + 0.2)
        if left < ARRIVED_DISTANCE / 2:
            speed = 0.0
        return np.array([speed, 0.0, turn])

    def _around(self, position: np.ndarray, target: np.ndarray) -> np.ndarray:
        """Return the point to walk to: the target, or one beside the first obstacle."""
        direct = target - position
        length = float(np.linalg.norm(direct))
        direct = direct / max(length, 1e-6)
        first, waypoint = length, target
        for name, center in self.known.items():
            offset = center - position
            along = float(offset @ direct)
            left = float(direct[0] * offset[1] - direct[1] * offset[0])  # Of the obstacle.
            room = RADIUS[name] + ROBOT_RADIUS
            is_ahead = -0.1 < along < min(length, first)
            if name == self.target or not is_ahead or abs(left) >= room:
                self._side.pop(name, None)
                continue
            side = self._side.setdefault(name, -1.0 if left > 0 else 1.0)
            first = along
            waypoint = center + side * (room + 0.08) * np.array([-direct[1], direct[0]])
        return waypoint


def _wrap(angle: float) -> float:
    return math.remainder(angle, 2 * math.pi)
