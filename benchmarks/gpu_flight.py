"""
Frames per second of a node with frames_in_flight 1 and 2, for a camera that is always ahead.

    python benchmarks/gpu_models.py models
    python benchmarks/gpu_flight.py models/yolov8s.onnx

Masks of full size, decoded on the CPU: `models/segment_full.onnx --node segmenter --decode-on-cpu
--rate 150`.

Camera and node share a process and images pass by reference, so that DDS limits nothing; each run
is a process of its own. The images lie in a pool as those of `image_source` do, which the GPU
reads in place, or with --copied in memory that has to be copied first. The camera takes its share
of the process, so its rate should be little above the node's. Also runs with `--backend
onnxruntime`. Needs ROS 2.
"""

import argparse
from contextlib import closing
import json
from pathlib import Path
import subprocess
import sys
import threading
import time
from typing import Any

import numpy as np

from trt_ros.ros.dds.memory import Pool

NODES = {'detector': 'DetectorNode', 'segmenter': 'SegmenterNode', 'depth': 'DepthNode'}
SECONDS_TO_START, SECONDS_TO_WARM_UP = 600.0, 2.0


def graph_seconds(args: argparse.Namespace) -> float:
    """Return the median time of the graph of an image, measured with events; 0 on the CPU."""
    if args.backend == 'onnxruntime':
        return 0.0
    from trt_ros.engine.options import BuildOptions
    from trt_ros.runtime.gpu.measure import Work, graph_times, open_frames
    from trt_ros.vision.frame import Frame

    width, height = map(int, args.size.split('x'))
    frame = Frame.from_pixels(np.zeros((height, width, 3), np.uint8))
    build = BuildOptions(precision=args.precision)
    with closing(open_frames(args.model, build, backend=args.backend)) as pipeline:
        pipeline.warm_up(frame)
        return float(np.median(graph_times(pipeline, Work.of(pipeline, frame), 200)['gpu'])) / 1e3


def serialized_images(size: str, pool: Pool | None = None) -> list[np.ndarray]:
    """Return a few serialized images of noise, which no cache holds all of, in a pool's memory."""
    from rclpy.serialization import serialize_message
    from sensor_msgs.msg import Image

    width, height = map(int, size.split('x'))
    rng = np.random.default_rng(0)
    messages = []
    for _ in range(8):
        image = Image(width=width, height=height, step=3 * width, encoding='bgr8')
        image.data = rng.integers(0, 256, height * width * 3, dtype=np.uint8).tobytes()
        message = np.frombuffer(serialize_message(image), np.uint8)
        messages.append(np.empty_like(message) if pool is None else pool.take(message.size))
        messages[-1][:] = message
    return messages


