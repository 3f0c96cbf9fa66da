"""
Throughput of two detectors on one and on two GPUs, in one container and in two processes.

    python benchmarks/gpu_models.py models
    python benchmarks/two_gpus.py models/yolov8s.onnx
    python benchmarks/two_gpus.py models/yolov8s.onnx --mps     # one GPU, with and without MPS

The camera of each detector is always ahead, and all containers are measured at the same time; the
ratio is to one detector alone. --mps starts the control daemon of NVIDIA's Multi-Process Service
with folders of its own, and ends it. Needs ROS 2; the containers are those of cameras.py.
"""

import argparse
from collections.abc import Iterator
from contextlib import contextmanager
import os
from pathlib import Path
import shutil
import subprocess
import sys
import tempfile
from typing import Any

from cameras import Container, run, table
import numpy as np

CONTROL = 'nvidia-cuda-mps-control'


def measure(
    args: argparse.Namespace, name: str, *containers: list[int], **environment: str
) -> dict[str, Any]:
    """
    Run one process per container, and return the sums of their figures.

    :param containers: devices of the detectors of each process.
    """
    rows = run(
        [
            Container(
                args.model,
                [1] * len(devices),
                devices,
                rate=0.0,
                size=args.size,
                seconds=args.seconds,
                backend=args.backend,
                parameters={'frames_in_flight': args.frames_in_flight},
            )
            for devices in containers
        ],
        **environment,
    )
    return {
        'containers and GPUs': name,
        'results/s': sum(row['results/s'] for row in rows),
        'latency p50 (ms)': max(row['latency p50 (ms)'] for row in rows),
        'p99 (ms)': max(row['p99 (ms)'] for row in rows),
        'CPU (cores)': sum(row['CPU (cores)'] for row in rows),
        'GPU (%)': float(np.mean([row['GPU (%)'] for row in rows])),
        'GPU memory (MB)': rows[0]['GPU memory (MB)'],
    }


@contextmanager
def mps() -> Iterator[dict[str, str]]:
    """
    Run MPS for the duration of the body.

    :returns: the environment of its clients.
    """
    with tempfile.TemporaryDirectory() as folder:
        pipe, log = Path(folder) / 'pipe', Path(folder) / 'log'
        pipe.mkdir()
        log.mkdir()
        clients = {'CUDA_MPS_PIPE_DIRECTORY': str(pipe), 'CUDA_MPS_LOG_DIRECTORY': str(log)}
        environment = {**os.environ, **clients}
        subprocess.run([CONTROL, '-d'], env=environment, check=True, timeout=20)
        try:
            yield clients
            servers = ask('get_server_list', environment)
            print(f'MPS servers: {servers or "none, the processes did not use MPS"}')
        finally:
            ask('quit', environment)
            for each in sorted(log.iterdir()):
                print(
                    f'{each.name}:',
                    *each.read_text(errors='replace').splitlines()[-5:],
                    sep='\n  ',
                )


def ask(command: str, environment: dict[str, str]) -> str:
    return subprocess.run(
        [CONTROL],
        input=f'{command}\n',
        env=environment,
        text=True,
        capture_output=True,
        timeout=20,
    ).stdout.strip()


def with_mps(args: argparse.Namespace) -> Iterator[dict[str, Any]]:
    """Yield the rows of two processes on one GPU."""
    yield measure(args, 'one process', [0])
    yield measure(args, 'two processes without MPS', [0], [0])
    if shutil.which(CONTROL) is None:
        print(f'{CONTROL} is not on this machine: no row with MPS')
        return
    try:
        with mps() as environment:
            yield measure(args, 'two processes with MPS', [0], [0], **environment)
    except (SystemExit, OSError, subprocess.SubprocessError) as error:
        print(f'MPS does not work on this machine: {error}')


def on_gpus(args: argparse.Namespace) -> Iterator[dict[str, Any]]:
    """Yield the rows of two detectors on one and on two GPUs."""
    from trt_ros.driver import nvidia_driver

    yield measure(args, 'one detector', [0])
    has_two = len(nvidia_driver().gpus) > 1
    if not has_two:
        print('This machine has no second GPU: no rows with two GPUs')
    for name, containers in (
        ('one container, one GPU', [[0, 0]]),
        ('one container, two GPUs', [[0, 1]]),
        ('two processes, one GPU', [[0], [0]]),
        ('two processes, two GPUs', [[0], [1]]),
    ):
        if has_two or 'two GPUs' not in name:
            yield measure(args, name, *containers)


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__.strip().partition('\n')[0])
    parser.add_argument('model')
    parser.add_argument('--mps', action='store_true', help='one GPU, with and without MPS')
    parser.add_argument('--backend', default='auto')
    parser.add_argument('--size', default='1280x720')
    parser.add_argument('--seconds', type=float, default=3.0, help='of each row')
    parser.add_argument('--frames-in-flight', type=int, default=2)
    args = parser.parse_args()
    rows = list(with_mps(args) if args.mps else on_gpus(args))
    for row in rows:
        row['ratio'] = row['results/s'] / rows[0]['results/s']
    print(table(rows))
    return 0


if __name__ == '__main__':
    sys.exit(main())
