"""
Training of the walking policy of the robot demo, and its export to ONNX.

The network imitates an analytic trot that knows the robot's true velocity; the network has what a
robot measures only, and learns to do without on robots that differ in mass, friction, motors and
delay, and that are pushed (DAgger: Ross et al., AISTATS 2011). It needs NumPy, MuJoCo and onnx:

    python tools/train_robot.py --out DIR
"""

from argparse import ArgumentDefaultsHelpFormatter, ArgumentParser
from collections.abc import Mapping, Sequence
from itertools import pairwise
import math
from pathlib import Path
import time
from typing import Any

from demo.robot.world import CONTROL_SECONDS, JOINTS, STANDING
import numpy as np
import onnx
from onnx import TensorProto, helper, numpy_helper
from robot_fleet import ACTION_SCALE, COMMAND_HIGH, COMMAND_LOW, PERIOD, Fleet
import yaml

ACTION_LIMIT = 5.0
HIDDEN = (128, 128)
Ports = Mapping[str, tuple[str, Sequence[str]]]
INPUTS = {  # Kind in a LEAPP bundle, names of the elements.
    'joint_positions': ('state/joint/position', JOINTS),
    'joint_velocities': ('state/joint/velocity', JOINTS),
    'angular_velocity': ('state/body/angular_velocity', 'xyz'),
    'rotation': ('state/body/rotation', 'wxyz'),
    'command': ('command/body/velocity', ('lin_x', 'lin_y', 'ang_z')),
    'last_action': ('', JOINTS),
    'phase': ('', ('gait',)),
}
OUTPUTS = {
    'joint_targets': ('target/joint/position', JOINTS),
    'action': ('', JOINTS),
    'next_phase': ('', ('gait',)),
}
STATES = {'walk/action': ['walk/last_action'], 'walk/next_phase': ['walk/phase']}


