"""Installed and missing software and hardware, with the commands that install it."""

from __future__ import annotations

from argparse import ArgumentParser, Namespace
from collections.abc import Iterator
from dataclasses import asdict
from importlib.util import find_spec
import json
import os
from pathlib import Path
import platform
import re
import sys
from typing import TYPE_CHECKING

from trt_ros.cli._doctor_gpu import Finding, dla_cores, gpu_findings, jetson_findings
from trt_ros.errors import BackendError, ParameterError, counted, printable
from trt_ros.process_memory import FAST_DDS_VARIABLES, fast_dds_variables
from trt_ros.regular_file import system_text

if TYPE_CHECKING:
    from trt_ros.trt import Library

SIGNS = {'ok': '+', 'missing': '-', 'problem': '!'}


def add_arguments(parser: ArgumentParser) -> None:
    parser.add_argument('--json', action='store_true', help='print the findings as JSON')


def run(args: Namespace) -> int:
    """Print the findings; return 1 when something is broken, or no network can run."""
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
    """Run all checks on the system of a root folder; missing parts do not raise."""
    yield from ros_findings(root)
    yield Finding('python', 'ok', f'{platform.python_version()} ({sys.executable})')
    system, cores = f'{platform.system()} {platform.release()}', len(os.sched_getaffinity(0))
    yield Finding('system', 'ok', f'{system}, {platform.machine()}, {cores} cores')
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

    found = re.search(r'MemTotal:\s*(\d+)', system_text(root / 'proc/meminfo'))
    if found is None:
        return
    ram = int(found.group(1)) << 10
    swap = zram = 0
    for line in system_text(root / 'proc/swaps').splitlines()[1:]:
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
    from importlib.metadata import PackageNotFoundError, version

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
    yield Finding(
        'engine cache', 'ok', f'{cache.root}, {counted(len(list(cache.entries())), "engine")}'
    )


#: Releases that lack what the nodes need.
OLDER = ('foxy', 'galactic', 'iron')


def ros_findings(root: Path) -> Iterator[Finding]:
    """Check ROS 2, its Python, and its memory for images; `root`: root folder of the system."""
    spec = find_spec('rclpy')
    rclpy = (spec and spec.origin) or ''
    yield _ros(root, rclpy)
    if rclpy:
        yield from _fast_dds()


def _ros(root: Path, rclpy: str) -> Finding:
    distro = os.environ.get('ROS_DISTRO', '')
    if not rclpy:
        return _without_rclpy(root, distro)
    here = f'python{sys.version_info.major}.{sys.version_info.minor}'
    built_for = re.findall(r'/(python3\.\d+)/', rclpy)
    if built_for and built_for[-1] != here:
        return Finding(
            'ros',
            'problem',
            f'rclpy of {distro or rclpy} is built for {built_for[-1]}, this is {here}',
            f'use /usr/bin/{built_for[-1]}, or a virtual environment of it with '
            '--system-site-packages',
        )
    if distro in OLDER:
        return Finding(
            'ros', 'problem', f'{distro} is not supported', 'use Humble, Jazzy, Kilted or Lyrical'
        )
    middleware = os.environ.get('RMW_IMPLEMENTATION', 'the default')
    return Finding('ros', 'ok', f'{distro or "rclpy found"}, middleware: {middleware}')


def _without_rclpy(root: Path, distro: str) -> Finding:
    if distro:
        return Finding(
            'ros',
            'problem',
            f'ROS_DISTRO is {distro}, but this Python has no rclpy',
            f'source /opt/ros/{distro}/setup.bash, and use its python3',
        )
    releases = sorted(path.parent.name for path in (root / 'opt/ros').glob('*/setup.bash'))
    return Finding(
        'ros',
        'missing',
        'no rclpy: the nodes cannot run, the command line can'
        + (f'; installed, but not sourced: {", ".join(releases)}' if releases else ''),
        f'source /opt/ros/{releases[-1] if releases else "DISTRO"}/setup.bash',
    )


