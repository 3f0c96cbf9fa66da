"""
Cost of 1, 2, 4, 8 and 16 cameras: through one detector node, and through a node per camera.

    python benchmarks/gpu_models.py --dynamic-batch models
    python benchmarks/cameras.py models/yolov8s.onnx
    python benchmarks/cameras.py trt_ros/demo/shapes.onnx --backend onnxruntime --counts 1 2
    python benchmarks/cameras.py models/yolov8s.onnx --counts 1 --nodes one --beside '' tracker
    python benchmarks/cameras.py models/yolov8s.onnx --counts 8 --nodes one --apart dds

The nodes are in one container (one process) with the cameras, and images pass by reference: DDS
limits nothing, and the time of a camera driver is not measured. With --apart the cameras have a
process of their own. Each row is a process of its own;
the first run of a model also builds its engines. The cameras take turns, evenly spread over their
period; with --together they are triggered at the same time. Latency is from stamp to published
detections. Needs ROS 2.
"""

import argparse
from collections.abc import Callable, Iterator, Sequence
import contextlib
from dataclasses import asdict, dataclass, field
import itertools
import json
import os
from pathlib import Path
from resource import RUSAGE_SELF, getrusage
import subprocess
import sys
import threading
import time
from typing import Any

import numpy as np
import yaml

from trt_ros import profiling
from trt_ros.process_memory import tune_process

PROFILE = Path(__file__).parent.parent / 'config/fastdds.xml'
SECONDS_TO_START, SECONDS_TO_WARM_UP = 300.0, 1.5
DROPPED = 1.0  # Per cent of the images, above which there is a limit.


@dataclass(frozen=True)
class Container:
    """
    A process with detectors and the cameras of each.

    :param cameras: number of cameras per detector.
    :param devices: GPU of each detector.
    :param rate: of each camera in Hz; 0 always has the next image ready.
    :param beside: one of BESIDE; '' for the detector alone.
    :param apart: how images come from another process, 'dds' or 'shared'; '' by reference.
    :param parameters: more parameters of the detectors.
    """

    model: str
    cameras: Sequence[int]
    devices: Sequence[int]
    rate: float = 30.0
    size: str = '1280x720'
    seconds: float = 3.0
    backend: str = 'auto'
    together: bool = False
    beside: str = ''
    apart: str = ''
    parameters: dict[str, Any] = field(default_factory=dict)


#: What --beside compares: what a detector, or its container, can do beside its work. Without any,
#: nobody subscribes to the detections; a listener only gets them, by reference.
BESIDE = ('', 'listener', 'publish_latency', 'diagnostics', 'tracker', 'overlay')


class Cameras:
    """Cameras of a container, all in one thread. Owns the thread."""

    def __init__(self, node: Any, topics: Sequence[str], options: Container) -> None:
        from rclpy.qos import QoSProfile, ReliabilityPolicy
        from sensor_msgs.msg import Image
        from std_msgs.msg import Header

        from trt_ros.ros.messages import ImageSender

        qos = QoSProfile(depth=1, reliability=ReliabilityPolicy.BEST_EFFORT)
        self._senders = [
            ImageSender(node, node.create_publisher(Image, topic, qos)) for topic in topics
        ]
        width, height = map(int, options.size.split('x'))
        self._wh, self._options, self._header = (width, height), options, Header()
        self.sent, self.period = [0] * len(topics), 1 / (options.rate or 100.0)
        self._ending = threading.Event()
        self._thread = threading.Thread(target=self._send)

    def start(self) -> None:
        self._thread.start()

    def stop(self) -> None:
        self._ending.set()
        if self._thread.is_alive():
            self._thread.join()

    def _send(self) -> None:
        began, count = time.monotonic(), len(self._senders)
        spread = 0.0 if self._options.together else self.period / count
        dues = [began + number * spread for number in range(count)]
        while True:
            number = int(np.argmin(dues))
            if self._ending.wait(max(dues[number] - time.monotonic(), 0.0)):
                return
            self._send_one(number)
            # A camera does not catch up.
            dues[number] = max(dues[number] + self.period, time.monotonic())

    def _send_one(self, number: int) -> None:
        with profiling.mark('send'):
            stamp = self._header.stamp
            stamp.sec, stamp.nanosec = divmod(time.time_ns(), 10**9)
            self._senders[number].begin(self._header, self._wh)
            self._senders[number].send()
        self.sent[number] += 1


