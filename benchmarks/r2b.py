"""
Peak throughput and latency of whole graphs, measured as Isaac ROS measures them.

    python benchmarks/r2b.py [--graphs encoder rtdetr] [--seconds 1] [--json FOLDER]
    python benchmarks/r2b.py --backend onnxruntime --scale 0.2      # without a GPU

The protocol is that of NVIDIA's ros2_benchmark: search the largest publishing rate at which at
most 5 % of the frames are lost and the frame rate is at most 10 Hz lower, run it several times,
then run fixed rates of 10, 30 and 60 Hz. The files have its keys. Publisher, node and monitor
share a process, and messages pass by reference, as in Isaac's container. Networks have random
weights. Needs ROS 2.
"""

import argparse
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass
import json
import math
from pathlib import Path
import platform
import subprocess
import sys
import tempfile
import threading
import time
from typing import Any

from gpu_models import identity, segment
import numpy as np
from rtdetr_model import rtdetr

MAX_LOSS, MAX_RATE_DROP_HZ = 0.05, 10.0
INTERVAL_HZ, INTERVAL = 10.0, 0.02  # Of the search, in Hz and as a fraction of the rate.
LOWEST_HZ, FIXED_HZ = 10.0, (10.0, 30.0, 60.0)
BUFFERS = 8  # Messages that are published in turn.
SECONDS_TO_START, SECONDS_TO_ARRIVE = 600.0, 0.5
KEY = 'BasicPerformanceMetrics.{}'
#: Where others than the mean of several runs are reported.
WORST = {'MAX_LATENCY': max, 'MIN_LATENCY': min, 'MAX_JITTER': max, 'MIN_JITTER': min}
WORST['MEAN_JITTER'] = max


@dataclass(frozen=True)
class Graph:
    """
    A node and its network.

    :param write: writes the network for (height, width).
    :param image_wh: size of the camera image; None for a tensor of the network's size.
    :param result: message type, and the topic of the results below the node.
    :param topics: of the images; each message is published on all of them.
    """

    title: str
    module: str
    node: str
    write: Callable[[Path, tuple[int, int]], None]
    network_wh: tuple[int, int]
    image_wh: tuple[int, int] | None
    result: tuple[str, str]
    parameters: Mapping[str, Any]
    topics: Sequence[str] = ('image',)


