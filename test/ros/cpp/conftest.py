"""A workspace with the plugin and a camera in C++, and stock containers in its environment."""

from collections.abc import Callable, Iterator, Sequence
from contextlib import ExitStack
import itertools
import os
from pathlib import Path
import shutil
import subprocess
from typing import Any
import zlib

import pytest

from support.ros_nodes import NodeProcess
from trt_ros.engine.files import locked
from trt_ros.progress import Reporter

CHECKOUT = Path(__file__).parents[3]
NODES = CHECKOUT / 'test/support/nodes'
#: Nodes of container_probes.py that take the place of nodes of trt_ros.
PROBES = {'TensorNode': 'Probe', 'PoseNode': 'Slow', 'DepthNode': 'Failing'}


@pytest.fixture(scope='session')
def rclcpp() -> dict[str, str]:
    """
    Return the environment of a ROS with rclcpp.

    TRT_ROS_TEST_RCLCPP names the prefix of an rclcpp that was built for the ROS from PyPI.
    """
    environment = dict(os.environ)
    prefix = os.environ.get('TRT_ROS_TEST_RCLCPP')
    if prefix:
        for name, folder in (
            ('AMENT_PREFIX_PATH', prefix),
            ('CMAKE_PREFIX_PATH', prefix),
            ('LD_LIBRARY_PATH', f'{prefix}/lib'),
        ):
            environment[name] = os.pathsep.join(
                [folder, *filter(None, [environment.get(name, '')])]
            )
    prefixes = environment.get('AMENT_PREFIX_PATH', '').split(os.pathsep)
    containers = (Path(each, 'lib/rclcpp_components/component_container') for each in prefixes)
    container = next((each for each in containers if each.exists()), None)
    if container is None:
        pytest.skip('no rclcpp_components: source a ROS installation, then ./dev test cpp')
    environment['CONTAINERS'] = str(container.parent)
    return environment


def build_workspace(rclcpp: dict[str, str]) -> dict[str, str]:
    """Build the package and the camera as a user does; return the sourced environment."""
    if not shutil.which('colcon'):
        pytest.skip('colcon is not installed')
    of_ros = f'{zlib.crc32(rclcpp["AMENT_PREFIX_PATH"].encode()):08x}'
    root = CHECKOUT / 'build/cpp_tests' / of_ros
    root.mkdir(parents=True, exist_ok=True)
    with locked(root, Reporter()):  # Against other processes of the tests.
        build_packages(rclcpp, root)
    setup = root / 'install/local_setup.bash'
    # The checkout comes through the workspace only.
    clean = {key: value for key, value in rclcpp.items() if key != 'PYTHONPATH'}
    sourced = subprocess.check_output(
        ['bash', '-c', f'source {setup} && env -0'], env=clean, text=True
    )
    return dict(each.split('=', 1) for each in sourced.split('\0') if '=' in each)


def build_packages(rclcpp: dict[str, str], root: Path) -> None:
    build = subprocess.run(
        [
            *('colcon', '--log-base', root / 'log', 'build', '--symlink-install'),
            *('--build-base', root / 'build', '--install-base', root / 'install'),
            *('--paths', CHECKOUT, Path(__file__).with_name('camera')),
            *('--cmake-args', '-DCMAKE_BUILD_TYPE=Release', '-DBUILD_TESTING=OFF'),
        ],
        # Otherwise, make waits until the load of the machine is low.
        env=rclcpp | {'MAKEFLAGS': f'-j{os.cpu_count()}'},
        text=True,
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
    )
    assert build.returncode == 0, build.stdout


@pytest.fixture(scope='session')
def workspace(rclcpp: dict[str, str], tmp_path_factory: pytest.TempPathFactory) -> dict[str, str]:
    """Return the environment of a workspace with this package: the sourced one, else a new one."""
    prefixes = rclcpp['AMENT_PREFIX_PATH'].split(os.pathsep)
    camera = 'share/ament_index/resource_index/rclcpp_components/trt_ros_test_camera'
    is_sourced = any(Path(each, camera).exists() for each in prefixes)
    variables = dict(rclcpp) if is_sourced else build_workspace(rclcpp)
    probes = tmp_path_factory.mktemp('probes')
    info = probes / 'container_probes-1.0.dist-info'
    info.mkdir()
    (info / 'METADATA').write_text('Metadata-Version: 2.1\nName: container_probes\nVersion: 1.0\n')
    lines = (f'trt_ros::{name} = container_probes:{probe}\n' for name, probe in PROBES.items())
    (info / 'entry_points.txt').write_text(f'[rclpy_components]\n{"".join(lines)}')
    given = os.environ.get('PYTHONPATH', '').split(os.pathsep)
    others = [each for each in given if each and Path(each).resolve() != CHECKOUT]
    variables['PYTHONPATH'] = os.pathsep.join(
        [variables.get('PYTHONPATH', ''), str(probes), str(NODES), *others]
    )
    return variables


@pytest.fixture(scope='module')
def start(
    workspace: dict[str, str], peer: Any, domain_id: int, tmp_path_factory: pytest.TempPathFactory
) -> Iterator[Callable[..., Any]]:
    """Start a stock container, by the name of its executable, under a name of its own."""
    from support.containers import Container

    folder = tmp_path_factory.mktemp('containers')
    names = (f'cpp_container_{number}' for number in itertools.count())

    def start_one(
        kind: str = 'component_container_isolated',
        arguments: Sequence[str] = (),
        **environment: str,
    ) -> Container:
        name = next(names)
        variables = {
            **workspace,
            'ROS_DOMAIN_ID': str(domain_id),
            'ROS_LOG_DIR': str(folder),
            **environment,
        }
        process = NodeProcess(
            peer,
            name,
            ['--ros-args', '-r', f'__node:={name}', *arguments],
            variables,
            folder,
            program=str(Path(workspace['CONTAINERS'], kind)),
        )
        stack.callback(process.stop)
        return Container(process, f'/{name}')

    with ExitStack() as stack:  # One that fails to stop leaves none running.
        yield start_one
