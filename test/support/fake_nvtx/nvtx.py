"""A stand-in for the package nvtx with a profiler: writes ranges to the file $NVTX_LOG."""

from contextlib import contextmanager
import os
from pathlib import Path
import threading


def get_domain(name):
    return Domain()


def read_ranges(path=None):
    """Return {thread: [(depth, name), ..]} in the order in which the ranges began."""
    found, depths = {}, {}
    path = Path(path or os.environ['NVTX_LOG'])
    for line in path.read_text().splitlines() if path.exists() else []:
        thread, sign, name = line.split(' ', 2)
        depth = depths.setdefault(thread, 0)
        assert depth or sign == '+', 'a range ended that had not begun'
        if sign == '+':
            found.setdefault(thread, []).append((depth, name))
        depths[thread] = depth + (1 if sign == '+' else -1)
    assert not any(depths.values()), 'a range did not end'
    return found


class Domain:
    pass


@contextmanager
def annotate(message, domain):
    _write(f'+ {domain}: {message}')
    try:
        yield
    finally:
        _write('- ')


def _write(text):
    with Path(os.environ['NVTX_LOG']).open('a') as file:
        file.write(f'{threading.get_ident()} {text}\n')
