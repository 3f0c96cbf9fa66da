"""`trt-ros doctor`, on machines made of files and commands."""

import json
import os
import platform
import sys
from types import SimpleNamespace

import pytest

from trt_ros.cli import doctor
from trt_ros.cli._doctor_gpu import cpu_list, jetson_findings, read_state
from trt_ros.cli.doctor import findings, ros_findings
from trt_ros.driver import GpuInfo
from trt_ros.trt import Library, installed

needs_rtx = pytest.mark.skipif(not installed('tensorrt_rtx'), reason='tensorrt_rtx is missing')
H200 = GpuInfo(0, 'NVIDIA H200', (9, 0), 132, 150 << 30, False, 'GPU-1', '0000:3B:00.0')
ORIN = GpuInfo(0, 'Orin', (8, 7), 16, 30 << 30, True, 'GPU-2', '')


@pytest.fixture
def machine(tmp_path, monkeypatch, set_driver, cache):
    """Give files of a system and commands, and return what doctor finds there, by name."""
    tools = tmp_path / 'tools'
    tools.mkdir()
    monkeypatch.setenv('PATH', str(tools), prepend=os.pathsep)

    def look(files=(), commands=(), gpu=None, cuda=(13, 0)):
        root = tmp_path / 'root'
        for name, text in dict(files).items():
            (root / name).parent.mkdir(parents=True, exist_ok=True)
            (root / name).write_text(text)
        for name, script in dict(commands).items():
            (tools / name).write_text(f'#!/bin/sh\n{script}\n')
            (tools / name).chmod(0o755)
        set_driver(*(gpu,) * (gpu is not None), cuda=cuda)
        return {each.name: each for each in findings(root)}

    return look


@pytest.fixture
def install_rclpy(monkeypatch):
    """Return a function that puts a package rclpy into a folder, which Python finds first."""

    def install(folder):
        (folder / 'rclpy').mkdir(parents=True)
        (folder / 'rclpy' / '__init__.py').touch()
        monkeypatch.syspath_prepend(folder)
        monkeypatch.delitem(sys.modules, 'rclpy', raising=False)

    return install


def test_every_check_runs(call):
    code, out, _ = call('doctor', '--json')
    found = {each['name']: each for each in json.loads(out)}
    assert {'ros', 'python', 'system', 'numpy', 'tensorrt', 'tensorrt_rtx', 'engine cache'} <= set(
        found
    )
    assert code == int(any(each['state'] == 'problem' for each in found.values()))
    assert all(
        each['remedy']
        for each in found.values()
        if each['state'] == 'missing' and each['name'].startswith('tensorrt')
    )
    assert found['python']['detail'] in call('doctor')[1]


def test_cache_writable_by_others_is_reported(call, cache):
    cache.mkdir(parents=True)
    cache.chmod(0o777)
    code, out, _ = call('doctor')
    assert code == 1 and 'chmod go-w' in out


@pytest.mark.parametrize(
    ('distro', 'files', 'state', 'said'),
    [
        ('jazzy', (), 'problem', 'source /opt/ros/jazzy/setup.bash'),
        ('', (), 'missing', 'source /opt/ros/DISTRO/setup.bash'),
        (
            '',
            ('opt/ros/kilted/setup.bash', 'opt/ros/lyrical/setup.bash'),
            'missing',
            'installed, but not sourced: kilted, lyrical',
        ),
    ],
)
def test_python_without_ros_is_named(tmp_path, monkeypatch, distro, files, state, said):
    for name in files:
        (tmp_path / name).parent.mkdir(parents=True)
        (tmp_path / name).touch()
    monkeypatch.setenv('ROS_DISTRO', distro)
    monkeypatch.setitem(sys.modules, 'rclpy', None)
    (ros,) = ros_findings(tmp_path)
    assert ros.state == state and said in f'{ros.detail} {ros.remedy}'


@pytest.mark.parametrize(
    ('distro', 'python', 'state', 'said'),
    [
        ('lyrical', 'python3.99', 'problem', 'rclpy of lyrical is built for python3.99, this is'),
        ('foxy', 'site', 'problem', 'foxy is not supported use Humble, Jazzy, Kilted or Lyrical'),
        ('lyrical', 'site', 'ok', 'lyrical, middleware: '),
    ],
)
def test_release_of_ros_is_compared_with_this_python(
    tmp_path, monkeypatch, install_rclpy, distro, python, state, said
):
    install_rclpy(tmp_path / 'lib' / python / 'site-packages')
    monkeypatch.setenv('ROS_DISTRO', distro)
    ros = next(iter(ros_findings(tmp_path)))
    assert ros.state == state and said in f'{ros.detail} {ros.remedy}'


