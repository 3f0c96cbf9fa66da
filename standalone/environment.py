"""
Virtual environment of `./dev`: set-up, and the verbs that run in it.

Two kinds: with ROS 2 from PyPI if none is sourced (.venv), or on top of the sourced ROS 2
(.venv-humble and so on). Runs before anything is installed: standard library only.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from concurrent.futures import ThreadPoolExecutor
import configparser
from contextlib import contextmanager
from dataclasses import dataclass
import fcntl
import hashlib
import json
import os
from pathlib import Path
import platform
import re
import shutil
import subprocess
import sys
import time

CHECKOUT = Path(__file__).resolve().parent.parent
REQUIREMENTS = CHECKOUT / 'standalone/requirements'
INTERFACES = CHECKOUT / 'standalone/interfaces'
RECIPE = '1'  # Increase it when environments made by older versions must be rebuilt.

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
}
OWNED_BY_ROS = ('numpy', 'opencv-python-headless', 'PyYAML')  # Their wheels would shadow ROS's.

NO_NETWORK = re.compile(
    'NewConnectionError|NameResolutionError|ConnectTimeoutError|ReadTimeoutError|ProxyError|'
    'Network is unreachable|Connection refused|Temporary failure in name resolution'
)


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


HOOK_DONE = {'_ROS_WHEELS_BOOTSTRAP_COMPLETE': '1'}  # Otherwise the wheels start Python twice.


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
    def groups(self) -> tuple[str, ...]:
        """The requirement files that apply."""
        gpu = ('gpu',) if platform.machine() == 'x86_64' else ()  # No wheels for other machines.
        return (
            ('runtime', *gpu, 'test', 'docs')
            if self.distro
            else ('ros', 'build', 'runtime', *gpu, 'test', 'docs')
        )

    def variables(self) -> dict[str, str]:
        """Return the environment variables for programs in this environment."""
        own = dict(os.environ)
        for name in ('PYTHONHOME', 'PYTHON'):
            own.pop(name, None)

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


def main(arguments: list[str]) -> int:
    """Complete the set-up, then run the verb; return only if it could not be started."""
    verb, rest = arguments[0], arguments[1:]
    if verb not in VERBS:
        say(f'unknown verb {verb!r}; available: {", ".join(VERBS)}. See ./dev --help')
        return 2
    try:
        environment = choose_environment()
        set_up(environment)
        return VERBS[verb](environment, rest)
    except SetupError as error:
        say(str(error))
    except KeyboardInterrupt:
        say('interrupted; the next start continues from here.')
        return 130
    return 1


def say(text: str) -> None:
    """Print a line for the user."""
    print(f'dev: {text}', file=sys.stderr, flush=True)


# ---------------------------------------------------------------------------- which environment


def choose_environment() -> Environment:
    """Return the sourced ROS's environment where its Python works, else the one from PyPI."""
    base = os.path.realpath(getattr(sys, '_base_executable', sys.executable))
    distro = os.environ.get('ROS_DISTRO', '')
    if distro and 'AMENT_PREFIX_PATH' in os.environ:
        folder = CHECKOUT / f'.venv-{distro}'
        for python in dict.fromkeys([base, shutil.which('python3') or base, '/usr/bin/python3']):
            if (folder / '.trt_ros/package').exists() or imports(python, 'rclpy'):
                return Environment(folder, os.path.realpath(python), distro)
        say(f'ROS 2 {distro} is sourced, but its rclpy cannot be imported; using ROS 2 from PyPI.')
    return Environment(CHECKOUT / '.venv', base, '')


def imports(python: str, *modules: str) -> bool:
    """Return whether a Python executable can import modules."""
    code = ';'.join(f'import {module}' for module in modules)
    return subprocess.run([python, '-c', code], capture_output=True).returncode == 0


# --------------------------------------------------------------------------------------- set-up


