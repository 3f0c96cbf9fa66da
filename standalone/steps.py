"""The steps of the set-up, and which of them must run again."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import contextmanager
import fcntl
import hashlib
import os
from pathlib import Path
import time

from environment import INTERFACES, REQUIREMENTS, Environment, report, write
from installation import build_interfaces, install_packages, make_venv, requirement_files
from registration import entry_points, link_package, links

RECIPE = '1'  # Increase it when environments made by older versions must be rebuilt.
STEPS: dict[str, Callable[[Environment], None]] = {
    'venv': make_venv,
    'packages': install_packages,
    'interfaces': build_interfaces,
    'package': link_package,
}


def set_up(environment: Environment) -> None:
    """Run the steps whose fingerprint changed; concurrent calls wait for each other."""
    if not stale_steps(environment):
        return
    with one_at_a_time():
        steps = stale_steps(environment)
        if 'venv' in steps:
            report(f'setting up in {environment.folder}, once: one to three minutes, up to 1.5 GB')
        began = time.monotonic()
        for name in steps:
            STEPS[name](environment)
            write(environment.notes / name, fingerprint(environment, name))
        if steps and steps != ['package']:
            report(f'ready after {time.monotonic() - began:.0f} s')


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
        parts += [(REQUIREMENTS / f'{group}.txt').read_text() for group in environment.ros_groups]
        parts += [
            (path.name, path.read_text())
            for path in sorted(INTERFACES.glob('**/*'))
            if path.is_file()
        ]
    elif step == 'package':
        parts += [entry_points(), links(), Path(__file__).with_name('registration.py').read_text()]
    return hashlib.sha256(repr(parts).encode()).hexdigest()


@contextmanager
def one_at_a_time() -> Iterator[None]:
    """Lock this file's folder, which is outside the environment."""
    folder = os.open(Path(__file__).parent, os.O_RDONLY)
    try:
        try:
            fcntl.flock(folder, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            report('another ./dev is setting up; waiting for it')
            fcntl.flock(folder, fcntl.LOCK_EX)
        yield
    finally:
        os.close(folder)
