"""
Latency and CPU time of images and detections from image source to detector to overlay.

The three nodes run as three processes, in one container, and in one container with
use_intra_process_comms. A fixed picture replaces the pictures of the source and a list of boxes
the network, so that only the transport of the messages is measured.

    ./dev shell -c 'python benchmarks/intra_process.py [--size 1920x1080] [--json]'
"""

import argparse
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
import json
import os
from pathlib import Path
import random
import signal
import subprocess
import sys
import tempfile
import time
from typing import Any

import numpy as np
from report import machine, percentiles

HERE = Path(__file__).parent
PROFILE = HERE.parent / 'config/fastdds.xml'  # Shared memory for several images.
SIZE, FOLDER = 'TRT_ROS_BENCHMARK_SIZE', 'TRT_ROS_BENCHMARK_FOLDER'
PROCESSES, CONTAINER, REFERENCE = 'three processes', 'one container', 'one container, by reference'
TRANSPORTS = (PROCESSES, CONTAINER, REFERENCE)
SECONDS_TO_START, SECONDS_TO_WARM_UP = 60.0, 2.0
TICKS = os.sysconf('SC_CLK_TCK')

if SIZE in os.environ:  # A measured process.
    from trt_ros.nodes import image_source, overlay
    from trt_ros.nodes.detector import DetectorNode
    from trt_ros.results.boxes import Detections
    from trt_ros.ros.messages import ImageSender
    from trt_ros.ros.process import run_node
    from trt_ros.ros.sources import PictureSource
    from trt_ros.runtime.future import Finished
    from trt_ros.runtime.pipeline import Pipeline
    from trt_ros.runtime.runner import Runner
    from trt_ros.tensors import TensorSpec
    from trt_ros.vision.frame import Frame

    def open_still(*_: Any) -> PictureSource:
        width, height = map(int, os.environ[SIZE].split('x'))
        still = np.full((height, width, 3), 90, np.uint8)
        return PictureSource('a still', 0.0, lambda: still, lambda: None, lambda: None)

    class StampingSender(ImageSender):
        """A sender that writes the send time into the first pixels."""

        def send(self) -> None:
            self._pixels.reshape(-1)[:8].view(np.int64)[0] = time.monotonic_ns()
            super().send()

    image_source.open_source, image_source.ImageSender = open_still, StampingSender

    def sent_ns(frame: Frame) -> int:
        return int(frame.data[:8].copy().view(np.int64)[0])

    def save(name: str, records: Mapping[int, Any]) -> None:
        Path(os.environ[FOLDER], f'{name}.json').write_text(json.dumps(records))

    class NoNetwork(Runner):
        """A runner with the shape of YOLOv8 that computes nothing."""

        backend = 'none'
        inputs = (TensorSpec('images', (1, 3, 32, 32), 'float32', 'input'),)
        outputs = (TensorSpec('output0', (1, 6, 21), 'float32', 'output'),)
        metadata: Mapping[str, str] = {'names': "{0: 'cat', 1: 'dog'}"}

        def infer(self, tensors: Mapping[str, np.ndarray]) -> dict[str, np.ndarray]:
            return {'output0': np.zeros((1, 6, 21), np.float32)}

        def close(self) -> None:
            pass

    def open_tiny(options: Any, **keywords: Any) -> Pipeline:
        """Return a pipeline whose network is never run."""
        return Pipeline.open(options, **keywords, runner=NoNetwork())

    class Camera(image_source.ImageSourceNode):
        """An image source that publishes the fixed picture."""

    class Detector(DetectorNode):
        """A detector that always returns the same boxes and records when it was called."""

        def __init__(self, **kwargs: Any) -> None:
            self._times: dict[int, tuple[int, int]] = {}
            rng = np.random.default_rng(0)
            corners = rng.integers(0, 200, (20, 2))
            self._found = Detections(
                np.hstack([corners, corners + 100]).astype(np.float32),
                rng.random(20, np.float32),
                rng.integers(0, 2, 20, np.int32),
            )
            super().__init__(open_pipeline=open_tiny, **kwargs)

        def start(self, frames: list[Frame]) -> Finished[list[Detections]]:
            received_ns = time.monotonic_ns()
            for frame in frames:
                self._times[sent_ns(frame)] = received_ns, time.monotonic_ns()
            return Finished([self._found] * len(frames))

        def destroy_node(self) -> None:
            super().destroy_node()
            save('detector', self._times)

    class Overlay(overlay.OverlayNode):
        """An overlay that records when it has an image and its detections."""

        def __init__(self, **kwargs: Any) -> None:
            self._times: dict[int, int] = {}
            super().__init__(**kwargs)

        def configure(self) -> None:
            super().configure()
            self._topics[0].prepare = self._noted

        def _noted(self, frame: Frame) -> Frame:
            """Note the time of an image when its detections have come, too."""
            if not self._times:
                save('first', {})
            self._times[sent_ns(frame)] = time.monotonic_ns()
            return frame

        def destroy_node(self) -> None:
            super().destroy_node()
            save('overlay', self._times)