def set_up(environment: Environment) -> None:
    """Run the steps whose fingerprint changed; concurrent calls wait for each other."""
    if not stale_steps(environment):
        return
    with one_at_a_time():
        steps = stale_steps(environment)
        if 'venv' in steps:
            say(f'setting up in {environment.folder}, once: one to three minutes, up to 1.5 GB')
        began = time.monotonic()
        for name in steps:
            STEPS[name](environment)
            write(environment.notes / name, fingerprint(environment, name))
        if steps and steps != ['package']:
            say(f'ready after {time.monotonic() - began:.0f} s')


def stale_steps(environment: Environment) -> list[str]:
    """Return the names of the steps to run, in order."""

    def is_done(name: str) -> bool:
        try:
            note = (environment.notes / name).read_text()
        except OSError:
            return False
        return note == fingerprint(environment, name)

    names = [name for name in STEPS if not (name == 'interfaces' and environment.distro)]
    # Packages whose unpacking was interrupted can look complete to pip.
    if not is_done('venv') or (environment.notes / 'unpacking').exists():
        return names
    return [name for name in names if not is_done(name)]


def fingerprint(environment: Environment, step: str) -> str:
    """Return a digest of everything that the result of a step depends on."""
    parts: list[object] = [RECIPE, step, environment]
    if step == 'packages':
        parts += [path.read_text() for path in requirement_files(environment)]
    elif step == 'interfaces':
        parts += [(REQUIREMENTS / f'{group}.txt').read_text() for group in ('ros', 'build')]
        parts += [
            (path.name, path.read_text())
            for path in sorted(INTERFACES.glob('**/*'))
            if path.is_file()
        ]
    elif step == 'package':
        parts += [entry_points(), links()]
    return hashlib.sha256(repr(parts).encode()).hexdigest()


