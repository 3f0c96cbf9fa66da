"""The plugin for C++ containers and the version of Python."""

import os
from pathlib import Path
import subprocess
import sys

import pytest

from support.cpp_containers import load_camera

pytestmark = pytest.mark.cpp

CHECKOUT = Path(__file__).parents[3]
THIS = f'{sys.version_info.major}.{sys.version_info.minor}'


def test_another_python_in_the_process_is_the_load_error(start, tmp_path):
    source, library = tmp_path / 'python.c', tmp_path / 'libother_python.so'
    source.write_text('const char *Py_GetVersion(void) { return "3.99.1 (main)"; }')
    subprocess.check_call(['cc', '-shared', '-fPIC', '-o', str(library), str(source)])
    container = start(LD_PRELOAD=str(library))
    camera = load_camera(container)
    answer = container.load('trt_ros::DetectorNode', 'trt_ros')
    assert not answer.success
    for text in (
        f'The plugin of trt_ros is for Python {THIS}, but this process has loaded Python 3.99.1.',
        f'Cause: {library} was loaded before',
        'Remedy: ',
    ):
        assert text in answer.error_message
    assert container.list() == {camera: '/camera'}


def test_virtual_environment_of_another_python_is_named_in_the_load_error(start, tmp_path):
    python = tmp_path / 'venv/bin/python3'
    python.parent.mkdir(parents=True)
    python.touch(0o755)
    (tmp_path / 'venv/pyvenv.cfg').write_text(f'home = {sys.base_prefix}/bin\nversion = 3.99.1\n')
    path = os.pathsep.join([str(python.parent), os.environ['PATH']])
    container = start(PATH=path, PYTHONPATH=str(tmp_path))
    answer = container.load('trt_ros::DetectorNode', 'trt_ros')
    assert not answer.success
    for text in (
        f'cannot be imported by Python {THIS}.',
        'python3 -c "import trt_ros.container.embedded"',
        f'python3 is {python} there, of a virtual environment of Python 3.99.1.',
    ):
        assert text in answer.error_message


def prefix_of_other_python(prefix, root):
    """Make an installation like `prefix` whose Python modules are of Python 3.99."""
    (root / 'lib').mkdir()
    for each in prefix.iterdir():
        if each.name != 'lib':
            (root / each.name).symlink_to(each)
    for each in (prefix / 'lib').iterdir():
        if not each.name.startswith('python3'):
            (root / 'lib' / each.name).symlink_to(each)
    (root / 'lib/python3.99/site-packages/sensor_msgs').mkdir(parents=True)


def test_the_build_refuses_a_python_that_is_not_that_of_ros(rclcpp, tmp_path):
    found = [Path(each) for each in rclcpp.get('CMAKE_PREFIX_PATH', '').split(':')]
    if not any((each / 'share/rclcpp_components/cmake').exists() for each in found):
        pytest.skip('the CMake files of rclcpp_components are missing')
    index = 'share/sensor_msgs/cmake'
    prefix = next(each for each in found if (each / index).exists())
    other = tmp_path / 'ros'
    other.mkdir()
    prefix_of_other_python(prefix, other)
    configure = subprocess.run(
        ['cmake', '-S', CHECKOUT, '-B', tmp_path / 'build', f'-Dsensor_msgs_DIR={other / index}'],
        env=rclcpp,
        text=True,
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
    )
    output = ' '.join(configure.stdout.split())  # CMake wraps lines.
    assert configure.returncode == 1, configure.stdout
    assert f'Plugin for C++ containers: Python {THIS}' in output
    assert f'The plugin for C++ containers cannot be built for Python {THIS}' in output
    assert 'is not the Python of the ROS installation; its modules are ' in output
    assert 'Remedy: Deactivate the virtual environment' in output
