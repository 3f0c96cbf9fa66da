"""GPU utilization, temperature, throttling and memory, read from NVML or a Jetson's sysfs."""

from collections.abc import Iterator
from contextlib import suppress
from importlib import import_module
from pathlib import Path
from typing import Any

from trt_ros.cuda.calls import nvml_device
from trt_ros.cuda.device import Gpu
from trt_ros.regular_file import system_text

UTILISATION, TEMPERATURE = 'GPU utilization (%)', 'GPU temperature (°C)'
CLOCK = 'GPU clock (MHz)'
THROTTLE_REASONS, MEMORY = 'GPU throttle reasons', 'GPU memory, all processes (MB)'

# NVML's clock event reasons that are no throttling: an idle GPU, or clocks that a user has set.
_NOT_THROTTLED = ('none', 'gpu_idle', 'applications_clocks_setting', 'display_clock_setting')
# Names of a Jetson's GPU in the device tree, by generation.
_JETSON_GPUS = ('gpu', 'gm20b', 'gp10b', 'gv11b', 'ga10b')


class Monitor:
    """State of a whole GPU by NVML, which is slow: ask about once per second, not per frame."""

    def __init__(self, gpu: Gpu, sysfs: Path = Path('/sys')) -> None:
        self._nvml: Any = None
        with suppress(Exception):
            self._nvml = nvml_device(gpu.pci_bus_id)
        self._jetson = JetsonFiles(sysfs) if gpu.is_integrated else None

    def diagnostics(self) -> dict[str, str]:
        """Return diagnostics values by key; values that cannot be read are omitted."""
        diagnostics = {} if self._jetson is None else self._jetson.diagnostics()
        if self._nvml is not None:
            for name, read in NVML.items():
                with suppress(Exception):  # Not every GPU supports every query.
                    diagnostics[name] = read(self._nvml)
        return diagnostics

    def energy_joules(self) -> float | None:
        """Return the energy that the GPU has consumed since the driver was loaded, in J."""
        with suppress(Exception):  # Volta and newer, without MIG.
            field = import_module('cuda.core.system.typing').FieldId.DEV_TOTAL_ENERGY_CONSUMPTION
            return float(self._nvml.get_field_values([field])[0].value) / 1e3
        return None


def read_load(pci_bus_id: str) -> tuple[int, int]:
    """Return the utilization of a GPU in percent and its free bytes; 0 where unreadable."""
    utilization = free = 0
    with suppress(Exception):
        device = nvml_device(pci_bus_id)
        with suppress(Exception):  # A partitioned GPU (MIG) has none.
            utilization = int(device.utilization.gpu)
        free = int(device.memory_info.total - device.memory_info.used)
    return utilization, free


def _clock(device: Any) -> str:
    clock = device.get_clock('sm')
    return f'{clock.get_current_mhz()} of {clock.get_max_mhz()}'


def _throttle_reasons(device: Any) -> str:
    return ', '.join(
        str(reason)
        for reason in device.current_clock_event_reasons
        if reason not in _NOT_THROTTLED
    )


def _memory(device: Any) -> str:
    memory = device.memory_info
    return f'{memory.used / 1e6:.0f} of {memory.total / 1e6:.0f}'


#: Diagnostics key to the function that reads its value from a cuda.core.system.Device.
NVML = {
    UTILISATION: lambda device: str(device.utilization.gpu),
    TEMPERATURE: lambda device: str(device.temperature.get_sensor()),
    CLOCK: _clock,
    THROTTLE_REASONS: _throttle_reasons,
    MEMORY: _memory,
}


class JetsonFiles:
    """The sysfs files with the state of a Jetson's GPU; located once, read on every call."""

    def __init__(self, sysfs: Path) -> None:
        devices = sorted(sysfs.glob('class/devfreq/*'))
        gpus = (
            each for each in devices if system_text(each / 'device/of_node/name') in _JETSON_GPUS
        )
        self._load = next((each / 'device/load' for each in gpus), None)
        sensors = sorted(sysfs.glob('class/thermal/thermal_zone*'))
        of_gpu = (each for each in sensors if system_text(each / 'type').lower().startswith('gpu'))
        self._temperature = next((each / 'temp' for each in of_gpu), None)
        coolers = sorted(sysfs.glob('class/thermal/cooling_device*'))
        self._coolers = [each for each in coolers if 'gpu' in system_text(each / 'type')]

    def diagnostics(self) -> dict[str, str]:
        """Return diagnostics values by key; values that cannot be read are omitted."""
        return dict(self._diagnostics())

    def _diagnostics(self) -> Iterator[tuple[str, str]]:
        load, temperature = _number(self._load), _number(self._temperature)
        if load is not None:
            yield UTILISATION, f'{load / 10:.0f}'  # The file is in per mille.
        # A sensor without power reads -256 °C.
        if temperature is not None and temperature > -200_000:
            yield TEMPERATURE, f'{temperature / 1000:.0f}'
        if self._coolers:
            active = (each for each in self._coolers if _number(each / 'cur_state'))
            yield THROTTLE_REASONS, ', '.join(system_text(each / 'type') for each in active)


def _number(path: Path | None) -> int | None:
    try:
        return None if path is None else int(system_text(path))
    except ValueError:
        return None
