"""The quadruped in MuJoCo: joint targets in, what its sensors measure out."""

from dataclasses import dataclass
import math

import mujoco
import numpy as np

from demo.robot.world import (
    CONTROL_SECONDS,
    JOINTS,
    PHYSICS_SECONDS,
    STANDING,
    WorldLayout,
    to_mjcf,
)

SUBSTEPS = round(CONTROL_SECONDS / PHYSICS_SECONDS)
FALLEN_TILT, FALLEN_HEIGHT = 0.5, 0.13  # Cosine of the trunk's tilt, meters.


@dataclass(frozen=True)
class Sensed:
    """
    Measurements at one time; joints in the order of JOINTS.

    :param seconds: simulated time.
    :param quaternion: (4,) w, x, y, z, body to world; `position`: (3,) in the world.
    :param angular_velocity: (3,) rad/s; `acceleration`: (3,) m/s^2 with gravity; `velocity`: (3,)
        m/s; all in the body's frame.
    """

    seconds: float
    joint_positions: np.ndarray
    joint_velocities: np.ndarray
    joint_torques: np.ndarray
    quaternion: np.ndarray
    position: np.ndarray
    angular_velocity: np.ndarray
    acceleration: np.ndarray
    velocity: np.ndarray

    @property
    def gravity(self) -> np.ndarray:
        """Unit vector of gravity in the body's frame, (3,)."""
        return gravity_of(self.quaternion)


def gravity_of(quaternion: np.ndarray) -> np.ndarray:
    """Return the direction of gravity in the frame of a body, (3,), from w, x, y, z."""
    w, x, y, z = quaternion
    return np.array([2 * (w * y - x * z), -2 * (y * z + w * x), 2 * (x * x + y * y) - 1])


def yaw_of(quaternion: np.ndarray) -> float:
    """Return the rotation about the vertical in radians, from w, x, y, z."""
    w, x, y, z = quaternion.tolist()
    return math.atan2(2 * (w * z + x * y), 1 - 2 * (y * y + z * z))


class Simulation:
    """A world with the quadruped standing in its origin."""

    def __init__(self, layout: WorldLayout) -> None:
        self.model = mujoco.MjModel.from_xml_string(to_mjcf(layout))
        self.data = mujoco.MjData(self.model)
        self.reset()

    def reset(self) -> None:
        """Return to the start."""
        mujoco.mj_resetData(self.model, self.data)
        self.data.qpos[7:] = STANDING
        self.data.ctrl[:] = STANDING
        mujoco.mj_forward(self.model, self.data)

    def step(self, targets: np.ndarray) -> None:
        """Advance by CONTROL_SECONDS with joint targets, (12,) radians."""
        self.data.ctrl[:] = targets
        mujoco.mj_step(self.model, self.data, SUBSTEPS)

    def sense(self) -> Sensed:
        """Return what the sensors measure now."""
        data, count = self.data, len(JOINTS)
        gyro, acceleration, velocity = data.sensordata.reshape(3, 3).copy()
        return Sensed(
            data.time,
            data.qpos[7 : 7 + count].copy(),
            data.qvel[6 : 6 + count].copy(),
            data.actuator_force.copy(),
            data.qpos[3:7].copy(),
            data.qpos[:3].copy(),
            gyro,
            acceleration,
            velocity,
        )

    @property
    def has_fallen(self) -> bool:
        """Whether the trunk is tilted by more than 60 degrees, or close to the ground."""
        upright = -gravity_of(self.data.qpos[3:7])[2]
        return bool(upright < FALLEN_TILT or self.data.qpos[2] < FALLEN_HEIGHT)

    def touched(self) -> set[str]:
        """Return the names of the objects that the robot touches now."""
        bodies = self.model.geom_bodyid[self.data.contact.geom].ravel()
        names = {self.model.body(int(body)).name for body in bodies}
        return {name for name in names if name not in ('', 'world', 'trunk')}
