"""
Latency of 1080p images between two processes: shared memory, DDS, and the wake-up alone.

An image's age runs from the call that publishes it, after its pixels were drawn, to the callback
that reads them. Beyond the wake-up: without the time between the call that sends and the return of
the call that waits. The wake-up alone is that of a thread that waits for bytes from a socket.

    ./dev shell -c 'python benchmarks/shared_memory.py [--frames 600] [--json]'
"""

import argparse
from collections.abc import Callable
import json
import os
from pathlib import Path
import random
import select
import socket
import subprocess
import sys
import threading
import time
from typing import Any

import numpy as np
from report import machine, percentiles

SHARED, DDS, WAKE_UP = 'shared memory', 'DDS', 'wake-up alone'
PROFILE = Path(__file__).parent.parent / 'config/fastdds.xml'
SIZE = 1920, 1080
WARM_UP_FRAMES = 30
SECONDS_WITHOUT_A_FRAME = 5.0


def at_rate(send: Callable[[int], float], frames: int, rate_hz: float) -> list[float]:
    """Return what `send` returns for each frame after the first ones."""
    took, due = [], time.monotonic()
    for number in range(WARM_UP_FRAMES + frames):
        took.append(send(number))
        due = max(due + 1 / rate_hz, time.monotonic())
        time.sleep(max(0.0, due - time.monotonic()))
    return took[WARM_UP_FRAMES:]


def camera(frames: int, rate_hz: float) -> list[float]:
    """Publish images with the time in their first bytes; return microseconds per call."""
    import rclpy
    from sensor_msgs.msg import Image
    from std_msgs.msg import Header

    from trt_ros.process_memory import tune_process, use_huge_pages
    from trt_ros.ros.messages import ImageSender

    tune_process()
    rclpy.init()
    node = rclpy.create_node('camera', start_parameter_services=False, enable_rosout=False)
    sender = ImageSender(node, node.create_publisher(Image, 'image', 2))
    use_huge_pages()  # As nodes do when they are configured.

    def send(number: int) -> float:
        pixels = sender.begin(Header(), SIZE)
        pixels[:] = number % 256
        drawn = pixels.reshape(-1)[:8].view(np.int64)
        drawn[0] = time.time_ns()
        began = time.perf_counter()
        sender.send()
        return 1e6 * (time.perf_counter() - began)

    while sender.publisher.get_subscription_count() == 0:
        time.sleep(0.01)
    took = at_rate(send, frames, rate_hz)
    sys.stdin.read()  # Until the viewer has all.
    node.destroy_node()
    rclpy.try_shutdown()
    return took


