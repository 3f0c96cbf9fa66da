"""Errors of `./dev` when it cannot set up, and its continuation after an interruption."""

import fcntl
from importlib import import_module
import os
from pathlib import Path
import shutil
import subprocess
import sys
from types import SimpleNamespace

import pytest

from support.waiting import DEADLINE_SECONDS

CHECKOUT = Path(__file__).parent.parent.parent
PYTHON = getattr(sys, '_base_executable', sys.executable)


MODULES = (
    'environment',
    'commands',
    'build_tools',
    'installation',
    'registration',
    'steps',
    'verbs',
)


@pytest.fixture(scope='module')
def setup():
    """Return the modules of `./dev`, which are outside the package, by name."""
    with pytest.MonkeyPatch.context() as patch:
        patch.syspath_prepend(CHECKOUT / 'standalone')
        yield SimpleNamespace(**{name: import_module(name) for name in MODULES})
    for name in MODULES:
        del sys.modules[name]


@pytest.fixture
def environment(setup, tmp_path):
    return setup.environment.Environment(tmp_path / '.venv', PYTHON, '')


@pytest.fixture
def start(tmp_path):
    """Start a copy of ./dev that has set nothing up, with only these programs on PATH."""
    checkout = tmp_path / 'checkout'
    shutil.copytree(CHECKOUT / 'standalone', checkout / 'standalone')
    shutil.copy(CHECKOUT / 'dev', checkout)
    shutil.copy(CHECKOUT / 'setup.cfg', checkout)
    programs = tmp_path / 'programs'
    programs.mkdir()

    def run(*arguments, links=(), scripts=(), **variables):
        for name in ('bash', 'dirname', 'cat', *links):
            (programs / name).symlink_to(shutil.which(name))
        for name, text in dict(scripts).items():
            (programs / name).write_text(f'#!/bin/sh\n{text}\n')
            (programs / name).chmod(0o755)
        done = subprocess.run(
            [checkout / 'dev', *arguments],
            text=True,
            capture_output=True,
            env={'PATH': str(programs), 'HOME': str(tmp_path)} | variables,
        )
        assert 'Traceback' not in done.stderr
        return done

    run.checkout = checkout
    return run


def test_help_works_without_setup(start):
    done = start()
    assert done.returncode == 0
    assert done.stdout.startswith('usage: ./dev VERB')


def test_unknown_verb_does_not_start_setup(start):
    done = start('tset', PYTHON=PYTHON)
    assert done.returncode == 2
    assert "unknown verb 'tset'" in done.stderr
    assert not (start.checkout / '.venv').exists()


@pytest.mark.parametrize(
    ('scripts', 'variables', 'said'),
    [
        ({}, {}, ['python3 does not run', 'sudo apt install python3']),
        ({'python3': 'echo 3.8'}, {}, ['Python 3.10 to 3.13 is needed; python3 is 3.8.']),
        (
            {'python3': f'exec {PYTHON} "$@"'},
            {'PYTHON': '/no/such/python'},
            ['/no/such/python does not run'],
        ),
        ({}, {'PYTHON': PYTHON}, ['This machine lacks a C++ compiler', 'sudo apt install g++']),
    ],
    ids=['no Python', 'too old', 'another Python', 'no compiler'],
)
def test_what_a_machine_lacks_is_named(start, scripts, variables, said):
    done = start('check', scripts=scripts, **variables)
    assert done.returncode == 1
    assert all(each in done.stderr for each in said)
    assert not (start.checkout / '.venv').exists()


@pytest.mark.slow
def test_reports_packages_missing_from_sourced_ros(start, tmp_path):
    (tmp_path / 'ros').mkdir()
    (tmp_path / 'ros/rclpy.py').touch()
    done = start(
        'check',
        PYTHON=PYTHON,
        ROS_DISTRO='humble',
        AMENT_PREFIX_PATH=str(tmp_path),
        PYTHONPATH=str(tmp_path / 'ros'),
    )
    assert done.returncode == 1
    assert 'the Python module vision_msgs.msg' in done.stderr
    assert 'ros-humble-vision-msgs' in done.stderr


def test_keeps_foreign_folder(setup, environment):
    environment.folder.mkdir()
    (environment.folder / 'thesis.txt').write_text('ten years of work')
    with pytest.raises(setup.environment.SetupError, match='not a virtual environment'):
        setup.installation.clear(environment.folder)
    assert (environment.folder / 'thesis.txt').exists()


def test_reports_unwritable_folder(setup, tmp_path):
    (tmp_path / 'checkout').touch()
    with pytest.raises(
        setup.environment.SetupError, match=r'Cannot write to .*checkout'
    ) as caught:
        setup.installation.clear(tmp_path / 'checkout/.venv')
    assert 'Clone trt_ros into a folder that is yours' in str(caught.value)


def test_recreates_incomplete_environment(setup, environment):
    setup.installation.clear(environment.folder)
    (environment.folder / 'left over').touch()
    setup.installation.clear(environment.folder)
    assert not (environment.folder / 'left over').exists()


