"""The shipped policy: a bundle that follows velocities and does not fall."""

import numpy as np
import onnx
import pytest

pytest.importorskip('mujoco')

from demo.robot.simulation import Simulation
from demo.robot.world import CONTROL_SECONDS, STANDING, WALK, WorldLayout
from robot_fleet import Fleet
import train_robot
import yaml

from trt_ros import Pipeline


def walk(simulation: Simulation, step, command, count: int) -> np.ndarray:
    """Walk; return velocity x, y and yaw rate of each step, (count, 3)."""
    found = []
    for _ in range(count):
        sensed = simulation.sense()
        step(simulation, sensed, command)
        found.append([*sensed.velocity[:2], sensed.angular_velocity[2]])
    return np.array(found)


@pytest.mark.parametrize(
    'command', [(0.5, 0, 0), (-0.2, 0, 0), (0, 0.15, 0), (0, 0, 0.8), (0.4, 0, -0.6), (0, 0, 0)]
)
def test_it_follows_commands(step, command):
    simulation = Simulation(WorldLayout(()))
    walk(simulation, step, command, 60)
    found = walk(simulation, step, command, 120).mean(axis=0)
    assert not simulation.has_fallen
    assert found == pytest.approx(command, abs=0.1)


def test_commands_are_limited_to_what_it_can_walk(step):
    simulation = Simulation(WorldLayout(()))
    found = walk(simulation, step, (5, 0, 0), 150)
    assert not simulation.has_fallen
    assert found[60:, 0].mean() < 0.8


def test_it_is_small_and_for_any_tensorrt():
    network = onnx.load(WALK.with_suffix('.onnx'))
    assert WALK.with_suffix('.onnx').stat().st_size < 3_000_000
    onnx.checker.check_model(network, full_check=True)
    assert [each.version for each in network.opset_import] == [17]
    assert yaml.safe_load(WALK.read_text()) == train_robot.bundle('walk.onnx')


def test_training_lowers_the_loss_and_exports_a_bundle(tmp_path, capsys):
    policy = train_robot.train(rounds=2, robots=2, steps=60, seed=0)
    losses = [float(line.split()[3]) for line in capsys.readouterr().out.splitlines()]
    assert losses[1] < losses[0]
    path = tmp_path / 'walk.onnx'
    train_robot.export(policy, path)
    fleet = Fleet(1, 0)
    fleet.phase[:] = 0.0
    fleet.action[:] = 0.0
    inputs = {
        'joint_positions': fleet.joints,
        'joint_velocities': fleet.rates,
        'angular_velocity': fleet.spin,
        'rotation': fleet.datas[0].qpos[None, 3:7],
        'command': fleet.command,
    }
    with Pipeline.open(str(path.with_suffix('.yaml')), backend='onnxruntime') as opened:
        made = opened({name: np.float32(each) for name, each in inputs.items()})
    fleet.noise = 0.0
    expected = STANDING + train_robot.ACTION_SCALE * policy.act(fleet.observe())
    assert made['joint_targets'] == pytest.approx(expected, abs=1e-4)
    assert CONTROL_SECONDS == 0.02
