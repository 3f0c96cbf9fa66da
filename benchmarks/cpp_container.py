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

from __future__ import annotations

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
from sensor_msgs.msg import Image
from std_msgs.msg import Header, String
from vision_msgs.msg import Detection2DArray

from trt_ros.ros.messages import ImageSender

SHAPES = Path(__file__).parents[1] / 'trt_ros/demo/shapes.onnx'
KINDS = 'component_container', 'component_container_mt', 'component_container_isolated'
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
    A container process and its load requests.

    :ivar pid: its process.
    """

    def __init__(self, node: Any, name: str, pid: int) -> None:
        self.pid = pid
        self._client = node.create_client(LoadNode, f'/{name}/_container/load_node')
        if not self._client.wait_for_service(30.0):
            raise SystemExit(f'{name} does not answer.')

    def cpu_seconds(self) -> float:
        """Return the CPU time that the process has used."""
        stat = Path(f'/proc/{self.pid}/stat').read_text().rpartition(')')[2].split()
        return sum(map(int, stat[11:13])) / os.sysconf('SC_CLK_TCK')

    def load(
        self, package: str, plugin: str, *, by_pointer: bool = True, **fields: Any
    ) -> tuple[float, float]:
        """Load a component; return the times of request and answer."""
        parameters = fields.pop('parameters', {})
        request = LoadNode.Request(
            package_name=package,
            plugin_name=f'{package}::{plugin}',
            parameters=[Parameter(k, value=v).to_parameter_msg() for k, v in parameters.items()],
            extra_arguments=[
                Parameter('use_intra_process_comms', value=by_pointer).to_parameter_msg()
            ],
            **fields,
        )
        begin = time.time()
        answer = self._client.call(request)
        if not answer.success:
            raise SystemExit(answer.error_message)
        return begin, time.time()


@contextmanager
def container(node: Any, kind: str, package: str = 'rclcpp_components') -> Iterator[Container]:
    """Start a container of a package."""
    name = f'{kind}_{package}'
    program = Path(get_package_prefix(package), 'lib', package, kind)
    process = subprocess.Popen(
        [str(program), '--ros-args', '-r', f'__node:={name}', '--log-level', 'warn'],
        env={'FASTDDS_BUILTIN_TRANSPORTS': 'DEFAULT?sockets_size=32MB', **os.environ},
    )
    try:
        yield Container(node, name, process.pid)
    finally:
        process.send_signal(signal.SIGINT)
        process.wait(30)


def collect(node: Any, kind: type, topic: str, convert: Callable[[Any], Any]) -> list[Any]:
    """Return a list that grows by one value per message."""
    found: list[Any] = []
    node.create_subscription(
        kind, topic, lambda message: found.append(convert(message)), qos_profile_sensor_data
    )
    return found


def wait_for(values: list[Any], count: int) -> list[Any]:
    """Wait for so many values; return them."""
    deadline = time.time() + 120.0
    while len(values) < count:
        if time.time() > deadline:
            raise SystemExit(f'{len(values)} of {count} messages arrived.')
        time.sleep(0.01)
    return values[:count]


def stamp_of(message: Any) -> float:
    """Return the stamp in seconds."""
    return message.header.stamp.sec + message.header.stamp.nanosec * 1e-9


def stall(node: Any, model: str) -> None:
    """Print the longest time between images of the camera while nodes are loaded."""
    stamps = collect(node, Image, '/image', stamp_of)
    for kind in KINDS:
        with container(node, kind) as box:
            del stamps[:]
            size = {'width': 64, 'height': 48, 'rate_hz': 100.0}
            box.load('trt_ros_test_camera', 'Camera', parameters=size)
            wait_for(stamps, 200)
            gaps = [1e3 * np.diff(stamps[100:]).max()]
            taken = []
            for name in ('first', 'second'):
                begin, end = box.load(
                    'trt_ros',
                    'DetectorNode',
                    node_name=name,
                    parameters={'model_path': model, 'autostart': True},
                )
                wait_for(stamps, len(stamps) + 300)  # It is configured meanwhile.
                times = np.array(stamps)
                for since, until in ((begin - 0.1, end + 0.05), (end + 0.05, time.time())):
                    within = times[(times > since) & (times < until)]
                    gaps.append(1e3 * np.diff(within).max())
                taken.append(1e3 * (end - begin))
            print(
                f'{kind}: longest gap (ms) without loading {gaps[0]:.0f}, '
                f'first load {gaps[1]:.0f} (takes {taken[0]:.0f}), configuring {gaps[2]:.0f}, '
                f'second load {gaps[3]:.0f} (takes {taken[1]:.0f}), configuring {gaps[4]:.0f}'
            )


def report(what: str, seconds: list[float]) -> None:
    """Print the quantiles."""
    p50, p95 = np.percentile(seconds, [50, 95]) * 1e3
    print(f'{what}: p50 {p50:.2f}, p95 {p95:.2f} ms ({len(seconds)} images)')


def results(node: Any, model: str) -> None:
    """Print the age of results in a subscriber in C++."""
    del model
    seen = collect(node, String, '/viewer/seen', lambda message: json.loads(message.data))
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
        for by_pointer in (True, False) * 3:
            with container(node, KINDS[2]) as box:
                del seen[:]
                viewer = {'by_pointer': by_pointer, 'remap_rules': ['image:=/painter/image']}
                box.load('trt_ros_test_camera', 'Viewer', **viewer)
                box.load('trt_ros', 'ClassifierNode')
                wait_for(seen, 30)
                before = box.cpu_seconds()
                views = wait_for(seen, 330)[30:]
                used = (box.cpu_seconds() - before) / len(views)
            assert all(each['is_by_pointer'] == by_pointer for each in views)
            way = 'by pointer' if by_pointer else 'through DDS'
            report(f'{way}, {1e3 * used:.2f} ms of CPU', [each['age'] for each in views])


def latency(node: Any, model: str) -> None:
    """Print the time from the camera's stamp to the detections in this process."""
    ages = collect(
        node,
        Detection2DArray,
        '/detector/detections',
        lambda message: time.time() - stamp_of(message),
    )
    detector = {'model_path': model, 'autostart': True}

    def measure(what: str, camera: Container, nodes: Container, by_pointer: bool) -> None:
        del ages[:]
        nodes.load('trt_ros', 'DetectorNode', parameters=detector, by_pointer=by_pointer)
        rate = {'rate_hz': 30.0}
        camera.load(
            'trt_ros_test_camera', 'Camera', parameters={**SIZE, **rate}, by_pointer=by_pointer
        )
        report(what, wait_for(ages, 330)[30:])

    for _ in range(3):
        for by_pointer in (True, False):
            with container(node, KINDS[2]) as box:
                what = 'one C++ container, ' + ('by pointer' if by_pointer else 'through DDS')
                measure(what, box, box, by_pointer)
        with container(node, KINDS[2]) as box, container(node, KINDS[1], 'trt_ros') as python:
            measure('C++ container to Python container', box, python, by_pointer=False)


def main() -> None:
    """Run one measurement."""
    parser = argparse.ArgumentParser(description=__doc__.partition('\n\n')[0].strip())
    parser.add_argument('what', choices=['stall', 'results', 'latency'])
    parser.add_argument('--model', default=str(SHAPES), help='detector of stall and latency')
    arguments = parser.parse_args()
    rclpy.init()
    node = rclpy.create_node('cpp_container_benchmark')
    executor = SingleThreadedExecutor()
    executor.add_node(node)
    thread = threading.Thread(target=executor.spin)
    thread.start()
    try:
        {'stall': stall, 'results': results, 'latency': latency}[arguments.what](
            node, arguments.model
        )
    finally:
        executor.shutdown()
        thread.join()
        rclpy.try_shutdown()


if __name__ == '__main__':
    main()