@pytest.mark.parametrize(
    'line, problem',
    [
        (
            "Retrying after connection broken by 'NewConnectionError(...)'",
            'Cannot reach the Python',
        ),
        ('[Errno -3] Temporary failure in name resolution', 'Cannot reach the Python'),
        (
            'ERROR: No matching distribution found for ros-rclpy==1.0',
            'has no ros-rclpy==1.0 for this',
        ),
        ('OSError: [Errno 28] No space left on device', 'The disk is full'),
        ('something nobody thought of', 'failed at pip. The end of its output:'),
    ],
)
def test_pip_output_becomes_error_with_remedy(setup, tmp_path, line, problem):
    error = setup.commands.explain(['Collecting x', line], tmp_path / 'pip.log', 'pip')
    assert problem in str(error)
    assert '\nRemedy: ' in str(error)


def finish(setup, environment, *steps):
    for step in steps:
        setup.environment.write(
            environment.notes / step, setup.steps.fingerprint(environment, step)
        )


def test_setup_continues_after_interruption(setup, environment):
    assert setup.steps.stale_steps(environment) == ['venv', 'packages', 'interfaces', 'package']
    finish(setup, environment, 'venv', 'packages')
    assert setup.steps.stale_steps(environment) == ['interfaces', 'package']
    finish(setup, environment, 'interfaces', 'package')
    assert setup.steps.stale_steps(environment) == []
    (environment.notes / 'unpacking').touch()  # Its packages may be there in part.
    assert setup.steps.stale_steps(environment) == ['venv', 'packages', 'interfaces', 'package']


def test_an_interface_is_built_again_when_a_definition_changes(setup, environment):
    source = setup.environment.INTERFACES / 'bond'
    assert not setup.installation.is_built(environment, source)
    installed = shutil.copytree(source, environment.folder / 'share/bond')
    assert setup.installation.is_built(environment, source)
    (installed / 'msg/Status.msg').write_text('bool active')
    assert not setup.installation.is_built(environment, source)


def test_another_release_from_pypi_has_a_folder_and_requirements_of_its_own(setup, monkeypatch):
    monkeypatch.setenv('TRT_ROS_WHEELS', 'kilted')
    kilted = setup.environment.choose_environment()
    assert kilted.folder.name == '.venv-kilted-wheels'
    assert kilted.ros_groups == ('ros_kilted', 'build')
    names = {path.name for path in setup.installation.requirement_files(kilted)}
    assert 'ros_kilted.txt' in names and 'ros.txt' not in names
    monkeypatch.setenv('TRT_ROS_WHEELS', 'foxy')
    with pytest.raises(setup.environment.SetupError, match="no wheels of ROS 2 'foxy'"):
        setup.environment.choose_environment()


def test_ros2_launch_finds_the_launch_files_of_the_checkout(setup, environment, tmp_path):
    (environment.folder / 'lib/python3.12/site-packages').mkdir(parents=True)
    share = environment.folder / 'share/trt_ros'
    share.mkdir(parents=True)
    older = tmp_path / 'launch'  # Once the folders were links.
    older.mkdir()
    (older / 'demo.launch.py').touch()
    (share / 'launch').symlink_to(older)
    setup.registration.link_package(environment)
    # As ros2launch looks: into folders, not behind links.
    found = {name for _, _, names in os.walk(share) for name in names}
    assert found > {path.name for path in (CHECKOUT / 'launch').glob('*.launch.py')}
    assert (share / 'launch/demo.launch.py').samefile(CHECKOUT / 'launch/demo.launch.py')
    assert not (older / 'demo.launch.py').is_symlink()


def test_second_setup_waits_for_the_first(setup, capfd):
    code = (
        'import sys; sys.path.insert(0, sys.argv[1]); import steps\n'
        'with steps.one_at_a_time(): print("mine")'
    )
    standalone = CHECKOUT / 'standalone'
    folder = os.open(standalone, os.O_RDONLY)
    try:
        fcntl.flock(folder, fcntl.LOCK_EX)
        second = subprocess.Popen(
            [sys.executable, '-c', code, standalone],
            text=True,
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
        )
        assert 'another ./dev is setting up' in second.stderr.readline()
        assert second.poll() is None
    finally:
        os.close(folder)
    assert second.communicate(timeout=DEADLINE_SECONDS)[0] == 'mine\n'
    assert second.returncode == 0


def test_every_requirement_is_pinned_and_has_a_reason():
    for path in (CHECKOUT / 'standalone/requirements').glob('*.txt'):
        for line in path.read_text().splitlines():
            if line.startswith('#'):
                continue
            requirement, _, why = line.partition('#')
            assert requirement.count('==') == 1, f'{path.name}: {line} is not pinned'
            is_list = path.name.startswith(('ros', 'constraints'))
            assert why or is_list, f'{line} does not say why'


@pytest.mark.parametrize('mark, constant', [('gpu', 'GPU_TESTS'), ('alone', 'GPU_TESTS_ALONE')])
def test_the_gpu_suite_reads_all_tests_that_need_a_gpu(setup, mark, constant):
    mark = f'pytest.mark.{mark}'
    needing = {path for path in CHECKOUT.glob('test/**/*.py') if mark in path.read_text()}
    folders = getattr(setup.verbs, constant)
    assert needing
    assert needing <= {path for folder in folders for path in CHECKOUT.glob(f'{folder}/**/*.py')}
