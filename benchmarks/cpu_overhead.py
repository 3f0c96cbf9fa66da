"""
Overhead of trt_ros on the CPU over the network itself.

Two tables: the time per image in one process, compared with direct calls of ONNX Runtime; and the
latency from camera process to detection subscriber, compared with an echo of the same image by a
dedicated process.

    ./dev shell -c 'python benchmarks/cpu_overhead.py MODEL IMAGE [--json]'
"""

import argparse
from array import array
from collections.abc import Callable, Iterator
from contextlib import contextmanager
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
from types import SimpleNamespace
from typing import Any

import cv2
import numpy as np
import onnxruntime
from report import machine, percentiles

from trt_ros.vision.thresholds import Thresholds

THRESHOLDS = Thresholds(score=0.25, iou=0.45, max_detections=100)
WARM_UP_FRAMES = 20
# Fast DDS loses most frames larger than its default shared-memory segment, 512 KiB.
PROFILE = Path(__file__).parents[1] / 'config/fastdds.xml'


# In one process.


def interleaved(calls: dict[str, Callable[[], object]], rounds: int) -> dict[str, list[float]]:
    """Time each call once per round, in rotating order; milliseconds."""
    names = list(calls)
    times: dict[str, list[float]] = {name: [] for name in names}
    for number in range(-5, rounds):  # The first five warm up.
        start = number % len(names)
        for name in names[start:] + names[:start]:
            began = time.perf_counter()
            calls[name]()
            if number >= 0:
                times[name].append(1e3 * (time.perf_counter() - began))
    return times


def in_one_process(model: Path, pixels: np.ndarray, rounds: int) -> dict[str, Any]:
    from trt_ros.families.registry import DETECTORS
    from trt_ros.runtime.cpu.checked_runner import CheckedRunner
    from trt_ros.runtime.cpu.pipeline import CpuPipeline
    from trt_ros.runtime.options import LabeledOptions
    from trt_ros.runtime.pipeline import Pipeline
    from trt_ros.vision.frame import Frame

    pipeline = Pipeline.open(
        LabeledOptions(model_path=str(model), backend='onnxruntime'), families=DETECTORS
    )
    assert isinstance(pipeline, CpuPipeline)
    runner = pipeline.runner
    assert isinstance(runner, CheckedRunner) and runner._runner is not None
    # The runner's own session, so that the difference is the overhead of the runner.
    session = runner._runner._session
    frame = Frame.from_pixels(pixels)
    tensor, letterbox = pipeline.preprocess(frame)
    feeds, names = {runner.inputs[0].name: tensor}, [spec.name for spec in runner.outputs]
    outputs = runner.infer(feeds)
    times = interleaved(
        {
            'session.run': lambda: session.run(names, feeds),
            'Runner.infer': lambda: runner.infer(feeds),
            'preprocess': lambda: pipeline.preprocess(frame),
            'decode and NMS': lambda: pipeline.decoder(outputs, letterbox, THRESHOLDS),
            'Pipeline.infer': lambda: pipeline.infer(frame, THRESHOLDS),
        },
        rounds,
    )
    pipeline.close()
    bare = times['session.run']
    # Per round, so that load of the machine affects both alike.
    added = [one - other for one, other in zip(times['Runner.infer'], bare)]
    ratios = [one / other for one, other in zip(times['Pipeline.infer'], bare)]
    return {
        'milliseconds': {name: percentiles(values) for name, values in times.items()},
        'runner_overhead_percent': 100 * statistics.median(added) / statistics.median(bare),
        'pipeline_ratio': statistics.median(ratios),
    }


def bookkeeping_microseconds(frames: int = 20_000) -> float:
    """Return the CPU time of counting and timing a frame for /diagnostics; best of five."""
    from trt_ros.ros.diagnostics import QUEUE_AGE, FrameCounts, LatencyMeter

    counts, best = FrameCounts(), float('inf')
    with ros_node('bookkeeping') as node:
        node.parameters, node.now_ns = SimpleNamespace(publish_latency=False), time.time_ns
        latency = LatencyMeter(node, counts)
        for _ in range(5):
            began = time.thread_time()
            for _ in range(frames):  # As TopicStream and InferenceNode do.
                counts.receive()
                counts.record_duration(QUEUE_AGE, time.monotonic() - began)
                with counts.timed('infer'):
                    pass
                with counts.timed('publish'):
                    pass
                counts.publish()
                latency.done((1, 0))
            best = min(best, (time.thread_time() - began) / frames)
    return 1e6 * best


