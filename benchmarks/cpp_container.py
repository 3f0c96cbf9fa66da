"""
Nodes in containers of rclcpp_components, beside a camera in C++.

stall: time for which the camera stops while nodes are loaded; camera at 100 Hz, 64×48.
results: age of images of a Python node, 1920×1080, in a subscriber in C++; CPU time per image.
latency: from the camera's stamp, 1920×1080, to the detections in another process.

It needs a workspace with this package and test/ros/cpp/camera, built and sourced:

    colcon build --paths . test/ros/cpp/camera --cmake-args -DCMAKE_BUILD_TYPE=Release
    source install/setup.bash
    python3 benchmarks/cpp_container.py stall
"""

import argparse
from collections.abc import Callable, Iterator
from contextlib import contextmanager
import json
import os
from pathlib import Path
import signal
import subprocess
import tempfile
import threading
import time
from typing import Any

from ament_index_python import get_package_prefix
from composition_interfaces.srv import LoadNode
import numpy as np
import rclpy
from rclpy.executors import SingleThreadedExecutor
from rclpy.node import Node
from rclpy.parameter import Parameter
from rclpy.qos import qos_profile_sensor_data
from rclpy.signals import SignalHandlerOptions
from sensor_msgs.msg import Image
from std_msgs.msg import Header, String
from vision_msgs.msg import Detection2DArray

from trt_ros.ros.messages import ImageSender

SHAPES = Path(__file__).parents[1] / 'trt_ros/demo/shapes.onnx'
KINDS = ['component_container', 'component_container_mt', 'component_container_isolated']
SIZE = {'width': 1920, 'height': 1080}


class Painter(Node):
    """Publish a 1920×1080 image at 30 Hz; the stamp is the time before it is written."""

    def __init__(self, **kwargs: Any) -> None:
        super().__init__('painter', **kwargs)
        self._sender: ImageSender | None = None
        self._timer = self.create_timer(1.0 / 30.0, self._paint)

    def _paint(self) -> None:
        if self._sender is None:
            self._sender = ImageSender(self, self.create_publisher(Image, '~/image', 5))
        header = Header()
        header.stamp.sec, header.stamp.nanosec = divmod(time.time_ns(), 10**9)
        self._sender.begin(header, (SIZE['width'], SIZE['height']))[:] = 7
        self._sender.send()


class Container:
    """
    A container process, its log and its load requests.

    :ivar process: the process.
    """

    def __init__(self, name: str, program: Path, log: Path) -> None:
        self.name = name
        self._log = log
        with log.open('w') as file:
            self.process = subprocess.Popen(
                [str(program), '--ros-args', '-r', f'__node:={name}', '--log-level', 'warn'],
                env={'FASTDDS_BUILTIN_TRANSPORTS': 'DEFAULT?sockets_size=32MB', **os.environ},
                stdout=file,
                stderr=subprocess.STDOUT,
            )

    def check(self) -> None:
        """Raise SystemExit with the last lines of the log if the process has ended."""
        code = self.process.poll()
        if code is not None:
            raise SystemExit(self.failure(f'ended with exit code {code}'))

    def failure(self, what: str) -> str:
        """Return the text of a failure, with the last lines of the log."""
        lines = self._log.read_text(errors='replace').splitlines()[-20:]
        return '\n'.join([f'{self.name} {what}; the end of its log:', *lines])

    def close(self) -> None:
        """End the process; SystemExit where it fails, or takes longer than 30 s."""
        self.process.send_signal(signal.SIGINT)
        try:
            code = self.process.wait(30)
        except subprocess.TimeoutExpired:
            self.process.kill()
            self.process.wait()
            raise SystemExit(self.failure('did not end within 30 s of SIGINT')) from None
        if code:
            raise SystemExit(self.failure(f'ended with exit code {code} after SIGINT'))

    def cpu_seconds(self) -> float:
        """Return the CPU time that the process has used."""
        stat = Path(f'/proc/{self.process.pid}/stat').read_text().rpartition(')')[2].split()
        return sum(map(int, stat[11:13])) / os.sysconf('SC_CLK_TCK')