@contextmanager
def one_at_a_time() -> Iterator[None]:
    """Lock this file's folder, which is outside the environment."""
    folder = os.open(Path(__file__).parent, os.O_RDONLY)
    try:
        try:
            fcntl.flock(folder, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            say('another ./dev is setting up; waiting for it')
            fcntl.flock(folder, fcntl.LOCK_EX)
        yield
    finally:
        os.close(folder)


def write(path: Path, text: str) -> None:
    """Write a file atomically."""
    path.parent.mkdir(parents=True, exist_ok=True)
    part = path.with_name(path.name + '.part')
    part.write_text(text)
    part.replace(path)


def make_venv(environment: Environment) -> None:
    """Create the virtual environment, with header files of Python if they are missing."""
    base = Base.of(environment.base)
    check_tools(environment, base)
    say(f'making a virtual environment with Python {base.version} ({base.executable})')
    clear(environment.folder)
    options = ['--system-site-packages'] if environment.distro else []
    run(
        [base.executable, '-I', '-m', 'venv', *options, str(environment.folder)],
        environment,
        'venv',
    )
    if not environment.distro and not (base.include / 'Python.h').exists():
        fetch_headers(environment, base)


def clear(folder: Path) -> None:
    """
    Create an empty folder for the virtual environment, replacing one whose set-up failed.

    :raises SetupError: if the path holds something else, or cannot be written.
    """
    if folder.is_symlink() or folder.is_file():
        raise SetupError(
            f'{folder} is in the way.', cause='It is not a folder.', remedy='Delete it.'
        )
    try:
        if folder.exists() and not (folder / 'pyvenv.cfg').exists() and any(folder.iterdir()):
            raise SetupError(
                f'{folder} is in the way.',
                cause='It is not a virtual environment.',
                remedy='Move it away.',
            )
        if folder.exists():
            shutil.rmtree(folder)
        folder.mkdir()
        # First, so that an interrupted environment is recognised as ours.
        write(folder / 'pyvenv.cfg', '')
        write(folder / 'COLCON_IGNORE', '')
    except OSError as error:
        raise SetupError(
            f'Cannot write to {folder}.',
            cause=error.strerror or str(error),
            remedy='Clone trt_ros into a folder that is yours and has 2 GB free.',
        ) from error


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
    say(f'fetching the header files of Python {base.version}')
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


def install_packages(environment: Environment) -> None:
    """Install the requirement files with pip, except packages of the sourced ROS."""
    names = [name for name in environment.groups if name != 'ros']
    lines = [
        line for name in names for line in (REQUIREMENTS / f'{name}.txt').read_text().splitlines()
    ]
    constraints = (REQUIREMENTS / 'constraints.txt').read_text()
    if environment.distro:
        colcon = 'colcon-' if shutil.which('colcon') else '\n'
        lines = [
            line
            for line in lines
            if not line.startswith(colcon) and line.split('==')[0] not in OWNED_BY_ROS
        ]
        # Modules of ROS are compiled for one major version of NumPy.
        numpy_major = int(
            subprocess.check_output(
                [environment.base, '-c', 'import numpy; print(numpy.__version__)'], text=True
            ).split('.')[0]
        )
        constraints += f'numpy<{numpy_major + 1}\n'
    requirements = environment.notes / 'requirements.txt'
    write(requirements, '\n'.join(lines) + '\n')
    write(environment.notes / 'constraints.txt', constraints)
    if not environment.distro:
        say('installing ROS 2 from PyPI')
        # Separately, without dependencies: ros.txt is complete, and would pull in lark-parser.
        pip_install(environment, '--no-deps', '--requirement', str(REQUIREMENTS / 'ros.txt'))
        correct_include_folders(environment)
    say('installing the other packages of trt_ros and its tests')
    pip_install(environment, '--requirement', str(requirements))


def pip_install(environment: Environment, *arguments: str) -> None:
    """
    Run pip and report its progress.

    :raises SetupError: if it fails.
    """
    unpacking = environment.notes / 'unpacking'
    count = 0

    def follow(line: str) -> None:
        nonlocal count
        if line.startswith('Collecting '):
            count += 1
            if count % 25 == 0:
                say(f'  {count} packages found')
        elif line.startswith('Installing collected packages'):
            say('  unpacking')
            unpacking.touch()

    run(
        [
            str(environment.python),
            '-I',
            '-m',
            'pip',
            'install',
            '--no-compile',
            '--use-pep517',
            '--disable-pip-version-check',
            '--progress-bar',
            'off',
            *arguments,
        ],
        environment,
        'pip',
        follow=follow,
    )
    unpacking.unlink(missing_ok=True)


def requirement_files(environment: Environment) -> list[Path]:
    """Return the requirement files that determine the installed packages."""
    return [REQUIREMENTS / f'{name}.txt' for name in ('constraints', *environment.groups)]


def correct_include_folders(environment: Environment) -> None:
    """Replace folders of the build machine in the CMake files of the ROS wheels."""
    include = str(environment.include)
    numpy_include = str(environment.site_packages / 'numpy/_core/include')  # Installed later.
    for path in (environment.folder / 'share').glob('**/*.cmake'):
        before = path.read_text()
        after = re.sub(r'/opt/python/[^;"]*/numpy/_core/include', numpy_include, before)
        after = re.sub(r'/opt/python/[^;"]*/include/python3\.\d+', include, after)
        if after != before:
            write(path, after)


def build_interfaces(environment: Environment) -> None:
    """Build the message packages that PyPI lacks."""
    packages = sorted(path.parent for path in INTERFACES.glob('*/package.xml'))
    say(f'building {", ".join(path.name for path in packages)}')
    build = environment.notes / 'build'
    shutil.rmtree(build, ignore_errors=True)
    site_packages = environment.site_packages.relative_to(environment.folder)
    # Debian's Python.h includes files of its parent folder.
    variables = environment.variables() | {'CPATH': str(environment.headers / 'usr/include')}

    def build_one(source: Path) -> None:
        cmake = str(environment.folder / 'bin/cmake')
        folder = str(build / source.name)
        run(
            [
                cmake,
                '-G',
                'Ninja',
                '-S',
                str(source),
                '-B',
                folder,
                f'-DCMAKE_INSTALL_PREFIX={environment.folder}',
                '-DCMAKE_BUILD_TYPE=MinSizeRel',
                f'-DPython3_EXECUTABLE={environment.python}',
                f'-DPython3_INCLUDE_DIR={environment.include}',
                f'-DPYTHON_INSTALL_DIR={site_packages}',
                '-DBUILD_TESTING=OFF',
            ],
            environment,
            source.name,
            variables=variables,
        )
        run(
            [cmake, '--build', folder, '--target', 'install'],
            environment,
            source.name,
            variables=variables,
        )
        say(f'  {source.name} built')

    # CMake configures on a single core; the other packages compile meanwhile.
    with ThreadPoolExecutor(len(packages)) as pool:
        list(pool.map(build_one, packages))
    shutil.rmtree(build, ignore_errors=True)


def link_package(environment: Environment) -> None:
    """Register the checkout in place as the ROS package `trt_ros`."""
    folder = environment.folder
    shutil.rmtree(folder / 'share/trt_ros', ignore_errors=True)  # Does not follow its links.
    for name, target in links().items():
        link = folder / 'share' / name
        link.parent.mkdir(parents=True, exist_ok=True)
        link.unlink(missing_ok=True)
        link.symlink_to(target)
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
                f'#!{environment.python}\nimport sys\n\nfrom {module} import {function}'
                f'\n\nsys.exit({function}())\n',
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
        **{f'ament_index/resource_index/{kind}/trt_ros': path for kind, path in resources()},
    }


