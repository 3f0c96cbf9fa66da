"""
Broken models through `inspect`, a node's configure and the engine build; counts how each ends.

usage: python test/fuzz/run.py [--paths inspect,node,build] [--jobs N] [--only REGEX]

Each must end as an error with cause or remedy, or succeed, within the limits. A supervised process
per job does the work, so that a crash, a hang or excessive memory is seen and counted.
"""

import argparse
from collections import Counter
from concurrent.futures import ThreadPoolExecutor
import contextlib
import io
import json
from pathlib import Path
import queue
import re
import select
import subprocess
import sys
import tempfile
import time
import traceback

HANG_SECONDS = 400.0  # More than any of them may take, on a busy machine.
MAX_NBYTES = 3 << 30  # Of the supervised process, which is the node's in reality.
GOOD = ('succeeded', 'refused')


def attempt(path: str, file: str) -> tuple[str, str]:
    """Put one file through one path; return how it ended, and the words."""
    from trt_ros import cli
    from trt_ros.engine.builder.parent import build
    from trt_ros.engine.options import BuildOptions
    from trt_ros.errors import TrtRosError
    from trt_ros.runtime.options import LabeledOptions
    from trt_ros.runtime.pipeline import Pipeline

    output = io.StringIO()
    try:
        if path == 'inspect':
            with contextlib.redirect_stdout(output), contextlib.redirect_stderr(output):
                code = cli.main(['inspect', file])
            text = output.getvalue()
            if code and 'Cause:' not in text and 'Remedy:' not in text and 'Fix:' not in text:
                return 'wordless', text
            if 'with exit code' in text:
                return 'traceback', text
            return ('refused' if code else 'succeeded'), text
        if path == 'node':
            Pipeline.open(LabeledOptions(model_path=file, backend='onnxruntime')).close()
        else:
            from trt_ros.trt import load_trt

            build(
                Path(file), BuildOptions(), load_trt('tensorrt_rtx'), timeout_seconds=60.0
            ).plan.close()
    except TrtRosError as error:
        text = str(error)
        if 'Traceback' in text or 'with exit code' in text:  # Of the child process.
            return 'traceback', text
        return ('refused' if error.cause or error.remedy else 'wordless'), text
    except Exception:
        return 'traceback', traceback.format_exc()
    return 'succeeded', ''


def work() -> None:
    """Serve requests on stdin."""
    for line in sys.stdin:
        print(json.dumps(attempt(*json.loads(line))), flush=True)


class Supervised:
    """The process of one job; replaced when it crashes, hangs or grows."""

    def __init__(self) -> None:
        self.process: subprocess.Popen | None = None

    def __call__(self, path: str, file: str) -> tuple[str, str, float]:
        began = time.monotonic()
        if self.process is None:
            self.process = subprocess.Popen(
                [sys.executable, __file__, '--work'],
                stdin=subprocess.PIPE,
                stdout=subprocess.PIPE,
                text=True,
            )
        process = self.process
        process.stdin.write(json.dumps([path, file]) + '\n')
        process.stdin.flush()
        outcome, text = self.wait(process, began)
        if outcome in ('crashed', 'hung', 'memory'):
            process.kill()
            process.communicate()
            self.process = None
        return outcome, text, time.monotonic() - began

    def wait(self, process: subprocess.Popen, began: float) -> tuple[str, str]:
        while True:
            if select.select([process.stdout], [], [], 0.05)[0]:
                line = process.stdout.readline()
                if not line:
                    return 'crashed', f'exit code {process.wait()}'
                return tuple(json.loads(line))
            if time.monotonic() - began > HANG_SECONDS:
                return 'hung', ''
            with contextlib.suppress(OSError, IndexError):
                status = Path(f'/proc/{process.pid}/status').read_text()
                if int(re.findall(r'RssAnon:\s+(\d+)', status)[0]) << 10 > MAX_NBYTES:
                    return 'memory', ''

    def close(self) -> None:
        if self.process is not None:
            self.process.communicate()


def run(files: list[Path], paths: list[str], jobs: int, show=print) -> Counter:
    """Put every file through every path; return how many ended how."""
    counts: Counter = Counter()
    free: queue.Queue[Supervised] = queue.Queue()
    workers = [Supervised() for _ in range(jobs)]
    for worker in workers:
        free.put(worker)

    def one(job: tuple[str, Path]) -> None:
        path, file = job
        worker = free.get()
        try:
            outcome, text, seconds = worker(path, str(file))
        finally:
            free.put(worker)
        counts[path, outcome] += 1
        show(f'{outcome:9} {seconds:6.1f} s {path:7} {file.stem}: {text[-1000:]!r}')

    with ThreadPoolExecutor(jobs) as pool:
        list(pool.map(one, [(path, file) for file in files for path in paths]))
    for worker in workers:
        worker.close()
    return counts


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__.split('\n')[1])
    parser.add_argument('--work', action='store_true', help=argparse.SUPPRESS)
    parser.add_argument('--paths', default='inspect,node,build')
    parser.add_argument('--jobs', type=int, default=2)
    parser.add_argument('--only', default='', metavar='REGEX')
    args = parser.parse_args()
    if args.work:
        work()
        return 0
    sys.path.append(str(Path(__file__).parents[1]))
    from fuzz import models

    with tempfile.TemporaryDirectory(prefix='trt_ros_fuzz') as folder:
        files = models.write(Path(folder), lambda name: bool(re.search(args.only, name)))
        counts = run(files, args.paths.split(','), args.jobs)
    for (path, outcome), count in sorted(counts.items()):
        print(f'{path:8} {outcome:10} {count}')
    return int(any(outcome not in GOOD for _, outcome in counts))


if __name__ == '__main__':
    sys.exit(main())
