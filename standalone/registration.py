"""The checkout as the installed ROS package `trt_ros`."""

from __future__ import annotations

import configparser
from pathlib import Path
import shutil

from environment import CHECKOUT, Environment, write


def link_package(environment: Environment) -> None:
    """Register the checkout in place as the ROS package `trt_ros`."""
    folder = environment.folder
    shutil.rmtree(folder / 'share/trt_ros', ignore_errors=True)  # Does not follow its links.
    for name, target in links().items():
        link = folder / 'share' / name
        link.parent.mkdir(parents=True, exist_ok=True)
        link.unlink(missing_ok=True)
        link.symlink_to(target)
    components = entry_points()['rclpy_components'].strip().replace(' = ', ';')
    write(folder / 'share/ament_index/resource_index/rclcpp_components/trt_ros', components + '\n')
    # As written by pip, so that importlib.metadata finds the entry points.
    metadata = environment.site_packages / 'trt_ros.dist-info'
    write(metadata / 'METADATA', 'Metadata-Version: 2.1\nName: trt_ros\nVersion: 0\n')
    write(
        metadata / 'entry_points.txt',
        '\n'.join(f'[{group}]\n{lines.strip()}\n' for group, lines in entry_points().items()),
    )
    shutil.rmtree(folder / 'lib/trt_ros', ignore_errors=True)
    for name, place in executables().items():
        module, function = place.split(':')
        for path in (folder / 'lib/trt_ros' / name, folder / 'bin' / name):
            if path.parent.name == 'bin' and name != 'trt-ros':
                continue
            write(
                path,
                f'#!{environment.python}\nimport sys\n\nfrom {module} import {function}\n\n'
                # Worker processes of multiprocessing import the script.
                f"if __name__ == '__main__':\n    sys.exit({function}())\n",
            )
            path.chmod(0o755)


def links() -> dict[str, Path]:
    """Return the links of the share folder to files of the checkout, by name."""
    shown = [
        CHECKOUT / 'package.xml',
        *(CHECKOUT / 'config').glob('*'),
        *(CHECKOUT / 'launch').glob('*.launch.py'),
    ]
    return {
        **{f'trt_ros/{path.relative_to(CHECKOUT)}': path for path in sorted(shown)},
        'trt_ros/standalone': CHECKOUT / 'resource/standalone',
        'ament_index/resource_index/packages/trt_ros': CHECKOUT / 'resource/trt_ros',
    }


def entry_points() -> dict[str, str]:
    """Return the entry points of setup.cfg by group, one 'name = place' per line."""
    parser = configparser.ConfigParser()
    parser.read(CHECKOUT / 'setup.cfg')
    return dict(parser['options.entry_points'])


def executables() -> dict[str, str]:
    """Return the package's executables, name: 'module:function'."""
    lines = entry_points()['console_scripts'].strip().split('\n')
    pairs = (line.split('=', 1) for line in lines)
    return {name.strip(): place.strip() for name, place in pairs}
