"""The teacher of the robot demo's policy, an analytic trot, and the robots that learn from it."""

from collections.abc import Iterable
import math

from demo.robot.simulation import FALLEN_HEIGHT, FALLEN_TILT, SUBSTEPS
from demo.robot.world import (
    CONTROL_SECONDS,
    HIP_OFFSET,
    HIP_XY,
    LINK,
    STANDING,
    WorldLayout,
    to_mjcf,
)
import mujoco
import numpy as np

ACTION_SCALE = 0.25  # Radians per unit of an action.
PERIOD = 0.4  # Of the gait in seconds.
COMMAND_LOW, COMMAND_HIGH = np.array([-0.3, -0.2, -1.0]), np.array([0.6, 0.2, 1.0])

# --- The teacher ---------------------------------------------------------------------------

_SIDES = np.array([[1, 1], [1, -1], [-1, 1], [-1, -1]])  # Front or rear, left or right.
_HIPS = _SIDES * HIP_XY
_OFFSETS = _SIDES[:, 1] * HIP_OFFSET
_FEET_Z = -2 * LINK * math.cos(STANDING[1])
_FEET = np.column_stack([_HIPS[:, 0], _HIPS[:, 1] + _OFFSETS, np.full(4, _FEET_Z)])
_PHASES = np.array([0.0, 0.5, 0.5, 0.0])  # Diagonal feet move together.
_LIFT, _LOWER = 0.05, 0.01  # Of a swinging foot, of the trunk; in meters.
_FORWARD = 0.12  # Speed that the feet lose where they touch the ground, in m/s.
_SPEED_GAIN, _YAW_GAIN, _LEVEL_GAIN, _DAMPING = 0.4, 0.3, 0.1, 0.02


def joints_for(feet: np.ndarray) -> np.ndarray:
    """Compute the joint angles, (N, 12), that bring the feet to (N, 4, 3) in the trunk's frame."""
    x, y, z = np.moveaxis(feet, -1, 0) - np.column_stack([_HIPS, np.zeros(4)]).T[:, None]
    down = np.sqrt((y * y + z * z - HIP_OFFSET**2).clip(1e-4))
    abduction = np.arctan2(y, -z) - np.arctan2(_OFFSETS, down)
    length = np.hypot(x, down).clip(0.1, 1.99 * LINK)
    knee = -2 * np.arccos(length / (2 * LINK))
    hip = np.arctan2(-x, down) - knee / 2
    return np.stack([abduction, hip, knee], -1).reshape(len(feet), 12)


def trot(
    phase: np.ndarray,
    command: np.ndarray,
    velocity: np.ndarray,
    spin: np.ndarray,
    gravity: np.ndarray,
) -> np.ndarray:
    """
    Compute the joint targets of a trot, (N, 12) radians.

    :param phase: (N,) of the gait, 0 to 1.
    :param command: (N, 3) velocity forward and to the left in m/s, yaw rate in rad/s.
    :param velocity: (N, 2) true velocity; `spin`: (N, 3) angular velocity; `gravity`: (N, 3)
        direction; in the trunk's frame.
    """
    leg = (phase[:, None] + _PHASES) % 1
    stands, swing = leg < 0.5, (2 * leg - 1).clip(0)
    moving = np.minimum(1, np.abs(command / [0.08, 0.08, 0.15]).max(1))[:, None]
    speed = command[:, :2] + _SPEED_GAIN * (command[:, :2] - velocity) + [_FORWARD, 0]
    turn = command[:, 2:] + _YAW_GAIN * (command[:, 2:] - spin[:, 2:])
    # The trunk passes over a standing foot with constant speed; a cubic brings it forward again.
    along = np.where(stands, 1 - 4 * leg, ((-8 * swing + 12) * swing - 2) * swing - 1)
    stride = moving * along * PERIOD / 4
    feet = np.broadcast_to(_FEET, (len(phase), 4, 3)).copy()
    feet[..., 0] += stride * (speed[:, :1] - turn * _FEET[:, 1])
    feet[..., 1] += stride * (speed[:, 1:] + turn * _FEET[:, 0])
    feet[..., 2] += moving * _LIFT * np.sin(np.pi * swing) + _LOWER
    pitch = _LEVEL_GAIN * gravity[:, :1] + _DAMPING * spin[:, 1:2]
    roll = _LEVEL_GAIN * gravity[:, 1:2] - _DAMPING * spin[:, :1]
    feet[..., 2] -= stands * (_FEET[:, 0] * pitch + _FEET[:, 1] * roll)
    return joints_for(feet)


# --- The robots ----------------------------------------------------------------------------


