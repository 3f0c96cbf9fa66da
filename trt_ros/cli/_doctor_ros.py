"""Checks of `trt-ros doctor` for ROS 2."""

from collections.abc import Iterator
from importlib.util import find_spec
import os
from pathlib import Path
import re
import sys

from trt_ros.cli._finding import Finding

#: Releases that lack what the nodes need.
OLDER = ('foxy', 'galactic', 'iron')


def ros_findings(root: Path) -> Iterator[Finding]:
    """
    Check ROS 2, its Python, and its memory for images.

    :param root: root folder of the system.
    """
    rclpy = _rclpy()
    yield _ros(root, rclpy)
    if rclpy:
        yield from _fast_dds()


def _rclpy() -> str:
    """Return the path of rclpy, '' without it; does not import it."""
    spec = find_spec('rclpy')
    return (spec and spec.origin) or ''


def _ros(root: Path, rclpy: str) -> Finding:
    distro = os.environ.get('ROS_DISTRO', '')
    if not rclpy:
        return _without_rclpy(root, distro)
    here = f'python{sys.version_info.major}.{sys.version_info.minor}'
    built_for = re.findall(r'/(python3\.\d+)/', rclpy)
    if built_for and built_for[-1] != here:
        return Finding(
            'ros',
            'problem',
            f'rclpy of {distro or rclpy} is built for {built_for[-1]}, this is {here}',
            f'use /usr/bin/{built_for[-1]}, or a virtual environment of it with '
            '--system-site-packages',
        )
    if distro in OLDER:
        return Finding(
            'ros', 'problem', f'{distro} is not supported', 'use Humble, Jazzy, Kilted or Lyrical'
        )
    middleware = os.environ.get('RMW_IMPLEMENTATION', 'the default')
    return Finding('ros', 'ok', f'{distro or "rclpy found"}, middleware: {middleware}')


def _without_rclpy(root: Path, distro: str) -> Finding:
    if distro:
        return Finding(
            'ros',
            'problem',
            f'ROS_DISTRO is {distro}, but this Python has no rclpy',
            f'source /opt/ros/{distro}/setup.bash, and use its python3',
        )
    releases = sorted(path.parent.name for path in (root / 'opt/ros').glob('*/setup.bash'))
    return Finding(
        'ros',
        'missing',
        'no rclpy: the nodes cannot run, the command line can'
        + (f'; installed, but not sourced: {", ".join(releases)}' if releases else ''),
        f'source /opt/ros/{releases[-1] if releases else "DISTRO"}/setup.bash',
    )


def _fast_dds() -> Iterator[Finding]:
    """Check whether images sent from here fit into Fast DDS's memory; see docs/qos.md."""
    environment = os.environ
    if not environment.get('RMW_IMPLEMENTATION', 'rmw_fastrtps_cpp').startswith('rmw_fastrtps'):
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
