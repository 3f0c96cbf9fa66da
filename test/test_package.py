"""The package as ROS sees it: package.xml, setup.cfg, what gets installed."""

import configparser
from importlib import import_module
from importlib.util import find_spec
import os
from pathlib import Path
import re
import shutil
import subprocess
import sys

import pytest

from trt_ros.nodes import NODES

CHECKOUT = Path(__file__).parent.parent
SOURCES = ('*', 'resource/**/*', 'standalone/**/*', 'cpp/**/*', 'launch/*', 'trt_ros/**/*.py')


@pytest.fixture(scope='module')
def setup_cfg() -> configparser.ConfigParser:
    parser = configparser.ConfigParser()
    parser.read(CHECKOUT / 'setup.cfg')
    return parser


def executables(setup_cfg) -> dict[str, str]:
    lines = setup_cfg['options.entry_points']['console_scripts'].strip().splitlines()
    return dict(re.split(r'\s*=\s*', line, maxsplit=1) for line in lines)


def test_ros_accepts_package_xml():
    package_xml = pytest.importorskip('catkin_pkg.package')
    warnings: list[str] = []
    package = package_xml.parse_package(str(CHECKOUT / 'package.xml'), warnings=warnings)
    package.validate(warnings=warnings)
    assert warnings == []
    assert package.name == 'trt_ros'
    assert package.get_build_type() == 'ament_cmake'
    assert package.licenses == ['Apache-2.0']
    assert (CHECKOUT / package.licenses[0].file).is_file()


# catkin_pkg is older than docutils.
@pytest.mark.filterwarnings('ignore::DeprecationWarning', 'ignore::PendingDeprecationWarning')
def test_the_version_is_the_same_everywhere(setup_cfg):
    package_xml = pytest.importorskip('catkin_pkg.package')
    changelog = pytest.importorskip('catkin_pkg.changelog')
    version = package_xml.parse_package(str(CHECKOUT / 'package.xml')).version
    assert setup_cfg['metadata']['version'] == version
    newest = next(changelog.get_changelog_from_path(str(CHECKOUT), 'trt_ros').foreach_version())
    assert newest[0] == version


def test_every_dependency_is_a_key_of_rosdep():
    """With TRT_ROS_ROSDISTRO, a checkout of ros/rosdistro, the stored keys are checked, too."""
    used = set(re.findall(r'<(?:\w+_)?depend>([\w-]+)<', (CHECKOUT / 'package.xml').read_text()))
    stored = (CHECKOUT / 'test/support/rosdep_keys.txt').read_text().splitlines()[1:]
    assert used <= set(stored)
    if not (folder := os.environ.get('TRT_ROS_ROSDISTRO')):
        return
    system = ''.join(path.read_text() for path in Path(folder, 'rosdep').glob('*.yaml'))
    for distro in ('humble', 'jazzy', 'kilted', 'lyrical'):
        text = system + Path(folder, distro, 'distribution.yaml').read_text()
        found = set(re.findall(r'^(?: {6}- | {2}|)([\w-]+):?$', text, re.MULTILINE))
        assert set(stored) - found == set(), distro


def test_every_ros_package_imported_is_a_dependency():
    package_xml = pytest.importorskip('catkin_pkg.package')
    package = package_xml.parse_package(str(CHECKOUT / 'package.xml'))
    declared = {dependency.name for dependency in package.exec_depends}
    sources = '\n'.join(path.read_text() for path in (CHECKOUT / 'trt_ros').rglob('*.py'))
    used = set(
        re.findall(
            r'^ *(?:from|import) (\w+_(?:msgs|interfaces|ros)|rclpy|launch)\b',
            sources,
            flags=re.MULTILINE,
        )
    )
    # rosdep has no key for Isaac's tensors; without them only the tensor node cannot start. tf2 is
    # needed for target_frame only, and its messages for the robot demo; stereo_msgs for disparity.
    optional = {'isaac_ros_tensor_list_interfaces', 'stereo_msgs', 'tf2_ros', 'tf2_msgs'}
    assert used - declared - optional - {'trt_ros'} == set()