@pytest.mark.parametrize(
    ('given', 'state', 'said'),
    [
        ({}, 'missing', 'export FASTDDS_BUILTIN_TRANSPORTS="DEFAULT?sockets_size=32MB"'),
        ({'FASTDDS_BUILTIN_TRANSPORTS': 'UDPv4'}, 'ok', 'FASTDDS_BUILTIN_TRANSPORTS is UDPv4'),
        (
            {'FASTDDS_BUILTIN_TRANSPORTS': 'UDPv4', 'ROS_AUTOMATIC_DISCOVERY_RANGE': 'LOCALHOST'},
            'missing',
            'config/fastdds.xml',
        ),
        (
            {'FASTRTPS_DEFAULT_PROFILES_FILE': 'own.xml', 'ROS_LOCALHOST_ONLY': '1'},
            'ok',
            'own.xml',
        ),
        ({'RMW_IMPLEMENTATION': 'rmw_cyclonedds_cpp'}, None, ''),
    ],
)
def test_fast_dds_settings_for_large_images(
    monkeypatch, machine, install_rclpy, tmp_path, given, state, said
):
    for name in (
        'FASTDDS_BUILTIN_TRANSPORTS',
        'FASTRTPS_DEFAULT_PROFILES_FILE',
        'FASTDDS_DEFAULT_PROFILES_FILE',
        'ROS_AUTOMATIC_DISCOVERY_RANGE',
        'ROS_LOCALHOST_ONLY',
        'RMW_IMPLEMENTATION',
    ):
        monkeypatch.delenv(name, raising=False)
    for name, value in given.items():
        monkeypatch.setenv(name, value)
    install_rclpy(tmp_path / 'site-packages')
    found = machine().get('fast dds')
    assert (found and found.state) == state
    assert found is None or said in f'{found.detail} {found.remedy}'


@pytest.mark.parametrize(
    ('ram_kib', 'swaps', 'state', 'said'),
    [
        (24 << 20, '', 'ok', '24.0 GiB, swap on disk 0.0 GiB'),
        (
            7 << 20,
            '/dev/zram0 partition 3670016 0 5\n',
            'missing',
            '7.0 GiB, swap on disk 0.0 GiB, zram 3.5 GiB: builds of large networks may be killed',
        ),
        (7 << 20, '/swapfile file 8388604 0 -2\n', 'ok', 'swap on disk 8.0 GiB'),
    ],
)
def test_swap_on_disk_counts_as_memory_and_zram_does_not(machine, ram_kib, swaps, state, said):
    found = machine(
        {
            'proc/meminfo': f'MemTotal:       {ram_kib} kB\nMemFree: 1 kB\n',
            'proc/swaps': f'Filename Type Size Used Priority\n{swaps}',
        }
    )['memory']
    assert found.state == state and said in found.detail


# GPUs


@pytest.mark.parametrize(
    ('line', 'state', 'said'),
    [
        (
            '1980, 1980, 5, 5, 16, 16, 34, Enabled, 700.00, 700.00, 0x0000000000000001',
            'ok',
            '1980 of 1980 MHz, 34 C, PCIe 5 x16 (maximum 5 x16), power limit 700.00 W, '
            'persistence Enabled',
        ),
        (
            '900, 1980, 5, 5, 16, 16, 88, Enabled, 700.00, 700.00, 0x0000000000000048',
            'problem',
            'thermal, hardware',
        ),
        (
            '1980, 1980, 4, 4, 4, 16, 34, Enabled, 700.00, 700.00, 0x0000000000000000',
            'missing',
            'fewer PCIe lanes',
        ),
        (
            '1980, 1980, 5, 5, 16, 16, 34, Enabled, 400.00, 700.00, 0x0000000000000000',
            'missing',
            'sudo nvidia-smi -pl 700',
        ),
        (
            '1980, 1980, 5, 5, 16, 16, 34, Disabled, 700.00, 700.00, 0x0000000000000000',
            'missing',
            'sudo nvidia-smi -pm 1',
        ),
        ('[N/A], [N/A], [N/A], [N/A], [N/A], [N/A], 34, [N/A], [N/A], [N/A], [N/A]', 'ok', '34 C'),
    ],
)
def test_clocks_power_and_link_of_nvidia_smi(machine, line, state, said):
    found = read_state('gpu 0 now', line.split(', '))
    assert found.state == state and said in f'{found.detail} {found.remedy}'
    script = f'case "$*" in *--id=0000:3B:00.0*persistence_mode*) echo "{line}";; *) exit 2;; esac'
    assert machine(commands={'nvidia-smi': script}, gpu=H200)['gpu 0 now'] == found


