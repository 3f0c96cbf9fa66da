"""Checks of `trt-ros doctor` for Jetson boards: power mode, clocks, memory and DLA."""

from collections.abc import Iterator
from pathlib import Path
import re
import shutil

from trt_ros.cli._finding import Finding, file_text, tool_text

# Devices of the GPU in /sys/class/devfreq: Orin (JetPack 6 and 5), Xavier, Thor.
_GPU_CLOCKS = re.compile(r'\.gpu$|\.ga10b$|\.gv11b$|^gpu-')


def jetson_findings(root: Path) -> Iterator[Finding]:
    """
    Check a Jetson board; nothing on other machines.

    :param root: root folder of the system.
    """
    model = file_text(root / 'proc/device-tree/model')
    release = file_text(root / 'etc/nv_tegra_release')
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
    modes = {
        name: number
        for number, name in re.findall(
            r'<\s*POWER_MODEL\s+ID=(\d+)\s+NAME=(\S+)\s*>', file_text(root / 'etc/nvpmodel.conf')
        )
    }
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
            file_text(device / name) for name in ('min_freq', 'cur_freq', 'max_freq')
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
