"""The simulated robot and what its camera sees."""

import math

import numpy as np
import pytest

pytest.importorskip('mujoco')

from demo.robot.pictures import boxes_in, draw_picture, eye_of
from demo.robot.simulation import Simulation
from demo.robot.world import (
    CLASSES,
    IMAGE_WH,
    OBSTACLE,
    STANDING,
    TORQUE_LIMIT,
    Thing,
    WorldLayout,
    draw_layout,
)
from demo.scene import HELD_OUT, TRAINING

BALL = WorldLayout((Thing('ball', (2.0, 0.5)),))


def test_the_robot_stands_with_torques_below_its_limit_and_falls_without_motors():
    simulation = Simulation(WorldLayout(()))
    for _ in range(100):
        simulation.step(STANDING)
    sensed = simulation.sense()
    assert sensed.seconds == pytest.approx(2.0)
    assert not simulation.has_fallen
    assert simulation.touched() == set()
    assert np.abs(sensed.joint_torques).max() < TORQUE_LIMIT / 2
    assert sensed.gravity == pytest.approx([0, 0, -1], abs=0.05)
    assert sensed.acceleration == pytest.approx([0, 0, 9.81], abs=0.6)
    simulation = Simulation(WorldLayout(()))
    simulation.model.actuator_gainprm[:] = simulation.model.actuator_biasprm[:] = 0
    for _ in range(100):
        simulation.step(STANDING)
    assert simulation.has_fallen


def test_an_object_is_seen_where_it_is():
    simulation = Simulation(BALL)
    camera, eye = simulation.data.camera('eye'), eye_of(simulation.model)
    axes, position = camera.xmat.reshape(3, 3), camera.xpos
    view = eye.render(simulation.model, simulation.data, position, axes)
    [box], [label] = boxes_in(view, simulation.model)
    assert CLASSES[label] == 'ball'
    x1, y1, x2, y2 = box.astype(int)
    column, row = (x1 + x2) // 2, (y1 + y2) // 2
    color = view.color[row, column].astype(int)
    assert np.ptp(color) <= 3  # Gray, the Thing's default color.
    # Depth is along the optical axis, of the surface that the camera sees.
    center = (np.array([2.0, 0.5, 0.16]) - position) @ axes
    assert view.depth[row, column] == pytest.approx(-center[2] - 0.16, abs=0.02)
    assert column - IMAGE_WH[0] / 2 == pytest.approx(center[0] / -center[2] * eye.focal, abs=2)
    assert view.depth[0, 0] == 0  # Sky.


@pytest.mark.parametrize('target', ('ball', 'cone', 'barrel'))
def test_the_obstacle_is_on_the_way_to_the_target(target):
    for seed in range(20):
        layout = draw_layout(seed, target)
        assert sorted(thing.name for thing in layout.things) == sorted(CLASSES)
        way = np.array(layout.find(target).xy)
        obstacle = np.array(layout.find(OBSTACLE).xy)
        assert 3 <= np.linalg.norm(way) <= 4
        assert abs(np.cross([*way, 0], [*obstacle, 0])[2]) / np.linalg.norm(way) < 0.2
        places = [thing.xy for thing in layout.things]
        assert min(math.dist(a, b) for a in places for b in places if a is not b) > 0.9
    assert draw_layout(7, target) == draw_layout(7, target)


def test_pictures_are_equal_for_a_seed_and_differ_between_the_sets():
    pictures = [draw_picture(np.random.default_rng([part, 3])) for part in (TRAINING, HELD_OUT)]
    again, xyxy, labels = draw_picture(np.random.default_rng([TRAINING, 3]))
    assert again.shape == (IMAGE_WH[1], IMAGE_WH[0], 3)
    assert (again == pictures[0][0]).all()
    assert (again != pictures[1][0]).any()
    assert len(xyxy) == len(labels) == len(set(labels.tolist()))
    assert (xyxy[:, 2:] > xyxy[:, :2]).all()
