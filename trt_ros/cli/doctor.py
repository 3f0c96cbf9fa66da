"""Installed and missing software and hardware, with the commands that install it."""

from __future__ import annotations

from argparse import ArgumentParser, Namespace
from collections.abc import Iterator
from dataclasses import asdict, dataclass
from importlib.metadata import PackageNotFoundError, version
from importlib.util import find_spec
import json
import os
from pathlib import Path
import platform
import shutil
import subprocess
import sys

SIGNS = {'ok': '+', 'missing': '-', 'problem': '!'}
# Fields of nvidia-smi for the clock limits; older drivers have the second name.
_REASONS = ('clocks_event_reasons.active', 'clocks_throttle_reasons.active')
_FIELDS = (
    'clocks.sm',
    'clocks.max.sm',
    'pcie.link.gen.current',
    'pcie.link.gen.max',
    'pcie.link.width.current',
    'pcie.link.width.max',
    'temperature.gpu',
)
# Bits of the reasons that mean throttling (idle and user settings do not).
_THROTTLED = {
    0x04: 'power cap',
    0x08: 'hardware slowdown',
    0x20: 'thermal, software',
    0x40: 'thermal, hardware',
    0x80: 'power brake',
}


@dataclass(frozen=True)
class Finding:
    """
    A result of one check.

    :param state: 'ok'; 'missing', optional and absent; 'problem', present but broken.
    """

    name: str
    state: str
    detail: str
    remedy: str = ''


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
            print(f'{SIGNS[each.state]} {each.name:{width}}  {each.detail}')
            if each.remedy:
                print(f'  {"":{width}}  -> {each.remedy}')
    return 1 if any(each.state == 'problem' for each in found) else 0


def findings() -> Iterator[Finding]:
    """Run all checks; missing parts do not raise."""
    yield _ros()
    yield from _fast_dds()
    yield Finding('python', 'ok', f'{platform.python_version()} ({sys.executable})')
    yield Finding(
        'system',
        'ok',
        f'{platform.system()} {platform.release()}, '
        f'{platform.machine()}, {len(os.sched_getaffinity(0))} cores',
    )
    yield from _packages()
    yield from _gpus()
    flavours = [_flavour(name) for name in ('tensorrt', 'tensorrt_rtx')]
    yield from flavours
    yield from _cache()
    runs = any(each.state == 'ok' and 'runs engines' in each.detail for each in flavours)
    if not runs and not find_spec('onnxruntime'):
        yield Finding(
            'networks', 'problem', 'no backend can run networks', 'pip install onnxruntime'
        )


def _ros() -> Finding:
    distro = os.environ.get('ROS_DISTRO', '')
    if find_spec('rclpy') is None:
        if distro:
            return Finding(
                'ros',
                'problem',
                f'ROS_DISTRO is {distro}, but this Python has no rclpy',
                f'source /opt/ros/{distro}/setup.bash, and use its python3',
            )
        return Finding(
            'ros',
            'missing',
            'no rclpy: the nodes cannot run, the command line can',
            'source /opt/ros/DISTRO/setup.bash',
        )
    middleware = os.environ.get('RMW_IMPLEMENTATION', 'the default')
    return Finding('ros', 'ok', f'{distro or "rclpy found"}, middleware: {middleware}')