def resources() -> list[tuple[str, Path]]:
    """Return the entries of the ament index for the package: kind and file."""
    return [
        ('packages', CHECKOUT / 'resource/trt_ros'),
        *((path.parent.name, path) for path in CHECKOUT.glob('resource/*/trt_ros')),
    ]


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


STEPS: dict[str, Callable[[Environment], None]] = {
    'venv': make_venv,
    'packages': install_packages,
    'interfaces': build_interfaces,
    'package': link_package,
}


def run(
    command: list[str],
    environment: Environment,
    name: str,
    *,
    follow: Callable[[str], None] = lambda line: None,
    variables: Mapping[str, str] | None = None,
    folder: Path | None = None,
) -> None:
    """
    Run a command with its output in a log file.

    :raises SetupError: if it fails, with a cause and a remedy derived from the output.
    """
    log = environment.notes / f'{name}.log'
    log.parent.mkdir(parents=True, exist_ok=True)
    if variables is None:
        # Keeps the pip settings of the user, except those that install elsewhere. As a variable,
        # the constraints also apply to the build requirements of source packages.
        variables = (
            {
                key: value
                for key, value in os.environ.items()
                if key not in ('PIP_TARGET', 'PIP_PREFIX', 'PIP_ROOT', 'PYTHONHOME')
            }
            | HOOK_DONE
            | {'PIP_USER': '0', 'PIP_CONSTRAINT': str(environment.notes / 'constraints.txt')}
        )
    lines: list[str] = []
    with (
        log.open('a') as file,
        subprocess.Popen(
            command,
            text=True,
            errors='replace',
            env=dict(variables),
            cwd=folder,
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
        ) as process,
    ):
        assert process.stdout is not None
        for line in process.stdout:
            file.write(line)
            lines.append(line.rstrip())
            follow(line)
    if process.returncode:
        raise explain(lines, log, name)


def explain(lines: list[str], log: Path, name: str) -> SetupError:
    """Turn the output of a failed command into a cause and a remedy."""
    output = '\n'.join(lines)
    if 'No space left on device' in output:
        return SetupError('The disk is full.', remedy='Free 2 GB and start again.')
    if name == 'pip' and NO_NETWORK.search(output):
        return SetupError(
            'Cannot reach the Python package index.',
            cause='No network, or a proxy in between.',
            remedy='Connect this machine (behind a proxy: set https_proxy; with an index of '
            'your own: PIP_INDEX_URL) and start again; it continues from here.',
        )
    if name == 'pip' and 'No matching distribution found' in output:
        wanted = output.rsplit('No matching distribution found for ', 1)[1].split('\n')[0]
        return SetupError(
            f'The package index has no {wanted} for this machine.',
            remedy='Use Python 3.12 on an x86_64 machine with glibc 2.28 or newer, or install '
            'ROS 2 with its apt packages and source it.',
        )
    tail = '\n'.join(lines[-15:])
    return SetupError(
        f'Setting up failed at {name}. The end of its output:\n{tail}',
        remedy=f'See {log}. Delete {log.parent.parent} to start over.',
    )