@pytest.mark.parametrize(
    ('script', 'state', 'said'),
    [
        (  # It knows throttle reasons by their former name.
            'case "$*" in *clocks_event_reasons*) echo "not a valid field"; exit 2;; esac\n'
            'echo "900, 1980, 5, 5, 16, 16, 88, Enabled, 700.00, 700.00, 0x4"',
            *('problem', 'throttled: power cap'),
        ),
        (
            'echo "1980, 1980, 5, 5, 16, 16, 34, Enabled, 700.00, 700.00, 0x1"; '
            'echo "WARNING: infoROM is corrupted at gpu 0000:3B:00.0"',
            *('ok', '34 C'),
        ),
    ],
    ids=['older driver', 'warning'],
)
def test_older_drivers_and_warnings_of_nvidia_smi_are_no_failure(machine, script, state, said):
    found = machine(commands={'nvidia-smi': script}, gpu=H200)['gpu 0 now']
    assert found.state == state and said in found.detail


@pytest.mark.parametrize(
    ('script', 'said'),
    [
        ('exec tail -f /dev/null', 'it did not end within 0.2 s'),
        ('echo No devices were found', 'No devices were found'),
        (r"printf '\377 broken'", '\N{REPLACEMENT CHARACTER} broken'),
    ],
)
def test_tools_that_hang_or_print_something_else_are_reported(
    machine, set_constants, script, said
):
    if 'tail' in script:
        set_constants(TOOL_SECONDS=0.2)
    found = machine(
        {'etc/nv_tegra_release': ''}, {'nvidia-smi': script, 'nvpmodel': script}, gpu=H200
    )
    assert found['gpu 0 now'].detail == f'nvidia-smi failed: {said}'
    found = machine(
        {'proc/device-tree/model': 'NVIDIA Jetson Thor'}, {'nvpmodel': script}, gpu=ORIN
    )
    assert found['power mode'].detail == f'nvpmodel -q failed: {said}'


def test_cpu_list_of_sysfs():
    assert [cpu_list(text) for text in ('', '3', '0-2,8')] == [set(), {3}, {0, 1, 2, 8}]


def test_numa_node_of_gpu_is_compared_with_cpus_of_this_process(machine):
    here, outside = min(os.sched_getaffinity(0)), 100000
    device = 'sys/bus/pci/devices/0000:3b:00.0/'

    def numa(node, cpus):
        files = {f'{device}numa_node': f'{node}\n', f'{device}local_cpulist': f'{cpus}\n'}
        return machine(files, gpu=H200).get('gpu 0 numa')

    assert numa(-1, f'0-{outside}') is None
    assert numa(0, f'0-{outside}').detail == f'node 0, CPUs 0-{outside}'
    assert numa(1, f'{here},{outside}').state == 'ok'
    elsewhere = numa(1, f'{outside}')
    assert (elsewhere.state, elsewhere.remedy) == (
        'missing',
        'start it with numactl --cpunodebind=1 --membind=1',
    )


@pytest.mark.skipif(platform.machine() != 'x86_64', reason='caches of x86')
@pytest.mark.parametrize(
    ('given', 'state', 'said'),
    [
        ('', 'missing', 'GLIBC_TUNABLES=glibc.cpu.x86_non_temporal_threshold=262144'),
        ('glibc.malloc.check=3', 'missing', '=glibc.malloc.check=3:glibc.cpu.x86_non_temporal'),
        ('glibc.cpu.x86_non_temporal_threshold=100000', 'ok', 'threshold=100000'),
    ],
)
def test_threshold_of_copies_past_caches(monkeypatch, machine, given, state, said):
    monkeypatch.setenv('GLIBC_TUNABLES', given)
    found = machine(gpu=H200)['memory copies']
    assert found.state == state and said in f'{found.detail} {found.remedy}'


# TensorRT


@needs_rtx
@pytest.mark.parametrize(
    ('cuda', 'state', 'said'),
    [
        ((12, 8), 'problem', 'needs CUDA 13, the driver supports up to 12.8'),
        ((13, 0), 'ok', 'from pip: builds engines, runs engines'),
    ],
)
def test_driver_older_than_tensorrt(machine, cuda, state, said):
    found = machine(gpu=H200, cuda=cuda)
    rtx = found['tensorrt_rtx']
    assert rtx.state == state and said in rtx.detail
    row = found.get('tensorrt_rtx on gpu 0')
    assert (row is None) == (state != 'ok')
    assert row is None or 'int8 (no convolutions), fp8 (no convolutions)' in row.detail
    assert 'nvfp4 (10.0 or newer)' in machine()['tensorrt_rtx on gpus'].detail


