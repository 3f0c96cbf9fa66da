"""The virtual environment of `./dev`: its Python, folders and environment variables.

Two kinds: with ROS 2 from PyPI if none is sourced (.venv), or on top of the sourced ROS 2
(.venv-humble and so on). The modules of this folder run before anything is installed: standard
library only.
"""

from __future__ import annotations

from dataclasses import dataclass
import json
import os
from pathlib import Path
import platform
import shutil
import subprocess
import sys

CHECKOUT = Path(__file__).resolve().parent.parent
REQUIREMENTS = CHECKOUT / 'standalone/requirements'
INTERFACES = CHECKOUT / 'standalone/interfaces'
WHEELS = '-wheels'  # End of the folder of another release of ROS 2 from PyPI than Jazzy.
RELEASES = ('jazzy', 'kilted')
HOOK_DONE = {'_ROS_WHEELS_BOOTSTRAP_COMPLETE': '1'}  # Otherwise the wheels start Python twice.


class SetupError(Exception):
    """An error of the set-up: problem, cause, remedy."""

    def __init__(self, problem: str, *, cause: str = '', remedy: str) -> None:
        lines = [problem, cause and f'Cause: {cause}', f'Remedy: {remedy}']
        super().__init__('\n'.join(filter(None, lines)))


@dataclass(frozen=True)
class Base:
    """The Python that the virtual environment is made from."""

    executable: str
    version: str  # as in '3.12'
    include: Path  # where Python.h belongs
    has_ensurepip: bool

    @classmethod
    def of(cls, executable: str) -> Base:
        """Query a Python executable."""
        code = (
            'import importlib.util as u, json, sys, sysconfig; print(json.dumps(dict('
            'executable=getattr(sys, "_base_executable", sys.executable),'
            'version="%d.%d" % sys.version_info[:2], include=sysconfig.get_paths()["include"],'
            'has_ensurepip=bool((s := u.find_spec("ensurepip")) and s.origin))))'
        )
        # Not -S: Debian's site module sets the header folder. HOOK_DONE disables the wheels' hook.
        answer = json.loads(
            subprocess.check_output(
                [executable, '-I', '-c', code], text=True, env=os.environ | HOOK_DONE
            )
        )
        answer['executable'] = os.path.realpath(answer['executable'])
        return cls(**answer | {'include': Path(answer['include'])})


@dataclass(frozen=True)
class Environment:
    """
    A virtual environment and the state of its set-up.

    :param distro: the sourced ROS 2 that it extends, as in 'jazzy'; '' contains ROS 2 from PyPI.
    """

    folder: Path
    base: str
    distro: str

    @property
    def python(self) -> Path:
        """Path of the Python executable."""
        return self.folder / 'bin/python'

    @property
    def notes(self) -> Path:
        """Folder of the fingerprints of completed steps."""
        return self.folder / '.trt_ros'

    @property
    def site_packages(self) -> Path:
        """Folder of the installed packages."""
        return next(self.folder.glob('lib/python3.*/site-packages'))

    @property
    def headers(self) -> Path:
        """Folder of the header files of Debian's package, if the machine has none installed."""
        return self.notes / 'headers'

    @property
    def include(self) -> Path:
        """The folder of Python.h."""
        fetched = next(self.headers.glob('usr/include/python3.*'), None)
        return fetched or Base.of(str(self.python)).include

    @property
    def ros_groups(self) -> tuple[str, ...]:
        """The requirement files of ROS 2 from PyPI; () if one is sourced."""
        release = self.folder.name.removeprefix('.venv').removesuffix(WHEELS).replace('-', '_')
        return () if self.distro else (f'ros{release}', 'build')

    @property
    def groups(self) -> tuple[str, ...]:
        """The requirement files that apply."""
        gpu = ('gpu',) if platform.machine() == 'x86_64' else ()  # No wheels for other machines.
        return (*self.ros_groups, 'runtime', *gpu, 'test', 'docs')

    def variables(self) -> dict[str, str]:
        """Return the environment variables for programs in this environment."""
        own = dict(os.environ)
        for name in ('PYTHONHOME', 'PYTHON'):
            own.pop(name, None)
        # Tests start hundreds of processes, each of which would compile all modules.
        if own.pop('PYTHONDONTWRITEBYTECODE', None):
            own.setdefault('PYTHONPYCACHEPREFIX', str(self.notes / 'bytecode'))

        def prepend(name: str, *values: object) -> None:
            kept = [part for part in own.get(name, '').split(':') if part]
            mine = [str(value) for value in values]
            own[name] = ':'.join(mine + [part for part in kept if part not in mine])

        if not self.distro:
            # Parts of another ROS would crash this one.
            for name in ('PYTHONPATH', 'AMENT_PREFIX_PATH', 'CMAKE_PREFIX_PATH'):
                own.pop(name, None)
            prepend('CMAKE_PREFIX_PATH', self.folder)
            prepend(
                'LD_LIBRARY_PATH',
                self.folder / 'lib',
                *sorted(self.site_packages.glob('ros_*.libs')),
            )
            own |= HOOK_DONE
        prepend('PATH', self.folder / 'bin')
        prepend('PYTHONPATH', CHECKOUT)
        prepend('AMENT_PREFIX_PATH', self.folder)
        if 'ROS_HOME' not in own:
            # Otherwise every node leaves a log file in ~/.ros.
            own.setdefault('ROS_LOG_DIR', str(CHECKOUT / 'log/ros'))
        return own | {'VIRTUAL_ENV': str(self.folder)}


def choose_environment() -> Environment:
    """
    Return the sourced ROS's environment where its Python works, else the one from PyPI.

    :raises SetupError: if TRT_ROS_WHEELS is a release of which PyPI has no wheels.
    """
    base = os.path.realpath(getattr(sys, '_base_executable', sys.executable))
    release = os.environ.get('TRT_ROS_WHEELS', '')
    if release and release not in RELEASES:
        raise SetupError(
            f'There are no wheels of ROS 2 {release!r}.',
            remedy=f'Choose one of {", ".join(RELEASES)}.',
        )
    if release:
        name = '.venv' if release == 'jazzy' else f'.venv-{release}{WHEELS}'
        return Environment(CHECKOUT / name, base, '')
    distro = os.environ.get('ROS_DISTRO', '')
    if distro and 'AMENT_PREFIX_PATH' in os.environ:
        folder = CHECKOUT / f'.venv-{distro}'
        for python in dict.fromkeys([base, shutil.which('python3') or base, '/usr/bin/python3']):
            if (folder / '.trt_ros/package').exists() or imports(python, 'rclpy'):
                return Environment(folder, os.path.realpath(python), distro)
        report(
            f'ROS 2 {distro} is sourced, but its rclpy cannot be imported; using ROS 2 from PyPI.'
        )
    return Environment(CHECKOUT / '.venv', base, '')


def imports(python: str, *modules: str) -> bool:
    """Return whether a Python executable can import modules."""
    code = ';'.join(f'import {module}' for module in modules)
    return subprocess.run([python, '-c', code], capture_output=True).returncode == 0


def report(text: str) -> None:
    """Print a line for the user."""
    print(f'dev: {text}', file=sys.stderr, flush=True)


def write(path: Path, text: str) -> None:
    """Write a file atomically."""
    path.parent.mkdir(parents=True, exist_ok=True)
    part = path.with_name(path.name + '.part')
    part.write_text(text)
    part.replace(path)