def test_setup_cfg_matches_the_table_of_nodes(setup_cfg):
    found = executables(setup_cfg)
    containers = {'component_container', 'component_container_mt'}
    assert found.keys() == {*NODES, *containers, 'trt-ros'}
    for place in found.values():
        module, function = place.split(':')
        assert callable(getattr(import_module(module), function)), place
    components = setup_cfg['options.entry_points']['rclpy_components'].strip().splitlines()
    assert components == [f'trt_ros::{c} = trt_ros.nodes.{n}:{c}' for n, c in NODES.items()]


@pytest.mark.slow
def test_only_the_table_of_nodes_and_setup_cfg_list_the_nodes():
    names = [(f'\'{name}\'|"{name}"', rf'\b{cls}\b') for name, cls in NODES.items()]
    lists = []
    for path in (path for folder in SOURCES for path in CHECKOUT.glob(folder) if path.is_file()):
        text = path.read_text(errors='replace')
        if any(sum(bool(re.search(each, text)) for each in kind) > 7 for kind in zip(*names)):
            lists.append(str(path.relative_to(CHECKOUT)))
    assert lists == ['setup.cfg', 'trt_ros/nodes/__init__.py']


@pytest.fixture
def source(tmp_path) -> Path:
    """Return a copy of the checkout, in which the build may write."""
    not_source = shutil.ignore_patterns('.*', '__pycache__', 'generated')

    def left_out(folder, names):
        products = {'build', 'install', 'log'} if Path(folder) == CHECKOUT else set()
        return not_source(folder, names) | products & set(names)

    shutil.copytree(CHECKOUT, tmp_path / 'source', ignore=left_out)
    return tmp_path / 'source'


def check_installation(prefix: Path, setup_cfg) -> None:
    def installed(pattern):
        return {path.name for path in prefix.glob(pattern)}

    for index in ('packages', 'rclcpp_components'):
        assert installed(f'share/ament_index/resource_index/{index}/*') == {'trt_ros'}
    assert 'package.xml' in installed('share/trt_ros/*')
    for folder in ('config', 'launch'):
        shipped = {path.name for path in (CHECKOUT / folder).glob('*') if path.is_file()}
        assert installed(f'share/trt_ros/{folder}/*') == shipped
    container = prefix / 'share/trt_ros/standalone/lib/rclcpp_components/component_container'
    assert os.access(container, os.X_OK)
    assert installed('share/trt_ros/standalone/share/ament_index/resource_index/packages/*') == {
        'rclcpp_components'
    }
    assert installed('lib/trt_ros/*') == set(executables(setup_cfg))
    assert all(os.access(path, os.X_OK) for path in prefix.glob('lib/trt_ros/*'))
    assert os.access(prefix / 'bin/trt-ros', os.X_OK)  # On PATH.
    assert installed('lib/python*/site-packages/trt_ros/py.typed')  # Type checkers look for it.
    check_modules(prefix)


def check_modules(prefix: Path) -> None:
    for path in (CHECKOUT / 'trt_ros').rglob('*'):
        if path.is_file() and '__pycache__' not in path.parts:
            name = path.relative_to(CHECKOUT)
            assert next(prefix.glob(f'lib/python*/site-packages/{name}'), None), f'{name} is not'