def viewer(frames: int) -> dict[str, list[float]]:
    """Return the age of each image in microseconds, and how much is beyond the wake-up."""
    import rclpy
    from rclpy.qos import QoSProfile
    from sensor_msgs.msg import Image

    from trt_ros.process_memory import tune_process, use_huge_pages
    from trt_ros.ros.codecs.images import RawImageCodec
    from trt_ros.ros.dds.memory import pool_memory_of
    from trt_ros.ros.dds.rcl_subscription import MessageCallbacks
    from trt_ros.ros.dds.transport import subscribe_serialized

    ages: list[float] = []
    beyond: list[float] = []
    is_shared: list[bool] = []
    arrived = threading.Event()
    woken = 0

    def on_message(message: np.ndarray) -> None:
        data = read(message).value.data
        now, drawn = time.time_ns(), int(data[:8].view(np.int64)[0])
        ages.append(1e-3 * (now - drawn))
        sent = [each.last for each in shared._lenders.values() if each] if shared else []
        beyond.extend(1e-3 * (each - drawn + now - woken) for each in sent)
        assert data[8] == data[data.size // 2] == data[-1]
        is_shared.append(pool_memory_of(message) is not None)
        arrived.set()

    tune_process()
    rclpy.init()
    node = rclpy.create_node('viewer', start_parameter_services=False, enable_rosout=False)
    read = RawImageCodec(node, 'image').reader()
    use_huge_pages()
    subscription = subscribe_serialized(
        node, Image, 'image', QoSProfile(depth=2), MessageCallbacks(on_message, rehearse=read)
    )
    shared = subscription._shared
    if shared is not None:
        on_ready = shared._on_ready

        def note_and_take(take: Callable[[], np.ndarray | None]) -> None:
            nonlocal woken
            woken = time.time_ns()
            on_ready(take)

        shared._on_ready = note_and_take
    arrived.wait(60.0)
    while len(ages) < WARM_UP_FRAMES + frames:
        arrived.clear()
        if not arrived.wait(SECONDS_WITHOUT_A_FRAME):
            break
    subscription.close()
    node.destroy_node()
    rclpy.try_shutdown()
    expected = os.environ.get('TRT_ROS_TRANSPORT') != 'dds'
    assert all(each == expected for each in is_shared[WARM_UP_FRAMES:])
    return {'age': ages[WARM_UP_FRAMES:], 'beyond the wake-up': beyond[WARM_UP_FRAMES:]}


def pinger(fd: int, frames: int, rate_hz: float) -> list[float]:
    pixels = np.empty((SIZE[1], SIZE[0], 3), np.uint8)
    with socket.socket(fileno=fd) as connection:

        def send(number: int) -> float:
            pixels[:] = number % 256  # As a camera does, with the same effect on the caches.
            began = time.perf_counter()
            connection.send(time.time_ns().to_bytes(8, 'little'))
            return 1e6 * (time.perf_counter() - began)

        return at_rate(send, frames, rate_hz)


def waiter(fd: int, frames: int) -> dict[str, list[float]]:
    ages: list[float] = []
    with socket.socket(fileno=fd) as connection, select.epoll() as poll:
        poll.register(connection, select.EPOLLIN)
        while len(ages) < WARM_UP_FRAMES + frames:
            poll.poll()
            sent = int.from_bytes(connection.recv(8), 'little')
            ages.append(1e-3 * (time.time_ns() - sent))
    return {'age': ages[WARM_UP_FRAMES:]}


def start(role: str, env: dict[str, str], *args: object, fds: Any = ()) -> subprocess.Popen:
    return subprocess.Popen(
        [sys.executable, __file__, '--role', role, *map(str, args)],
        env={**os.environ, **env},
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        pass_fds=fds,
    )


def printed(process: subprocess.Popen) -> Any:
    text, _ = process.communicate(timeout=300)
    assert process.returncode == 0, process.args
    return json.loads(text)


def measure(transport: str, frames: int, rate_hz: float) -> dict[str, list[float]]:
    """Return the ages and the durations of the publishing calls in microseconds."""
    if transport == WAKE_UP:
        ends = socket.socketpair(socket.AF_UNIX, socket.SOCK_SEQPACKET)
        near, far = (each.fileno() for each in ends)
        receiving = start('waiter', {}, far, frames, fds=[far])
        sending = start('pinger', {}, near, frames, rate_hz, fds=[near])
        for each in ends:
            each.close()
        return {**printed(receiving), 'call of the publisher': printed(sending)}
    env = {
        'FASTRTPS_DEFAULT_PROFILES_FILE': str(PROFILE),
        'ROS_AUTOMATIC_DISCOVERY_RANGE': 'LOCALHOST',
        'ROS_DOMAIN_ID': str(random.randint(1, 100)),
        'TRT_ROS_TRANSPORT': 'dds' if transport == DDS else '',
    }
    receiving, sending = start('viewer', env, frames), start('camera', env, frames, rate_hz)
    return {**printed(receiving), 'call of the publisher': printed(sending)}


def main() -> None:
    if sys.argv[1:2] == ['--role']:
        roles = {each.__name__: each for each in (camera, viewer, pinger, waiter)}
        print(json.dumps(roles[sys.argv[2]](*map(json.loads, sys.argv[3:]))))
        return
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument('--frames', type=int, default=300, help='images per transport and round')
    parser.add_argument('--rounds', type=int, default=3)
    parser.add_argument('--rate-hz', type=float, default=60.0)
    parser.add_argument('--json', action='store_true')
    args = parser.parse_args()
    found: dict[str, dict[str, list[float]]] = {}
    for _ in range(args.rounds):  # Alternately, so that load affects all.
        for transport in (WAKE_UP, SHARED, DDS):
            for name, values in measure(transport, args.frames, args.rate_hz).items():
                found.setdefault(name, {}).setdefault(transport, []).extend(values)
    tables = {
        name: {transport: percentiles(values) for transport, values in rows.items() if values}
        for name, rows in found.items()
    }
    if args.json:
        print(json.dumps({'machine': machine(), 'microseconds': tables}))
        return
    print(machine())
    for name, rows in tables.items():
        print(f'{name} (us)')
        for transport, row in rows.items():
            print(f'  {transport:<16} p50 {row["p50"]:8.0f}  p99 {row["p99"]:8.0f}')


if __name__ == '__main__':
    main()
