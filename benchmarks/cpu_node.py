"""
The detector node on the CPU, compared with a tutorial's node (benchmarks/naive_node.py).

One camera process publishes blocks of images alternately to the two nodes, each in a process.
Measured: time from stamp to detections, and CPU time of the node's process per image.
'unlimited' publishes each image as soon as the result of the last one has arrived.

    ./dev shell -c 'python benchmarks/cpu_node.py [--rounds 10] [--json FILE]'
"""

import argparse
from array import array
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
import json
import os
from pathlib import Path
import random
import signal
import statistics
import subprocess
import sys
import tempfile
import time
from typing import Any

import cv2
from face_model import INPUT_HW, face_model
import numpy as np
import onnx
import onnxruntime
import rclpy
from rclpy.qos import qos_profile_sensor_data
from sensor_msgs.msg import Image
from vision_msgs.msg import Detection2DArray

HERE = Path(__file__).parent
DEMO = HERE.parent / 'trt_ros/demo/shapes.onnx'
FACE_PARAMETERS = (
    'decoder:=boxes_normalised',
    'resize:=stretch',
    'mean:=[0.498, 0.498, 0.498]',
    'std:=[0.502, 0.502, 0.502]',
    'labels:=[background, face]',
)
# Fast DDS loses most frames larger than its default shared-memory segment, 512 KiB.
PROFILE = HERE.parent / 'config/fastdds.xml'
WARM_UP = 2  # Uncounted images at the start of a block: the other node ran before.


class Camera:
    """A camera that publishes images alternately to two nodes and waits for detections."""

    def __init__(self, node: Any, pixels: np.ndarray, names: list[str]) -> None:
        self._node = node
        self._message = Image(
            height=pixels.shape[0],
            width=pixels.shape[1],
            encoding='bgr8',
            step=pixels.strides[0],
            data=array('B', pixels.tobytes()),
        )
        self._publishers = {
            name: node.create_publisher(Image, f'/{name}/image', qos_profile_sensor_data)
            for name in names
        }
        self._ages: dict[int, float] = {}
        self._seen = [
            node.create_subscription(
                Detection2DArray, f'/{name}/detections', self._on_detections, 10
            )
            for name in names
        ]

    def _on_detections(self, message: Any) -> None:
        stamp = message.header.stamp
        stamp_ns = 10**9 * stamp.sec + stamp.nanosec
        self._ages[stamp_ns] = 1e-6 * (time.monotonic_ns() - stamp_ns)

    def wait_for_nodes(self) -> None:
        until = time.monotonic() + 120
        while not all(
            each.get_subscription_count() for each in self._publishers.values()
        ) or not all(each.get_publisher_count() for each in self._seen):
            rclpy.spin_once(self._node, timeout_sec=0.05)
            assert time.monotonic() < until, 'a node did not start'

    def block(self, name: str, count: int, rate_hz: float) -> list[float]:
        """Publish `count` images and return the latencies of their results in milliseconds."""
        self._ages = {}
        due, stamps = time.monotonic(), []
        for _ in range(WARM_UP + count):
            stamp_ns = time.monotonic_ns()
            stamps.append(stamp_ns)
            stamp = self._message.header.stamp
            stamp.sec, stamp.nanosec = divmod(stamp_ns, 10**9)
            self._publishers[name].publish(self._message)
            due = due + 1 / rate_hz if rate_hz else time.monotonic() + 1
            while (left := due - time.monotonic()) > 0 and (rate_hz or stamp_ns not in self._ages):
                rclpy.spin_once(self._node, timeout_sec=left)
        until = time.monotonic() + 1
        while not self._ages.keys() >= set(stamps) and time.monotonic() < until:
            rclpy.spin_once(self._node, timeout_sec=0.05)
        # Discards late results of the previous block.
        return [self._ages[stamp_ns] for stamp_ns in stamps[WARM_UP:] if stamp_ns in self._ages]


def cpu_seconds(pid: int) -> float:
    """Return the CPU time of a process with a constant set of threads, in ns resolution."""
    return 1e-9 * sum(
        int(path.read_text().split()[0]) for path in Path(f'/proc/{pid}/task').glob('*/schedstat')
    )


@contextmanager
def started(command: list[str], cpus: str) -> Iterator[int]:
    process = subprocess.Popen(
        ['taskset', '-c', cpus, *command] if cpus else command, stdout=subprocess.DEVNULL
    )
    try:
        yield process.pid
    finally:
        process.send_signal(signal.SIGINT)  # SIGKILL would leave its shared memory behind.
        process.wait(60)


def face_threshold(model: Path, pixels: np.ndarray) -> float:
    """Return a threshold that a few boxes exceed, as the weights are random."""
    resized = cv2.resize(pixels, INPUT_HW[::-1])[..., ::-1].astype(np.float32)
    scores, _ = onnxruntime.InferenceSession(str(model)).run(
        None, {'input': ((resized - 127) / 128).transpose(2, 0, 1)[None]}
    )
    return float(np.sort(scores[0, :, 1])[-12])


