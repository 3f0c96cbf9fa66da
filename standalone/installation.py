"""The virtual environment, its packages and message packages."""

from __future__ import annotations

from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
import re
import shutil
import subprocess

from build_tools import check_tools, fetch_headers
from commands import run
from environment import INTERFACES, REQUIREMENTS, Base, Environment, SetupError, report, write

OWNED_BY_ROS = ('numpy', 'opencv-python-headless', 'PyYAML', 'scipy')  # Wheels would shadow them.


def make_venv(environment: Environment) -> None:
    """Create the virtual environment, with header files of Python if they are missing."""
    base = Base.of(environment.base)
    check_tools(environment, base)
    report(f'making a virtual environment with Python {base.version} ({base.executable})')
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
        # First, so that an interrupted environment is recognized as ours.
        write(folder / 'pyvenv.cfg', '')
        write(folder / 'COLCON_IGNORE', '')
    except OSError as error:
        raise SetupError(
            f'Cannot write to {folder}.',
            cause=error.strerror or str(error),
            remedy='Clone trt_ros into a folder that is yours and has 2 GB free.',
        ) from error


def install_packages(environment: Environment) -> None:
    """Install the requirement files with pip, except packages of the sourced ROS."""
    ros = environment.ros_groups[:1]
    names = [name for name in environment.groups if name not in ros]
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
        report('installing ROS 2 from PyPI')
        # Separately, without dependencies: it is complete, and would pull in lark-parser.
        pip_install(environment, '--no-deps', '--requirement', str(REQUIREMENTS / f'{ros[0]}.txt'))
        correct_include_folders(environment)
    report('installing the other packages of trt_ros and its tests')
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
                report(f'  {count} packages found')
        elif line.startswith('Installing collected packages'):
            report('  unpacking')
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


def is_built(environment: Environment, source: Path) -> bool:
    """Return whether a message package is installed as it is here."""
    share = environment.folder / 'share' / source.name
    built = [share / path.relative_to(source) for path in source.glob('*/*.???')]
    return all(
        there.is_file() and there.read_bytes() == (source / there.relative_to(share)).read_bytes()
        for there in [*built, share / 'package.xml']
    )


def build_interfaces(environment: Environment) -> None:
    """Build the message packages that PyPI lacks."""
    packages = sorted(
        path.parent
        for path in INTERFACES.glob('*/package.xml')
        if not is_built(environment, path.parent)
    )
    if not packages:
        return
    report(f'building {", ".join(path.name for path in packages)}')
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
        report(f'  {source.name} built')

    # CMake configures on a single core; the other packages compile meanwhile.
    with ThreadPoolExecutor(len(packages)) as pool:
        list(pool.map(build_one, packages))
    shutil.rmtree(build, ignore_errors=True)
