"""
Latency of images and detections between processes.

Images: from the pixels in the memory of the sender to the pixels in that of the receiver, for the
transport of trt_ros, typed messages of rclpy, and C++ on rcl if a compiler and its headers are
available. Detections: the time of building and publishing them.

    ./dev shell -c 'python benchmarks/transport.py [--frames 200] [--json]'
"""

import argparse
from array import array
from collections.abc import Callable, Iterator
from contextlib import contextmanager
import ctypes
from functools import cache
from itertools import chain
import json
import os
from pathlib import Path
import random
import shutil
import signal
import subprocess
import sys
import tempfile
import threading
import time
from typing import Any

import numpy as np
from report import machine, percentiles

HERE = Path(__file__).parent
PROFILE = HERE.parent / 'config/fastdds.xml'  # Shared memory for several images.
SIZES = {'1920x1080': (1920, 1080), '640x480': (640, 480)}
WARM_UP_FRAMES = 20
SECONDS_WITHOUT_A_FRAME = 2.0
COUNTS = (0, 10, 100, 300)
OURS, TYPED, TUNED, CPP = 'trt_ros', 'rclpy', 'rclpy, memory kept', 'C++ (rcl), memory kept'
TRANSPORTS = (OURS, TYPED, TUNED, CPP)
LIBRARY = 'TRT_ROS_BENCHMARK_LIBRARY'


@cache
def cpp() -> ctypes.CDLL:
    library = ctypes.CDLL(os.environ[LIBRARY])
    library.send_image.argtypes = [
        ctypes.c_void_p,
        ctypes.c_void_p,
        ctypes.c_uint32,
        ctypes.c_uint32,
        ctypes.c_void_p,
    ]
    library.receive_images.argtypes = [
        ctypes.c_void_p,
        ctypes.c_void_p,
        ctypes.c_int,
        ctypes.c_int64,
        ctypes.c_void_p,
    ]
    return library


def compile_cpp(folder: str) -> str:
    """Compile the C++ side against the rcl of rclpy; return '' if that fails."""
    from ament_index_python import get_packages_with_prefixes

    if shutil.which('g++') is None:
        return ''
    prefixes = {Path(prefix) for prefix in get_packages_with_prefixes().values()}
    folders = [path for prefix in prefixes for path in (prefix / 'include').glob('*')]
    libraries = [
        path
        for prefix in prefixes
        for path in (prefix / 'lib').glob('lib*.so')
        if path.name
        in (
            'librcl.so',
            'librcutils.so',
            'librosidl_runtime_c.so',
            'libsensor_msgs__rosidl_generator_c.so',
        )
    ]
    target = f'{folder}/transport.so'
    done = subprocess.run(
        [
            'g++',
            '-O2',
            '-shared',
            '-fPIC',
            '-o',
            target,
            str(HERE / 'transport.cpp'),
            *(f'-I{path}' for path in folders),
            *map(str, libraries),
        ],
        stderr=subprocess.PIPE,
    )
    if done.returncode:
        print(
            f'C++ is not measured, as it does not compile: {done.stderr.decode()[:500]}',
            file=sys.stderr,
        )
        return ''
    return target


# Roles: this script in processes of their own.


@contextmanager
def ros_node(name: str, transport: str) -> Iterator[Any]:
    import rclpy

    from trt_ros.process_memory import tune_process

    if transport != TYPED:
        tune_process()
    rclpy.init()
    node = rclpy.create_node(name, start_parameter_services=False, enable_rosout=False)
    yield node
    node.destroy_node()
    rclpy.try_shutdown()


def image_qos() -> Any:
    from rclpy.qos import QoSProfile, ReliabilityPolicy

    return QoSProfile(depth=5, reliability=ReliabilityPolicy.BEST_EFFORT)


