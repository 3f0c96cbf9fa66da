"""How busy, hot and slowed down a GPU is: NVML tells, on a Jetson the kernel's files."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import suppress
from importlib import import_module
from pathlib import Path
from typing import Any

from trt_ros.cuda.device import Gpu

UTILISATION, TEMPERATURE = 'GPU utilisation (%)', 'GPU temperature (°C)'
HELD_BACK, MEMORY = 'GPU throttle reasons', 'GPU memory, all processes (MB)'

# NVML's reasons for lower clocks that are none: nothing to do, or somebody has set them so.
_NO_REASON = ('none', 'gpu_idle', 'applications_clocks_setting', 'display_clock_setting')
# The device tree's names of a Jetson's GPU, old and new.
_JETSON_GPUS = ('gpu', 'gm20b', 'gp10b', 'gv11b', 'ga10b')


class Monitor:
    """
    Asks about a whole GPU, whoever uses it: seldom, for NVML takes its time.

    :param sysfs: where the kernel shows its devices.
    """

    def __init__(self, gpu: Gpu, sysfs: Path = Path('/sys')) -> None:
        self._nvml: Any = None
        # Of many kinds: no such library, no such device, no permission.
        with suppress(Exception):
            self._nvml = import_module('cuda.core.system').Device(
                pci_bus_id=gpu.pci_bus_id
            )  # NVML counts GPUs that CUDA was told to hide.
        self._jetson = JetsonFiles(sysfs) if gpu.is_integrated else None

    def diagnostics(self) -> dict[str, str]:
        """Return what can be read, by name and unit; what cannot is left out."""
        diagnostics = {} if self._jetson is None else self._jetson.diagnostics()
        if self._nvml is not None:
            for name, read in NVML.items():
                with suppress(Exception):  # Not every GPU has it all.
                    diagnostics[name] = read(self._nvml)
        return diagnostics


def _held_back(device: Any) -> str:
    return ', '.join(
        str(reason) for reason in device.current_clock_event_reasons if reason not in _NO_REASON
    )


def _memory(device: Any) -> str:
    told = device.memory_info
    return f'{told.used / 1e6:.0f} of {told.total / 1e6:.0f}'


#: How to read a cuda.core.system.Device.
NVML = {
    UTILISATION: lambda device: str(device.utilization.gpu),
    TEMPERATURE: lambda device: str(device.temperature.get_sensor()),
    HELD_BACK: _held_back,
    MEMORY: _memory,
}


class JetsonFiles:
    """The files in which a Jetson's kernel tells of its GPU; found once, read each time."""

    def __init__(self, sysfs: Path) -> None:
        self._load = next(
            (
                path / 'device/load'
                for path in sorted(sysfs.glob('class/devfreq/*'))
                if _text(path / 'device/of_node/name') in _JETSON_GPUS
            ),
            None,
        )
        thermal = sysfs / 'class/thermal'
        self._temperature = next(
            (
                path / 'temp'
                for path in sorted(thermal.glob('thermal_zone*'))
                if _text(path / 'type').lower().startswith('gpu')
            ),
            None,
        )
        self._coolers = [
            path
            for path in sorted(thermal.glob('cooling_device*'))
            if 'gpu' in _text(path / 'type')
        ]

    def diagnostics(self) -> dict[str, str]:
        return dict(self._diagnostics())

    def _diagnostics(self) -> Iterator[tuple[str, str]]:
        load, temperature = _number(self._load), _number(self._temperature)
        if load is not None:
            yield UTILISATION, f'{load / 10:.0f}'  # In thousandths.
        if temperature is not None and temperature > -200_000:  # A sensor without power.
            yield TEMPERATURE, f'{temperature / 1000:.0f}'
        if self._coolers:
            yield (
                HELD_BACK,
                ', '.join(
                    _text(path / 'type') for path in self._coolers if _number(path / 'cur_state')
                ),
            )


def _text(path: Path) -> str:
    try:
        return path.read_text(errors='replace').strip().strip('\0')
    except OSError:
        return ''


def _number(path: Path | None) -> int | None:
    try:
        return None if path is None else int(_text(path))
    except ValueError:
        return None
