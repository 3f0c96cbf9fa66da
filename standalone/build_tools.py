"""Tools that this machine must have: compiler, header files, modules of the sourced ROS 2."""

from __future__ import annotations

import os
import platform
import shutil
import subprocess

from commands import run
from environment import Base, Environment, SetupError, imports, report

# ROS imports of the package: module, Debian package after `ros-<distro>-` or as it is.
ROS_MODULES = {
    'sensor_msgs.msg': 'ros-{}-sensor-msgs',
    'vision_msgs.msg': 'ros-{}-vision-msgs',
    'diagnostic_msgs.msg': 'ros-{}-diagnostic-msgs',
    'lifecycle_msgs.srv': 'ros-{}-lifecycle-msgs',
    'composition_interfaces.srv': 'ros-{}-composition-interfaces',
    'numpy': 'python3-numpy',
    'cv2': 'python3-opencv',
    'yaml': 'python3-yaml',
    'scipy': 'python3-scipy',
}


def check_tools(environment: Environment, base: Base) -> None:
    """
    Check that this machine has all required tools.

    :raises SetupError: names everything that is missing.
    """
    missing: dict[str, str] = {}  # description: Debian package
    if not base.has_ensurepip:
        missing[f'the venv module of {base.executable}'] = f'python{base.version}-venv'
    if environment.distro:
        missing |= {
            f'the Python module {module}': package.format(environment.distro)
            for module, package in ROS_MODULES.items()
            if not imports(base.executable, module)
        }
    else:
        if platform.system() != 'Linux' or platform.machine() != 'x86_64':
            raise SetupError(
                'There is no ROS 2 on PyPI for this machine.',
                cause=f'Its wheels are for Linux on x86_64; this is {platform.system()} on '
                f'{platform.machine()}.',
                remedy='Install ROS 2 (Humble, Jazzy or Kilted) with its apt packages, source '
                'its setup.bash and start again: ./dev then uses it.',
            )
        if not compiles():
            missing['a C++ compiler'] = 'g++'
        if not (base.include / 'Python.h').exists() and not can_fetch_headers(base):
            missing[f'the header files of {base.executable}'] = f'python{base.version}-dev'
    if missing:
        raise SetupError(
            f'This machine lacks {" and ".join(missing)}.',
            remedy=f'Debian, Ubuntu: sudo apt install {" ".join(missing.values())}',
        )


def can_fetch_headers(base: Base) -> bool:
    """Return whether the header files can be extracted from a Debian package."""
    return base.executable.startswith('/usr/bin/') and bool(
        shutil.which('apt-get') and shutil.which('dpkg-deb')
    )


def fetch_headers(environment: Environment, base: Base) -> None:
    """Extract the header files of Python from Debian's package, without installing it."""
    package = f'libpython{base.version}-dev'
    report(f'fetching the header files of Python {base.version}')
    folder = environment.headers
    folder.mkdir(parents=True)
    try:
        run(['apt-get', 'download', package], environment, 'headers', folder=folder)
        archive = next(folder.glob('*.deb'))
        run(['dpkg-deb', '--extract', str(archive), str(folder)], environment, 'headers')
    except (SetupError, StopIteration) as error:
        raise SetupError(
            f'This machine lacks the header files of {base.executable}.',
            remedy=f'Debian, Ubuntu: sudo apt install python{base.version}-dev',
        ) from error
    archive.unlink()


def compiles() -> bool:
    """Return whether a C and a C++ compiler with standard libraries are installed."""
    for name, language, header in (('CC', 'c', 'stdio.h'), ('CXX', 'c++', 'string')):
        default = ('cc', 'gcc') if name == 'CC' else ('c++', 'g++')
        candidates = [os.environ[name]] if os.environ.get(name) else default
        compiler = next(filter(None, map(shutil.which, candidates)), None)
        if (
            compiler is None
            or subprocess.run(
                [compiler, '-x', language, '-fsyntax-only', '-'],
                text=True,
                input=f'#include <{header}>\n',
                capture_output=True,
            ).returncode
        ):
            return False
    return True