class Bench:
    """
    A node that measures, and the containers that run; every wait watches them.

    :param node: spun by another thread.
    :ivar rounds: number of repetitions.
    """

    def __init__(self, node: Any, model: str, rounds: int, images: int, folder: Path) -> None:
        self.node, self.model, self.rounds, self._images = node, model, rounds, images
        self._folder = folder
        self._containers: list[Container] = []

    def wait(self, condition: Callable[[], Any], what: str, seconds: float = 120.0) -> None:
        """Wait for a condition; SystemExit at the deadline, or when a container has ended."""
        deadline = time.monotonic() + seconds
        while not condition():
            for each in self._containers:
                each.check()
            if time.monotonic() > deadline:
                texts = [each.failure('runs') for each in self._containers]
                raise SystemExit('\n'.join([f'{what}: not within {seconds:.0f} s.', *texts]))
            time.sleep(0.005)

    def wait_for(self, values: list[Any], count: int) -> list[Any]:
        """Wait for so many values; return them."""
        self.wait(lambda: len(values) >= count, f'{count} messages')
        return values[:count]

    def measured(self, values: list[Any]) -> list[Any]:
        """Wait for one value per measured image, after 30 others; return them."""
        return self.wait_for(values, 30 + self._images)[30:]

    def collect(self, kind: type, topic: str, convert: Callable[[Any], Any]) -> list[Any]:
        """Return a list that grows by one value per message."""
        found: list[Any] = []
        self.node.create_subscription(
            kind, topic, lambda message: found.append(convert(message)), qos_profile_sensor_data
        )
        return found

    @contextmanager
    def container(self, kind: str, package: str = 'rclcpp_components') -> Iterator[Container]:
        """Start a container of a package."""
        name = f'{kind}_{package}'
        program = Path(get_package_prefix(package), 'lib', package, kind)
        started = Container(name, program, self._folder / f'{name}.log')
        self._containers.append(started)
        try:
            yield started
        finally:
            self._containers.remove(started)
            if started.process.poll() is None:
                started.close()

    def load(
        self,
        container: Container,
        package: str,
        plugin: str,
        *,
        by_pointer: bool = True,
        **fields: Any,
    ) -> tuple[float, float]:
        """Load a component; return the times of request and answer."""
        client = self.node.create_client(LoadNode, f'/{container.name}/_container/load_node')
        try:
            self.wait(client.service_is_ready, f'the services of {container.name}', 30.0)
            parameters = fields.pop('parameters', {})
            request = LoadNode.Request(
                package_name=package,
                plugin_name=f'{package}::{plugin}',
                parameters=[
                    Parameter(k, value=v).to_parameter_msg() for k, v in parameters.items()
                ],
                extra_arguments=[
                    Parameter('use_intra_process_comms', value=by_pointer).to_parameter_msg()
                ],
                **fields,
            )
            begin = time.time()
            answer = client.call_async(request)
            self.wait(answer.done, f'loading {plugin}')
            end = time.time()
        finally:
            self.node.destroy_client(client)
        if not answer.result().success:
            raise SystemExit(answer.result().error_message)
        return begin, end


def stamp_of(message: Any) -> float:
    """Return the stamp in seconds."""
    return message.header.stamp.sec + message.header.stamp.nanosec * 1e-9


def stall(bench: Bench) -> None:
    """Print the longest time between images of the camera while nodes are loaded."""
    stamps = bench.collect(Image, '/image', stamp_of)
    for kind in KINDS * bench.rounds:
        with bench.container(kind) as box:
            del stamps[:]
            size = {'width': 64, 'height': 48, 'rate_hz': 100.0}
            bench.load(box, 'trt_ros_test_camera', 'Camera', parameters=size)
            bench.wait_for(stamps, 200)
            gaps = [1e3 * np.diff(stamps[100:]).max()]
            taken = []
            for name in ('first', 'second'):
                begin, end = bench.load(
                    box,
                    'trt_ros',
                    'DetectorNode',
                    node_name=name,
                    parameters={'model_path': bench.model, 'autostart': True},
                )
                bench.wait_for(stamps, len(stamps) + 300)  # It is configured meanwhile.
                times = np.array(stamps)
                for since, until in ((begin - 0.1, end + 0.05), (end + 0.05, time.time())):
                    within = times[(times > since) & (times < until)]
                    gaps.append(1e3 * np.diff(within).max())
                taken.append(1e3 * (end - begin))
            print(
                f'{kind}: longest gap (ms) without loading {gaps[0]:.0f}, '
                f'first load {gaps[1]:.0f} (takes {taken[0]:.0f}), configuring {gaps[2]:.0f}, '
                f'second load {gaps[3]:.0f} (takes {taken[1]:.0f}), configuring {gaps[4]:.0f}',
                flush=True,
            )