NODES: dict[str, tuple[list[str], dict[str, Any]]] = {  # Class: remappings, parameters.
    'Overlay': (['detections:=/detector/detections'], {'qos_reliability': 'reliable'}),
    'Detector': ([], {'autostart': True, 'qos_reliability': 'reliable'}),
    'Camera': ([], {'source': 'still'}),
}


class Requests:
    """A client of the services of the container."""

    def __init__(self) -> None:
        import rclpy

        self._context = rclpy.Context()
        rclpy.init(context=self._context)
        self._node = rclpy.create_node('benchmark', context=self._context)
        self._executor = rclpy.executors.SingleThreadedExecutor(context=self._context)
        self._executor.add_node(self._node)
        self._clients: dict[str, Any] = {}

    def ask(self, kind: type, service: str, seconds: float, **fields: Any) -> Any:
        if service not in self._clients:
            self._clients[service] = self._node.create_client(
                kind, f'/ComponentManager/_container/{service}'
            )
        client = self._clients[service]
        assert client.wait_for_service(30.0), service
        future = client.call_async(kind.Request(**fields))
        self._executor.spin_until_future_complete(future, seconds)
        return future.result() if future.done() else None

    def load(self, name: str, by_reference: bool, rate_hz: float) -> None:
        from composition_interfaces.srv import ListNodes, LoadNode
        from rclpy.parameter import Parameter

        def messages(values: Mapping[str, Any]) -> list[Any]:
            return [
                Parameter(key, value=value).to_parameter_msg() for key, value in values.items()
            ]

        # A response before discovery completes is lost: call a harmless service first.
        while self.ask(ListNodes, 'list_nodes', 1.0) is None:
            pass
        remaps, parameters = NODES[name]
        if name == 'Camera':
            parameters = {**parameters, 'rate_hz': rate_hz}
        loaded = self.ask(
            LoadNode,
            'load_node',
            60.0,
            plugin_name=f'intra_process:{name}',
            node_name=name.lower(),
            remap_rules=remaps,
            parameters=messages(parameters),
            extra_arguments=messages({'use_intra_process_comms': by_reference}),
        )
        assert loaded is not None and loaded.success, loaded

    def close(self) -> None:
        self._executor.shutdown()
        self._node.destroy_node()
        self._context.try_shutdown()


@contextmanager
def running(
    transport: str, rate_hz: float, env: dict[str, str]
) -> Iterator[list[subprocess.Popen]]:
    """Run the nodes, starting the source last; end them and wait for them on exit."""
    processes: list[subprocess.Popen] = []

    def start(*arguments: str) -> None:
        processes.append(
            subprocess.Popen([sys.executable, *arguments], env=env, stderr=subprocess.DEVNULL)
        )

    try:
        if transport == PROCESSES:
            for name, (remaps, parameters) in NODES.items():
                if name == 'Camera':
                    parameters = {**parameters, 'rate_hz': rate_hz}
                given = [f'{key}:={str(value).lower()}' for key, value in parameters.items()]
                start(
                    __file__,
                    '--role',
                    name,
                    '--ros-args',
                    '-r',
                    f'__node:={name.lower()}',
                    *(part for each in remaps for part in ('-r', each)),
                    *(part for each in given for part in ('-p', each)),
                )
        else:
            start(
                '-c',
                'import sys; from trt_ros.container.__main__ import main_mt; sys.exit(main_mt())',
                '--ros-args',
                '-p',
                'allow_modules:=true',
            )
            requests = Requests()
            try:
                for name in NODES:
                    requests.load(name, transport == REFERENCE, rate_hz)
            finally:
                requests.close()
        yield processes
    finally:
        for each in processes:  # A killed process leaves its shared memory behind.
            each.send_signal(signal.SIGINT)
        assert [each.wait(60) for each in processes] == [0] * len(processes)


def cpu_seconds(processes: list[subprocess.Popen]) -> float:
    """Return the user and system time of all threads of the processes so far."""
    ticks = 0
    for each in processes:
        fields = Path(f'/proc/{each.pid}/stat').read_text().rpartition(')')[2].split()
        ticks += int(fields[11]) + int(fields[12])
    return ticks / TICKS