class Fleet:
    """Robots on a plane that differ, are pushed at random and get random commands."""

    def __init__(self, count: int, seed: int, *, push: float = 0.4) -> None:
        self.rng = rng = np.random.default_rng(seed)
        self.count, self.push, self.falls = count, push, 0
        self.noise = 1.0
        self.models = [
            mujoco.MjModel.from_xml_string(to_mjcf(WorldLayout(()))) for _ in range(count)
        ]
        for model in self.models:
            model.geom_friction[:, 0] *= rng.uniform(0.6, 1.2)
            model.body_mass[1] += rng.uniform(-0.8, 1.2)
            model.body_ipos[1] += rng.uniform(-0.02, 0.02, 3)
            strength = rng.uniform(0.85, 1.15)
            model.actuator_gainprm[:, 0] *= strength
            model.actuator_biasprm[:, 1] *= strength
        self.datas = [mujoco.MjData(model) for model in self.models]
        self.delayed = rng.random((count, 1)) < 0.5  # By one control step.
        self.command, self.velocity = np.zeros((count, 3)), np.zeros((count, 2))
        self.phase: np.ndarray = np.zeros(count)
        self.action: np.ndarray = np.zeros((count, 12))
        self.age: np.ndarray = np.zeros(count, int)
        self._start(range(count))

    def _start(self, indices: Iterable[int]) -> None:
        for index in indices:
            data = self.datas[index]
            mujoco.mj_resetData(self.models[index], data)
            data.qpos[7:19] = STANDING + self.rng.normal(0, 0.05, 12)
            data.ctrl[:] = STANDING
            mujoco.mj_forward(self.models[index], data)
            self.velocity[index] = self.action[index] = self.age[index] = 0
            self.phase[index] = self.rng.random()
            self.draw_command(index)
        self._sense()

    def draw_command(self, index: int) -> None:
        """Give a robot a new command; one in eight is to stand."""
        rng = self.rng
        command = rng.uniform(COMMAND_LOW, COMMAND_HIGH) * (rng.random(3) < (0.8, 0.3, 0.6))
        self.command[index] = command * (rng.random() < 0.88)

    def _sense(self) -> None:
        self.joints = np.array([data.qpos[7:19] for data in self.datas])
        self.rates = np.array([data.qvel[6:18] for data in self.datas])
        sensors = np.array([data.sensordata for data in self.datas])
        self.spin, self.true_velocity = sensors[:, :3], sensors[:, 6:8]
        w, x, y, z = np.array([data.qpos[3:7] for data in self.datas]).T
        self.gravity = np.stack(
            [2 * (w * y - x * z), -2 * (y * z + w * x), 2 * (x * x + y * y) - 1], 1
        )

    def step(self, action: np.ndarray) -> None:
        """Advance by one control step with actions, (N, 12); robots that fall start again."""
        rng = self.rng
        targets = STANDING + ACTION_SCALE * np.where(self.delayed, self.action, action)
        for model, data, target in zip(self.models, self.datas, targets):
            data.ctrl[:] = target
            if rng.random() < CONTROL_SECONDS / 3:
                data.qvel[[0, 1, 5]] += rng.normal(0, self.push, 3)
            mujoco.mj_step(model, data, SUBSTEPS)
        self.action, self.age = action, self.age + 1
        self.phase = (self.phase + CONTROL_SECONDS / PERIOD) % 1
        for index in np.flatnonzero(rng.random(self.count) < CONTROL_SECONDS / 4):
            self.draw_command(index)
        self._sense()
        self.velocity += CONTROL_SECONDS / 0.2 * (self.true_velocity - self.velocity)
        height = np.array([data.qpos[2] for data in self.datas])
        fallen = (-self.gravity[:, 2] < FALLEN_TILT) | (height < FALLEN_HEIGHT)
        self.falls += int(fallen.sum())
        if (over := fallen | (self.age > 1000)).any():
            self._start(np.flatnonzero(over))

    def teach(self) -> np.ndarray:
        """Return the teacher's actions, (N, 12)."""
        targets = trot(self.phase, self.command, self.velocity, self.spin, self.gravity)
        actions: np.ndarray = (targets - STANDING) / ACTION_SCALE
        return actions

    def observe(self) -> np.ndarray:
        """Return noisy observations, (N, 47), in the order of the exported network."""
        angle = 2 * np.pi * self.phase[:, None]

        def noisy(values: np.ndarray, deviation: float) -> np.ndarray:
            noise = self.rng.normal(0, deviation, values.shape)
            return np.asarray(values + self.noise * noise)

        parts = (
            noisy(self.joints - STANDING, 0.01),
            noisy(self.rates, 0.3),
            noisy(self.spin, 0.05),
            noisy(self.gravity, 0.02),
            self.command,
            self.action,
            np.sin(angle),
            np.cos(angle),
        )
        return np.concatenate(parts, 1, dtype=np.float32)