def sender(transport: str, publisher: Any, node: Any) -> Callable[[np.ndarray], None]:
    """Return a function that stamps and publishes pixels, (H, W, 3) uint8."""
    from sensor_msgs.msg import Image
    from std_msgs.msg import Header

    from trt_ros.ros.messages import ImageSender

    ours, header = ImageSender(node, publisher), Header()

    def stamped() -> Header:
        header.stamp.sec, header.stamp.nanosec = divmod(time.monotonic_ns(), 10**9)
        return header

    def send_ours(pixels: np.ndarray) -> None:
        height, width = pixels.shape[:2]
        ours.begin(stamped(), (width, height))[:] = pixels
        ours.send()

    def send_typed(pixels: np.ndarray) -> None:
        height, width = pixels.shape[:2]
        image = Image(
            header=stamped(), height=height, width=width, step=3 * width, encoding='bgr8'
        )
        data = array('B')
        data.frombytes(pixels.data.cast('B'))
        image.data = data
        publisher.publish(image)

    def send_cpp(pixels: np.ndarray) -> None:
        stamp = ctypes.c_int64()
        assert (
            cpp().send_image(
                publisher.handle.pointer,
                pixels.ctypes.data,
                *pixels.shape[:2],
                ctypes.byref(stamp),
            )
            == 0
        )

    return {OURS: send_ours, CPP: send_cpp}.get(transport, send_typed)


def send(transport: str, width: str, height: str, frames: str, rate_hz: str) -> None:
    """Publish at a rate once there is a subscriber; print the milliseconds per call."""
    from sensor_msgs.msg import Image

    pixels = np.zeros((int(height), int(width), 3), np.uint8)
    with ros_node('sender', transport) as node:
        publisher = node.create_publisher(Image, 'image', image_qos())
        publish = sender(transport, publisher, node)
        while publisher.get_subscription_count() == 0:
            time.sleep(0.01)
        took, due = [], time.monotonic()
        for number in range(WARM_UP_FRAMES + int(frames)):
            pixels[:] = number % 256
            began = time.perf_counter()
            publish(pixels)
            took.append(1e3 * (time.perf_counter() - began))
            due += 1 / float(rate_hz)
            time.sleep(max(0.0, due - time.monotonic()))
    print(json.dumps(took[WARM_UP_FRAMES:]))


def receive(transport: str, frames: str) -> None:
    """Print the age of each image when its pixels are readable, as JSON in milliseconds."""
    import rclpy
    from sensor_msgs.msg import Image

    from trt_ros.ros.dds.cdr import read_image
    from trt_ros.ros.dds.rcl_subscription import MessageCallbacks
    from trt_ros.ros.dds.transport import subscribe_serialized

    ages: list[float] = []
    count = WARM_UP_FRAMES + int(frames)
    last, is_done = [time.monotonic() + 30.0], threading.Event()

    def note(seconds: int, nanoseconds: int, pixels: np.ndarray) -> None:
        ages.append(1e-6 * (time.monotonic_ns() - 10**9 * seconds - nanoseconds))
        assert pixels[0] == pixels[-1]
        last[0] = time.monotonic()
        if len(ages) == count:
            is_done.set()

    def on_bytes(message: np.ndarray) -> None:
        image = read_image(message)
        note(*image.stamp, image.data)

    def on_typed(image: Image) -> None:
        note(
            image.header.stamp.sec, image.header.stamp.nanosec, np.frombuffer(image.data, np.uint8)
        )

    def is_waiting() -> bool:
        return not is_done.is_set() and time.monotonic() - last[0] < SECONDS_WITHOUT_A_FRAME

    with ros_node('receiver', transport) as node:
        if transport == OURS:
            subscription = subscribe_serialized(
                node, Image, 'image', image_qos(), MessageCallbacks(on_bytes)
            )
            while is_waiting():
                is_done.wait(1.0)
            subscription.close()
        elif transport == CPP:
            raw = node.create_subscription(Image, 'image', lambda _: None, image_qos(), raw=True)
            ages_ns = np.zeros(count, np.int64)
            taken = cpp().receive_images(
                raw.handle.pointer,
                context_pointer(node),
                count,
                int(1e9 * SECONDS_WITHOUT_A_FRAME),
                ages_ns.ctypes.data,
            )
            assert (ages_ns[:taken] > 0).all()
            ages = [float(age) for age in ages_ns[:taken] * 1e-6]
        else:
            node.create_subscription(Image, 'image', on_typed, image_qos())
            while is_waiting():
                rclpy.spin_once(node, timeout_sec=1.0)
    print(json.dumps(ages[WARM_UP_FRAMES:]))


