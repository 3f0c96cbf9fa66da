"""Installed and missing software and hardware, with the commands that install it."""

from argparse import ArgumentParser, Namespace
from collections.abc import Iterator
from dataclasses import asdict
from importlib.metadata import PackageNotFoundError, version
from importlib.util import find_spec
import json
import os
from pathlib import Path
import platform
import re
import sys

from trt_ros.cli._doctor_gpu import gpu_findings
from trt_ros.cli._doctor_jetson import jetson_findings
from trt_ros.cli._doctor_ros import ros_findings
from trt_ros.cli._doctor_tensorrt import tensorrt_findings
from trt_ros.cli._finding import Finding, file_text
from trt_ros.errors import printable

SIGNS = {'ok': '+', 'missing': '-', 'problem': '!'}


def add_arguments(parser: ArgumentParser) -> None:
    """Declare the arguments."""
    parser.add_argument('--json', action='store_true', help='print the findings as JSON')


def run(args: Namespace) -> int:
    """
    Print the findings.

    :returns: 1 when something is broken, or when this machine cannot run networks.
    """
    found = list(findings())
    if args.json:
        print(json.dumps([asdict(each) for each in found], indent=1))
    else:
        width = max(len(each.name) for each in found)
        for each in found:
            print(printable(f'{SIGNS[each.state]} {each.name:{width}}  {each.detail}'))
            if each.remedy:
                print(printable(f'  {"":{width}}  -> {each.remedy}', lines=True))
    return 1 if any(each.state == 'problem' for each in found) else 0


def findings(root: Path = Path('/')) -> Iterator[Finding]:
    """
    Run all checks; missing parts do not raise.

    :param root: root folder of the system.
    """
    yield from ros_findings(root)
    yield Finding('python', 'ok', f'{platform.python_version()} ({sys.executable})')
    yield Finding(
        'system',
        'ok',
        f'{platform.system()} {platform.release()}, '
        f'{platform.machine()}, {len(os.sched_getaffinity(0))} cores',
    )
    yield from jetson_findings(root)
    yield from _memory(root)
    yield from _packages()
    yield from gpu_findings(root)
    librarys = list(tensorrt_findings(root))
    yield from librarys
    yield from _cache()
    runs = any(each.state == 'ok' and 'runs engines' in each.detail for each in librarys)
    if not runs and not find_spec('onnxruntime'):
        yield Finding(
            'networks', 'problem', 'no backend can run networks', 'pip install onnxruntime'
        )


def _memory(root: Path) -> Iterator[Finding]:
    """Check whether memory and swap on disk suffice for engine builds; zram is memory."""
    from trt_ros.engine.builder.parent import BASE_NBYTES

    found = re.search(r'MemTotal:\s*(\d+)', file_text(root / 'proc/meminfo'))
    if found is None:
        return
    ram = int(found.group(1)) << 10
    swap = zram = 0
    for line in file_text(root / 'proc/swaps').splitlines()[1:]:
        device, _, kib, *_ = line.split()
        if '/zram' in device:
            zram += int(kib) << 10
        else:
            swap += int(kib) << 10
    detail = f'{ram / 2**30:.1f} GiB, swap on disk {swap / 2**30:.1f} GiB' + (
        f', zram {zram / 2**30:.1f} GiB' if zram else ''
    )
    if ram + swap >= BASE_NBYTES:
        yield Finding('memory', 'ok', detail)
        return
    yield Finding(
        'memory',
        'missing',
        f'{detail}: builds of large networks may be killed',
        'sudo fallocate -l 8G /swapfile && sudo chmod 600 /swapfile && sudo mkswap /swapfile && '
        'sudo swapon /swapfile',
    )


def _packages() -> Iterator[Finding]:
    for name, module, why in (
        ('numpy', 'numpy', 'everything'),
        ('onnx', 'onnx', 'building engines'),
        ('onnxruntime', 'onnxruntime', 'running on the CPU'),
        ('cuda-bindings', 'cuda', 'running on the GPU'),
        ('cuda-core', 'cuda', 'running on the GPU'),
        ('opencv-python-headless', 'cv2', 'picture files'),
    ):
        try:
            yield Finding(name, 'ok', version(name))
        except PackageNotFoundError:
            if name.startswith('cuda') or find_spec(module) is None:
                yield Finding(name, 'missing', f'needed for {why}', f'pip install {name}')
            else:
                yield Finding(name, 'ok', 'from the system')


def _cache() -> Iterator[Finding]:
    from trt_ros.engine.cache import EngineCache
    from trt_ros.engine.files import check_private
    from trt_ros.errors import ParameterError

    try:
        cache = EngineCache()
        folder = next(path for path in (cache.root, *cache.root.parents) if path.exists())
        check_private(folder, cache.root)
    except ParameterError as error:
        yield Finding('engine cache', 'problem', error.cause or error.problem, error.remedy)
        return
    if not os.access(folder, os.W_OK):
        yield Finding(
            'engine cache', 'problem', f'{folder} cannot be written', 'set engine_cache_dir'
        )
        return
    yield Finding('engine cache', 'ok', f'{cache.root}, {len(list(cache.entries()))} engines')
