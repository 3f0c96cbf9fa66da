"""The world of the robot demo in MuJoCo's format: a quadruped, objects to find, an obstacle."""

from dataclasses import dataclass
import math
from pathlib import Path

import numpy as np

WALK = Path(__file__).with_name('walk.yaml')
LEGS = ('front_left', 'front_right', 'rear_left', 'rear_right')
JOINTS = tuple(f'{leg}_{joint}' for leg in LEGS for joint in ('abduction', 'hip', 'knee'))
STANDING = np.tile([0.0, 0.8, -1.6], 4)  # Joint angles in radians.
STANDING_HEIGHT = 0.26  # Of the trunk's center in meters.
LINK = 0.17  # Length of thigh and shank in meters.
HIP_XY, HIP_OFFSET = (0.19, 0.06), 0.06  # Of the abduction axis; from there to the thigh.
EYE_POSITION, EYE_TILT = (0.28, 0.0, 0.06), 0.14  # Of the camera; radians downwards.
TORQUE_LIMIT = 25.0  # In newton meters.
PHYSICS_SECONDS, CONTROL_SECONDS = 0.005, 0.02


CLASSES = ('ball', 'cone', 'barrel', 'crate')
OBSTACLE = 'crate'
TARGETS = tuple(name for name in CLASSES if name != OBSTACLE)
IMAGE_WH = (256, 192)
RADIUS = {'ball': 0.16, 'cone': 0.15, 'barrel': 0.14, 'crate': 0.28}
HEIGHT = {'ball': 0.32, 'cone': 0.42, 'barrel': 0.4, 'crate': 0.18}
_SHAPES = {
    'ball': 'type="sphere" size="0.16" pos="0 0 0.16"',
    'cone': 'type="mesh" mesh="cone" pos="0 0 0.02"',
    'barrel': 'type="cylinder" size="0.14 0.2" pos="0 0 0.2"',
    'crate': 'type="box" size="0.2 0.2 0.09" pos="0 0 0.09"',
}
COLORS = {
    'ball': (0.85, 0.16, 0.12),
    'cone': (0.95, 0.5, 0.1),
    'barrel': (0.15, 0.35, 0.75),
    'crate': (0.5, 0.34, 0.2),
}


@dataclass(frozen=True)
class Thing:
    """
    An object on the ground.

    :param xy: center in meters; `yaw`: rotation about the vertical in radians.
    :param color: RGB, 0 to 1.
    """

    name: str
    xy: tuple[float, float]
    yaw: float = 0.0
    color: tuple[float, float, float] = (0.5, 0.5, 0.5)


@dataclass(frozen=True)
class WorldLayout:
    """
    The objects and where the robot, at the origin, looks at first.

    :param yaw: in radians.
    """

    things: tuple[Thing, ...]
    yaw: float = 0.0

    def find(self, name: str) -> Thing:
        """Return the object of a class."""
        return next(thing for thing in self.things if thing.name == name)


def draw_layout(seed: int, target: str) -> WorldLayout:
    """Draw a layout: the target 3 to 4 m away, the crate on the way to it, the others around."""
    rng = np.random.default_rng(seed)
    bearing, distance = rng.uniform(-math.pi, math.pi), rng.uniform(3.0, 4.0)
    toward = np.array([math.cos(bearing), math.sin(bearing)])
    aside = np.array([-toward[1], toward[0]])
    others = [name for name in CLASSES if name not in (target, OBSTACLE)]
    places = {
        target: distance * toward,
        OBSTACLE: rng.uniform(0.45, 0.55) * distance * toward + rng.uniform(-0.15, 0.15) * aside,
    }
    sides = rng.permuted([1.0, -1.0])
    for name, side in zip(others, sides):
        places[name] = rng.uniform(1.6, 3.2) * toward + side * rng.uniform(1.3, 2.0) * aside
    things = tuple(
        Thing(name, (float(x), float(y)), float(rng.uniform(-0.6, 0.6) + bearing), COLORS[name])
        for name, (x, y) in places.items()
    )
    return WorldLayout(things, float(bearing + rng.choice([-1, 1]) * rng.uniform(0.2, 1.6)))