# Between processes: this script again, in one of three roles.


@contextmanager
def ros_node(name: str) -> Iterator[Any]:
    """Create a plain rclpy node in a process with the memory settings of our nodes."""
    import rclpy
    from rclpy.executors import ExternalShutdownException

    from trt_ros.process_memory import tune_process

    tune_process()
    rclpy.init()
    node = rclpy.create_node(name)
    try:
        yield node
    except (KeyboardInterrupt, ExternalShutdownException):
        pass
    finally:
        node.destroy_node()
        rclpy.try_shutdown()


def camera(image_path: str, frames: int, rate_hz: float) -> None:
    """
    Publish the image, stamped with the monotonic clock, once there is a subscriber.

    A .jpg is published as it is, on image/compressed.
    """
    import rclpy
    from sensor_msgs.msg import CompressedImage, Image

    with ros_node('camera') as node:
        if image_path.endswith('.jpg'):
            publisher = node.create_publisher(CompressedImage, 'image/compressed', 2)
            message = CompressedImage(format='jpeg', data=Path(image_path).read_bytes())
        else:
            pixels = cv2.imread(image_path)
            publisher = node.create_publisher(Image, 'image', 2)
            message = Image(
                height=pixels.shape[0],
                width=pixels.shape[1],
                encoding='bgr8',
                step=pixels.strides[0],
            )
            message.data = array('B', pixels.tobytes())
        while publisher.get_subscription_count() == 0:
            rclpy.spin_once(node, timeout_sec=0.05)
        due = time.monotonic()
        for number in range(WARM_UP_FRAMES + frames):
            message.header.frame_id = 'warm' if number < WARM_UP_FRAMES else 'counts'
            stamp_ns = time.monotonic_ns()
            message.header.stamp.sec, message.header.stamp.nanosec = divmod(stamp_ns, 10**9)
            publisher.publish(message)
            due += 1 / rate_hz
            time.sleep(max(0.0, due - time.monotonic()))


def echo() -> None:
    """Publish each received image again, unread."""
    import rclpy
    from rclpy.qos import qos_profile_sensor_data
    from sensor_msgs.msg import Image

    with ros_node('echo') as node:
        publisher = node.create_publisher(Image, 'echoed', 2)
        node.create_subscription(
            Image, 'image', publisher.publish, qos_profile_sensor_data, raw=True
        )
        rclpy.spin(node)


def watcher(topic: str) -> None:
    """
    Print a line when the publisher is discovered and, when interrupted, the age of each result.

    The ages are a JSON list in milliseconds.
    """
    import rclpy
    from sensor_msgs.msg import Image
    from vision_msgs.msg import Detection2DArray

    ages: list[float] = []

    def on_result(message: Any) -> None:
        now_ns = time.monotonic_ns()
        stamp = message.header.stamp
        if message.header.frame_id == 'counts':
            ages.append(1e-6 * (now_ns - 10**9 * stamp.sec - stamp.nanosec))

    with ros_node('watcher') as node:
        kind = Image if topic == 'echoed' else Detection2DArray
        subscription = node.create_subscription(kind, topic, on_result, 10)
        # Messages published before discovery completes are lost, not late.
        while subscription.get_publisher_count() == 0:
            rclpy.spin_once(node, timeout_sec=0.05)
        print('found', flush=True)
        rclpy.spin(node)
    print(json.dumps(ages))


def latencies(
    middle: list[str], topic: str, image: Path, frames: int, rate_hz: float, env: dict[str, str]
) -> list[float]:
    """Run camera, `middle` and watcher in a process each; return the ages of the results."""
    me = [sys.executable, __file__, '--role']
    watching = subprocess.Popen([*me, 'watcher', topic], env=env, stdout=subprocess.PIPE)
    between = subprocess.Popen(middle, env=env, stdout=subprocess.DEVNULL)
    try:
        assert watching.stdout is not None
        watching.stdout.readline()
        subprocess.run(
            [*me, 'camera', str(image), str(frames), str(rate_hz)],
            env=env,
            check=True,
            timeout=120 + 2 * frames / rate_hz,
        )
    finally:
        for process in (between, watching):
            process.send_signal(signal.SIGINT)  # SIGKILL would leave its shared memory behind.
    printed, _ = watching.communicate(timeout=60)
    between.wait(60)
    ages: list[float] = json.loads(printed)
    return ages


