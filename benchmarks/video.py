"""
Latency and CPU time of videos beside raw and JPEG images, through the detector node.

    python benchmarks/video.py MODEL [--sizes 1920x1080@60 3840x2160@30] [--seconds 5] [--json]
    python benchmarks/video.py MODEL --sizes 3840x2160@30 --only raw 'h264 on the GPU'
    python benchmarks/video.py --probe

A process publishes a moving picture with the time of publication, the detector runs in another,
and a third one receives the results. `CPU` is that of the detector's process in percent of one
core. Videos have a key frame every 30 pictures and no B-frames; each is encoded once. `--probe`
tells whether the GPU decodes videos.
"""

import argparse
from contextlib import contextmanager
from functools import cache
import json
import os
from pathlib import Path
import pickle
import random
import select
import signal
import subprocess
import sys
from tempfile import TemporaryDirectory
import time
from typing import Any

from cpu_overhead import PROFILE, ros_node
import cv2
import numpy as np
from report import percentiles

PICTURES, KEY_INTERVAL, WARM_UP_SECONDS = 60, 30, 2.0
ENCODERS = {'h264': 'libx264', 'h265': 'libx265', 'av1': 'libsvtav1'}
OPTIONS = {
    'h264': {'preset': 'veryfast', 'tune': 'zerolatency'},
    'h265': {
        'preset': 'ultrafast',
        'tune': 'zerolatency',
        'x265-params': f'log-level=none:repeat-headers=1:scenecut=0:keyint={KEY_INTERVAL}',
    },
    'av1': {'preset': '11', 'svtav1-params': 'pred-struct=1:lookahead=0'},
}
#: Kind of the messages, and parameters of the detector.
VARIANTS: dict[str, tuple[str, dict[str, str]]] = {
    'raw': ('raw', {}),
    **{
        f'jpeg on the {where.upper()}': (
            'jpeg',
            {'image_transport': 'compressed', 'jpeg_decoder': where},
        )
        for where in ('cpu', 'gpu')
    },
    **{
        f'{codec} on the {where.upper()}': (
            codec,
            {'image_transport': 'video', 'video_decoder': where},
        )
        for codec in ENCODERS
        for where in ('cpu', 'gpu')
    },
}


@cache
def background(wh: tuple[int, int]) -> np.ndarray:
    width, height = wh
    y, x = np.mgrid[:height, :width].astype(np.float32)
    waves = np.stack([np.sin(x / 37), np.cos(y / 23), np.sin((x + y) / 51)], -1)
    return np.clip(128 + 100 * waves, 0, 255).astype(np.uint8)


def picture(wh: tuple[int, int], number: int) -> np.ndarray:
    (width, height), pixels = wh, background(wh).copy()
    side = height // 4
    left = width * number // PICTURES % (width - side)
    pixels[side : 2 * side, left : left + side] = (40, 60, 220)
    return pixels


def encode(codec: str, wh: tuple[int, int], rate_hz: int) -> list[bytes]:
    import av

    context: Any = av.CodecContext.create(ENCODERS[codec], 'w')
    context.width, context.height, context.pix_fmt = *wh, 'yuv420p'
    context.framerate, context.gop_size, context.max_b_frames = rate_hz, KEY_INTERVAL, 0
    context.time_base = 1 / context.framerate
    context.options = OPTIONS[codec]
    packets = []
    for number in range(PICTURES):
        frame = av.VideoFrame.from_ndarray(picture(wh, number), format='bgr24')
        frame.pts = number
        packets += context.encode(frame)
    return [bytes(packet) for packet in (*packets, *context.encode(None))]


def contents(kind: str, wh: tuple[int, int], rate_hz: int) -> list[bytes]:
    """Return the data of the messages of a loop."""
    if kind in ENCODERS:
        return encode(kind, wh, rate_hz)
    pictures = [picture(wh, number) for number in (0, 30)]
    return [
        (each if kind == 'raw' else cv2.imencode('.jpg', each)[1]).tobytes() for each in pictures
    ]


def messages(kind: str, wh: tuple[int, int], loop: list[bytes]) -> tuple[type, str, list[Any]]:
    """Return the message type, the topic and the messages of a loop."""
    from array import array

    from sensor_msgs.msg import CompressedImage, Image

    size = {'width': wh[0], 'height': wh[1]}
    if kind == 'raw':
        shape = {**size, 'step': 3 * wh[0], 'encoding': 'bgr8'}
        return Image, 'image', [Image(data=array('B', data), **shape) for data in loop]
    if kind == 'jpeg':
        made = [CompressedImage(format='jpeg', data=data) for data in loop]
        return CompressedImage, 'image/compressed', made
    from ffmpeg_image_transport_msgs.msg import FFMPEGPacket

    packets = [FFMPEGPacket(**size, encoding=kind, data=data) for data in loop]
    return FFMPEGPacket, 'image/ffmpeg', packets


def camera(path: str, kind: str, width: str, height: str, rate: str, seconds: str) -> None:
    import rclpy

    wh, rate_hz = (int(width), int(height)), int(rate)
    message_type, topic, loop = messages(kind, wh, pickle.loads(Path(path).read_bytes()))
    with ros_node('camera') as node:
        publisher = node.create_publisher(message_type, topic, 2)
        while publisher.get_subscription_count() == 0:
            rclpy.spin_once(node, timeout_sec=0.05)
        due = time.monotonic()
        for number in range(int((WARM_UP_SECONDS + float(seconds)) * rate_hz)):
            message = loop[number % len(loop)]
            message.header.frame_id = 'warm' if number < WARM_UP_SECONDS * rate_hz else 'counts'
            if hasattr(message, 'pts'):
                message.pts = number
            stamp_ns = time.monotonic_ns()
            message.header.stamp.sec, message.header.stamp.nanosec = divmod(stamp_ns, 10**9)
            publisher.publish(message)
            due += 1 / rate_hz
            time.sleep(max(0.0, due - time.monotonic()))