@needs_rtx
def test_gpu_that_library_does_not_support_is_a_problem(machine):
    pascal = GpuInfo(0, 'GTX 1080', (6, 1), 20, 8 << 30, False, 'GPU-3', '0000:01:00.0')
    rtx = machine(gpu=pascal)['tensorrt_rtx']
    assert rtx.state == 'problem'
    assert 'does not support GPU 0: compute capability 6.1, but it needs 7.5' in rtx.detail


@pytest.mark.skipif(installed('tensorrt'), reason='tensorrt is installed')
@pytest.mark.parametrize(
    ('file', 'said'),
    [
        (
            'usr/lib/python3/dist-packages/tensorrt/__init__.py',
            'installed from apt for /usr/bin/python3, but ',
        ),
        (
            'usr/lib/python3.10/dist-packages/tensorrt/__init__.py',
            'use /usr/bin/python3.10, or a virtual environment of it with --system-site-packages',
        ),
        ('usr/lib/aarch64-linux-gnu/libnvinfer.so.10', 'sudo apt install python3-libnvinfer'),
    ],
)
def test_tensorrt_of_apt_that_this_python_does_not_see(machine, file, said):
    found = machine({file: ''})['tensorrt']
    assert found.state == 'missing' and said in f'{found.detail} {found.remedy}'


@pytest.mark.parametrize(
    ('version', 'cores', 'said'),
    [
        ((10, 3, 0, 26), 2, '; supports DLA'),
        (
            (11, 3, 0, 20),
            2,
            '; does not support DLA (10.3 to 10.7 do, and 11.4.1 with JetPack 7.2.2)',
        ),
        ((11, 4, 1, 2), 1, '; supports DLA'),
        ((10, 3, 0, 26), 0, ''),
    ],
)
def test_dla_is_named_by_release(tmp_path, version, cores, said):
    trt = SimpleNamespace(__file__='/usr/lib/python3/dist-packages/tensorrt/__init__.py')
    library = Library('tensorrt', trt, version, '', None)
    for core in range(cores):
        (tmp_path / f'sys/bus/platform/devices/158{core}0000.nvdla{core}').mkdir(parents=True)
    assert doctor._dla(library, tmp_path) == said
    assert doctor._origin(library) == 'from apt'


# Jetson

BOARD = {
    'proc/device-tree/model': 'NVIDIA Jetson Orin Nano Developer Kit\0',
    'etc/nv_tegra_release': '# R36 (release), REVISION: 4.3, GCID: 3, BOARD: generic\n',
    'etc/nvpmodel.conf': (
        '< POWER_MODEL ID=0 NAME=15W >\nX 1\n< POWER_MODEL ID=2 NAME=MAXN_SUPER >\n'
    ),
}
CLOCKS = 'sys/class/devfreq/17000000.gpu/'


def test_other_machines_have_no_jetson_checks(tmp_path):
    assert list(jetson_findings(tmp_path)) == []


@pytest.mark.parametrize(
    ('output', 'state', 'said'),
    [
        ('NV Power Mode: MAXN_SUPER\n2', 'ok', 'MAXN_SUPER'),
        ('NV Power Mode: 15W\n0', 'missing', 'the board has MAXN_SUPER sudo nvpmodel -m 2'),
        ('cannot read', 'missing', 'nvpmodel -q failed: cannot read'),
    ],
)
def test_power_mode_of_jetson(machine, output, state, said):
    found = machine(BOARD, {'nvpmodel': f'test "$1" = -q && printf "{output}"'}, gpu=ORIN)
    assert found['jetson'].detail == 'NVIDIA Jetson Orin Nano Developer Kit, Jetson Linux 36.4.3'
    mode = found['power mode']
    assert mode.state == state and said in f'{mode.detail} {mode.remedy}'
    assert found['dla'].detail == '0 cores on this board'
    assert 'gpu 0 now' not in found


@pytest.mark.parametrize(
    ('low', 'state', 'said'),
    [
        (306000000, 'missing', '17000000.gpu at 612 of 1020 MHz, from 306 MHz by load'),
        (1020000000, 'ok', '17000000.gpu at 612 of 1020 MHz, fixed'),
    ],
)
def test_clocks_of_jetson(machine, low, state, said):
    found = machine(
        {
            **BOARD,
            f'{CLOCKS}min_freq': f'{low}\n',
            f'{CLOCKS}cur_freq': '612000000\n',
            f'{CLOCKS}max_freq': '1020000000\n',
            'sys/class/devfreq/15340000.vic/min_freq': '1\n',
        },
        gpu=ORIN,
    )['clocks']
    assert found.state == state and said in found.detail
    assert found.remedy == ('' if state == 'ok' else 'sudo jetson_clocks')