def context_pointer(node: Any) -> int:
    return int(node.context.handle.pointer)


def detections_sender(rounds: str) -> None:
    """Print the milliseconds of building and publishing as JSON, {method: {count: []}}."""
    from rclpy.qos import QoSProfile
    from std_msgs.msg import Header
    from vision_msgs.msg import Detection2DArray

    sys.path.insert(0, str(Path(__file__).resolve().parents[1] / 'test'))
    from support.typed_detections import to_detection_array
    from trt_ros.results.boxes import Detections
    from trt_ros.ros.messages import DetectionSender

    rng = np.random.default_rng(0)
    names = [f'class {number}' for number in range(80)]
    header = Header(frame_id='camera')
    took: dict[str, dict[int, list[float]]] = {}
    with ros_node('sender', TUNED) as node:
        publisher = node.create_publisher(Detection2DArray, 'detections', QoSProfile(depth=50))
        ours = DetectionSender(node, publisher).send
        transports: dict[str, Callable[[Detections], None]] = {
            OURS: lambda found: ours(found, header, 'name'),
            TUNED: lambda found: publisher.publish(
                to_detection_array(found, header, class_id_format='name')
            ),
        }
        while publisher.get_subscription_count() == 0:
            time.sleep(0.01)
        for number in range(-WARM_UP_FRAMES, int(rounds)):
            for count in COUNTS:
                found = Detections(
                    1000 * rng.random((count, 4), np.float32),
                    rng.random(count, np.float32),
                    rng.integers(0, 80, count, np.int32),
                    class_names=names,
                )
                for transport, publish in transports.items():
                    began = time.perf_counter()
                    publish(found)
                    milliseconds = 1e3 * (time.perf_counter() - began)
                    if number >= 0:
                        took.setdefault(transport, {}).setdefault(count, []).append(milliseconds)
                    time.sleep(0.003)
    print(json.dumps(took))


def detections_receiver() -> None:
    """Receive detections until interrupted."""
    from rclpy.qos import QoSProfile
    from vision_msgs.msg import Detection2DArray

    from trt_ros.ros.dds.rcl_subscription import MessageCallbacks
    from trt_ros.ros.dds.transport import subscribe_serialized

    ending = threading.Event()
    signal.signal(signal.SIGINT, lambda *_: ending.set())
    with ros_node('receiver', OURS) as node:
        subscription = subscribe_serialized(
            node,
            Detection2DArray,
            'detections',
            QoSProfile(depth=50),
            MessageCallbacks(lambda message: None),
        )
        while not ending.wait(0.1):
            pass
        subscription.close()


# Starting the roles.


def environment() -> dict[str, str]:
    return {
        **os.environ,
        'FASTRTPS_DEFAULT_PROFILES_FILE': str(PROFILE),
        'ROS_AUTOMATIC_DISCOVERY_RANGE': 'LOCALHOST',
        'ROS_DOMAIN_ID': str(random.randint(1, 100)),
        'TRT_ROS_TRANSPORT': 'dds',  # shared_memory.py measures shared memory.
    }


def start(env: dict[str, str], *role: str) -> subprocess.Popen:
    return subprocess.Popen(
        [sys.executable, __file__, '--role', *role], env=env, stdout=subprocess.PIPE
    )


def printed(process: subprocess.Popen) -> Any:
    text, _ = process.communicate(timeout=300)
    assert process.returncode == 0, process.args
    return json.loads(text)