def to_mjcf(layout: WorldLayout) -> str:
    """Return the world as MJCF."""
    ring = [(0.15 * math.cos(a), 0.15 * math.sin(a)) for a in np.arange(24) * math.pi / 12]
    cone = (
        ' '.join(f'{x:.4f} {y:.4f} 0' for x, y in ring)
        + ' '
        + ' '.join(f'{0.2 * x:.4f} {0.2 * y:.4f} 0.4' for x, y in ring)
    )
    things = '\n'.join(map(_thing, layout.things))
    legs = '\n'.join(
        _leg(leg, x * HIP_XY[0], y * HIP_XY[1], y)
        for leg, (x, y) in zip(LEGS, ((1, 1), (1, -1), (-1, 1), (-1, -1)))
    )
    motors = '\n'.join(f'<position name="{joint}" joint="{joint}"/>' for joint in JOINTS)
    half = layout.yaw / 2
    return f"""
<mujoco model="finder">
  <compiler angle="radian"/>
  <option timestep="{PHYSICS_SECONDS}" integrator="implicitfast"/>
  <default>
    <geom contype="0" conaffinity="1" friction="0.9" condim="3"/>
    <default class="robot">
      <geom contype="1" conaffinity="0" rgba="0.75 0.77 0.8 1"/>
      <joint axis="0 1 0" damping="0.1" armature="0.006" frictionloss="0.05"/>
      <position kp="60" kv="1" forcerange="-{TORQUE_LIMIT} {TORQUE_LIMIT}"/>
    </default>
  </default>
  <asset><mesh name="cone" vertex="{cone}"/></asset>
  <worldbody>
    <geom name="ground" type="plane" size="0 0 1" rgba="0.5 0.55 0.5 1"/>
    {things}
    <body name="trunk" childclass="robot" pos="0 0 {STANDING_HEIGHT}"
        quat="{math.cos(half)} 0 0 {math.sin(half)}">
      <freejoint/>
      <site name="imu"/>
      <camera name="eye" pos="{' '.join(map(str, EYE_POSITION))}" fovy="62"
        xyaxes="0 -1 0 {math.sin(EYE_TILT)} 0 {math.cos(EYE_TILT)}"/>
      <geom type="box" size="0.19 0.075 0.045" mass="5.5" rgba="0.2 0.24 0.3 1"/>
      <geom type="capsule" fromto="-0.13 0 0.05 0.12 0 0.05" size="0.05" mass="0.3"
        rgba="0.95 0.75 0.15 1"/>
      <geom type="box" size="0.04 0.06 0.035" pos="0.22 0 0.05" mass="0.4"/>
      <geom type="sphere" size="0.018" pos="0.255 0 0.06" mass="0" rgba="0.05 0.05 0.1 1"/>
      {legs}
    </body>
  </worldbody>
  <actuator><!-- One per joint, in the order of the joints. -->
    {motors.replace('<position', '<position class="robot"')}
  </actuator>
  <sensor>
    <gyro name="gyro" site="imu"/>
    <accelerometer name="accelerometer" site="imu"/>
    <velocimeter name="velocity" site="imu"/>
  </sensor>
</mujoco>
"""


def _thing(thing: Thing) -> str:
    color = ' '.join(f'{value:.3f}' for value in thing.color)
    x, y = thing.xy
    half = thing.yaw / 2
    base = ''
    if thing.name == 'cone':
        base = f'<geom type="box" size="0.15 0.15 0.01" pos="0 0 0.01" rgba="{color} 1"/>'
    return (
        f'<body name="{thing.name}" pos="{x:.4f} {y:.4f} 0" '
        f'quat="{math.cos(half):.5f} 0 0 {math.sin(half):.5f}">'
        f'<geom name="{thing.name}" {_SHAPES[thing.name]} rgba="{color} 1"/>{base}</body>'
    )


def _leg(name: str, x: float, y: float, side: int) -> str:
    return f"""
<body pos="{x} {y} 0">
  <joint name="{name}_abduction" axis="1 0 0" range="-0.7 0.7"/>
  <geom type="capsule" fromto="0 0 0 0 {side * HIP_OFFSET} 0" size="0.04" mass="0.45"
    rgba="0.2 0.24 0.3 1"/>
  <body pos="0 {side * HIP_OFFSET} 0">
    <joint name="{name}_hip" range="-0.8 2.4"/>
    <geom type="capsule" fromto="0 0 0 0 0 -{LINK}" size="0.026" mass="0.6"/>
    <body pos="0 0 -{LINK}">
      <joint name="{name}_knee" range="-2.6 -0.4"/>
      <geom type="capsule" fromto="0 0 0 0 0 -{LINK}" size="0.016" mass="0.12"
        rgba="0.2 0.24 0.3 1"/>
      <geom name="{name}_foot" type="sphere" size="0.022" pos="0 0 -{LINK}" mass="0.04"
        friction="1.0" rgba="0.1 0.1 0.1 1"/>
    </body>
  </body>
</body>"""
