"""Checks of `trt-ros doctor` for GPUs and Jetson boards."""

from collections.abc import Iterator
from dataclasses import dataclass
import os
from pathlib import Path
import platform
import re
import shutil
import subprocess

from trt_ros.regular_file import system_text

TOOL_SECONDS = 20.0


@dataclass(frozen=True)
class Finding:
    """A result of one check; `state`: 'ok', 'missing' (optional) or 'problem' (broken)."""

    name: str
    state: str
    detail: str
    remedy: str = ''


def tool_text(*command: str) -> str:
    """Run a program of the system that may be broken; return its output, or why there is none."""
    try:
        done = subprocess.run(
            command,
            stdin=subprocess.DEVNULL,
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
            timeout=TOOL_SECONDS,
        )
    except subprocess.TimeoutExpired:
        return f'it did not end within {TOOL_SECONDS:g} s'
    except OSError as error:
        return error.strerror or str(error)
    return done.stdout.decode(errors='replace').strip()


# Devices of the GPU in /sys/class/devfreq: Orin (JetPack 6 and 5), Xavier, Thor.
_GPU_CLOCKS = re.compile(r'\.gpu$|\.ga10b$|\.gv11b$|^gpu-')


def jetson_findings(root: Path) -> Iterator[Finding]:
    """Check a Jetson board, by its root folder; nothing on other machines."""
    model = system_text(root / 'proc/device-tree/model')
    release = system_text(root / 'etc/nv_tegra_release')
    if not release and 'jetson' not in model.lower():
        return
    found = re.search(r'R(\d+).*?REVISION: ([\d.]+)', release)
    version = f', Jetson Linux {found.group(1)}.{found.group(2)}' if found else ''
    yield Finding('jetson', 'ok', f'{model or "unknown board"}{version}')
    yield from _power_mode(root)
    yield from _clocks(root)
    yield Finding('dla', 'ok', f'{dla_cores(root)} cores on this board')


def dla_cores(root: Path) -> int:
    """Return the number of deep learning accelerators that the system has."""
    return len(list((root / 'sys/bus/platform/devices').glob('*.nvdla[0-9]*')))


def _power_mode(root: Path) -> Iterator[Finding]:
    tool = shutil.which('nvpmodel')
    if tool is None:
        yield Finding('power mode', 'missing', 'nvpmodel does not exist: the mode is unknown')
        return
    text = tool_text(tool, '-q')
    found = re.search(r'Power Mode: *(\S+)', text)
    if found is None:
        text = ' '.join(text.split())[:200]
        yield Finding('power mode', 'missing', f'nvpmodel -q failed: {text}', 'sudo nvpmodel -q')
        return
    mode = found.group(1)
    declared = re.compile(r'<\s*POWER_MODEL\s+ID=(\d+)\s+NAME=(\S+)\s*>')
    numbers = declared.findall(system_text(root / 'etc/nvpmodel.conf'))
    modes = {name: number for number, name in numbers}
    best = max((name for name in modes if name.startswith('MAXN')), key=len, default='')
    if not best or mode == best:  # MAXN_SUPER, where it exists, is above MAXN.
        yield Finding('power mode', 'ok', mode)
        return
    yield Finding(
        'power mode',
        'missing',
        f'{mode}: clocks and cores are limited; the board has {best}',
        f'sudo nvpmodel -m {modes[best]}',
    )


def _clocks(root: Path) -> Iterator[Finding]:
    """Check whether the GPU keeps its highest clock, as after jetson_clocks."""
    for device in sorted((root / 'sys/class/devfreq').glob('*')):
        if not _GPU_CLOCKS.search(device.name):
            continue
        low, now, high = (
            system_text(device / name) for name in ('min_freq', 'cur_freq', 'max_freq')
        )
        if not (low.isdigit() and now.isdigit() and high.isdigit()):
            continue
        detail = f'{device.name} at {int(now) / 1e6:.0f} of {int(high) / 1e6:.0f} MHz'
        if low == high:
            yield Finding('clocks', 'ok', f'{detail}, fixed')
            return
        yield Finding(
            'clocks',
            'missing',
            f'{detail}, from {int(low) / 1e6:.0f} MHz by load: the first frames after a pause '
            'take longer',
            'sudo jetson_clocks',
        )
        return