def watcher() -> None:
    """Print 'found', 'counts' at the first result that counts; at the end the ages in ms."""
    import rclpy
    from vision_msgs.msg import Detection2DArray

    ages: list[float] = []

    def on_result(message: Any) -> None:
        now_ns, stamp = time.monotonic_ns(), message.header.stamp
        if message.header.frame_id == 'counts':
            if not ages:
                print('counts', flush=True)
            ages.append(1e-6 * (now_ns - 10**9 * stamp.sec - stamp.nanosec))

    with ros_node('watcher') as node:
        subscription = node.create_subscription(
            Detection2DArray, 'detector/detections', on_result, 10
        )
        while subscription.get_publisher_count() == 0:
            rclpy.spin_once(node, timeout_sec=0.05)
        print('found', flush=True)
        rclpy.spin(node)
    print(json.dumps(ages))


def cpu_seconds(process: int) -> float:
    fields = Path(f'/proc/{process}/stat').read_text().rpartition(')')[2].split()
    return (int(fields[11]) + int(fields[12])) / os.sysconf('SC_CLK_TCK')


@contextmanager
def running(command: list[str], env: dict[str, str], **options: Any) -> Any:
    process = subprocess.Popen(command, env=env, **options)
    try:
        yield process
    finally:
        process.send_signal(signal.SIGINT)  # SIGKILL would leave its shared memory behind.
        process.wait(60)


def measure(
    model: Path, name: str, size: tuple[int, int, int], seconds: float, folder: Path
) -> dict[str, float]:
    kind, parameters = VARIANTS[name]
    loop = folder / f'{kind}_{size[0]}_{size[2]}'
    if not loop.exists():
        loop.write_bytes(pickle.dumps(contents(kind, size[:2], size[2])))
    env = {
        **os.environ,
        'FASTRTPS_DEFAULT_PROFILES_FILE': str(PROFILE),
        'ROS_AUTOMATIC_DISCOVERY_RANGE': 'LOCALHOST',
        'ROS_DOMAIN_ID': str(random.randint(1, 100)),
    }
    given = {'autostart': 'true', 'model_path': str(model.absolute()), **parameters}
    flags = [part for name, value in given.items() for part in ('-p', f'{name}:={value}')]
    detector = [sys.executable, '-m', 'trt_ros.executables', 'detector', '--ros-args', *flags]
    me = [sys.executable, __file__, '--role']
    with (
        running([*me, 'watcher'], env, stdout=subprocess.PIPE, text=True) as watching,
        running(detector, env, stdout=subprocess.DEVNULL) as node,
    ):
        while not select.select([watching.stdout], [], [], 1)[0]:
            if node.poll() is not None:
                return {}
        assert watching.stdout.readline() == 'found\n'
        camera = [*me, 'camera', str(loop), kind, *map(str, size), str(seconds)]
        with running(camera, env) as publisher:
            assert watching.stdout.readline() == 'counts\n'
            began, before = time.monotonic(), cpu_seconds(node.pid)
            publisher.wait()
            used = (cpu_seconds(node.pid) - before) / (time.monotonic() - began)
    ages = json.loads(watching.stdout.read())
    return {**percentiles(ages), 'CPU %': 100 * used, 'sent': size[2] * seconds}


def probe() -> None:
    from trt_ros.cuda.device import open_gpu
    from trt_ros.video import Cuda, why_not_on_gpu

    gpu = open_gpu(0)
    reason = why_not_on_gpu(Cuda(gpu.index, gpu.context))
    print(f'{gpu}: {reason or "decodes videos"}')


def main() -> None:
    if sys.argv[1:2] == ['--role']:
        {'camera': camera, 'watcher': watcher}[sys.argv[2]](*sys.argv[3:])
        return
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument('model', type=Path, nargs='?')
    parser.add_argument('--probe', action='store_true')
    parser.add_argument('--sizes', nargs='+', default=['1920x1080@60', '3840x2160@30'])
    parser.add_argument('--only', nargs='+', default=list(VARIANTS), choices=list(VARIANTS))
    parser.add_argument('--seconds', type=float, default=5.0)
    parser.add_argument('--json', action='store_true')
    args = parser.parse_args()
    if args.probe:
        probe()
        return
    with TemporaryDirectory() as folder:
        for size in args.sizes:
            wh, _, rate = size.partition('@')
            whole = (*map(int, wh.split('x')), int(rate))
            if not args.json:
                print(f'\n{size:<24} {"p50 ms":>8} {"p99 ms":>8} {"CPU %":>7} {"results":>8}')
            for name in args.only:
                row = measure(args.model, name, whole, args.seconds, Path(folder))
                if not row:  # The detector did not start, as without the decoder.
                    continue
                if args.json:
                    print(json.dumps({'size': size, 'name': name, **row}), flush=True)
                    continue
                print(
                    f'  {name:<22} {row["p50"]:8.2f} {row["p99"]:8.2f} {row["CPU %"]:7.1f} '
                    f'{row["count"]:4}/{row["sent"]:.0f}',
                    flush=True,
                )


if __name__ == '__main__':
    main()