class Policy:
    """Dense layers with tanh between them, and the scale of the observations."""

    def __init__(self, sizes: tuple[int, ...], rng: np.random.Generator) -> None:
        self.weights = []
        for given, made in pairwise(sizes):
            self.weights += [
                rng.normal(0, given**-0.5, (given, made)).astype(np.float32),
                np.zeros(made, np.float32),
            ]
        self.mean, self.scale = np.zeros(sizes[0], np.float32), np.ones(sizes[0], np.float32)
        self._moments = [(np.zeros_like(w), np.zeros_like(w)) for w in self.weights]
        self._steps = 0

    def layers(self, observations: np.ndarray) -> list[np.ndarray]:
        """Return the inputs of all layers and the actions, (N, 12), at the end."""
        values = [(observations - self.mean) / self.scale]
        for index in range(0, len(self.weights), 2):
            value = values[-1] @ self.weights[index] + self.weights[index + 1]
            values.append(np.tanh(value) if index + 2 < len(self.weights) else value)
        return values

    def act(self, observations: np.ndarray) -> np.ndarray:
        """Return the actions, (N, 12)."""
        return self.layers(observations)[-1].clip(-ACTION_LIMIT, ACTION_LIMIT)

    def learn(self, observations: np.ndarray, actions: np.ndarray, rate: float) -> float:
        """Take one step of Adam on the mean squared error; return it."""
        values = self.layers(observations)
        error = values[-1] - actions
        gradients: list[np.ndarray] = []
        back = 2 * error / error.size
        for index in range(len(self.weights) - 2, -1, -2):
            given = values[index // 2]
            gradients[:0] = [given.T @ back, back.sum(0)]
            back = back @ self.weights[index].T * (1 - given * given)
        self._steps += 1
        for weight, gradient, (first, second) in zip(self.weights, gradients, self._moments):
            first += 0.1 * (gradient - first)
            second += 0.001 * (gradient * gradient - second)
            unbiased = np.sqrt(second / (1 - 0.999**self._steps)) + 1e-8
            weight -= rate * (first / (1 - 0.9**self._steps)) / unbiased
        return float((error * error).mean())


def train(rounds: int, robots: int, steps: int, seed: int) -> Policy:
    """Alternate walking, which the policy leads more and more often, and learning."""
    rng = np.random.default_rng(seed)
    fleet = Fleet(robots, seed)
    policy = Policy((fleet.observe().shape[1], *HIDDEN, 12), rng)
    seen, taught = np.zeros((0, policy.mean.size), np.float32), np.zeros((0, 12), np.float32)
    started = time.monotonic()
    for number in range(rounds):
        new, falls = [], fleet.falls
        led = rng.random((robots, 1)) < min(1.0, number / 4)
        for _ in range(steps):
            observed, lesson = fleet.observe(), fleet.teach()
            new.append((observed, lesson.astype(np.float32)))
            fleet.step(np.where(led, policy.act(observed), lesson))
        seen = np.concatenate([seen, *(each for each, _ in new)])
        taught = np.concatenate([taught, *(each for _, each in new)])
        if number < 4:
            policy.mean, policy.scale = seen.mean(0), seen.std(0) + 0.05
        progress = number / rounds
        rate = 2e-3 * (0.02 + 0.98 * (1 - progress))
        batches = np.array_split(rng.permutation(len(seen)), max(1, len(seen) // 256))
        losses = [policy.learn(seen[b], taught[b], rate) for b in batches[:1200]]
        print(
            f'round {number:3}  loss {np.mean(losses):.4f}  falls {fleet.falls - falls}  '
            f'{time.monotonic() - started:.0f} s',
            flush=True,
        )
    return policy


class Graph:
    """Nodes and constants of an ONNX graph in float32."""

    def __init__(self) -> None:
        self.nodes: list[onnx.NodeProto] = []
        self.constants: list[onnx.TensorProto] = []

    def constant(self, value: object, dtype: type = np.float32) -> str:
        """Add a constant; return its name."""
        name = f'constant_{len(self.constants)}'
        self.constants.append(numpy_helper.from_array(np.asarray(value, dtype), name))
        return name

    def add(self, kind: str, *inputs: str, name: str = '', **attributes: Any) -> str:
        """Add a node of one output; return the name of that."""
        name = name or f'value_{len(self.nodes)}'
        self.nodes.append(helper.make_node(kind, inputs, [name], **attributes))
        return name

    def sum_of(self, *terms: tuple[float, str, str]) -> str:
        """Add the sum of factor * a * b."""
        made = [
            self.add('Mul', self.constant([[factor]]), self.add('Mul', a, b))
            for factor, a, b in terms
        ]
        return self.add('Sum', *made)


def export(policy: Policy, path: Path) -> None:
    """Write the policy as ONNX, measurements in and joint targets out, and as a LEAPP bundle."""
    graph = Graph()
    constant, add = graph.constant, graph.add
    w, x, y, z = 'wxyz'
    ones = constant([1, 1, 1, 1], np.int64)
    graph.nodes.append(helper.make_node('Split', ['rotation', ones], [w, x, y, z], axis=1))
    down = graph.sum_of((2, x, x), (2, y, y))
    gravity = [
        graph.sum_of((2, w, y), (-2, x, z)),
        graph.sum_of((-2, y, z), (-2, w, x)),
        add('Sub', down, constant([[1]])),
    ]
    angle = add('Mul', 'phase', constant([[2 * math.pi]]))
    command = add('Max', 'command', constant([COMMAND_LOW]))
    value = add(
        'Concat',
        add('Sub', 'joint_positions', constant([STANDING])),
        'joint_velocities',
        'angular_velocity',
        *gravity,
        add('Min', command, constant([COMMAND_HIGH])),
        'last_action',
        add('Sin', angle),
        add('Cos', angle),
        axis=1,
    )
    value = add('Div', add('Sub', value, constant([policy.mean])), constant([policy.scale]))
    for index in range(0, len(policy.weights), 2):
        weight, bias = map(constant, policy.weights[index : index + 2])
        value = add('Gemm', add('Tanh', value) if index else value, weight, bias)
    add('Clip', value, constant(-ACTION_LIMIT), constant(ACTION_LIMIT), name='action')
    turn = add('Mul', 'action', constant([[ACTION_SCALE]]))
    add('Add', turn, constant([STANDING]), name='joint_targets')
    later = add('Add', 'phase', constant([[CONTROL_SECONDS / PERIOD]]))
    add('Sub', later, add('Floor', later), name='next_phase')

    def values(ports: Ports) -> list[onnx.ValueInfoProto]:
        return [
            helper.make_tensor_value_info(name, TensorProto.FLOAT, [1, len(elements)])
            for name, (_, elements) in ports.items()
        ]

    model = helper.make_model(
        helper.make_graph(graph.nodes, 'walk', values(INPUTS), values(OUTPUTS), graph.constants),
        opset_imports=[helper.make_opsetid('', 17)],
        ir_version=8,
    )
    description = 'Trot of a quadruped, a demo model of trt_ros'
    joints = ','.join(JOINTS)
    helper.set_model_props(
        model, {'description': description, 'license': 'Apache-2.0', 'joint_names': joints}
    )
    onnx.checker.check_model(model, full_check=True)
    onnx.save(model, path)
    path.with_suffix('.yaml').write_text(yaml.safe_dump(bundle(path.name), sort_keys=False))


def bundle(file: str) -> dict[str, object]:
    """Return the content of the YAML file that tells what the inputs and outputs mean."""

    def described(ports: Ports) -> list[dict[str, Any]]:
        return [
            dict(name=name, shape=[1, len(elements)], type='tensor')
            | (dict(kind=kind, element_names=[list(elements)]) if kind else {})
            for name, (kind, elements) in ports.items()
        ]

    inputs = [name for name, (kind, _) in INPUTS.items() if kind]
    return {
        'models': {
            'walk': {
                'inputs': described(INPUTS),
                'outputs': described(OUTPUTS),
                'parameters': {'model_path': file},
            }
        },
        'pipeline': {
            'inputs': {'walk': inputs},
            'outputs': {'walk': ['joint_targets']},
            'data_flow': {},
            'feedback_flow': STATES,
        },
    }


def evaluate(policy: Policy, seconds: float) -> str:
    """Return the error of the velocity and the falls of robots that are pushed, as text."""
    fleet = Fleet(32, 1)
    errors = []
    for _ in range(round(seconds / CONTROL_SECONDS)):
        fleet.step(policy.act(fleet.observe()))
        errors.append(np.abs(fleet.velocity - fleet.command[:, :2]).mean())
    return (
        f'{fleet.count * seconds:.0f} s of walking: {fleet.falls} falls, mean error of the '
        f'velocity {np.mean(errors):.3f} m/s'
    )


def main() -> None:
    """Train, evaluate and export the policy."""
    parser = ArgumentParser(
        description='Train the walking policy.', formatter_class=ArgumentDefaultsHelpFormatter
    )
    parser.add_argument('--out', type=Path, required=True, help='output folder of walk.onnx')
    parser.add_argument('--rounds', type=int, default=32, help='rounds of walking and learning')
    parser.add_argument('--robots', type=int, default=32, help='simulated robots')
    parser.add_argument('--steps', type=int, default=150, help='control steps per round')
    parser.add_argument('--seed', type=int, default=0)
    args = parser.parse_args()
    args.out.mkdir(parents=True, exist_ok=True)
    policy = train(args.rounds, args.robots, args.steps, args.seed)
    path = args.out / 'walk.onnx'
    export(policy, path)
    print(f'{path}: {path.stat().st_size} bytes\n{evaluate(policy, 20.0)}')


if __name__ == '__main__':
    main()