def report(what: str, seconds: list[float]) -> None:
    """Print the quantiles."""
    p50, p95 = np.percentile(seconds, [50, 95]) * 1e3
    print(f'{what}: p50 {p50:.2f}, p95 {p95:.2f} ms ({len(seconds)} images)', flush=True)


def results(bench: Bench) -> None:
    """Print the age of results in a subscriber in C++."""
    seen = bench.collect(String, '/viewer/seen', lambda message: json.loads(message.data))
    with tempfile.TemporaryDirectory() as folder:
        info = Path(folder, 'cpp_container-1.0.dist-info')
        info.mkdir()
        (info / 'METADATA').write_text(
            'Metadata-Version: 2.1\nName: cpp_container\nVersion: 1.0\n'
        )
        (info / 'entry_points.txt').write_text(
            '[rclpy_components]\ntrt_ros::ClassifierNode = cpp_container:Painter\n'
        )
        here = str(Path(__file__).parent)
        os.environ['PYTHONPATH'] = os.pathsep.join([os.environ['PYTHONPATH'], folder, here])
        for by_pointer in (True, False) * bench.rounds:
            with bench.container(KINDS[2]) as box:
                del seen[:]
                viewer = {'by_pointer': by_pointer, 'remap_rules': ['image:=/painter/image']}
                bench.load(box, 'trt_ros_test_camera', 'Viewer', **viewer)
                bench.load(box, 'trt_ros', 'ClassifierNode')
                bench.wait_for(seen, 30)
                before = box.cpu_seconds()
                views = bench.measured(seen)
                used = (box.cpu_seconds() - before) / len(views)
            assert all(each['is_by_pointer'] == by_pointer for each in views)
            way = 'by pointer' if by_pointer else 'through DDS'
            report(f'{way}, {1e3 * used:.2f} ms of CPU', [each['age'] for each in views])


def latency(bench: Bench) -> None:
    """Print the time from the camera's stamp to the detections in this process."""
    ages = bench.collect(
        Detection2DArray, '/detector/detections', lambda message: time.time() - stamp_of(message)
    )
    detector = {'model_path': bench.model, 'autostart': True}
    camera = {**SIZE, 'rate_hz': 30.0}

    def measure(what: str, cameras: Container, nodes: Container, by_pointer: bool) -> None:
        del ages[:]
        bench.load(nodes, 'trt_ros', 'DetectorNode', parameters=detector, by_pointer=by_pointer)
        bench.load(
            cameras, 'trt_ros_test_camera', 'Camera', parameters=camera, by_pointer=by_pointer
        )
        report(what, bench.measured(ages))

    for _ in range(bench.rounds):
        for by_pointer in (True, False):
            with bench.container(KINDS[2]) as box:
                what = 'one C++ container, ' + ('by pointer' if by_pointer else 'through DDS')
                measure(what, box, box, by_pointer)
        with bench.container(KINDS[2]) as box, bench.container(KINDS[1], 'trt_ros') as python:
            measure('C++ container to Python container', box, python, by_pointer=False)


def stop(*_: object) -> None:
    """End the program, and with it the containers."""
    raise SystemExit('stopped by a signal')


def main() -> None:
    """Run one measurement."""
    parser = argparse.ArgumentParser(description=__doc__.partition('\n\n')[0].strip())
    parser.add_argument('what', choices=['stall', 'results', 'latency'])
    parser.add_argument('--model', default=str(SHAPES), help='detector of stall and latency')
    parser.add_argument('--rounds', type=int, default=3, help='repetitions (default: 3)')
    parser.add_argument('--images', type=int, default=300, help='per measurement (default: 300)')
    arguments = parser.parse_args()
    rclpy.init(signal_handler_options=SignalHandlerOptions.NO)
    signal.signal(signal.SIGTERM, stop)
    node = rclpy.create_node('cpp_container_benchmark')
    executor = SingleThreadedExecutor()
    executor.add_node(node)
    thread = threading.Thread(target=executor.spin)
    thread.start()
    try:
        with tempfile.TemporaryDirectory() as folder:
            bench = Bench(node, arguments.model, arguments.rounds, arguments.images, Path(folder))
            {'stall': stall, 'results': results, 'latency': latency}[arguments.what](bench)
    finally:
        executor.shutdown()
        thread.join()
        rclpy.try_shutdown()


if __name__ == '__main__':
    main()