def _fast_dds() -> Iterator[Finding]:
    """Check whether images sent from here fit into Fast DDS's memory; see docs/qos.md."""
    middleware = os.environ.get('RMW_IMPLEMENTATION', 'rmw_fastrtps_cpp')
    if not middleware.startswith('rmw_fastrtps'):
        return
    given = [name for name in FAST_DDS_VARIABLES if name in os.environ]
    profile = '$(ros2 pkg prefix --share trt_ros)/config/fastdds.xml'
    needed = fast_dds_variables(os.environ, profile)
    if not needed:
        yield Finding('fast dds', 'ok', f'{given[0]} is {os.environ[given[0]]}')
        return
    detail = 'most images over 512 KiB that are sent from here are lost'
    if given:
        detail += f'; {given[0]} has no effect when limited to localhost'
    name, value = next(iter(needed.items()))
    yield Finding('fast dds', 'missing', detail, f'export {name}="{value}"')


def tensorrt_findings(root: Path) -> Iterator[Finding]:
    """Check both TensorRT libraries; `root`: root folder of the system."""
    from trt_ros.driver import nvidia_driver
    from trt_ros.engine.precision import table_row
    from trt_ros.trt import load_trt

    for name in ('tensorrt', 'tensorrt_rtx'):
        found = _library(name, root)
        yield found
        if found.state == 'ok':
            library, gpus = load_trt(name), nvidia_driver().gpus
            for gpu in gpus:
                row = table_row(library, gpu.compute_capability)
                yield Finding(f'{name} on gpu {gpu.index}', 'ok', row)
            if not gpus:
                row = f'by compute capability: {table_row(library, None)}'
                yield Finding(f'{name} on gpus', 'ok', row)


def _library(name: str, root: Path) -> Finding:
    from trt_ros.driver import nvidia_driver
    from trt_ros.engine.key import cuda_package
    from trt_ros.engine.precision import refused_gpu
    from trt_ros.trt import INSTALL, installed, load_trt

    if not installed(name):
        return (name == 'tensorrt' and _from_apt(root)) or Finding(
            name, 'missing', 'not installed', INSTALL[name]
        )
    try:
        library = load_trt(name)
    except BackendError as error:
        return Finding(name, 'problem', f'{error.problem} {error.cause}', error.remedy)
    wheel, newest = cuda_package(library), nvidia_driver().cuda_version
    gpus = nvidia_driver().gpus
    if gpus and wheel and newest[0] < int(wheel[2:]):
        return Finding(
            name,
            'problem',
            f'{library.version_text} needs CUDA {wheel[2:]}, the driver '
            f'supports up to {newest[0]}.{newest[1]}',
            'install a newer NVIDIA driver',
        )
    for gpu in gpus:
        refusal = refused_gpu(library, gpu.compute_capability)
        if refusal:
            return Finding(
                name,
                'problem',
                f'{library.version_text} does not support GPU {gpu.index}: {refusal}',
                'use backend onnxruntime, or another release: docs/installing.md',
            )
    can = []
    if library.builds_without_gpu or gpus:
        can.append('builds engines')
    can.append('runs engines' if gpus else 'cannot run them without a GPU')
    return Finding(
        name,
        'ok',
        f'{library.version_text} {_origin(library)}: {", ".join(can)}{_dla(library, root)}',
    )


def _origin(library: Library) -> str:
    origin = Path(str(library.trt.__file__))
    return (
        'from apt' if 'dist-packages' in origin.parts and '/usr/lib' in str(origin) else 'from pip'
    )


def _from_apt(root: Path) -> Finding | None:
    """Find an installation of the system that this Python does not see."""
    bindings = sorted(root.glob('usr/lib/python3*/dist-packages/tensorrt/__init__.py'))
    if bindings:
        version = bindings[-1].parents[2].name
        seen_by = '/usr/bin/python3' if version == 'python3' else f'/usr/bin/{version}'
        return Finding(
            'tensorrt',
            'missing',
            f'installed from apt for {seen_by}, but {sys.executable} does not see it',
            f'use {seen_by}, or a virtual environment of it with --system-site-packages',
        )
    if any(root.glob('usr/lib/*-linux-gnu/libnvinfer.so.*')):
        return Finding(
            'tensorrt',
            'missing',
            'its libraries are installed from apt, its Python bindings are not',
            'sudo apt install python3-libnvinfer',
        )
    return None


def _dla(library: Library, root: Path) -> str:
    """Return what a release can do with the DLA cores of the board (TensorRT 11.4.1's tables)."""
    if not dla_cores(root):
        return ''
    if library.is_rtx or (10, 8) <= library.version < (11, 4, 1):
        return '; does not support DLA (10.3 to 10.7 do, and 11.4.1 with JetPack 7.2.2)'
    return '; supports DLA'
