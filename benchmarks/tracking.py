"""
Time of a tracker per image, by the number of objects: python benchmarks/tracking.py.

With --vectors 128, each detection has an appearance vector of 128 values.
"""

import argparse
import time

import numpy as np

from trt_ros.results.boxes import Detections
from trt_ros.tracking.bytetrack import ByteTracker
from trt_ros.tracking.tracker import OcSortTracker

IMAGES, RATE_HZ = 600, 30.0


def scene(count: int, size_wh: tuple[int, int], values: int, rng: np.random.Generator):
    """Yield detections of boxes in motion, one in twenty weak, their times and vectors."""
    begin, velocity = rng.uniform(0, size_wh, (count, 2)), rng.normal(0, 60, (count, 2))
    sizes = rng.uniform(40, 120, (count, 2))
    looks = np.random.default_rng(1).normal(0, 1, (count, values)).astype(np.float32)
    for number in range(IMAGES):
        center = begin + velocity * number / RATE_HZ + rng.normal(0, 1, (count, 2))
        scores = rng.uniform(0.3, 0.95, count)
        scores[rng.random(count) < 0.05] = 0.15
        order = np.argsort(-scores)
        xyxy = np.hstack([center - sizes / 2, center + sizes / 2]).astype(np.float32)[order]
        found = Detections(xyxy, scores[order].astype(np.float32), np.zeros(count, np.int32))
        yield found, round(1e9 * number / RATE_HZ), looks[order] if values else None


def main() -> None:
    """Print p50 and p99 of the CPU time in milliseconds."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument('--vectors', type=int, default=0, help='values of appearance vectors')
    values = parser.parse_args().vectors
    for count in (10, 100, 300):
        for name, size_wh in (('spread', (1920, 1080)), ('crowded', (900, 500))):
            steps = list(scene(count, size_wh, values, np.random.default_rng(0)))
            for cls in (ByteTracker, OcSortTracker):
                tracker, times = cls(), []
                for found, stamp_ns, vectors in steps:
                    began = time.thread_time()
                    tracks = tracker.update(found, stamp_ns, vectors=vectors)
                    times.append(1e3 * (time.thread_time() - began))
                p50, p99 = np.percentile(times, [50, 99])
                print(
                    f'{cls.__name__}, {count} objects, {name}: p50 {p50:.3f} ms, p99 {p99:.3f} ms '
                    f'({tracks.ids.max()} identities)'
                )


if __name__ == '__main__':
    main()
