"""The verbs of `./dev`, which run in the environment."""

from __future__ import annotations

from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
import os
from pathlib import Path
import shutil
import subprocess
import sys

from commands import run
from environment import CHECKOUT, REQUIREMENTS, Environment, report, write
from installation import pip_install


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
    if arguments[:1] == ['robot']:
        install_more(environment, 'robot')
    path = f'{CHECKOUT / "tools"}:{environment.variables()["PYTHONPATH"]}'
    return become(
        environment, 'python', '-m', 'demo', *arguments, PYTHONPATH=path, **on_this_machine()
    )


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
        report('types are not checked: they depend on the versions of the sourced ROS')
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


NO_TESTS = 5  # Exit code of pytest.
#: Folders of all tests that need a GPU; reading the others takes each process 10 s.
GPU_TESTS = ('test/gpu', 'test/ros', 'test/unit/cuda', 'test/unit/engine/builder')
GPU_TESTS_ALONE = ('test/gpu', 'test/ros')


def processors() -> str:
    """Return the number of processes for tests that seldom wait."""
    return str(min(len(os.sched_getaffinity(0)), 8))


def workers(most: int = 8) -> str:
    """Return the number of processes for all tests: those with nodes mostly wait."""
    return str(min(2 * len(os.sched_getaffinity(0)), most))


def pytest(
    environment: Environment, *arguments: str, coverage: bool = False, packages: Path | None = None
) -> int:
    """
    Run pytest.

    :param coverage: measure it, also in child processes, and report it at the end.
    :param packages: folder of packages that take the place of the environment's.
    """
    # Plug-ins of a sourced ROS need its older pytest.
    variables = (
        environment.variables() | on_this_machine() | {'PYTEST_DISABLE_PLUGIN_AUTOLOAD': '1'}
    )
    variables.setdefault('OPENBLAS_NUM_THREADS', '1')  # Not one per core in each process.
    if packages:
        paths = (str(packages), variables.get('PYTHONPATH'))
        variables['PYTHONPATH'] = os.pathsep.join(filter(None, paths))
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
    fast = (
        '-m',
        'not (ros or gpu or slow or soak or nightly)',
        '-q',
        '-n',
        processors(),
        '--dist',
        'loadfile',
    )
    return run_together(
        environment, lint_commands(environment), lambda: pytest(environment, *fast, *arguments)
    )


def docs_command(builder: str, *arguments: str) -> list[str]:
    """Return the command that builds the documentation; warnings are errors."""
    options = ['-W', '--keep-going', '-q', '-b', builder]
    folder = CHECKOUT / 'build' / ('docs' if builder == 'html' else f'docs_{builder}')
    return ['python', '-m', 'sphinx', *options, str(CHECKOUT / 'docs'), str(folder), *arguments]


def docs(environment: Environment, arguments: list[str]) -> int:
    """Build the documentation site."""
    command = docs_command('html', *arguments)
    failed = subprocess.run(command, cwd=CHECKOUT, env=environment.variables()).returncode
    if not failed:
        report(f'documentation: {CHECKOUT / "build/docs"}/index.html')
    return failed


def test(environment: Environment, arguments: list[str]) -> int:
    """Run the selected tests, everything that CI runs, or `all`."""
    if arguments and arguments[0] == 'gpu':
        # More than 12 processes wait for each other on one GPU.
        beside = ('-m', 'gpu and not alone', '-n', workers(12), '--dist', 'loadgroup')
        alone = ('-m', 'gpu and alone')
        selected = arguments[1:]
        codes = [
            pytest(environment, *beside, *(selected or GPU_TESTS)),
            pytest(environment, *alone, *(selected or GPU_TESTS_ALONE)),
        ]
        return min(codes) if NO_TESTS in codes else max(codes)
    if arguments and arguments[0] in ('cpp', 'soak'):
        return pytest(environment, '-m', *arguments)
    everything = ('-m', 'not (gpu or soak)')
    if arguments and arguments != ['all']:
        return pytest(environment, *everything, *arguments)
    if arguments:
        install_more(environment, 'all')
    install_more(environment, 'robot')
    # One file, one process: its tests share nodes.
    parallel = ('-n', workers(), '--dist', 'loadfile', '--no-loadscope-reorder')
    marks = everything if arguments else ()
    failed = run_together(
        environment,
        # `dummy` reads the pages and resolves their links; writing HTML takes as long again.
        [*lint_commands(environment), docs_command('html' if arguments else 'dummy')],
        # Measuring lines makes Python slower by two fifths.
        lambda: pytest(environment, *marks, *parallel, coverage=bool(arguments)),
    )
    return test_with_numpy_1(environment) or failed


def install_more(environment: Environment, name: str) -> None:
    """Install the packages of a requirement file into the environment, at its first use."""
    requirements, done = REQUIREMENTS / f'{name}.txt', environment.notes / name
    if not done.exists() or done.read_text() != requirements.read_text():
        report(f'installing the packages of {requirements.name}')
        pip_install(environment, '--requirement', str(requirements))
        write(done, requirements.read_text())


def test_with_numpy_1(environment: Environment) -> int:
    """Test the arithmetic with the NumPy of Ubuntu 24.04, whose integer types overflow earlier."""
    if environment.distro or sys.version_info >= (3, 13):
        return 0  # The sourced ROS has its own; no wheels.
    folder = environment.folder / 'numpy_1'
    if not folder.exists():
        report('installing NumPy 1.26')
        pip = [str(environment.python), '-I', '-m', 'pip', 'install']
        options = ['--disable-pip-version-check', '--no-deps', '--target', str(folder)]
        run([*pip, *options, 'numpy==1.26.4'], environment, 'pip')
    names = ('drawing', 'results', 'tracking/test_appearance.py', 'vision')
    tests = (f'test/unit/{name}' for name in (*names, 'tracking/test_camera_motion.py'))
    fast = ('-m', 'not (gpu or slow or nightly)', '-q', '-n', processors())
    return pytest(environment, *fast, *tests, packages=folder)


def mutate(environment: Environment, arguments: list[str]) -> int:
    """Run tools/mutate.py in an environment of its own, installed at the first use."""
    folder, requirements = environment.folder / 'mutate', REQUIREMENTS / 'mutate.txt'
    python, done = folder / 'bin/python', folder / 'installed'
    if not done.exists() or done.read_text() != requirements.read_text():
        report('installing cosmic-ray')
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
        str(CHECKOUT / 'tools/mutate.py'),
        *arguments,
        PYTEST_DISABLE_PLUGIN_AUTOLOAD='1',
        PYTHONDONTWRITEBYTECODE='1',  # Of mutations of one second and size.
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