def stereo(path: Path, input_hw: tuple[int, int]) -> None:
    """Write the trained network of the tests for a size; needs torch."""
    root = Path(__file__).resolve().parents[1]
    command = [sys.executable, root / 'tools/train_stereo.py', path, '--minutes', 0]
    command += ['--weights', root / 'test/unit/families/stereo.onnx', '--size', *input_hw]
    command += ['--disparities', input_hw[1] // 10 * 2]
    subprocess.run(list(map(str, command)), check=True)


def pair(
    title: str,
    network_wh: tuple[int, int],
    image_wh: tuple[int, int],
    result: tuple[str, str] = ('stereo_msgs.msg.DisparityImage', 'disparity'),
) -> Graph:
    """Return the graph of a pair of images, which are the same one."""
    topics = 'left/image_rect', 'right/image_rect'
    inputs = [f'{topic.partition("/")[0]}=image:{topic}?mean=0&std=1' for topic in topics]
    return Graph(
        title,
        'depth',
        'DepthNode',
        stereo,
        network_wh,
        image_wh,
        result,
        {'inputs': inputs, 'resize': 'stretch', 'point_stride': 2},
        topics,
    )


HALF = {'mean': [0.5], 'std': [0.5], 'resize': 'stretch'}
TENSORS = 'isaac_ros_tensor_list_interfaces.msg.TensorList'
PEOPLE = 'half a YOLOv8-s'
GRAPHS = {
    'encoder': Graph(
        'image encoder, no network',
        'tensor',
        'TensorNode',
        identity,
        (640, 480),
        (1920, 1200),
        (TENSORS, 'tensors'),
        {**HALF, 'tensor_format': 'isaac', 'precision': 'auto'},  # It has no layer to lower.
    ),
    'rtdetr': Graph(
        'detector, RT-DETR-R50',
        'detector',
        'DetectorNode',
        lambda path, hw: rtdetr(path, hw[0]),
        (640, 640),
        (1280, 720),
        ('vision_msgs.msg.Detection2DArray', 'detections'),
        {'decoder': 'rtdetr'},
    ),
    'segmentation': Graph(
        f'segmenter, {PEOPLE}, 2 classes',
        'segmenter',
        'SegmenterNode',
        lambda path, hw: segment(path, hw, 2),
        (960, 544),
        (1920, 1200),
        ('sensor_msgs.msg.Image', 'mask'),
        HALF,
    ),
    'tensor': Graph(
        f'tensor to tensor, {PEOPLE}, 2 classes',
        'tensor',
        'TensorNode',
        lambda path, hw: segment(path, hw, 2),
        (960, 544),
        None,
        (TENSORS, 'tensors'),
        {'input': 'tensors', 'tensor_format': 'isaac'},
    ),
    'stereo': pair('stereo pair to disparity', (960, 576), (960, 576)),
    'stereo_light': pair('stereo pair to disparity', (480, 288), (480, 288)),
    'stereo_points': pair(
        'stereo pair to 960×600 points',
        (960, 576),
        (1920, 1200),
        ('sensor_msgs.msg.PointCloud2', 'points'),
    ),
}


def scaled(wh: tuple[int, int], scale: float) -> tuple[int, int]:
    """Return a size in steps of 32, as the networks need it."""
    return tuple(max(64, round(each * scale / 32) * 32) for each in wh) if scale != 1 else wh


def metrics(sent_ns: Mapping[int, int], received_ns: Mapping[int, int]) -> dict[str, float]:
    """
    Return the metrics of one run, in ms and frames per second; see ros2_benchmark.

    :param sent_ns: time of each frame by its stamp, in order; `received_ns` that of the results.
    """
    sent = np.array(list(sent_ns.values())) / 1e6
    received = np.array(sorted(received_ns.values())) / 1e6
    found = {
        'NUM_FRAMES_SENT': len(sent),
        'NUM_MISSED_FRAMES': len(sent) - len(received),
        'MEAN_PLAYBACK_FRAME_RATE': 1e3 * len(sent) / (sent[-1] - sent[0]),
    }
    if len(received) < 3:
        return {**found, 'MEAN_FRAME_RATE': 0.0}
    latencies = [
        (received_ns[stamp] - when) / 1e6
        for stamp, when in sent_ns.items()
        if stamp in received_ns
    ]
    jitter = np.abs(np.diff(received, 2))
    found |= {
        'RECEIVED_DURATION': received[-1] - received[0],
        'MEAN_FRAME_RATE': 1e3 * len(received) / (received[-1] - received[0]),
        'FIRST_SENT_RECEIVED_LATENCY': received[0] - sent[0],
        'LAST_SENT_RECEIVED_LATENCY': received[-1] - sent[-1],
        'FIRST_INPUT_LATENCY': latencies[0],
        'LAST_INPUT_LATENCY': latencies[-1],
        'MAX_LATENCY': max(latencies),
        'MIN_LATENCY': min(latencies),
        'MEAN_LATENCY': np.mean(latencies),
        'MAX_JITTER': jitter.max(),
        'MIN_JITTER': jitter.min(),
        'MEAN_JITTER': jitter.mean(),
        'STD_DEV_JITTER': jitter.std(),
    }
    return {name: float(value) for name, value in found.items()}


def concluded(runs: Sequence[Mapping[str, float]]) -> dict[str, float]:
    """Return the metrics of several runs, each without its best and worst value."""
    found = {}
    for name in runs[0]:
        values = sorted(run[name] for run in runs if name in run)
        if len(values) > 2:
            values = values[1:-1]
        found[name] = float(WORST.get(name, np.mean)(values))
    return found


def is_sustained(run: Mapping[str, float], rate_hz: float) -> bool:
    """Return whether a graph kept up with the publisher, and the publisher with the rate."""
    playback = run['MEAN_PLAYBACK_FRAME_RATE']
    return (
        playback >= (1 - MAX_LOSS) * rate_hz
        and run['MEAN_FRAME_RATE'] >= playback - MAX_RATE_DROP_HZ
        and run['NUM_MISSED_FRAMES'] <= math.ceil(run['NUM_FRAMES_SENT'] * MAX_LOSS)
    )


class Player:
    """Publishes messages with new stamps at a rate, and records when their results arrive."""

    def __init__(self, publish: Callable[[np.ndarray], None], messages: list[np.ndarray]) -> None:
        self._publish, self._messages = publish, messages
        self._received_ns: dict[int, int] = {}
        self._arrived = threading.Event()
        self._last_stamp = 0

    def on_result(self, message: Any) -> None:
        now = time.monotonic_ns()
        stamp = np.asarray(message)[4:12].view(np.uint32)
        self._received_ns[int(stamp[0]) * 10**9 + int(stamp[1])] = now
        self._arrived.set()

    def play(self, rate_hz: float, seconds: float) -> dict[str, float]:
        """Publish for some seconds and return the metrics."""
        from trt_ros.runtime.gpu.waiting import precise_sleep

        self._received_ns, sent_ns = {}, {}
        begin, period = time.monotonic_ns(), 1e9 / rate_hz
        for number in range(max(3, math.ceil(seconds * rate_hz))):
            left = begin + number * period - time.monotonic_ns()
            if left > 0:
                precise_sleep(left / 1e9)
            message = self._messages[number % len(self._messages)]
            stamp = max(time.time_ns(), self._last_stamp + 1)
            self._last_stamp = stamp
            message[4:12].view(np.uint32)[:] = divmod(stamp, 10**9)
            sent_ns[stamp] = time.monotonic_ns()
            self._publish(message)
        while len(self._received_ns) < len(sent_ns):
            self._arrived.clear()
            if not self._arrived.wait(SECONDS_TO_ARRIVE):
                break
        received, self._received_ns = self._received_ns, {}
        return metrics(
            sent_ns, {stamp: when for stamp, when in received.items() if stamp in sent_ns}
        )

    def try_out(self) -> None:
        """Publish until results arrive: the first frames connect, allocate and capture."""
        for _ in range(100):
            run = self.play(LOWEST_HZ, 0.3)
            if run['NUM_MISSED_FRAMES'] < run['NUM_FRAMES_SENT']:
                return
        raise SystemExit('The node publishes no results.')

    def peak_hz(self, highest_hz: float, seconds: float) -> float:
        """Search the largest rate that is sustained."""
        low, high = LOWEST_HZ, highest_hz
        while high - low > max(INTERVAL_HZ, INTERVAL * low):
            # The geometric mean: the first probes of a slow graph would be far too fast.
            rate_hz = math.sqrt(low * high)
            # Twice: one interruption in a short run would hide all higher rates.
            if any(is_sustained(self.play(rate_hz, seconds), rate_hz) for _ in range(2)):
                low = rate_hz
            else:
                high = rate_hz
        return low


def serialized(graph: Graph, scale: float) -> list[np.ndarray]:
    """Return messages of noise in memory that the node may page-lock."""
    from rclpy.serialization import serialize_message
    from sensor_msgs.msg import Image

    from trt_ros.ros.dds.cdr_tensors import write_tensor_list
    from trt_ros.ros.dds.memory import Pool

    rng, pool, messages = np.random.default_rng(0), Pool(), []
    for _ in range(BUFFERS):
        if graph.image_wh is None:
            width, height = scaled(graph.network_wh, scale)
            tensor = rng.random((1, 3, height, width), np.float32)
            source = write_tensor_list({'images': tensor}, (0, 0), 'camera')
        else:
            width, height = scaled(graph.image_wh, scale)
            image = Image(width=width, height=height, step=3 * width, encoding='bgr8')
            image.header.frame_id = 'camera'
            image.data = rng.integers(0, 256, height * width * 3, dtype=np.uint8).tobytes()
            source = np.frombuffer(serialize_message(image), np.uint8)
        message = pool.take(len(source))
        message[:] = source
        messages.append(message)
    return messages


def publish_calibrations(node: Any, topics: Sequence[str], wh: tuple[int, int]) -> None:
    """Publish the calibrations of a pair with a baseline of 0.1 m."""
    from rclpy.qos import QoSProfile
    from sensor_msgs.msg import CameraInfo

    for number, topic in enumerate(topics):
        publisher = node.create_publisher(
            CameraInfo, topic.replace('image_rect', 'camera_info'), QoSProfile(depth=1)
        )
        while not publisher.get_subscription_count():
            time.sleep(0.05)
        focal = float(wh[0])
        p = [focal, 0.0, wh[0] / 2, -0.1 * focal * number, 0.0, focal, wh[1] / 2, *[0.0] * 5]
        publisher.publish(CameraInfo(width=wh[0], height=wh[1], p=p))


def load(name: str) -> Any:
    from importlib import import_module

    module, _, attribute = name.rpartition('.')
    return getattr(import_module(module), attribute)


@contextmanager
def opened(graph: Graph, args: argparse.Namespace, folder: Path) -> Iterator[tuple[Any, Player]]:
    """Start the node of a graph, its publisher and its monitor."""
    import rclpy
    from rclpy.executors import SingleThreadedExecutor
    from rclpy.parameter import Parameter
    from rclpy.qos import QoSProfile

    from trt_ros.ros.dds.rcl_subscription import MessageCallbacks
    from trt_ros.ros.dds.transport import serialized_publish, subscribe_serialized

    model = folder / f'{graph.node}_{graph.write.__name__}.onnx'
    graph.write(model, scaled(graph.network_wh, args.scale)[::-1])
    values = {
        'precision': 'auto' if args.backend == 'onnxruntime' else args.precision,
        **graph.parameters,
        'model_path': str(model),
        'backend': args.backend,
        'frames_in_flight': args.frames_in_flight,
        'autostart': True,
    }
    with ExitStack() as stack:
        cls = load(f'trt_ros.nodes.{graph.module}.{graph.node}')
        node = cls(
            parameter_overrides=[Parameter(name, value=value) for name, value in values.items()]
        )
        stack.callback(node.destroy_node)
        ends = rclpy.create_node('r2b')
        stack.callback(ends.destroy_node)
        node.use_intra_process_comms = ends.use_intra_process_comms = True
        executor = SingleThreadedExecutor()
        for each in (node, ends):
            executor.add_node(each)
        spinning = threading.Thread(target=executor.spin)
        spinning.start()
        stack.callback(spinning.join)
        stack.callback(executor.shutdown)
        end = time.monotonic() + SECONDS_TO_START
        while node.state_label != 'active':
            if time.monotonic() > end or node.failure:
                raise SystemExit(f'The node does not start: {node.failure}')
            time.sleep(0.05)
        kind = 'sensor_msgs.msg.Image' if graph.image_wh else TENSORS
        publishers = [
            ends.create_publisher(load(kind), topic, QoSProfile(depth=10))
            for topic in (graph.topics if graph.image_wh else ('tensors',))
        ]
        sends = [serialized_publish(ends, each) for each in publishers]
        player = Player(
            lambda message: [send(message) for send in sends], serialized(graph, args.scale)
        )
        kind, topic = graph.result
        monitor = subscribe_serialized(
            ends,
            load(kind),
            f'{node.get_name()}/{topic}',
            QoSProfile(depth=100),
            MessageCallbacks(player.on_result),
        )
        stack.callback(monitor.close)
        while not all(each.get_subscription_count() for each in publishers):
            time.sleep(0.05)
        if len(publishers) > 1:
            publish_calibrations(ends, graph.topics, scaled(graph.image_wh, args.scale))
        yield node, player


def measured(graph: Graph, args: argparse.Namespace, folder: Path) -> dict[str, Any]:
    """Return the report of a graph, with the keys of ros2_benchmark."""
    with opened(graph, args, folder) as (node, player):
        lines = node.pipeline.log_lines
        player.try_out()
        peak_hz = player.peak_hz(args.highest_hz, args.seconds)
        runs = [player.play(peak_hz, args.seconds) for _ in range(args.iterations)]
        report: dict[str, Any] = with_keys(concluded(runs))
        for rate_hz in FIXED_HZ:
            if rate_hz <= 1.05 * report[KEY.format('MEAN_PLAYBACK_FRAME_RATE')]:
                report[f'{rate_hz}fps'] = with_keys(player.play(rate_hz, args.seconds))
    report['metadata'] = {
        'BenchmarkMetadata.NAME': f'trt_ros: {graph.title}',
        'BenchmarkMetadata.DEVICE_ARCH': platform.machine(),
        'BenchmarkMetadata.PEAK_THROUGHPUT_PREDICTION': peak_hz,
        'network_resolution': scaled(graph.network_wh, args.scale),
        'data_resolution': graph.image_wh and scaled(graph.image_wh, args.scale),
        'seconds': args.seconds,
        'iterations': args.iterations,
        'log': lines,
    }
    return report


def with_keys(found: Mapping[str, float]) -> dict[str, float]:
    return {KEY.format(name): value for name, value in found.items()}


def row(graph: Graph, report: Mapping[str, Any]) -> str:
    """Return a line of the table."""

    def cell(part: Mapping[str, Any], name: str, digits: int = 1) -> str:
        return f'{part.get(KEY.format(name), math.nan):.{digits}f}'

    meta = report['metadata']
    size = '×'.join(map(str, meta['data_resolution'] or meta['network_resolution']))
    cells = [graph.title, size, cell(report, 'MEAN_FRAME_RATE', 0)]
    for rate_hz in FIXED_HZ:
        part = report.get(f'{rate_hz}fps')
        names = ('FIRST_SENT_RECEIVED_LATENCY', 'MEAN_LATENCY', 'MAX_LATENCY')
        cells.append(' / '.join(cell(part, name) for name in names) if part else '')
    return f'| {" | ".join(cells)} |'


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__.strip().partition('\n')[0])
    parser.add_argument('--graphs', nargs='+', choices=GRAPHS, default=list(GRAPHS))
    parser.add_argument('--backend', default='auto')
    parser.add_argument('--precision', default='fp16', help='not with onnxruntime')
    parser.add_argument('--frames-in-flight', type=int, default=2)
    parser.add_argument('--seconds', type=float, default=5.0, help='of each run')
    parser.add_argument('--iterations', type=int, default=5, help='runs at the peak rate')
    parser.add_argument('--highest-hz', type=float, default=3000.0, help='of the search')
    parser.add_argument('--scale', type=float, default=1.0, help='of images and networks')
    parser.add_argument('--json', type=Path, metavar='FOLDER', help='write a file per graph')
    args = parser.parse_args()
    import rclpy

    rclpy.init()
    head = ['graph', 'input', 'frames/s']
    head += [f'{rate:g} Hz: first / mean / max (ms)' for rate in FIXED_HZ]
    print('| ' + ' | '.join(head) + ' |', '|' + ' --- |' * len(head), sep='\n', flush=True)
    lines: list[str] = []
    try:
        with tempfile.TemporaryDirectory() as folder:
            for name in args.graphs:
                report = measured(GRAPHS[name], args, Path(folder))
                lines += [line for line in report['metadata']['log'] if line not in lines]
                print(row(GRAPHS[name], report), flush=True)
                if args.json:
                    args.json.mkdir(parents=True, exist_ok=True)
                    (args.json / f'{name}.json').write_text(json.dumps(report, indent=1))
    finally:
        rclpy.try_shutdown()
    print('', *lines, sep='\n')
    return 0


if __name__ == '__main__':
    sys.exit(main())