class CamerasApart:
    """Cameras in a process of their own, which it owns."""

    def __init__(self, topics: Sequence[str], options: Container) -> None:
        self._process = subprocess.Popen(
            [sys.executable, __file__, '--cameras', json.dumps([topics, asdict(options)])],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            text=True,
            env={**os.environ, 'TRT_ROS_TRANSPORT': 'dds' if options.apart == 'dds' else ''},
        )

    @property
    def sent(self) -> list[int]:
        """Number of images sent; the first call starts the cameras."""
        self._process.stdin.write('count\n')
        self._process.stdin.flush()
        return [int(self._process.stdout.readline())]

    def start(self) -> None:
        assert self.sent

    def stop(self) -> None:
        self._process.communicate()


def serve_cameras(topics: Sequence[str], options: Container) -> None:
    """Run cameras for CamerasApart."""
    import rclpy

    tune_process()
    rclpy.init()
    node = rclpy.create_node('cameras', start_parameter_services=False, enable_rosout=False)
    cameras = Cameras(node, topics, options)
    sys.stdin.readline()
    cameras.start()
    print(0, flush=True)
    for _ in sys.stdin:
        print(sum(cameras.sent), flush=True)
    cameras.stop()
    node.destroy_node()
    rclpy.shutdown()


def detectors(options: Container) -> tuple[list[Any], list[str]]:
    """Create the detector nodes; return them and the topics of the cameras."""
    from rclpy.logging import LoggingSeverity
    from rclpy.parameter import Parameter

    from trt_ros.nodes.detector import DetectorNode

    nodes, topics = [], []
    for number, (count, device) in enumerate(zip(options.cameras, options.devices)):
        own = [f'/place_{number}/camera_{camera}' for camera in range(count)]
        values = {
            'model_path': options.model,
            'backend': options.backend,
            'device': device,
            'image_topics': own,
            'frames_in_flight': 1,
            'qos_reliability': 'best_effort',
            'autostart': True,
            'publish_latency': options.beside == 'publish_latency',
            **options.parameters,
        }
        overrides = [Parameter(key, value=value) for key, value in values.items()]
        node = DetectorNode(namespace=f'place_{number}', parameter_overrides=overrides)
        node.use_intra_process_comms = True
        node.get_logger().set_level(LoggingSeverity.WARN)
        nodes.append(node)
        topics += own
    return nodes, topics


def listeners(options: Container, driver: Any, topic: str) -> list[Any]:
    """Create the nodes and the subscription of what is done beside the first detector."""
    from diagnostic_msgs.msg import DiagnosticArray
    from rclpy.parameter import Parameter
    from rclpy.qos import QoSProfile
    from sensor_msgs.msg import Image
    from std_msgs.msg import Float64
    from vision_msgs.msg import Detection2DArray

    from trt_ros.nodes.overlay import OverlayNode
    from trt_ros.nodes.tracker import TrackerNode
    from trt_ros.ros.dds.rcl_subscription import MessageCallbacks
    from trt_ros.ros.dds.transport import subscribe_serialized

    found = f'/place_0/detector{topic}/detections'
    if options.beside == 'listener':
        ignored = MessageCallbacks(lambda message: None)
        subscribe_serialized(driver, Detection2DArray, found, QoSProfile(depth=10), ignored)
        return []
    results = {
        'publish_latency': (Float64, '/place_0/detector/latency'),
        'diagnostics': (DiagnosticArray, '/diagnostics'),
        'tracker': (Detection2DArray, '/tracker/tracks'),
        'overlay': (Image, '/overlay/image'),
    }
    if options.beside:
        driver.create_subscription(*results[options.beside], lambda message: None, 10, raw=True)
    kind = {'tracker': TrackerNode, 'overlay': OverlayNode}.get(options.beside)
    if kind is None:
        return []
    names = {'image': topic, 'detections': found}
    rules = [part for name, other in names.items() for part in ('-r', f'{name}:={other}')]
    node = kind(
        parameter_overrides=[Parameter('autostart', value=True)], cli_args=['--ros-args', *rules]
    )
    node.use_intra_process_comms = True
    return [node]


def latencies(node: Any, since: float) -> list[float]:
    """Return the latencies in seconds of the results since a monotonic time."""
    every = [node._counts, *(camera.counts for camera in node.cameras)]
    chosen = {id(each): each for each in every}.values()
    return [
        seconds
        for counts in chosen
        for when, seconds in list(counts._times.get('latency', ()))
        if when >= since
    ]


def gpu_loads(devices: Sequence[int]) -> dict[int, tuple[int, int]]:
    """Return utilization in percent and free bytes of GPUs, without a CUDA context."""
    from trt_ros.cuda.monitor import read_load
    from trt_ros.driver import nvidia_driver

    gpus = nvidia_driver().gpus
    return {device: read_load(gpus[device].pci_bus_id) for device in devices if device < len(gpus)}