def between_processes(
    model: Path, image: Path, frames: int, rate_hz: float, jpeg: Path | None = None
) -> dict[str, Any]:
    """
    Return the ages of results that come through other processes.

    :param jpeg: the image as a .jpg, to measure compressed images, too.
    """
    me = [sys.executable, __file__, '--role']
    detector = [
        sys.executable,
        '-m',
        'trt_ros.executables',
        'detector',
        '--ros-args',
        '-p',
        'autostart:=true',
        '-p',
        f'model_path:={model.absolute()}',
    ]
    middles = {
        'echo of the image': ([*me, 'echo'], 'echoed', image),
        'detector': (detector, 'detector/detections', image),
    }
    if jpeg is not None:
        compressed = [*detector, '-p', 'image_transport:=compressed', '-p']
        for where in ('gpu', 'cpu'):
            middles[f'detector, JPEG decoded on the {where.upper()}'] = (
                [*compressed, f'jpeg_decoder:={where}'],
                'detector/detections',
                jpeg,
            )
    ages: dict[str, list[float]] = {name: [] for name in middles}
    sent = 0
    for _ in range(2):  # Alternately, so that load of the machine affects both.
        sent += frames
        for name, (middle, topic, sent_image) in middles.items():
            env = {
                **os.environ,
                'FASTRTPS_DEFAULT_PROFILES_FILE': str(PROFILE),
                'ROS_AUTOMATIC_DISCOVERY_RANGE': 'LOCALHOST',
                'ROS_DOMAIN_ID': str(random.randint(1, 100)),
            }
            ages[name] += latencies(middle, topic, sent_image, frames, rate_hz, env)
    return {
        'rate_hz': rate_hz,
        'sent': sent,
        'milliseconds': {name: percentiles(values) for name, values in ages.items()},
    }


# Output.


def print_table(title: str, rows: dict[str, dict[str, float]]) -> None:
    print(f'\n{title:<40} {"p50 ms":>8} {"p99 ms":>8} {"count":>6}')
    for name, row in rows.items():
        print(f'  {name:<38} {row["p50"]:8.2f} {row["p99"]:8.2f} {row["count"]:6}')


def main() -> None:
    roles = {
        'camera': lambda path, frames, rate_hz: camera(path, int(frames), float(rate_hz)),
        'echo': echo,
        'watcher': watcher,
    }
    if sys.argv[1:2] == ['--role']:
        roles[sys.argv[2]](*sys.argv[3:])
        return
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument('model', type=Path)
    parser.add_argument('image', type=Path)
    parser.add_argument('--size', default='640x480', help='size that the image is resized to')
    parser.add_argument('--rounds', type=int, default=200, help='rounds in one process')
    parser.add_argument(
        '--frames', type=int, default=150, help='frames between processes, in each of two runs'
    )
    parser.add_argument('--rate-hz', type=float, default=10.0)
    parser.add_argument('--json', action='store_true')
    args = parser.parse_args()
    with tempfile.TemporaryDirectory() as folder:
        width, height = map(int, args.size.split('x'))
        image = Path(folder) / 'image.png'
        pixels = cv2.resize(cv2.imread(str(args.image)), (width, height))
        cv2.imwrite(str(image), pixels)
        result = {
            'machine': {
                **machine(),
                'onnxruntime': onnxruntime.__version__,
                'opencv': cv2.__version__,
            },
            'model': args.model.name,
            'size': args.size,
            'in_one_process': in_one_process(args.model, pixels, args.rounds),
            'bookkeeping_microseconds': bookkeeping_microseconds(),
            'between_processes': between_processes(args.model, image, args.frames, args.rate_hz),
        }
    if args.json:
        print(json.dumps(result, indent=1))
        return
    print(', '.join(f'{key} {value}' for key, value in result['machine'].items()))
    one, two = result['in_one_process'], result['between_processes']
    print_table(f'{args.model.name}, {args.size}, one process', one['milliseconds'])
    print(
        f'  Runner.infer adds {one["runner_overhead_percent"]:.2f} % to session.run; '
        f'a complete frame takes {one["pipeline_ratio"]:.2f} times as long; counting and timing '
        f'it takes {result["bookkeeping_microseconds"]:.1f} µs of CPU'
    )
    print_table(
        f'camera to subscriber, {two["sent"]} at {two["rate_hz"]:g} Hz', two['milliseconds']
    )


if __name__ == '__main__':
    main()
