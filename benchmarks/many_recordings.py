"""
Time per recording and memory of `trt-ros label` over thousands of short recordings.

    python benchmarks/many_recordings.py MODEL [--count 10000] [--frames 2] --ray --workers 2

Other options are given to `trt-ros label`. The recordings are links to one file. The memory is
that of the process of the command alone, when a tenth and when all of the recordings are done. The
time counts from the first tenth on, so without the start of the workers.
"""

from __future__ import annotations

import argparse
from pathlib import Path
import subprocess
import sys
from tempfile import TemporaryDirectory
import time

from labelling import write_recording


def resident_mb(process: int) -> float:
    """Return the resident memory of a process."""
    lines = Path(f'/proc/{process}/status').read_text().splitlines()
    return next(int(line.split()[1]) / 1024 for line in lines if line.startswith('VmRSS'))


def main() -> None:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument('model')
    parser.add_argument('--count', type=int, default=10_000)
    parser.add_argument('--frames', type=int, default=2)
    args, more = parser.parse_known_args()
    with TemporaryDirectory() as name:
        folder = Path(name)
        (file,) = write_recording(folder / 'one', args.frames, (320, 240)).glob('*.mcap')
        for number in range(args.count):
            day = folder / f'drives/day_{number % 10}'
            day.mkdir(parents=True, exist_ok=True)
            (day / f'drive_{number:05}.mcap').hardlink_to(file)
        report = folder / 'report.jsonl'
        command = [sys.executable, '-m', 'trt_ros', 'label', str(folder / 'drives'), '--recursive']
        command += ['--output', str(folder / 'labeled'), '--model', args.model]
        command += ['--report', str(report), *more]
        done, marks = 0, []
        with (folder / 'log').open('w+') as log, subprocess.Popen(command, stderr=log) as process:
            while process.poll() is None and done < args.count:
                time.sleep(0.2)
                done = report.read_bytes().count(b'"done"') if report.exists() else 0
                if done >= args.count // 10 and (not marks or done == args.count):
                    marks.append((done, time.monotonic(), resident_mb(process.pid)))
        lines = (folder / 'log').read_text().splitlines()
        if len(marks) < 2:
            raise SystemExit('\n'.join(lines[-20:]))
        (first, began, before), (_, ended, after) = marks[0], marks[-1]
        print(f'{1e3 * (ended - began) / (args.count - first):.1f} ms per recording')
        print(f'memory of the command: {before:.0f} MB after {first}, {after:.0f} MB after {done}')
        print(next(line for line in reversed(lines) if 'labelling' in line))


if __name__ == '__main__':
    main()
