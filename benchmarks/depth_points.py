"""Time of the coloured points of a metric depth image: python benchmarks/depth_points.py."""

from __future__ import annotations

import os
import time

import numpy as np

from trt_ros.vision.depth_points import Intrinsics, organised_points, organised_wh

RUNS = 100


def main() -> None:
    """Print p50 and p90 of the CPU time in milliseconds."""
    rng = np.random.default_rng(0)
    for width, height in ((640, 480), (1280, 720)):
        camera = Intrinsics(0.7 * width, 0.7 * width, width / 2, height / 2, (width, height))
        metres = rng.uniform(0.5, 9, (height, width)).astype(np.float32)
        bgr = rng.integers(0, 256, (height, width, 3), np.uint8)
        for stride in (1, 2, 4):
            cloud_wh = organised_wh(camera.image_wh, stride)
            out = np.empty((*cloud_wh[::-1], 4), np.float32)
            times = []
            for _ in range(RUNS):
                began = time.thread_time()
                organised_points(out, metres, bgr, camera, stride=stride, max_range=8.0)
                times.append(1e3 * (time.thread_time() - began))
            p50, p90 = np.percentile(times, [50, 90])
            print(f'{width}x{height}, stride {stride}: p50 {p50:.1f} ms, p90 {p90:.1f} ms')
    print(f'load {os.getloadavg()[0]:.1f}, NumPy {np.__version__}')


if __name__ == '__main__':
    main()