def compare(model: Path, pixels: np.ndarray, args: argparse.Namespace) -> list[dict[str, Any]]:
    """Run both nodes on a model and an image, at each rate."""
    is_face = model.name == 'face.onnx'
    threshold = face_threshold(model, pixels) if is_face else 0.25
    parameters = [
        'autostart:=true',
        f'model_path:={model}',
        'backend:=onnxruntime',
        f'score_threshold:={threshold}',
        *(FACE_PARAMETERS if is_face else ()),
        *args.parameter,
    ]
    ours = [
        sys.executable,
        '-m',
        'trt_ros.executables',
        'detector',
        '--ros-args',
        '-r',
        'image:=/ours/image',
        '-r',
        '~/detections:=/ours/detections',
    ]
    for parameter in parameters:
        ours += ['-p', parameter]
    naive = [
        sys.executable,
        str(HERE / 'naive_node.py'),
        str(model),
        str(threshold),
        '--ros-args',
        '-r',
        'image:=/naive/image',
        '-r',
        '~/detections:=/naive/detections',
    ]
    rows = []
    with ExitStack() as running:
        pids = {
            name: running.enter_context(started(command, args.cpus))
            for name, command in (('ours', ours), ('naive', naive))
        }
        rclpy.init()
        running.callback(rclpy.try_shutdown)
        node = rclpy.create_node('camera')
        running.callback(node.destroy_node)
        camera = Camera(node, pixels, list(pids))
        camera.wait_for_nodes()
        for rate_hz in args.rates_hz:
            count = args.frames
            ages: dict[str, list[list[float]]] = {name: [] for name in pids}
            cpu: dict[str, list[float]] = {name: [] for name in pids}
            for number in range(-1, args.rounds):
                for name in list(pids)[:: 1 if number % 2 else -1]:
                    before = cpu_seconds(pids[name])
                    arrived = camera.block(name, count, rate_hz)
                    used = cpu_seconds(pids[name]) - before
                    if number >= 0:
                        ages[name].append(arrived)
                        cpu[name].append(1e3 * used / (count + WARM_UP))
            row: dict[str, Any] = {
                'model': model.stem,
                'size': f'{pixels.shape[1]}x{pixels.shape[0]}',
                'rate_hz': rate_hz,
            }
            for name in pids:
                flat = np.concatenate(ages[name])
                row[name] = {
                    'p50': float(np.median(flat)),
                    'p99': float(np.percentile(flat, 99)),
                    'cpu': statistics.median(cpu[name]),
                    'arrived': len(flat),
                    'sent': count * args.rounds,
                }
            # Per round, so that load of the machine affects both alike.
            row['ratio'] = statistics.median(
                np.median(one) / np.median(other)
                for one, other in zip(*ages.values())
                if one and other
            )
            row['cpu_ratio'] = statistics.median(one / other for one, other in zip(*cpu.values()))
            rows.append(row)
            print_row(row)
    return rows


def print_row(row: dict[str, Any]) -> None:
    rate = f'{row["rate_hz"]:g} Hz' if row['rate_hz'] else 'unlimited'
    cells = ' | '.join(
        f'{row[name][what]:.1f}' for what in ('p50', 'p99', 'cpu') for name in ('ours', 'naive')
    )
    arrived = ', '.join(
        f'{row[name]["arrived"]} of {row[name]["sent"]}' for name in ('ours', 'naive')
    )
    print(
        f'| {row["model"]} | {row["size"]} | {rate} | {cells} | {row["ratio"]:.2f} | '
        f'{row["cpu_ratio"]:.2f} | {arrived} |',
        flush=True,
    )


def main() -> None:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument('--models', nargs='+', default=['face', 'demo'], help='face, demo')
    parser.add_argument('--sizes', nargs='+', default=['640x480', '1920x1080'])
    parser.add_argument(
        '--rates-hz',
        nargs='+',
        type=float,
        default=[10, 30, 0],
        help='image rates; 0 is unlimited',
    )
    parser.add_argument('--rounds', type=int, default=10)
    parser.add_argument('--frames', type=int, default=20, help='images per block')
    parser.add_argument('--cpus', default='', help='CPUs of the two nodes, as for taskset -c')
    parser.add_argument(
        '--parameter',
        action='append',
        default=[],
        help='additional parameter of the detector node, NAME:=VALUE',
    )
    parser.add_argument('--json', type=Path)
    args = parser.parse_args()
    os.environ.update(
        FASTRTPS_DEFAULT_PROFILES_FILE=str(PROFILE),
        ROS_AUTOMATIC_DISCOVERY_RANGE='LOCALHOST',
        ROS_DOMAIN_ID=str(random.randint(1, 100)),
    )
    rows = []
    print(
        '| model | image | rate | p50: ours | naive | p99: ours | naive | CPU: ours | naive | '
        'p50 ratio | CPU ratio | arrived: ours, naive |\n|' + '---|' * 12
    )
    with tempfile.TemporaryDirectory() as folder:
        face = Path(folder) / 'face.onnx'
        onnx.save(face_model(), face)
        for name in args.models:
            for size in args.sizes:
                width, height = map(int, size.split('x'))
                small = np.random.default_rng(0).integers(0, 256, (9, 12, 3), np.uint8)
                pixels = cv2.resize(small, (width, height), interpolation=cv2.INTER_CUBIC)
                rows += compare(face if name == 'face' else DEMO, pixels, args)
    if args.json:
        args.json.write_text(json.dumps(rows, indent=1))


if __name__ == '__main__':
    main()
