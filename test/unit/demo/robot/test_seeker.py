"""The way to an object."""

import math

from demo.robot.seeker import STOP_DISTANCE, Seeker
from demo.robot.world import EYE_POSITION, EYE_TILT, RADIUS
import numpy as np
import pytest

AHEAD = np.array([1.0, 0.0, 0.0, 0.0])


def surface_at(x: float, y: float) -> np.ndarray:
    """Return a point on the ground of a robot at the origin, in the camera's frame."""
    forward, left, up = np.array([x, y, 0.0]) - EYE_POSITION
    cosine, sine = math.cos(EYE_TILT), math.sin(EYE_TILT)
    return np.array([-left, -up * cosine - forward * sine, forward * cosine - up * sine])


def walk(seeker: Seeker, seconds: float = 40.0) -> np.ndarray:
    """Let a point follow the velocities from the origin; return its way, (N, 2)."""
    position, yaw, way = np.zeros(2), 0.0, []
    for _ in range(round(seconds / 0.02)):
        forward, left, turn = seeker.steer(position, yaw)
        yaw += 0.02 * turn
        toward = np.array([math.cos(yaw), math.sin(yaw)])
        position = position + 0.02 * (forward * toward + left * toward[::-1] * (-1, 1))
        way.append(position)
    return np.array(way)


def test_it_turns_in_place_until_it_has_seen_the_target_and_forgets_a_false_one():
    seeker = Seeker('ball')
    seeker.see([('cone', surface_at(2.0, 0.0)), ('unknown', np.ones(3))], np.zeros(3), AHEAD)
    forward, left, turn = seeker.steer(np.zeros(2), 0.0)
    assert (forward, left) == (0, 0)
    assert turn > 0
    assert not seeker.has_arrived
    seeker = Seeker('ball')
    for x, y in ((1.0, 2.0), (3.0, 0.0)):
        seeker.see([('ball', surface_at(x, y))], np.zeros(3), AHEAD)
    assert seeker.known['ball'] == pytest.approx([3.0 + RADIUS['ball'], 0.0])


@pytest.mark.parametrize('yaw', (0.0, 2.0))
def test_a_surface_in_the_image_is_an_object_behind_it_in_the_world(yaw):
    seeker = Seeker('ball')
    quaternion = np.array([math.cos(yaw / 2), 0, 0, math.sin(yaw / 2)])
    seeker.see([('ball', surface_at(2.0, 0.0))], np.array([1.0, -1.0, 0.0]), quaternion)
    distance = 2 + RADIUS['ball']
    expected = [1 + distance * math.cos(yaw), -1 + distance * math.sin(yaw)]
    assert seeker.known['ball'] == pytest.approx(expected)


def test_it_stops_in_front_of_the_target_and_stays():
    seeker = Seeker('ball')
    seeker.known['ball'] = np.array([-1.0, 3.0])
    way = walk(seeker)
    assert seeker.has_arrived
    left = np.linalg.norm(seeker.known['ball'] - way[-1]) - RADIUS['ball']
    assert left == pytest.approx(STOP_DISTANCE, abs=0.15)
    assert (seeker.steer(way[-1], 0.0) == 0).all()


@pytest.mark.parametrize('aside', (-0.3, -0.05, 0.0, 0.1, 0.3))
def test_it_goes_around_an_obstacle(aside):
    seeker = Seeker('ball')
    seeker.known |= {'ball': np.array([4.0, 0.0]), 'crate': np.array([2.0, aside])}
    way = walk(seeker)
    assert seeker.has_arrived
    # The robot is 0.5 m long and 0.3 m wide.
    assert np.linalg.norm(way - seeker.known['crate'], axis=1).min() > RADIUS['crate'] + 0.3