@pytest.mark.nightly
def test_pip_installs_the_library_and_the_command_line_with_its_dependencies(source, tmp_path):
    prefix = tmp_path / 'install'
    pip = [sys.executable, '-m', 'pip', 'install', '--quiet', '--no-deps', '--no-build-isolation']
    done = subprocess.run(
        [*pip, '--ignore-installed', '--no-warn-script-location', f'--prefix={prefix}', source],
        text=True,
        capture_output=True,
    )
    assert done.returncode == 0, done.stderr
    assert [path.name for path in prefix.glob('bin/*')] == ['trt-ros']
    (metadata,) = prefix.glob('lib/python*/site-packages/trt_ros-*/METADATA')
    required = re.findall(r'^Requires-Dist: ([\w-]+)$', metadata.read_text(), re.MULTILINE)
    runtime = (CHECKOUT / 'standalone/requirements/runtime.txt').read_text()
    pinned = set(re.findall(r'^([\w-]+)==', runtime, re.MULTILINE))
    assert set(required) == pinned - {'mcap', 'av'}  # The extras recordings and video.
    check_modules(prefix)
    environment = {**os.environ, 'PYTHONPATH': str(metadata.parents[1])}
    shown = subprocess.run(
        [sys.executable, prefix / 'bin/trt-ros', '--help'], env=environment, capture_output=True
    )
    assert b'usage: trt-ros' in shown.stdout


@pytest.mark.nightly
def test_cmake_without_rclcpp_installs_the_nodes_and_names_the_cause(setup_cfg, source, tmp_path):
    """Build and install the package as colcon does."""
    cmake = shutil.which('cmake')
    if cmake is None or find_spec('ament_package') is None:
        pytest.skip('needs CMake and ament_cmake')
    prefix, build = tmp_path / 'install', tmp_path / 'build'
    environment = {k: v for k, v in os.environ.items() if k != 'PYTHONWARNINGS'}

    def run(*arguments: object) -> str:
        done = subprocess.run(
            [cmake, *map(str, arguments)],
            env=environment,
            text=True,
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
        )
        assert done.returncode == 0, done.stdout
        return done.stdout

    report = run(
        *('-S', source, '-B', build, f'-DCMAKE_INSTALL_PREFIX={prefix}'),
        *(
            f'-DPython3_EXECUTABLE={sys.executable}',
            '-DCMAKE_DISABLE_FIND_PACKAGE_rclcpp_components=1',
        ),
    )
    assert 'CMake Warning at CMakeLists.txt' in report
    assert '  trt_ros is built without the plugin for C++ containers.\n' in report
    assert '  Cause: rclcpp_components not found.\n' in report
    run('--build', build, '--target', 'install')
    check_installation(prefix, setup_cfg)
    index = 'share/ament_index/resource_index/rclcpp_components/trt_ros'
    # Part of the error of a C++ container; the containers of trt_ros use the entry points.
    plugin = 'lib/libtrt_ros_components.so (not built: rclcpp_components not found)'
    components = setup_cfg['options.entry_points']['rclpy_components'].strip().splitlines()
    names = [line.partition(' = ')[0] for line in components]
    assert (prefix / index).read_text().splitlines() == [f'{name};{plugin}' for name in names]
    (entry_points,) = prefix.glob('lib/python*/site-packages/trt_ros-*/entry_points.txt')
    for group in setup_cfg['options.entry_points']:
        assert f'[{group}]' in entry_points.read_text()


@pytest.mark.slow
def test_a_test_that_waits_in_vain_ends_with_the_stacks_of_its_threads(tmp_path):
    (tmp_path / 'test_it.py').write_text(
        'import threading\ndef test_it():\n    threading.Event().wait()\n'
    )
    options = ('-c', CHECKOUT / 'pyproject.toml', '--rootdir', tmp_path, '-n', '1')
    limit = ('-o', 'faulthandler_timeout=1', tmp_path)
    command = [sys.executable, '-m', 'pytest', '-p', 'xdist', *options, *limit]
    ran = subprocess.run(command, cwd=tmp_path, text=True, capture_output=True, timeout=600)
    assert ran.returncode == 1
    assert 'test_it.py", line 3 in test_it' in ran.stdout + ran.stderr
    assert 'FAILED test_it.py::test_it' in ran.stdout