def measure(transport: str, size: str, rate_hz: float, seconds: float) -> dict[str, Any]:
    """Run the nodes; return milliseconds of each frame, and CPU milliseconds per second."""
    with tempfile.TemporaryDirectory() as folder:
        environment = {
            'FASTRTPS_DEFAULT_PROFILES_FILE': str(PROFILE),
            'ROS_AUTOMATIC_DISCOVERY_RANGE': 'LOCALHOST',
            'ROS_DOMAIN_ID': str(random.randint(1, 100)),
        }
        os.environ.update(environment)
        python_path = os.pathsep.join(
            filter(None, (str(HERE), str(HERE.parent), os.environ.get('PYTHONPATH')))
        )
        with running(
            transport,
            rate_hz,
            {**os.environ, 'PYTHONPATH': python_path, SIZE: size, FOLDER: folder},
        ) as processes:
            deadline = time.monotonic() + SECONDS_TO_START
            while not Path(folder, 'first.json').exists():
                assert time.monotonic() < deadline, f'{transport}: nothing was drawn'
                time.sleep(0.1)
            time.sleep(SECONDS_TO_WARM_UP)
            began_ns, cpu_began = time.monotonic_ns(), cpu_seconds(processes)
            time.sleep(seconds)
            ended_ns, cpu_ended = time.monotonic_ns(), cpu_seconds(processes)
        found, drawn = (
            json.loads(Path(folder, f'{name}.json').read_text())
            for name in ('detector', 'overlay')
        )
    rows: dict[str, list[float]] = {'image': [], 'detections': [], 'both': []}
    for key, drawn_ns in drawn.items():
        sent_ns = int(key)
        if began_ns <= sent_ns < ended_ns and key in found:
            received_ns, done_ns = found[key]
            rows['image'].append(1e-6 * (received_ns - sent_ns))
            rows['detections'].append(1e-6 * (drawn_ns - done_ns))
            rows['both'].append(1e-6 * (drawn_ns - sent_ns))
    return {
        **rows,
        'cpu': 1e3 * (cpu_ended - cpu_began) / (1e-9 * (ended_ns - began_ns)),
        'sent': rate_hz * seconds,
    }


def main() -> None:
    if sys.argv[1:2] == ['--role']:
        sys.exit(
            run_node(
                {'Camera': Camera, 'Detector': Detector, 'Overlay': Overlay}[sys.argv[2]],
                sys.argv[3:],
            )
        )
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument('--size', default='1920x1080')
    parser.add_argument('--rate-hz', type=float, default=20.0)
    parser.add_argument(
        '--seconds', type=float, default=10.0, help='duration of each variant per round'
    )
    parser.add_argument('--rounds', type=int, default=3)
    parser.add_argument('--json', action='store_true')
    args = parser.parse_args()
    result: dict[str, Any] = {'machine': machine(), 'size': args.size, 'rate_hz': args.rate_hz}
    runs: dict[str, list[dict[str, Any]]] = {transport: [] for transport in TRANSPORTS}
    for _ in range(args.rounds):  # Alternately, so that load affects all.
        for transport in TRANSPORTS:
            runs[transport].append(measure(transport, args.size, args.rate_hz, args.seconds))
    for transport, found in runs.items():
        result[transport] = {
            name: percentiles([value for run in found for value in run[name]])
            for name in ('image', 'detections', 'both')
        }
        result[transport]['sent'] = sum(run['sent'] for run in found)
        result[transport]['cpu_ms_per_frame'] = (
            float(np.mean([run['cpu'] for run in found])) / args.rate_hz
        )
    if args.json:
        print(json.dumps(result, indent=1))
        return
    print(', '.join(f'{key} {value}' for key, value in result['machine'].items()))
    print(f'{args.size} at {args.rate_hz:g} Hz, milliseconds')
    print(
        f'{"p50 / p99":<30} {"image":>14} {"detections":>14} {"both":>14} {"CPU/frame":>12} '
        f'{"arrived":>12}'
    )
    for transport in TRANSPORTS:
        row = result[transport]
        cells = [
            f'{row[name]["p50"]:.2f} / {row[name]["p99"]:.2f}'
            for name in ('image', 'detections', 'both')
        ]
        print(
            f'{transport:<30} {cells[0]:>14} {cells[1]:>14} {cells[2]:>14} '
            f'{row["cpu_ms_per_frame"]:12.2f} {row["both"]["count"]:5} of {row["sent"]:.0f}'
        )


if __name__ == '__main__':
    main()