def images(transports: list[str], frames: int, rate_hz: float, rounds: int) -> dict[str, Any]:
    ages: dict[str, dict[str, list[list[float]]]] = {
        size: {transport: [] for transport in transports} for size in SIZES
    }
    calls: dict[str, dict[str, list[list[float]]]] = {
        size: {transport: [] for transport in transports} for size in SIZES
    }
    for _ in range(rounds):  # Alternately, so that load affects all.
        for size, (width, height) in SIZES.items():
            for transport in transports:
                env = environment()
                receiving = start(env, 'receive', transport, str(frames))
                sending = start(
                    env, 'send', transport, str(width), str(height), str(frames), str(rate_hz)
                )
                calls[size][transport].append(printed(sending))
                ages[size][transport].append(printed(receiving))
    return {
        'sent': frames * rounds,
        'rate_hz': rate_hz,
        'milliseconds': by_size(ages),
        'publish_milliseconds': by_size(calls),
        'ratios_by_round': {
            size: [
                float(np.median(ours) / np.median(theirs))
                for ours, theirs in zip(by_transport.get(OURS, []), by_transport.get(CPP, []))
            ]
            for size, by_transport in ages.items()
        },
    }


def by_size(rounds: dict[str, dict[str, list[list[float]]]]) -> dict[str, Any]:
    return {
        size: {
            transport: percentiles(list(chain.from_iterable(values)))
            for transport, values in by_transport.items()
        }
        for size, by_transport in rounds.items()
    }


def detections(rounds: int) -> dict[str, Any]:
    env = environment()
    receiving = start(env, 'detections_receiver')
    try:
        took = printed(start(env, 'detections_sender', str(rounds)))
    finally:
        receiving.send_signal(signal.SIGINT)
        receiving.communicate(timeout=60)
    return {
        'milliseconds': {
            transport: {count: percentiles(values) for count, values in row.items()}
            for transport, row in took.items()
        }
    }


def print_rows(title: str, rows: dict[str, dict[str, float]]) -> None:
    print(f'\n{title:<52} {"p50 ms":>8} {"p99 ms":>8} {"count":>6}')
    for name, row in rows.items():
        print(f'  {name:<50} {row["p50"]:8.2f} {row["p99"]:8.2f} {row["count"]:6}')


def main() -> None:
    if sys.argv[1:2] == ['--role']:
        roles = (send, receive, detections_sender, detections_receiver)
        {role.__name__: role for role in roles}[sys.argv[2]](*sys.argv[3:])
        return
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument('--frames', type=int, default=100, help='images per method and round')
    parser.add_argument('--rounds', type=int, default=3)
    parser.add_argument('--rate-hz', type=float, default=30.0)
    parser.add_argument(
        '--only',
        nargs='+',
        choices=TRANSPORTS,
        default=TRANSPORTS,
        metavar='TRANSPORT',
        help=' | '.join(TRANSPORTS),
    )
    parser.add_argument('--json', action='store_true')
    args = parser.parse_args()
    with tempfile.TemporaryDirectory() as folder:
        transports = list(args.only)
        if CPP in transports:
            os.environ[LIBRARY] = compile_cpp(folder)
            if not os.environ[LIBRARY]:
                transports.remove(CPP)
        result = {
            'machine': machine(),
            'images': images(transports, args.frames, args.rate_hz, args.rounds),
            'detections': detections(args.frames),
        }
    if args.json:
        print(json.dumps(result, indent=1))
        return
    print(', '.join(f'{key} {value}' for key, value in result['machine'].items()))
    found = result['images']
    for size in SIZES:
        print_rows(
            f'{size} bgr8, pixels to pixels, {found["sent"]} at {found["rate_hz"]:g} Hz',
            found['milliseconds'][size],
        )
        print_rows('  of this, the call that publishes', found['publish_milliseconds'][size])
        ratios = ' '.join(f'{ratio:.2f}' for ratio in found['ratios_by_round'][size])
        print(f'\n  {OURS} / C++ at p50, by round: {ratios}')
    for transport, row in result['detections']['milliseconds'].items():
        print_rows(
            f'detections, build and publish, {transport}',
            {f'{count} of them': values for count, values in row.items()},
        )


if __name__ == '__main__':
    main()
