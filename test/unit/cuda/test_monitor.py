"""What a Jetson's kernel tells is read; what NVML is asked for is there."""

from importlib import import_module
from types import SimpleNamespace

import pytest

from trt_ros.cuda.device import Gpu
from trt_ros.cuda.monitor import NVML, JetsonFiles, Monitor

DESKTOP, JETSON = (
    Gpu(0, name, arch, is_integrated, '0000:00:00.0', context=None)
    for name, arch, is_integrated in (('RTX', 'sm_89', False), ('Orin', 'sm_87', True))
)


def write(folder, **files):
    for name, text in files.items():
        path = folder / name.replace('__', '/')
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(text)


@pytest.fixture
def orin(tmp_path):
    """An Orin's /sys, as far as it goes."""
    devfreq, thermal = tmp_path / 'class/devfreq', tmp_path / 'class/thermal'
    write(devfreq / '15340000.vic', device__of_node__name='vic\0', device__load='999\n')
    write(devfreq / '17000000.gpu', device__of_node__name='gpu\0', device__load='734\n')
    write(thermal / 'thermal_zone0', type='cpu-thermal\n', temp='50000\n')
    write(thermal / 'thermal_zone1', type='gpu-thermal\n', temp='48594\n')
    write(thermal / 'cooling_device0', type='cpufreq-cpu0\n', cur_state='3\n')
    write(thermal / 'cooling_device1', type='gpu-throttle-alert\n', cur_state='0\n')
    write(thermal / 'cooling_device2', type='devfreq-17000000.gpu\n', cur_state='0\n')
    return tmp_path


def test_a_jetsons_load_temperature_and_throttling_are_read(orin):
    files = JetsonFiles(orin)
    assert files.diagnostics() == {
        'GPU utilization (%)': '73',
        'GPU temperature (°C)': '49',
        'GPU throttle reasons': '',
    }
    write(orin / 'class/devfreq/17000000.gpu', device__load='1000\n')
    write(orin / 'class/thermal/cooling_device1', cur_state='1\n')
    write(orin / 'class/thermal/cooling_device2', cur_state='4\n')
    assert files.diagnostics() == {
        'GPU utilization (%)': '100',
        'GPU temperature (°C)': '49',
        'GPU throttle reasons': 'gpu-throttle-alert, devfreq-17000000.gpu',
    }


def test_older_jetson_file_names_are_read(tmp_path):
    devfreq = tmp_path / 'class/devfreq/17000000.gv11b'
    write(devfreq, device__of_node__name='gv11b\0', device__load='0\n')
    write(tmp_path / 'class/thermal/thermal_zone2', type='GPU-therm\n', temp='31500\n')
    assert JetsonFiles(tmp_path).diagnostics() == {
        'GPU utilization (%)': '0',
        'GPU temperature (°C)': '32',
    }


def test_only_integrated_gpus_are_read_from_sysfs_and_unavailable_values_omitted(orin):
    assert Monitor(JETSON, orin / 'none').diagnostics() == {}
    assert 'GPU utilization (%)' in Monitor(JETSON, orin).diagnostics()
    assert Monitor(DESKTOP, orin)._jetson is None
    files = JetsonFiles(orin)
    write(orin / 'class/devfreq/17000000.gpu', device__load='\n')
    write(orin / 'class/thermal/thermal_zone1', temp='-256000\n')
    (orin / 'class/thermal/cooling_device1/cur_state').unlink()
    assert files.diagnostics() == {'GPU throttle reasons': ''}


def test_nvml_functions_exist_in_cuda_core():
    pytest.importorskip('cuda.core.system')
    assert hasattr(import_module('cuda.core').Device, 'pci_bus_id')
    device = import_module('cuda.core.system._device')
    for name in ('utilization', 'temperature', 'memory_info', 'current_clock_event_reasons'):
        assert isinstance(getattr(device.Device, name), (property, type(device.Device.name)))
    assert hasattr(device.Utilization, 'gpu') and hasattr(device.Temperature, 'get_sensor')
    assert hasattr(device.ClockInfo, 'get_current_mhz')
    assert hasattr(device.ClockInfo, 'get_max_mhz') and device.ClockType('sm')
    assert hasattr(device.FieldId, 'DEV_TOTAL_ENERGY_CONSUMPTION')
    assert hasattr(device.MemoryInfo, 'used') and hasattr(device.MemoryInfo, 'total')
    reasons = set(import_module('cuda.core.system.typing').ClocksEventReasons)
    assert {'none', 'gpu_idle', 'hw_thermal_slowdown'} <= reasons
    assert {'applications_clocks_setting', 'display_clock_setting'} <= reasons
    assert list(NVML) == [
        'GPU utilization (%)',
        'GPU temperature (°C)',
        'GPU clock (MHz)',
        'GPU throttle reasons',
        'GPU memory, all processes (MB)',
    ]


def test_nvml_values_have_units():
    class Told:
        class utilization:
            gpu = 87

        class temperature:
            get_sensor = staticmethod(lambda: 64)

        class memory_info:
            used, total = 3_000_400_000, 24_000_000_000

        @staticmethod
        def get_clock(kind):
            assert kind == 'sm'
            return SimpleNamespace(get_current_mhz=lambda: 345, get_max_mhz=lambda: 1980)

        current_clock_event_reasons = ('gpu_idle', 'sw_power_cap', 'hw_thermal_slowdown')

    assert [read(Told) for read in NVML.values()] == [
        '87',
        '64',
        '345 of 1980',
        'sw_power_cap, hw_thermal_slowdown',
        '3000 of 24000',
    ]
