"""
Decoding of JPEG images: OpenCV on the CPU and nvImageCodec on the GPU.

    python benchmarks/gpu_jpeg.py [--json]

`wall` is the time until the pixels are in memory, of the CPU or of the GPU; `CPU` the time of the
process's threads meanwhile, which wait for the GPU without spinning; `call` the time until the
GPU's work is enqueued, after which a node does other work. Noise decides the size of a JPEG.
"""

import argparse
from contextlib import closing
import json
import time
from typing import Any

import cv2
import numpy as np

from trt_ros.cuda.device import Event, Gpu, Stream, open_gpu
from trt_ros.cuda.jpeg import JpegDecoder
from trt_ros.cuda.memory import Account, DeviceBuffer

SIZES = ((640, 480), (1280, 720), (1920, 1080), (3840, 2160))
SECONDS = 1.0  # Of each measurement.
QUALITY, NOISE = 90, 8.0


def picture(width: int, height: int) -> np.ndarray:
    y, x = np.mgrid[:height, :width]
    waves = np.stack([np.sin(x / 37), np.cos(y / 23), np.sin((x + y) / 51)], -1)
    noise = NOISE * np.random.default_rng(1).standard_normal(waves.shape)
    return np.clip(128 + 100 * waves + noise, 0, 255).astype(np.uint8)


def percentiles(seconds: list[float]) -> dict[str, float]:
    return {f'p{p}': float(np.percentile(seconds, p)) * 1e3 for p in (50, 99)}


def measure_cpu(jpeg: np.ndarray) -> dict[str, Any]:
    walls: list[float] = []
    cv2.imdecode(jpeg, cv2.IMREAD_UNCHANGED)
    end, before = time.perf_counter() + SECONDS, time.process_time()
    while time.perf_counter() < end:
        begin = time.perf_counter()
        cv2.imdecode(jpeg, cv2.IMREAD_UNCHANGED)
        walls.append(time.perf_counter() - begin)
    cpu = (time.process_time() - before) / len(walls) * 1e3
    return {'wall': percentiles(walls), 'CPU': cpu}


def measure_gpu(gpu: Gpu, jpeg: np.ndarray, shape: tuple[int, int, int]) -> dict[str, Any]:
    walls: list[float] = []
    calls: list[float] = []
    with (
        gpu.context,
        closing(JpegDecoder(gpu.index)) as decoder,
        closing(Stream()) as stream,
        closing(Event(blocking_sync=True)) as done,
        closing(DeviceBuffer(int(np.prod(shape)), 'pixels', Account())) as target,
    ):
        reason = decoder.open(jpeg)
        if reason:
            raise SystemExit(reason)
        for _ in range(10):
            assert decoder.decode(jpeg, shape, target.ptr, stream.handle)
        stream.synchronize()
        end, before = time.perf_counter() + SECONDS, time.process_time()
        while time.perf_counter() < end:
            begin = time.perf_counter()
            decoder.decode(jpeg, shape, target.ptr, stream.handle)
            calls.append(time.perf_counter() - begin)
            done.record(stream.handle)
            done.wait()
            walls.append(time.perf_counter() - begin)
        cpu = (time.process_time() - before) / len(walls) * 1e3
    return {'wall': percentiles(walls), 'CPU': cpu, 'call': percentiles(calls)}


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.strip().partition('\n')[0])
    parser.add_argument('--json', action='store_true')
    args = parser.parse_args()
    gpu, results = open_gpu(0), []
    for width, height in SIZES:
        flags = [cv2.IMWRITE_JPEG_QUALITY, QUALITY]  # 4:2:0.
        jpeg = cv2.imencode('.jpg', picture(width, height), flags)[1]
        results.append(
            {
                'size': f'{width}x{height}',
                'kB': jpeg.size / 1e3,
                'cv2': measure_cpu(jpeg),
                'nvimgcodec': measure_gpu(gpu, jpeg, (height, width, 3)),
            }
        )
    if args.json:
        print(json.dumps(results))
        return
    print(f'{gpu}; milliseconds, p50 (p99); CPU: mean')
    print('| image | kB | cv2 wall | cv2 CPU | GPU wall | GPU CPU | GPU call |')
    print('|---|---|---|---|---|---|---|')
    for each in results:
        cpu, own = each['cv2'], each['nvimgcodec']
        cells = [
            f'{found["p50"]:.2f} ({found["p99"]:.2f})'
            for found in (cpu['wall'], own['wall'], own['call'])
        ]
        print(
            f'| {each["size"]} | {each["kB"]:.0f} | {cells[0]} | {cpu["CPU"]:.2f} '
            f'| {cells[1]} | {own["CPU"]:.2f} | {cells[2]} |'
        )


if __name__ == '__main__':
    main()