# ---------------------------------------------------------------------------------------- verbs


def become(environment: Environment, *command: str, **more: str) -> int:
    """Replace this process by a command, which then receives the signals."""
    sys.stdout.flush()
    variables = environment.variables() | more
    os.execvpe(command[0], list(command), variables)


def on_this_machine() -> dict[str, str]:
    """Return the variables that keep ROS traffic on this machine, unless the user set them."""
    chosen = os.environ.keys() & {'ROS_AUTOMATIC_DISCOVERY_RANGE', 'ROS_LOCALHOST_ONLY'}
    if chosen:
        return {}
    if os.environ.get('ROS_DISTRO') == 'humble':
        return {'ROS_LOCALHOST_ONLY': '1'}
    return {'ROS_AUTOMATIC_DISCOVERY_RANGE': 'LOCALHOST'}


def demo(environment: Environment, arguments: list[str]) -> int:
    """Run the demo."""
    return become(environment, 'python', '-m', 'trt_ros.demo', *arguments, **on_this_machine())


def run_cli(environment: Environment, arguments: list[str]) -> int:
    """Run the command line of trt_ros."""
    return become(environment, 'python', '-m', 'trt_ros', *arguments)


def shell(environment: Environment, arguments: list[str]) -> int:
    """Open a shell in the environment, or run bash with arguments."""
    if arguments:
        return become(environment, 'bash', *arguments)
    # The user's start-up file may prepend other folders.
    rc = environment.notes / 'bashrc'
    names = ('PATH', 'PYTHONPATH', 'AMENT_PREFIX_PATH', 'LD_LIBRARY_PATH')
    values = environment.variables()
    exports = ''.join(f"export {name}='{values[name]}'\n" for name in names if name in values)
    write(rc, f'[ -f ~/.bashrc ] && . ~/.bashrc\n{exports}PS1="(trt_ros) $PS1"\n')
    return become(environment, 'bash', '--rcfile', str(rc))


def lint_commands(environment: Environment) -> list[list[str]]:
    """Return the commands that check style and types."""
    commands = [['ruff', 'check', '.'], ['ruff', 'format', '--check', '--quiet', '.'], ['mypy']]
    if environment.distro:
        say('types are not checked: they depend on the versions of the sourced ROS')
        commands.pop()
    return commands


def run_together(
    environment: Environment, commands: list[list[str]], meanwhile: Callable[[], int]
) -> int:
    """
    Run commands beside a function that prints, then print their output.

    :returns: the exit code of the function; else 1 where a command failed, 0 where none did.
    """

    def captured(command: list[str]) -> subprocess.CompletedProcess[str]:
        return subprocess.run(
            command,
            cwd=CHECKOUT,
            env=environment.variables(),
            text=True,
            errors='replace',
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
        )

    with ThreadPoolExecutor(len(commands)) as pool:
        running = [pool.submit(captured, command) for command in commands]
        code = meanwhile()
        ended = [each.result() for each in running]
    for command, process in zip(commands, ended):
        verdict = 'failed' if process.returncode else 'passed'
        print(f'$ {" ".join(command)}: {verdict}\n{process.stdout}', end='', flush=True)
    return code or int(any(process.returncode for process in ended))


def workers() -> str:
    """Return the number of processes for pytest: tests with nodes mostly wait."""
    return str(min(len(os.sched_getaffinity(0)) + 1, 8))