def measure(args: argparse.Namespace) -> dict[str, Any]:
    """Run one node beside a camera; return frames per second and times in ms."""
    from importlib import import_module

    import rclpy
    from rclpy.executors import SingleThreadedExecutor
    from rclpy.parameter import Parameter
    from rclpy.qos import QoSProfile, ReliabilityPolicy
    from sensor_msgs.msg import Image

    from trt_ros.ros.dds.transport import serialized_publish

    seconds = graph_seconds(args)
    if args.decode_on_cpu:
        from trt_ros.runtime.gpu import shared_resources

        shared_resources.gpu_decoder = lambda *_: None
    rclpy.init()
    values = {
        'model_path': str(args.model),
        'backend': args.backend,
        'precision': args.precision,
        'frames_in_flight': args.frames_in_flight,
        'gpu_wait': args.gpu_wait,
        'qos_reliability': 'best_effort',
        'autostart': True,
    }
    cls = getattr(import_module(f'trt_ros.nodes.{args.node}'), NODES[args.node])
    node = cls(parameter_overrides=[Parameter(key, value=value) for key, value in values.items()])
    camera = rclpy.create_node('camera')
    node.use_intra_process_comms = camera.use_intra_process_comms = True
    qos = QoSProfile(depth=1, reliability=ReliabilityPolicy.BEST_EFFORT)
    publish = serialized_publish(camera, camera.create_publisher(Image, 'image', qos))
    executor = SingleThreadedExecutor()
    executor.add_node(node)
    executor.add_node(camera)
    spinning = threading.Thread(target=executor.spin)
    spinning.start()
    ending = threading.Event()

    def send() -> None:
        messages, number = serialized_images(args.size, None if args.copied else Pool()), 0
        period = 1 / args.rate if args.rate else 0.6 * seconds or 0.005
        due = time.monotonic()
        while not ending.wait(max(due - time.monotonic(), 0.0)):
            publish(messages[number % len(messages)])
            number += 1
            due = max(due + period, time.monotonic())

    sending = threading.Thread(target=send)
    try:
        end = time.monotonic() + SECONDS_TO_START
        while node.state_label != 'active':
            if time.monotonic() > end or node.failure:
                raise SystemExit(f'The node does not start: {node.failure}')
            time.sleep(0.05)
        sending.start()
        time.sleep(SECONDS_TO_WARM_UP)
        before, began, cpu = node._counts.snapshot(), time.monotonic(), time.process_time()
        time.sleep(args.seconds)
        after, took = node._counts.snapshot(), time.monotonic() - began
        cpu = time.process_time() - cpu
        times = node._counts.percentiles()
        lines = node.pipeline.log_lines
        in_place = node.pipeline.diagnostics().get('zero-copy frames', '')
    finally:
        ending.set()
        if sending.is_alive():
            sending.join()
        executor.shutdown()
        spinning.join()
        node.destroy_node()
        camera.destroy_node()
        rclpy.shutdown()
    published, received = after[1] - before[1], after[0] - before[0]
    dropped = {
        cause: count - before[2].get(cause, 0)
        for cause, count in after[2].items()
        if 'replaced' not in cause
    }
    assert not any(dropped.values()), dropped
    assert received > 1.02 * published, f'the camera is too slow: {received} for {published}'
    rate = published / took
    return {
        'frames in flight': args.frames_in_flight,
        'frames/s': rate,
        'graph (ms)': 1e3 * seconds,
        'frames/s × graph': rate * seconds,
        **{f'{stage} p50 (ms)': 1e3 * p50 for stage, (p50, _) in sorted(times.items())},
        'CPU per frame (ms)': 1e3 * cpu / published,
        'log': [*(line for line in lines if 'slot' in line), f'images read in place: {in_place}'],
    }


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__.strip().partition('\n')[0])
    parser.add_argument('model', type=Path)
    parser.add_argument('--node', choices=NODES, default='detector')
    parser.add_argument('--size', default='1920x1080')
    parser.add_argument('--backend', default='auto')
    parser.add_argument('--precision', default='auto')
    parser.add_argument('--gpu-wait', default='adaptive')
    parser.add_argument('--decode-on-cpu', action='store_true', help='without decoding kernels')
    parser.add_argument('--copied', action='store_true', help='images outside of a pool')
    parser.add_argument('--rate', type=float, default=0.0, help='of the camera, in Hz')
    parser.add_argument('--seconds', type=float, default=5.0, help='of each of the runs')
    parser.add_argument('--rounds', type=int, default=2)
    parser.add_argument('--frames-in-flight', type=int, help=argparse.SUPPRESS)
    args = parser.parse_args()
    if args.frames_in_flight:
        print(json.dumps(measure(args)))
        return 0
    rows: list[dict[str, Any]] = []
    for _ in range(args.rounds):
        for frames_in_flight in (1, 2):
            command = [sys.executable, __file__, *sys.argv[1:]]
            command += ['--frames-in-flight', str(frames_in_flight)]
            done = subprocess.run(command, stdout=subprocess.PIPE, text=True, check=True)
            rows.append(json.loads(done.stdout.splitlines()[-1]))
    print('\n'.join(rows[-1].pop('log')))
    keys = [key for key in rows[-1] if key != 'log']
    print('| ' + ' | '.join(keys) + ' |', '|' + ' --- |' * len(keys), sep='\n')
    for row in rows:
        print('| ' + ' | '.join(f'{row.get(key, 0):.3g}' for key in keys) + ' |')
    for one, two in zip(rows[::2], rows[1::2]):
        print(f'2 ÷ 1: {two["frames/s"] / one["frames/s"]:.2f}')
    return 0


if __name__ == '__main__':
    sys.exit(main())