@contextlib.contextmanager
def measure(options: Container, when_ready: Callable[[], None]) -> Iterator[dict[str, Any]]:
    """
    Run a container, measure it for `seconds`, and run it on meanwhile.

    :param when_ready: called when all nodes work.
    """
    import rclpy
    from rclpy.executors import SingleThreadedExecutor

    tune_process()  # As containers do.
    rclpy.init()
    nodes, topics = detectors(options)
    driver = rclpy.create_node('cameras')
    driver.use_intra_process_comms = True
    cameras: Any = (
        CamerasApart(topics, options) if options.apart else Cameras(driver, topics, options)
    )
    others = listeners(options, driver, topics[0])
    executor = SingleThreadedExecutor()
    for node in (*nodes, *others):
        executor.add_node(node)
    spinning = threading.Thread(target=executor.spin)
    spinning.start()
    try:
        wait_for(lambda: all(node.state_label == 'active' for node in nodes), nodes)
        cameras.start()
        wait_for(lambda: all(node._counts.published > 0 for node in nodes), nodes)
        time.sleep(SECONDS_TO_WARM_UP)
        if not options.rate:
            cameras.period = 0.6 * min(n._counts.percentiles()['infer'][0] for n in nodes)
            time.sleep(0.5)
        when_ready()
        yield {**measured(options, nodes, cameras), 'log': list(nodes[0].pipeline.log_lines)}
    finally:
        cameras.stop()
        executor.shutdown()
        spinning.join()
        for node in (*nodes, *others, driver):
            node.destroy_node()
        rclpy.shutdown()


def wait_for(condition: Callable[[], bool], nodes: Sequence[Any]) -> None:
    end = time.monotonic() + SECONDS_TO_START
    while not condition():
        failures = [node.failure for node in nodes if node.failure]
        if failures or time.monotonic() > end:
            raise SystemExit(f'The nodes do not work: {failures}')
        time.sleep(0.02)


def measured(options: Container, nodes: Sequence[Any], cameras: Any) -> dict[str, Any]:
    """Return the figures of the next seconds."""

    def counted() -> tuple[int, int, int]:
        each = [node._counts.snapshot() for node in nodes]
        errors = sum(
            count
            for _, _, dropped in each
            for cause, count in dropped.items()
            if 'replaced' not in cause
        )
        return sum(cameras.sent), sum(published for _, published, _ in each), errors

    sent, published, errors = counted()
    began, cpu = time.monotonic(), time.process_time()
    utilizations = []
    while (left := began + options.seconds - time.monotonic()) > 0:
        time.sleep(min(left, 0.5))
        utilizations += [load[0] for load in gpu_loads(options.devices).values()]
    now_sent, now_published, now_errors = counted()
    took, cpu = time.monotonic() - began, time.process_time() - cpu
    assert now_errors == errors, 'frames were dropped because of an error'
    ages = [1e3 * age for node in nodes for age in latencies(node, began)]
    p50, p99 = np.percentile(ages, [50, 99]) if ages else (np.nan, np.nan)
    sent, published = now_sent - sent, now_published - published
    return {
        'sent/s': sent / took,
        'results/s': published / took,
        'dropped (%)': 100 * max(0.0, 1 - published / max(sent, 1)),
        'latency p50 (ms)': p50,
        'p99 (ms)': p99,
        'CPU (cores)': cpu / took,
        'GPU (%)': float(np.mean(utilizations)) if utilizations else np.nan,
        'process (MB)': resident_bytes() / 1e6,
        'its peak (MB)': getrusage(RUSAGE_SELF).ru_maxrss * 1024 / 1e6,
    }


def resident_bytes() -> int:
    pages = int(Path('/proc/self/statm').read_text().split()[1])
    return pages * os.sysconf('SC_PAGE_SIZE')


def run(containers: Sequence[Container], **environment: str) -> list[dict[str, Any]]:
    """
    Run containers at the same time, each in a process; all are measured at the same time.

    Each has a ROS domain of its own: in one, the images of each would reach the others, too.

    The first row has the GPU memory of all of them.
    """
    devices = sorted({device for options in containers for device in options.devices})
    before = gpu_loads(devices)
    with contextlib.ExitStack() as started:
        processes = []
        for domain, options in enumerate(containers, int(os.environ.get('ROS_DOMAIN_ID', 0))):
            process = subprocess.Popen(
                [sys.executable, __file__, '--container', json.dumps(asdict(options))],
                stdin=subprocess.PIPE,
                stdout=subprocess.PIPE,
                text=True,
                env={**os.environ, **environment, 'ROS_DOMAIN_ID': str(domain)},
            )
            started.enter_context(process)
            started.callback(process.kill)  # After an error; __exit__ waits for it.
            processes.append(process)
        for process in processes:
            line_of(process)
        for process in processes:
            process.stdin.write('measure\n')
            process.stdin.flush()
        rows = [json.loads(line_of(process)) for process in processes]
        taken = [before[device][1] - load[1] for device, load in gpu_loads(devices).items()]
        rows[0]['GPU memory (MB)'] = sum(taken) / 1e6 if taken else np.nan
        for process in processes:  # They load the GPU until all have been measured.
            process.stdin.close()
        for process in processes:
            process.wait(60)
        return rows


