"""
The policy node: period jitter of its commands, and latency from observation to command.

A robot of 12 joints publishes joint states, IMU and odometry at the rate of the policy. The
network has the size of a walking policy (48-512-256-128-12). `by rate` samples with `rate_hz`;
`by message` runs with each set of equal stamps. Jitter is the deviation of the time between two
commands from the period, at the receiver. `node share` is the time from a sample, or from the
arrival of the last message of a set, to the end of the publication of its command, without the
run of the network; its parts are those of the profiling ranges of the node. `latency` (of
/diagnostics) is the time from the stamp of the observation to the command, with the transport of
both.

    ./dev shell -c 'python benchmarks/policy.py [--model go1_policy.onnx] [--backend tensorrt_rtx]'
"""

import argparse
from contextlib import contextmanager
import itertools
import json
from pathlib import Path
import signal
import subprocess
import sys
import tempfile
import time

from diagnostic_msgs.msg import DiagnosticArray
from nav_msgs.msg import Odometry
import numpy as np
from onnx import TensorProto, helper, numpy_helper, save_model
import rclpy
from sensor_msgs.msg import Imu, JointState
from std_msgs.msg import Float64MultiArray

JOINTS = [f'joint_{number}' for number in range(12)]
NAMES = ','.join(JOINTS)
INPUTS = [
    'obs=concat:velocity,turn,gravity,q,dq,last,command',
    'velocity=odometry:odom#linear[x,y,z]',
    'turn=imu:imu#angular_velocity[x,y,z]',
    'gravity=imu:imu#gravity',
    f'q=joints:joint_states#position[{NAMES}]',
    f'dq=joints:joint_states#velocity[{NAMES}]',
    'last=state:continuous_actions',
    'command=twist:cmd_vel#linear[x,y],angular[z]?held=true&initial=0',
]
SIZES = (48, 512, 256, 128, 12)
KEYS = ('latency', 'period jitter')
PARTS = ('read', 'start', 'network', 'publish')
#: Ranges of the run of the network: on the CPU, and on the GPU with its copies.
RUN = ('network', 'enqueue', 'wait')


def write_network(path: Path) -> None:
    """Write a network of dense layers with random weights."""
    rng, nodes, weights = np.random.default_rng(0), [], []
    names = ['obs', *(f'h{number}' for number in range(1, len(SIZES) - 1)), 'continuous_actions']
    for number, shape in enumerate(itertools.pairwise(SIZES)):
        weight = (0.5 * rng.normal(size=shape) / np.sqrt(shape[0])).astype(np.float32)
        weights.append(numpy_helper.from_array(weight, f'w{number}'))
        nodes.append(helper.make_node('MatMul', [names[number], f'w{number}'], [f'm{number}']))
        nodes.append(helper.make_node('Tanh', [f'm{number}'], [names[number + 1]]))
    ends = [
        helper.make_tensor_value_info(name, TensorProto.FLOAT, [1, size])
        for name, size in ((names[0], SIZES[0]), (names[-1], SIZES[-1]))
    ]
    graph = helper.make_graph(nodes, 'policy', ends[:1], ends[1:], weights)
    opset = helper.make_opsetid('', 17)
    save_model(helper.make_model(graph, opset_imports=[opset], ir_version=8), str(path))


def run_node(path: str, arguments: list[str]) -> None:
    """Run a policy node, and write its profiling ranges to a file."""
    from timeline import Recorder

    from trt_ros import executables, profiling

    recorder = profiling._annotate = Recorder()
    sys.argv[1:] = arguments
    executables.policy()
    with open(path, 'w') as file:
        json.dump(recorder.ranges, file)


def node_shares(path: str, by_rate: bool, began: float) -> dict[str, np.ndarray]:
    """Return the node share of each run, and the parts of the run, in milliseconds."""
    ranges: dict[str, list] = {}
    for name, _, begin, end in json.loads(Path(path).read_text()):
        if begin > began:
            ranges.setdefault(name, []).append((begin, end))
    times = {name: np.array(sorted(each)) for name, each in ranges.items()}
    starts = times['sample' if by_rate else 'take'][:, 0]
    found: dict[str, list] = {name: [] for name in ('node share', *PARTS)}
    for begin, end in times['start'][2:-2]:
        start = starts[np.searchsorted(starts, begin) - 1]
        published = times['publish'][np.searchsorted(times['publish'][:, 0], end)][1]
        spent = {
            name: float(np.diff(each[(each[:, 0] > start) & (each[:, 1] <= published)]).sum())
            for name, each in times.items()
        }
        run = sum(spent.get(name, 0.0) for name in RUN)
        spent |= {'network': run, 'start': spent['start'] - run}
        found['node share'].append(published - start - run)
        for name in PARTS:
            found[name].append(end - begin - run if name == 'start' else spent[name])
    return {name: 1e3 * np.array(each) for name, each in found.items()}