def pytest(environment: Environment, *arguments: str, coverage: bool = False) -> int:
    """Run pytest; with `coverage`, also in its child processes, and report at the end."""
    # Plug-ins of a sourced ROS need its older pytest.
    variables = (
        environment.variables() | on_this_machine() | {'PYTEST_DISABLE_PLUGIN_AUTOLOAD': '1'}
    )
    command = ['-m', 'pytest', '-p', 'xdist', *arguments]
    if coverage:
        folder = CHECKOUT / 'build/coverage'
        shutil.rmtree(folder, ignore_errors=True)
        folder.mkdir(parents=True)
        variables['COVERAGE_FILE'] = str(folder / 'data')
        if sys.version_info >= (3, 12):
            variables.setdefault('COVERAGE_CORE', 'sysmon')  # Nearly free, but new.
        command = ['-m', 'coverage', 'run', *command]
    failed = subprocess.run(['python', *command], cwd=CHECKOUT, env=variables).returncode
    if coverage and not failed:
        for step in (['combine', '--quiet'], ['report', '--skip-covered', '--sort=cover']):
            failed = (
                failed
                or subprocess.run(
                    ['python', '-m', 'coverage', *step], cwd=CHECKOUT, env=variables
                ).returncode
            )
    return failed


def check(environment: Environment, arguments: list[str]) -> int:
    """Check style and types beside the fast tests."""
    fast = ('-m', 'not (ros or gpu or slow or soak)', '-q', '-n', workers(), '--dist', 'loadfile')
    return run_together(
        environment, lint_commands(environment), lambda: pytest(environment, *fast, *arguments)
    )


def docs(environment: Environment, arguments: list[str]) -> int:
    """Build the documentation site; warnings are errors."""
    site = CHECKOUT / 'build/docs'
    command = [
        'python',
        '-m',
        'sphinx',
        '-W',
        '--keep-going',
        '-q',
        '-b',
        'html',
        str(CHECKOUT / 'docs'),
        str(site),
        *arguments,
    ]
    failed = subprocess.run(command, cwd=CHECKOUT, env=environment.variables()).returncode
    if not failed:
        say(f'documentation: {site}/index.html')
    return failed


def test(environment: Environment, arguments: list[str]) -> int:
    """Run the selected tests, or everything that CI runs."""
    if arguments and arguments[0] in ('gpu', 'soak'):
        return pytest(environment, '-m', *arguments)
    if arguments:
        return pytest(environment, *arguments)
    failed = run_together(environment, lint_commands(environment), lambda: docs(environment, []))
    # One file, one process: its tests share nodes.
    parallel = ('-n', workers(), '--dist', 'loadfile', '--no-loadscope-reorder')
    soak = 'test/ros/test_soak.py'  # Alone: it counts what its processes hold.
    failed = pytest(environment, *parallel, f'--ignore={soak}', coverage=True) or failed
    return pytest(environment, soak) or failed


def mutate(environment: Environment, arguments: list[str]) -> int:
    """Run mutate.py in an environment of its own, installed at the first use."""
    folder, requirements = environment.folder / 'mutate', REQUIREMENTS / 'mutate.txt'
    python, done = folder / 'bin/python', folder / 'installed'
    if not done.exists() or done.read_text() != requirements.read_text():
        say('installing cosmic-ray')
        run(
            [str(environment.python), '-I', '-m', 'venv', '--clear', str(folder)],
            environment,
            'venv',
        )
        run(
            [
                str(python),
                '-I',
                '-m',
                'pip',
                'install',
                '--disable-pip-version-check',
                '--requirement',
                str(requirements),
            ],
            environment,
            'pip',
        )
        write(done, requirements.read_text())
    return become(
        environment,
        str(python),
        '-I',
        str(CHECKOUT / 'standalone/mutate.py'),
        *arguments,
        PYTEST_DISABLE_PLUGIN_AUTOLOAD='1',
        **on_this_machine(),
    )


VERBS: dict[str, Callable[[Environment, list[str]], int]] = {
    'demo': demo,
    'test': test,
    'check': check,
    'docs': docs,
    'mutate': mutate,
    'run': run_cli,
    'shell': shell,
}

if __name__ == '__main__':
    sys.exit(main(sys.argv[1:]))