# Fields of nvidia-smi for the clock limits; older drivers have the second name.
_REASONS = ('clocks_event_reasons.active', 'clocks_throttle_reasons.active')
_FIELDS = (
    *('clocks.sm', 'clocks.max.sm', 'pcie.link.gen.current', 'pcie.link.gen.max'),
    *('pcie.link.width.current', 'pcie.link.width.max', 'temperature.gpu', 'persistence_mode'),
    *('power.limit', 'power.default_limit'),
)
# Bits of the reasons that mean throttling (idle and user settings do not).
_THROTTLED = {
    0x04: 'power cap',
    0x08: 'hardware slowdown',
    0x20: 'thermal, software',
    0x40: 'thermal, hardware',
    0x80: 'power brake',
}


def gpu_findings(root: Path) -> Iterator[Finding]:
    """Check the driver and each GPU; `root`: root folder of the system."""
    from trt_ros.driver import nvidia_driver
    from trt_ros.engine.precision import text_of

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
    newest = '.'.join(map(str, found.cuda_version))
    yield Finding('driver', 'ok', f'{found.version or "?"}, up to CUDA {newest}')
    for gpu in found.gpus:
        detail = f'{gpu.name}, compute capability {text_of(gpu.compute_capability)}, '
        detail += f'{gpu.memory_nbytes / 2**30:.0f} GiB'
        detail += ', shares memory with the CPU' if gpu.integrated else ''
        yield Finding(f'gpu {gpu.index}', 'ok', detail)
        yield from _numa(f'gpu {gpu.index} numa', root, gpu.pci_bus_id)
        if not gpu.integrated:  # nvidia-smi of a Jetson knows neither clocks nor link.
            yield from _state(f'gpu {gpu.index} now', gpu.pci_bus_id)
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


def _numa(name: str, root: Path, bus: str) -> Iterator[Finding]:
    """Check whether this process may run on the CPUs that are closest to a GPU."""
    device = root / 'sys/bus/pci/devices' / bus.lower()
    node, text = system_text(device / 'numa_node'), system_text(device / 'local_cpulist')
    if node in ('', '-1') or not text:
        return
    here, local = os.sched_getaffinity(0), cpu_list(text)
    detail = f'node {node}, CPUs {text}'
    if here & local:
        outside = len(here - local)
        if outside:
            detail += f'; this process may also run on {outside} CPUs of other nodes'
        yield Finding(name, 'ok', detail)
        return
    yield Finding(
        name,
        'missing',
        f'{detail}; this process runs on none of them: each copy crosses to another node',
        f'start it with numactl --cpunodebind={node} --membind={node}',
    )


def cpu_list(text: str) -> set[int]:
    """Parse a list of CPUs as in sysfs: '0-2,8' becomes {0, 1, 2, 8}."""
    found: set[int] = set()
    for part in filter(None, text.split(',')):
        first, _, last = part.partition('-')
        found.update(range(int(first), int(last or first) + 1))
    return found


def _state(name: str, bus: str) -> Iterator[Finding]:
    """Check clocks, throttling, power and the PCIe link with nvidia-smi."""
    tool = shutil.which('nvidia-smi')
    if tool is None:
        yield Finding(name, 'missing', 'nvidia-smi does not exist: clocks and link are unknown')
        return
    for reasons in _REASONS:
        fields = (*_FIELDS, reasons)
        text = tool_text(
            tool, f'--id={bus}', f'--query-gpu={",".join(fields)}', '--format=csv,noheader,nounits'
        )
        for line in text.splitlines():  # Warnings may surround it.
            if line.count(', ') == len(fields) - 1:
                yield read_state(name, line.split(', '))
                return
    yield Finding(name, 'missing', f'nvidia-smi failed: {" ".join(text.split())[:200]}')


def read_state(name: str, values: list[str]) -> Finding:
    """Evaluate one line of nvidia-smi: `_FIELDS`, then the throttle reasons."""
    clock, clock_max, gen, gen_max, width, width_max, temperature, persistence = values[:8]
    limit, default_limit, reasons = values[8:]
    detail = (
        f'{clock} of {clock_max} MHz, {temperature} C, PCIe {gen} x{width} '
        f'(maximum {gen_max} x{width_max}), power limit {limit} W, persistence {persistence}'
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
    if _number(limit) < _number(default_limit):
        return Finding(
            name,
            'missing',
            f'{detail}; the limit is below the default of {default_limit} W',
            f'sudo nvidia-smi -pl {_number(default_limit):.0f}',
        )
    if persistence == 'Disabled':
        return Finding(
            name,
            'missing',
            f'{detail}; the driver unloads when no process uses the GPU, and locked clocks are '
            'reset then',
            'sudo nvidia-smi -pm 1',
        )
    return Finding(name, 'ok', detail)


def _number(text: str) -> float:
    try:
        return float(text)
    except ValueError:  # '[N/A]'
        return 0.0
