"""The shipped policy, and its steps."""

from collections.abc import Callable

import numpy as np
import pytest

from trt_ros import Pipeline


@pytest.fixture(scope='session')
def policy():
    from demo.robot.world import WALK

    with Pipeline.open(str(WALK), backend='onnxruntime') as opened:
        yield opened


@pytest.fixture
def step(policy) -> Callable[..., None]:
    """Let the policy walk one step of a simulation by a command, since its start."""
    policy.reset_state()

    def step(simulation, sensed, command) -> None:
        inputs = {
            'joint_positions': sensed.joint_positions,
            'joint_velocities': sensed.joint_velocities,
            'angular_velocity': sensed.angular_velocity,
            'rotation': sensed.quaternion,
            'command': command,
        }
        made = policy({name: np.float32([each]) for name, each in inputs.items()})
        simulation.step(made['joint_targets'][0])

    return step