def _fast_dds() -> Iterator[Finding]:
    """Check whether images sent from here fit into Fast DDS's memory; see docs/ros.md."""
    environment = os.environ
    if find_spec('rclpy') is None or not environment.get(
        'RMW_IMPLEMENTATION', 'rmw_fastrtps_cpp'
    ).startswith('rmw_fastrtps'):
        return
    files = 'FASTRTPS_DEFAULT_PROFILES_FILE', 'FASTDDS_DEFAULT_PROFILES_FILE'
    variable = next(
        (each for each in (*files, 'FASTDDS_BUILTIN_TRANSPORTS') if each in environment), ''
    )
    is_local = (
        environment.get('ROS_AUTOMATIC_DISCOVERY_RANGE') == 'LOCALHOST'
        or environment.get('ROS_LOCALHOST_ONLY') == '1'
    )
    if variable in files or (variable and not is_local):
        yield Finding('fast dds', 'ok', f'{variable} is {environment[variable]}')
        return
    detail = 'most images over 512 KiB that are sent from here are lost'
    if variable:
        detail += f'; {variable} has no effect when limited to localhost'
    yield Finding(
        'fast dds',
        'missing',
        detail,
        f'export {files[0]}=$(ros2 pkg prefix --share trt_ros)/config/fastdds.xml'
        if is_local
        else "export FASTDDS_BUILTIN_TRANSPORTS='DEFAULT?sockets_size=32MB'",
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


def _gpus() -> Iterator[Finding]:
    from trt_ros.driver import nvidia_driver

    found = nvidia_driver()
    if found.problem:
        yield Finding(
            'gpu',
            'missing',
            found.problem,
            'sudo ubuntu-drivers install, then reboot (in a container: --gpus all)'
            if not found.version
            else 'see `nvidia-smi`; a reboot may be due',
        )
        return
    yield Finding(
        'driver',
        'ok',
        f'{found.version or "?"}, up to CUDA {found.cuda_version[0]}.{found.cuda_version[1]}',
    )
    for gpu in found.gpus:
        yield Finding(
            f'gpu {gpu.index}',
            'ok',
            (
                f'{gpu.name}, compute capability {gpu.compute_capability[0]}.'
                f'{gpu.compute_capability[1]}, {gpu.memory_nbytes / 2**30:.0f} GiB'
                + (', shares memory with the CPU' if gpu.integrated else '')
                + _numa(gpu.pci_bus_id)
            ),
        )
        yield from _state(gpu.index, gpu.pci_bus_id)
    if platform.machine() == 'x86_64':
        yield _memory_copies()


def _memory_copies() -> Finding:
    """Check whether copies of images on their way to a GPU bypass the CPU's caches."""
    name, variable = 'memory copies', 'GLIBC_TUNABLES'
    tunable, given = 'glibc.cpu.x86_non_temporal_threshold', os.environ.get('GLIBC_TUNABLES', '')
    if tunable in given:
        return Finding(name, 'ok', f'{variable} is {given}')
    value = ':'.join(filter(None, (given, f'{tunable}=262144')))
    return Finding(
        name,
        'missing',
        'large images that are copied for a GPU pass through the CPU caches, which is slower',
        f'export {variable}={value}',
    )


def _numa(bus: str) -> str:
    try:
        node = Path('/sys/bus/pci/devices', bus.lower(), 'numa_node').read_text().strip()
    except OSError:
        return ''
    return f', NUMA node {node}' if node != '-1' else ''


def _state(index: int, bus: str) -> Iterator[Finding]:
    """Check clocks, throttling and the PCIe link with nvidia-smi."""
    name = f'gpu {index} now'
    tool = shutil.which('nvidia-smi')
    if tool is None:
        yield Finding(name, 'missing', 'nvidia-smi does not exist: clocks and link are unknown')
        return
    for reasons in _REASONS:
        done = subprocess.run(
            [
                tool,
                f'--id={bus}',
                f'--query-gpu={",".join((*_FIELDS, reasons))}',
                '--format=csv,noheader,nounits',
            ],
            capture_output=True,
            text=True,
        )
        if done.returncode == 0:
            yield read_state(name, done.stdout.strip().split(', '))
            return
    yield Finding(name, 'missing', f'nvidia-smi failed: {done.stdout.strip()[:200]}')


def read_state(name: str, values: list[str]) -> Finding:
    """Evaluate one line of nvidia-smi: `_FIELDS`, then the throttle reasons."""
    clock, clock_max, gen, gen_max, width, width_max, temperature, reasons = values
    detail = (
        f'{clock} of {clock_max} MHz, {temperature} C, PCIe {gen} x{width} '
        f'(maximum {gen_max} x{width_max})'
    )
    bits = int(reasons, 16) if reasons.startswith('0x') else 0
    slow = [word for bit, word in _THROTTLED.items() if bits & bit]
    if slow:
        return Finding(
            name,
            'problem',
            f'{detail}; throttled: {", ".join(slow)}',
            'check cooling and power: nvidia-smi -q -d PERFORMANCE',
        )
    if width.isdigit() and width_max.isdigit() and int(width) < int(width_max):
        return Finding(
            name,
            'missing',
            f'{detail}; fewer PCIe lanes in use than the GPU has',
            'use a wider slot, where the board has one',
        )
    return Finding(name, 'ok', detail)


def _flavour(name: str) -> Finding:
    from trt_ros.driver import nvidia_driver
    from trt_ros.engine.key import cuda_package
    from trt_ros.errors import BackendError
    from trt_ros.trt import INSTALL, installed, load_trt

    if not installed(name):
        return Finding(name, 'missing', 'not installed', INSTALL[name])
    try:
        flavour = load_trt(name)
    except BackendError as error:
        return Finding(name, 'problem', f'{error.problem} {error.cause}', error.remedy)
    wheel, newest = cuda_package(flavour), nvidia_driver().cuda_version
    if nvidia_driver().gpus and wheel and newest[0] < int(wheel[2:]):
        return Finding(
            name,
            'problem',
            f'{flavour.version_text} needs CUDA {wheel[2:]}, the driver '
            f'supports up to {newest[0]}.{newest[1]}',
            'install a newer NVIDIA driver',
        )
    can = []
    if flavour.builds_without_gpu or nvidia_driver().gpus:
        can.append('builds engines')
    can.append('runs engines' if nvidia_driver().gpus else 'cannot run them without a GPU')
    return Finding(name, 'ok', f'{flavour.version_text}: {", ".join(can)}')


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
