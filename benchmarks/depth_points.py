"""Time of the colored points of a metric depth image: python benchmarks/depth_points.py."""

from collections.abc import Callable
from contextlib import closing
from functools import partial
import time

import numpy as np
from report import machine

from trt_ros.ros.dds.memory import whole_pages
from trt_ros.vision.depth_points import Intrinsics, OrganizedPoints, organized_wh

RUNS = 100


def main() -> None:
    """Print times in milliseconds; those of the CPU, of both threads, also in copies of `out`."""
    rng = np.random.default_rng(0)
    for width, height in ((640, 480), (1280, 720)):
        camera = Intrinsics(0.7 * width, 0.7 * width, width / 2, height / 2, (width, height))
        meters = rng.uniform(0.5, 9, (height, width)).astype(np.float32)
        bgr = rng.integers(0, 256, (height, width, 3), np.uint8)
        for stride in (1, 2, 4):
            cloud_wh = organized_wh(camera.image_wh, stride)
            out = np.ones((*cloud_wh[::-1], 4), np.float32)
            print(f'{width}x{height}, stride {stride}, {out.nbytes / 1e6:.1f} MB:')
            with closing(OrganizedPoints()) as organized:
                compute = partial(organized.compute, out, meters, bgr, camera, stride=stride)
                report(out, {'points': compute, 'max_range': partial(compute, max_range=8.0)})
    print(machine())


def new_pages_like(source: np.ndarray) -> None:
    """Copy to memory that the kernel has to clear first."""
    whole_pages(source.nbytes)[: source.nbytes] = source.reshape(-1).view(np.uint8)


def report(out: np.ndarray, jobs: dict[str, Callable[[], None]]) -> None:
    """Run jobs and copies in turns, so that other load on the machine slows all of them."""
    source = np.ones_like(out)
    jobs = {
        'copy': lambda: np.copyto(out, source),
        'copy to new pages': lambda: new_pages_like(source),
        **jobs,
    }
    walls: dict[str, list[float]] = {name: [] for name in jobs}
    cpus: dict[str, list[float]] = {name: [] for name in jobs}
    for _ in range(RUNS):
        for name, job in jobs.items():
            wall, cpu = time.perf_counter(), time.process_time()
            job()
            walls[name].append(1e3 * (time.perf_counter() - wall))
            cpus[name].append(1e3 * (time.process_time() - cpu))
    copied = np.median(cpus['copy'])
    for name in jobs:
        wall, cpu = np.median(walls[name]), np.median(cpus[name])
        print(
            f'  {name:17} wall p50 {wall:5.2f}, min {min(walls[name]):5.2f}; '
            f'CPU p50 {cpu:5.2f}, {cpu / copied:.1f} x copy'
        )


if __name__ == '__main__':
    main()
