"""Time of the 3D boxes and points of 20 objects at 1280x720: python benchmarks/boxes_3d.py."""

import os
from pathlib import Path
import sys
import time

import numpy as np

sys.path.insert(0, str(Path(__file__).parents[1] / 'test'))
from support.rgbd_scenes import HD, Solid, render, yaw
from trt_ros.vision.boxes_3d import DepthScene

RUNS = 300


def main() -> None:
    """Print p50 and p90 of the CPU time in milliseconds."""
    rng = np.random.default_rng(1)
    places = [(x, y) for x in (-1.6, -0.8, 0, 0.8, 1.6) for y in (-0.9, -0.3, 0.3, 0.9)]
    solids = [
        Solid((x, y, 3 + rng.random()), (0.4, 0.4, 0.2), yaw(30 * number))
        for number, (x, y) in enumerate(places)
    ]
    scene = render(solids, HD, wall=6)
    boxes = np.array([scene.box(number, 0.3) for number in range(len(solids))])
    indices = np.arange(len(boxes))
    for encoding in ('16UC1', '32FC1'):
        depth = scene.depth(encoding, noise=0.01)
        for name, instances in (('boxes', None), ('masks', scene.owners)):
            depths = DepthScene(depth, HD, instances=instances)
            found = depths.measure(boxes, indices)
            jobs = {
                'measure': lambda depths=depths: depths.measure(boxes, indices),
                'points': lambda depths=depths, found=found: [
                    depths.points(box, index, found.ranges[index])
                    for index, box in enumerate(boxes)
                ],
            }
            for job, work in jobs.items():
                times = []
                for _ in range(RUNS):
                    began = time.thread_time()
                    work()
                    times.append(1e3 * (time.thread_time() - began))
                p50, p90 = np.percentile(times, [50, 90])
                print(f'{job}, {encoding}, {name}: p50 {p50:.2f} ms, p90 {p90:.2f} ms')
    print(f'load {os.getloadavg()[0]:.1f}, NumPy {np.__version__}')


if __name__ == '__main__':
    main()