@contextmanager
def policy(model: str, backend: str, rate_hz: float, by_rate: bool, path: str):
    """Run a policy node in a process of its own, which writes its ranges to `path`."""
    parameters = {
        'model_path': model,
        'backend': backend,
        'inputs': INPUTS,
        'joints': JOINTS,
        'output': 'multi_array',
        'blend_seconds': 0.0,
        'action_rate_hz': rate_hz,
        'rate_hz': rate_hz if by_rate else 0.0,
        'autostart': True,
        'qos_reliability': 'reliable',
    }
    given = [part for name, value in parameters.items() for part in ('-p', f'{name}:={value}')]
    command = [sys.executable, __file__, '--node', path, '--ros-args', *given]
    process = subprocess.Popen(command, stdout=subprocess.DEVNULL)
    try:
        yield
    finally:
        process.send_signal(signal.SIGINT)
        process.wait(30)


class Robot:
    """Sensors at a rate, and the times of the commands."""

    def __init__(self, node) -> None:
        self._node = node
        self._messages = (
            JointState(name=JOINTS, position=[0.1] * 12, velocity=[0.2] * 12),
            Imu(),
            Odometry(),
        )
        self._messages[1].orientation.w = 1.0
        topics = ('joint_states', 'imu', 'odom')
        self._publishers = [
            node.create_publisher(type(message), topic, 10)
            for message, topic in zip(self._messages, topics)
        ]
        self.times: list[float] = []
        self.diagnostics: dict[str, str] = {}
        self._subscriptions = [
            node.create_subscription(Float64MultiArray, '/policy/commands', self._on_command, 10),
            node.create_subscription(DiagnosticArray, '/diagnostics', self._on_diagnostics, 10),
        ]

    def _on_command(self, message: Float64MultiArray) -> None:
        self.times.append(time.monotonic())

    def _on_diagnostics(self, message: DiagnosticArray) -> None:
        self.diagnostics = {each.key: each.value for each in message.status[0].values}

    def run(self, rate_hz: float, seconds: float) -> None:
        """Publish sensors for some time."""
        due = time.monotonic()
        end = due + seconds
        while due < end:
            stamp = self._node.get_clock().now().to_msg()
            for publisher, message in zip(self._publishers, self._messages):
                message.header.stamp = stamp
                publisher.publish(message)
            due += 1 / rate_hz
            while (left := due - time.monotonic()) > 0:
                rclpy.spin_once(self._node, timeout_sec=left)

    def measure(self, rate_hz: float, seconds: float) -> list[str]:
        """Return commands per second, their jitter, and results of /diagnostics."""
        until = time.monotonic() + 300
        while not self.times:
            assert time.monotonic() < until, 'the node did not start'
            self.run(rate_hz, 0.1)
        self.run(rate_hz, 2.0)
        self.times.clear()
        self.run(rate_hz, seconds)
        jitter = np.abs(np.diff(self.times) - 1 / rate_hz) * 1e3
        found = [f'{len(self.times) / seconds:.0f}', _pair(np.percentile(jitter, [50, 99]))]
        for key in KEYS:
            values = [self.diagnostics.get(f'{key} {each} (ms)', 'nan') for each in ('p50', 'p99')]
            found.append(_pair(map(float, values)))
        found.append(' '.join(k for k in self.diagnostics if k.startswith('holds')))
        return found


def _pair(values) -> str:
    return ' / '.join(f'{value:.3f}' for value in values)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.split('\n')[1])
    parser.add_argument('--model', default='', help='ONNX file with obs (1, 48) in')
    parser.add_argument('--backend', default='auto')
    parser.add_argument('--rates', default='50,200,500', help='Hz')
    parser.add_argument('--seconds', type=float, default=20.0)
    parser.add_argument('--node', default='', help=argparse.SUPPRESS)
    args, rest = parser.parse_known_args()
    if args.node:
        return run_node(args.node, rest)
    columns = [
        'rate',
        'runs by',
        'node share',
        *PARTS,
        'commands/s',
        'jitter at the receiver',
        *KEYS,
    ]
    print('| ' + ' | '.join([*columns, 'holds']) + ' |  p50 / p99 in ms')
    rclpy.init()
    with tempfile.TemporaryDirectory() as folder:
        model = args.model or f'{folder}/policy.onnx'
        if not args.model:
            write_network(Path(model))
        for number, rate_hz in enumerate(map(float, args.rates.split(','))):
            for by_rate in (True, False):
                node = rclpy.create_node(f'robot_{number}_{by_rate}'.lower())
                robot = Robot(node)
                path = f'{folder}/{rate_hz:g}_{by_rate}.json'
                with policy(model, args.backend, rate_hz, by_rate, path):
                    row = robot.measure(rate_hz, args.seconds)
                    began = time.time() - args.seconds
                node.destroy_node()
                shares = node_shares(path, by_rate, began).values()
                row = ' | '.join(
                    [*(_pair(np.percentile(each, [50, 99])) for each in shares), *row]
                )
                kind = 'rate' if by_rate else 'message'
                print(f'| {rate_hz:g} Hz | {kind} | {row} |', flush=True)
    rclpy.shutdown()


if __name__ == '__main__':
    main()