def line_of(process: subprocess.Popen) -> str:
    for line in process.stdout:
        if line.startswith('cameras: '):
            return line.removeprefix('cameras: ')
    raise SystemExit(f'A container has ended with {process.wait()}.')


def serve(options: Container) -> None:
    """Run a container for run()."""

    def ready() -> None:
        print('cameras: ready', flush=True)
        sys.stdin.readline()

    with measure(options, ready) as found:
        print('cameras: ' + json.dumps(found), flush=True)
        sys.stdin.readline()


def limit(row: dict[str, Any], wanted: float) -> str:
    """Return what limits a row; '' if nothing does."""
    if row['sent/s'] < 0.95 * wanted:
        return f'the cameras of this benchmark: {row["sent/s"]:.0f} of {wanted:.0f} images/s'
    if row['dropped (%)'] <= DROPPED:
        return ''
    cores = os.cpu_count() or 1
    if row['GPU (%)'] >= 90:
        return 'the GPU'
    if row['CPU (cores)'] >= 0.9 * cores:
        return f'all {cores} CPU cores'
    if row['CPU (cores)'] >= 0.9:
        return 'the Python code of the process, which runs on one core at a time'
    return 'the time of one run: a node starts the next when it has published the last'


def table(rows: Sequence[dict[str, Any]]) -> str:
    keys = [key for key in rows[0] if key != 'log']
    lines = ['| ' + ' | '.join(keys) + ' |', '|' + '---|' * len(keys)]
    for row in rows:
        cells = [
            each if isinstance(each, str) else '–' if np.isnan(each) else f'{each:.3g}'
            for each in (row[key] for key in keys)
        ]
        lines.append('| ' + ' | '.join(cells) + ' |')
    return '\n'.join(lines)


def parameter(text: str) -> tuple[str, Any]:
    name, _, value = text.partition('=')
    return name, yaml.safe_load(value)


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__.strip().partition('\n')[0])
    parser.add_argument('model', nargs='?')
    parser.add_argument('--backend', default='auto')
    parser.add_argument('--counts', type=int, nargs='+', default=[1, 2, 4, 8, 16])
    parser.add_argument('--nodes', choices=('one', 'many', 'both'), default='both')
    parser.add_argument('--rate', type=float, default=30.0, help='of each camera, in Hz')
    parser.add_argument('--size', default='1280x720')
    parser.add_argument('--seconds', type=float, default=3.0, help='of each row')
    parser.add_argument(
        '--parameter', type=parameter, action='append', default=[], metavar='NAME=VALUE'
    )
    parser.add_argument('--together', action='store_true', help='all cameras at the same time')
    parser.add_argument('--beside', nargs='+', default=[''], choices=BESIDE, help='compare these')
    parser.add_argument('--apart', choices=('dds', 'shared'), default='', help='other process')
    parser.add_argument('--cameras', type=json.loads, help=argparse.SUPPRESS)
    parser.add_argument('--container', type=json.loads, help=argparse.SUPPRESS)
    args = parser.parse_args()
    if args.container:
        serve(Container(**args.container))
        return 0
    if args.cameras:
        serve_cameras(args.cameras[0], Container(**args.cameras[1]))
        return 0
    if args.apart and not args.rate:
        parser.error('--apart needs a --rate')
    rows, limits, log = [], [], []
    kinds = ('one', 'many') if args.nodes == 'both' else (args.nodes,)
    for beside, nodes in itertools.product(args.beside, kinds):
        for count in args.counts:
            cameras = [count] if nodes == 'one' else [1] * count
            (row,) = run(
                [
                    Container(
                        args.model,
                        cameras,
                        [0] * len(cameras),
                        args.rate,
                        args.size,
                        args.seconds,
                        args.backend,
                        args.together,
                        beside,
                        args.apart,
                        dict(args.parameter),
                    )
                ],
                **({'FASTRTPS_DEFAULT_PROFILES_FILE': str(PROFILE)} if args.apart else {}),
            )
            log = log or row['log']
            rows.append(
                {
                    'nodes': nodes,
                    'beside': beside,
                    'apart': args.apart,
                    'cameras': float(count),
                    **row,
                }
            )
            reason = limit(row, args.rate * count)
            if reason:
                limits.append(f'{count} cameras through {nodes}: limited by {reason}')
    print('\n'.join(log))
    print(table(rows))
    print('\n'.join(limits) or f'No row dropped more than {DROPPED:g} % of the images.')
    return 0


if __name__ == '__main__':
    sys.exit(main())
